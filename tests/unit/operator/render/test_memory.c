/* SPDX-License-Identifier: Apache-2.0 */
/* render() with every allocation failing in turn, cJSON's too: -ENOMEM, and nothing is lost. */
#include "tests/support/test.h"

#include "load.h"

#include "tests/support/failalloc.h"

static void *json_malloc(size_t size)
{
	return malloc(size);
}

static void each_allocation_may_fail(const char *file, long step)
{
	cJSON_Hooks hooks = {json_malloc, free};
	cJSON *object;
	struct cluster_config *config;
	long n = 0;
	int e = -1;

	cJSON_InitHooks(&hooks);
	object = load_json(file);
	config = load_config(object);
	for (; e != 0; n += step) {
		const struct render_input in = {
		    .config = config, .ns = "n", .image = "i", .max_hz = 20};
		struct rendered *r = NULL;
		struct error err = {0};
		bool failed;

		failalloc_at(n);
		e = render(&in, &r, &err);
		failed = failalloc_stop();
		if (e == 0) {
			assert_false(failed);
			rendered_free(r);
			break;
		}
		assert_true(failed);
		assert_null(r);
		assert_int_equal(e, -ENOMEM);
	}
	assert_true(n > 100);
	cluster_config_free(config);
	cJSON_Delete(object);
	cJSON_InitHooks(NULL);
}

static void minimal(void **state)
{
	each_allocation_may_fail(RENDER_DATA "minimal.json", 1);
}

static void full(void **state)
{
	each_allocation_may_fail(RENDER_DATA "full.json", 61);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(minimal), cmocka_unit_test(full)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
