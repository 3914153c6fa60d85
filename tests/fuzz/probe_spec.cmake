fuzz_test(probe_spec SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_probe_spec.c DEPS kiln_probe_spec
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/probe_spec)
