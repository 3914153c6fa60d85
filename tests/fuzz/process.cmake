fuzz_test(maps SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_maps.c DEPS kiln_process
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/maps)
fuzz_test(cgroup SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_cgroup.c DEPS kiln_process
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/cgroup)
