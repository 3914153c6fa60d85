fuzz_test(labels SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_labels.c DEPS kiln_labels
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/labels)
fuzz_test(label_context SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_label_context.c DEPS kiln_labels
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/label_context)
fuzz_test(label_files SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_label_files.c DEPS kiln_labels
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/elf)
