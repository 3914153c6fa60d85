foreach(name IN ITEMS elf_symbols perf_map kallsyms demangle)
  fuzz_test(${name}
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_${name}.c
    DEPS kiln_symbol
    CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/${name})
endforeach()
