fuzz_test(hotspot SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_hotspot.c DEPS kiln_test_hotspot
          CORPUS ${CMAKE_SOURCE_DIR}/tests/data/hotspot)
fuzz_test(hotspot_code SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_hotspot_code.c DEPS kiln_runtime_hotspot
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/hotspot_code)
fuzz_test(hotspot_tables SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_hotspot_tables.c DEPS kiln_test_hotspot
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/hotspot_tables)
