# Builds for arm64 on another machine, with Debian's cross compiler and its arm64 libraries in a folder of their own:
# hack/arm64 makes the folder and sets KILN_ARM64_ROOT. Programs that the build itself runs come from the
# building machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(root $ENV{KILN_ARM64_ROOT})
if(NOT IS_DIRECTORY "${root}/usr/include")
  message(FATAL_ERROR "KILN_ARM64_ROOT=${root} has no libraries; build with hack/arm64")
endif()
set(CMAKE_SYSROOT ${root})
set(CMAKE_FIND_ROOT_PATH ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/aarch64-linux-gnu/pkgconfig:${root}/usr/share/pkgconfig)
# Tests run under the emulator.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${root})
