unit_test(op_intern SOURCES test_intern.c DEPS kiln_op_cache)
unit_test(op_pod_store_model SOURCES test_pod_store_model.c DEPS kiln_op_cache)
unit_test(op_identity SOURCES test_identity.c DEPS kiln_op_cache)
