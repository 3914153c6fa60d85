# Every library that Kiln depends on, each as an imported target PkgConfig::NAME.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
foreach(dep IN ITEMS libbpf libelf zlib libdeflate libzstd liblzma libprotobuf-c libcurl libnghttp2 libcjson
                     libwebsockets libuv yaml-0.1 openssl)
  string(TOUPPER ${dep} id)
  string(REGEX REPLACE "[^A-Z0-9]" "_" id ${id})
  pkg_check_modules(${id} REQUIRED IMPORTED_TARGET ${dep})
endforeach()
# Zydis, a disassembler for x86-64 only, comes with a cmake package instead.
if(KILN_ARCH STREQUAL "x86_64")
  find_package(zydis REQUIRED)
endif()
if(KILN_JEMALLOC)
  pkg_check_modules(JEMALLOC REQUIRED IMPORTED_TARGET jemalloc)
endif()
if(KILN_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()
