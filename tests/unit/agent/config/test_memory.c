/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fails the nth allocation of a loading, for every n: -ENOMEM with a message, nothing half-made, no
 * leak (the ASan build sees it). The linker's --wrap catches the calls of our own objects.
 */
#include <malloc.h>

#include "tests/unit/agent/config/load.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *s);

static unsigned long countdown; /* 0: nothing fails */

static bool fails(void)
{
	return countdown && --countdown == 0;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

static unsigned long load_until_it_works(const char *const *args, const char *const *env)
{
	for (unsigned long n = 1; n < 100000; n++) {
		struct load l;

		countdown = n;
		load_run(&l, args, env);
		if (countdown) { /* ended before the nth */
			countdown = 0;
			assert_int_equal(l.r, 0);
			load_done(&l);
			return n;
		}
		if (l.r != -ENOMEM)
			fail_msg("allocation %lu: %d %s", n, l.r, l.err.message);
		assert_int_equal(l.err.code, -ENOMEM);
		load_done(&l);
	}
	return 0;
}

static void test_every_failed_allocation_is_reported(void **state)
{
	static const char *const files[] = {"text.yaml", "kubernetes.yaml", "otlp.yaml"};
	static const char *const env[] = {"TOKEN=x",
					  "OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4317",
					  "OTEL_EXPORTER_OTLP_HEADERS=a=b,c=d",
					  "OTEL_EXPORTER_OTLP_CERTIFICATE=/ca",
					  "OTEL_RESOURCE_ATTRIBUTES=a=b,service.name=c",
					  "NODE_NAME=n",
					  NULL};

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char path[512];
		const char *args[] = {"--config", path,	    "--pid",	   "1,2",
				      "--tags",	  "a=b",    "-stdout",	   "--pprof-file",
				      "p",	  "--live", "127.0.0.1:1", NULL};

		snprintf(path, sizeof(path), "%s/config/%s", TEST_DATA, files[i]);
		assert_true(load_until_it_works(args, env) > 40);
	}
	assert_true(load_until_it_works(NULL, NULL) > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_failed_allocation_is_reported),
	};

	return cmocka_run_group_tests(tests, load_setup, load_teardown);
}
