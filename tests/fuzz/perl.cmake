fuzz_test(perl
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_perl.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/perl/recording.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/recorded_memory.c
  DEPS kiln_runtime_perl
  CORPUS ${CMAKE_SOURCE_DIR}/tests/data/perl)
fuzz_test(perl_probe
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_perl_probe.c
  DEPS kiln_runtime_perl
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/perl_probe)
