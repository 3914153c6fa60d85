fuzz_test(op_config SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_op_config.c DEPS kiln_op_policy
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/op_config)
