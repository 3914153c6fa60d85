fuzz_test(ruby
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_ruby.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/ruby/recording.c
          ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/recorded_memory.c
  DEPS kiln_runtime_ruby
  CORPUS ${CMAKE_SOURCE_DIR}/tests/data/ruby)
fuzz_test(ruby_probe
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_ruby_probe.c
  DEPS kiln_runtime_ruby
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/ruby_probe)
