fuzz_test(otlp_answer SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_otlp_answer.c DEPS kiln_sender
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/otlp_answer)
