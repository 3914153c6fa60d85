fuzz_test(door_frames SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_door_frames.c DEPS kiln_op_door
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/door_frames)
