fuzz_test(python
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_python.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/python/recording.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/recorded_memory.c
  DEPS kiln_runtime_python
  CORPUS ${CMAKE_SOURCE_DIR}/tests/data/python)
fuzz_test(python_probe
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_python_probe.c
  DEPS kiln_runtime_python
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/python_probe)
