/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/labels/allow.h"
#include "tests/support/test.h"

static const char *const keys[] = {"tenant", "http.route"};

static void no_list_permits_nothing(void **state)
{
	assert_false(label_allow_permits(NULL, "tenant"));
}

static void a_list_permits_its_keys_and_no_other(void **state)
{
	struct label_allow *a = label_allow_new(keys, ARRAY_SIZE(keys));

	assert_non_null(a);
	assert_true(label_allow_permits(a, "tenant"));
	assert_true(label_allow_permits(a, "http.route"));
	assert_false(label_allow_permits(a, "tenan"));
	assert_false(label_allow_permits(a, "tenants"));
	assert_false(label_allow_permits(a, ""));
	label_allow_free(a);
}

static void a_star_permits_all(void **state)
{
	struct label_allow *a = label_allow_new((const char *const[]){"*"}, 1);

	assert_non_null(a);
	assert_true(label_allow_permits(a, "anything"));
	label_allow_free(a);
}

static void lists_are_told_apart(void **state)
{
	struct label_allow *a = label_allow_new(keys, 2), *b = label_allow_new(keys, 2);

	assert_non_null(a);
	assert_non_null(b);
	assert_int_not_equal(a->number, b->number);
	label_allow_free(a);
	label_allow_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_list_permits_nothing),
	    cmocka_unit_test(a_list_permits_its_keys_and_no_other),
	    cmocka_unit_test(a_star_permits_all),
	    cmocka_unit_test(lists_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
