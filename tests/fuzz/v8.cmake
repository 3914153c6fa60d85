fuzz_test(v8 SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_v8.c DEPS kiln_runtime_v8
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/v8)
