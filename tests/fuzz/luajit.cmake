if(KILN_ARCH STREQUAL "x86_64")
  fuzz_test(luajit SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_luajit.c DEPS kiln_test_luajit
            CORPUS ${CMAKE_SOURCE_DIR}/tests/unit/agent/runtime/luajit/data)
  fuzz_test(luajit_probe SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_luajit_probe.c DEPS kiln_runtime_luajit
            CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/luajit_probe)
endif()
