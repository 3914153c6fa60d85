fuzz_test(node_update SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_node_update.c DEPS kiln_meta
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/node_update)
fuzz_test(node_snapshot SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_node_snapshot.c DEPS kiln_meta
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/node_snapshot)
