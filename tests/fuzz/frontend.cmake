fuzz_test(frontend_frames SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_frontend_frames.c DEPS kiln_op_frontend
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/frontend_frames)
