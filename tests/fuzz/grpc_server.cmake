fuzz_test(grpc_server SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_grpc_server.c DEPS kiln_grpc_server
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/grpc_server)
