fuzz_test(php
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_php.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/php/recording.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/recorded_memory.c
  DEPS kiln_runtime_php
  CORPUS ${CMAKE_SOURCE_DIR}/tests/data/php)
fuzz_test(php_probe
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_php_probe.c
  DEPS kiln_runtime_php
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/php_probe)
