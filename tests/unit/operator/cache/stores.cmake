unit_test(op_intern SOURCES test_intern.c DEPS kiln_op_cache)
