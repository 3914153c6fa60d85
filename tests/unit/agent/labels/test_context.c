/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/labels/context.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <unistd.h>

/* ProcessContext with both attributes; the schema's name and the first key are filled in. */
static size_t make(uint8_t *to, const char *schema, const char *key)
{
	uint8_t n = (uint8_t)strlen(schema), k = (uint8_t)strlen(key), *at = to;

	*at++ = 0x0a; /* resource: empty */
	*at++ = 0;
	*at++ = 0x12;
	*at++ = (uint8_t)(28 + 4 + n);
	memcpy(at, "\x0a\x1athreadlocal.schema_version", 28);
	at += 28;
	*at++ = 0x12;
	*at++ = (uint8_t)(2 + n);
	*at++ = 0x0a;
	*at++ = n;
	memcpy(at, schema, n);
	at += n;
	*at++ = 0x12;
	*at++ = (uint8_t)(31 + 4 + 4 + k + 4);
	memcpy(at, "\x0a\x1dthreadlocal.attribute_key_map", 31);
	at += 31;
	*at++ = 0x12;
	*at++ = (uint8_t)(2 + 4 + k + 4);
	*at++ = 0x2a;
	*at++ = (uint8_t)(4 + k + 4);
	*at++ = 0x0a;
	*at++ = (uint8_t)(2 + k);
	*at++ = 0x0a;
	*at++ = k;
	memcpy(at, key, k);
	at += k;
	memcpy(at, "\x0a\x02\x18\x05", 4); /* a number: keeps its place */
	return (size_t)(at + 4 - to);
}

static void keys_are_in_their_order(void **state)
{
	struct label_context c;
	uint8_t bytes[256];
	size_t n = make(bytes, "tlsdesc_v1_dev", "tenant");

	assert_int_equal(label_context_parse(bytes, n, &c), 0);
	assert_int_equal(c.n, 2);
	assert_string_equal(c.keys[0], "tenant");
	assert_string_equal(c.keys[1], "");
	label_context_done(&c);
	n = make(bytes, "tls_v1", "other");
	assert_int_equal(label_context_parse(bytes, n, &c), 0);
	assert_string_equal(c.keys[0], "other");
	label_context_done(&c);
}

static void another_schema_has_no_keys(void **state)
{
	struct label_context c;
	uint8_t bytes[256];
	size_t n = make(bytes, "go_pprof_labels_v1", "tenant");

	assert_int_equal(label_context_parse(bytes, n, &c), 0);
	assert_int_equal(c.n, 0);
	label_context_done(&c);
}

static void a_message_that_is_cut_is_refused(void **state)
{
	struct label_context c;
	uint8_t bytes[256];
	size_t n = make(bytes, "tls_v1", "tenant"), bad = 0;

	for (size_t i = 0; i < n; i++) {
		bad += label_context_parse(bytes, i, &c) == -EBADMSG;
		label_context_done(&c);
	}
	/* All but the ends of whole attributes. */
	assert_int_equal(bad, n - 3);
}

static void a_process_without_a_context_has_none(void **state)
{
	struct target_memory memory = {0};
	struct label_context c;
	int proc = open("/proc", O_RDONLY | O_DIRECTORY);

	assert_int_equal(label_context_read(proc, (uint32_t)getpid(), &memory, &c), -ENOENT);
	assert_int_equal(label_context_read(proc, INT32_MAX, &memory, &c), -ESRCH);
	close(proc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(keys_are_in_their_order),
	    cmocka_unit_test(another_schema_has_no_keys),
	    cmocka_unit_test(a_message_that_is_cut_is_refused),
	    cmocka_unit_test(a_process_without_a_context_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
