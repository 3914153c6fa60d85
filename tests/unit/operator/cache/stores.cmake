unit_test(op_intern SOURCES test_intern.c DEPS kiln_op_cache)
unit_test(op_pod_store_model SOURCES test_pod_store_model.c DEPS kiln_op_cache)
unit_test(op_identity SOURCES test_identity.c DEPS kiln_op_cache)
foreach(name IN ITEMS pod_store pod_store_limits)
  unit_test(op_${name} SOURCES test_${name}.c pod_store_rig.c DEPS kiln_op_cache)
endforeach()
foreach(name IN ITEMS meta_store json_store service_index)
  unit_test(op_${name} SOURCES test_${name}.c DEPS kiln_op_cache)
endforeach()
unit_test(op_stores_memory
  SOURCES test_stores_memory.c ${CMAKE_SOURCE_DIR}/tests/support/failalloc.c
  DEPS kiln_op_cache)
target_link_options(test_op_stores_memory PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
