# bpf_object(NAME source.bpf.c): compiles to BPF, strips DWARF (keeps BTF), and
# generates NAME.skel.h. Link kiln_bpf_NAME to include it.
# walker_object(NAME source.bpf.c): compiles a runtime's walker (bpf/walker.h) and makes its bytes
# the `const struct walker_object NAME_walker` (agent/sampler/walkers.h). Link kiln_walker_NAME.
#
# With the tests of the dev preset, both also compile for the other architecture (target
# bpf_other_arch), so that a change on one architecture does not break the other.
find_program(KILN_CLANG NAMES clang clang-14 clang-16 clang-19 REQUIRED)
find_program(KILN_LLVM_STRIP NAMES llvm-strip llvm-strip-14 REQUIRED)
find_program(KILN_BPFTOOL NAMES bpftool PATHS /usr/sbin REQUIRED)

# The architectures, by their names in the macro __TARGET_ARCH_* of libbpf.
if(KILN_ARCH STREQUAL "arm64")
  set(KILN_BPF_ARCH arm64)
  set(KILN_BPF_OTHER_ARCH x86)
else()
  set(KILN_BPF_ARCH x86)
  set(KILN_BPF_OTHER_ARCH arm64)
endif()
add_custom_target(bpf_other_arch ALL)

function(bpf_compile obj source arch)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-multiarch OUTPUT_VARIABLE multiarch
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  add_custom_command(
    OUTPUT ${obj}
    COMMAND ${KILN_CLANG} -target bpf -O2 -g -mcpu=v3 -std=gnu17 -Wall -Wextra -Werror
            -Wno-unused-parameter -D__TARGET_ARCH_${arch}
            -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/bpf
            -idirafter ${CMAKE_SYSROOT}/usr/include/${multiarch}
            -MD -MF ${obj}.d -MT ${obj}
            -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${obj}
    COMMAND ${KILN_LLVM_STRIP} -g ${obj}
    DEPENDS ${source}
    DEPFILE ${obj}.d
    COMMENT "BPF ${source} for ${arch}" VERBATIM)
endfunction()

function(bpf_compile_other name source)
  if(NOT KILN_TESTS OR KILN_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(obj ${CMAKE_CURRENT_BINARY_DIR}/${name}.${KILN_BPF_OTHER_ARCH}.bpf.o)
  bpf_compile(${obj} ${source} ${KILN_BPF_OTHER_ARCH})
  add_custom_target(bpf_other_arch_${name} DEPENDS ${obj})
  add_dependencies(bpf_other_arch bpf_other_arch_${name})
endfunction()

function(bpf_object name source)
  set(obj ${CMAKE_CURRENT_BINARY_DIR}/${name}.bpf.o)
  set(skel ${CMAKE_CURRENT_BINARY_DIR}/${name}.skel.h)
  bpf_compile(${obj} ${source} ${KILN_BPF_ARCH})
  bpf_compile_other(${name} ${source})
  add_custom_command(
    OUTPUT ${skel}
    COMMAND ${KILN_BPFTOOL} gen skeleton ${obj} name ${name} > ${skel}
    DEPENDS ${obj}
    COMMENT "Skeleton ${name}.skel.h")
  add_custom_target(kiln_bpf_${name}_skel DEPENDS ${skel})
  add_library(kiln_bpf_${name} INTERFACE)
  add_dependencies(kiln_bpf_${name} kiln_bpf_${name}_skel)
  target_include_directories(kiln_bpf_${name} INTERFACE ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(kiln_bpf_${name} INTERFACE kiln_bpf PkgConfig::LIBBPF)
endfunction()

function(walker_object name source)
  set(obj ${CMAKE_CURRENT_BINARY_DIR}/${name}_walker.bpf.o)
  set(embed ${CMAKE_CURRENT_BINARY_DIR}/${name}_walker.c)
  bpf_compile(${obj} ${source} ${KILN_BPF_ARCH})
  bpf_compile_other(${name}_walker ${source})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/walker.c.in ${embed} @ONLY)
  set_source_files_properties(${embed} PROPERTIES OBJECT_DEPENDS ${obj})
  add_library(kiln_walker_${name} STATIC ${embed})
  target_link_libraries(kiln_walker_${name} PUBLIC kiln_sampler)
endfunction()
