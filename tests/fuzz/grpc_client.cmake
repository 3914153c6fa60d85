fuzz_test(grpc_client SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_grpc_client.c DEPS kiln_grpc
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/grpc_client)
