fuzz_test(beam
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_beam.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/recorded_memory.c
  DEPS kiln_runtime_beam
  CORPUS ${CMAKE_SOURCE_DIR}/tests/data/beam)
