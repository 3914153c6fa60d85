foreach(name IN ITEMS elf eh_frame gopclntab code_frames)
  fuzz_test(${name} SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_${name}.c DEPS kiln_elf
            CORPUS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
endforeach()
