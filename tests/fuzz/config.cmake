fuzz_test(config SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_config.c DEPS kiln_config
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/config)
