fuzz_test(live_access SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_live_access.c DEPS kiln_live
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/live_access)
fuzz_test(live_http SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_live_http.c DEPS kiln_live
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/live_http)
