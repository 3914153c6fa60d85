/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/labels/sets.h"
#include "lib/metrics.h"
#include "tests/support/test.h"

enum { SECOND = 1000000000 };

struct fixture {
	struct label_sets *sets;
	struct label_allow *tenant, *all;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct target_source source = {.proc_dirfd = -1};

	assert_non_null(f);
	assert_int_equal(label_sets_new(&source, &f->sets), 0);
	f->tenant = label_allow_new((const char *const[]){"tenant"}, 1);
	f->all = label_allow_new((const char *const[]){"*"}, 1);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	label_sets_free(f->sets);
	label_allow_free(f->tenant);
	label_allow_free(f->all);
	free(f);
	return 0;
}

/* A set with the pairs in TEXT: "tenant" and "secret", of one character each; TRACE: a trace. */
static void take(struct fixture *f, uint64_t id, char tenant, char secret, bool trace, uint64_t now)
{
	struct {
		struct kiln_labels head;
		uint8_t bytes[64];
	} r = {.head = {.id = id, .mapset = 7, .tgid = 1}};

	memcpy(r.bytes, "\x06\x01tenant?\x06\x01secret?", 18);
	r.bytes[8] = (uint8_t)tenant;
	r.bytes[17] = (uint8_t)secret;
	r.head.n_pairs = 18;
	if (trace)
		r.head.trace_id[0] = r.head.span_id[0] = 1;
	label_sets_take(f->sets, &r.head, sizeof(r.head) + 18, now);
}

static void only_what_is_allowed_passes(void **state)
{
	struct fixture *f = *state;
	struct label_set *s;

	take(f, 1, 'A', 'x', true, 0);
	s = label_sets_find(f->sets, 7, 1, f->tenant, 0);
	assert_non_null(s);
	assert_int_equal(s->n, 3);
	assert_string_equal(s->labels[0].key, "trace_id");
	assert_string_equal(s->labels[1].key, "span_id");
	assert_string_equal(s->labels[2].key, "tenant");
	assert_string_equal(s->labels[2].value, "A");
	s = label_sets_find(f->sets, 7, 1, f->all, 0);
	assert_int_equal(s->n, 4);
	s = label_sets_find(f->sets, 7, 1, NULL, 0);
	assert_int_equal(s->n, 2);
}

static void nothing_is_no_set(void **state)
{
	struct fixture *f = *state;

	take(f, 1, 'A', 'x', false, 0);
	assert_null(label_sets_find(f->sets, 7, 1, NULL, 0));
}

static void sets_that_differ_in_what_is_withheld_are_one(void **state)
{
	struct fixture *f = *state;
	struct label_set *a, *b, *c;

	take(f, 1, 'A', 'x', false, 0);
	take(f, 2, 'A', 'y', false, 0);
	take(f, 3, 'B', 'y', false, 0);
	a = label_sets_find(f->sets, 7, 1, f->tenant, 0);
	b = label_sets_find(f->sets, 7, 2, f->tenant, 0);
	c = label_sets_find(f->sets, 7, 3, f->tenant, 0);
	assert_non_null(a);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	assert_int_not_equal(a->number, c->number);
}

static void another_processes_id_is_not_found(void **state)
{
	struct fixture *f = *state;
	int64_t before = metric_get(M_LABELS_UNKNOWN);

	take(f, 1, 'A', 'x', false, 0);
	assert_null(label_sets_find(f->sets, 8, 1, f->all, 0));
	assert_null(label_sets_find(f->sets, 7, 2, f->all, 0));
	assert_int_equal(metric_get(M_LABELS_UNKNOWN), before + 2);
}

static void what_is_in_use_stays(void **state)
{
	struct fixture *f = *state;
	struct label_set *kept;

	take(f, 1, 'A', 'x', false, 0);
	take(f, 2, 'B', 'x', false, 0);
	kept = label_set_ref(label_sets_find(f->sets, 7, 2, f->tenant, 0));
	for (uint64_t s = 1; s < 60; s++) {
		assert_non_null(label_sets_find(f->sets, 7, 1, f->tenant, s * SECOND));
		label_sets_sweep(f->sets, s * SECOND);
	}
	assert_null(label_sets_find(f->sets, 7, 2, f->tenant, 60UL * SECOND));
	assert_string_equal(kept->labels[0].value, "B");
	label_set_unref(kept);
}

static void a_full_table_forgets_the_oldest(void **state)
{
	struct fixture *f = *state;
	int64_t before = metric_get(M_LABELS_EVICTED);

	for (uint64_t i = 1; i <= LABEL_SETS_MAX + 1; i++)
		take(f, i, 'A', 'x', false, 0);
	assert_int_equal(metric_get(M_LABELS_EVICTED), before + 1);
	assert_null(label_sets_find(f->sets, 7, 1, f->all, 0));
	assert_non_null(label_sets_find(f->sets, 7, 2, f->all, 0));
	assert_non_null(label_sets_find(f->sets, 7, LABEL_SETS_MAX + 1, f->all, 0));
}

static void a_set_that_is_none_is_refused(void **state)
{
	struct fixture *f = *state;
	struct kiln_labels r = {.id = 1, .mapset = 7};
	int64_t before = metric_get(M_LABELS_MALFORMED);

	label_sets_take(f->sets, &r, sizeof(r) - 1, 0);
	r.id = 0;
	label_sets_take(f->sets, &r, sizeof(r), 0);
	assert_int_equal(metric_get(M_LABELS_MALFORMED), before + 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(only_what_is_allowed_passes, setup, teardown),
	    cmocka_unit_test_setup_teardown(nothing_is_no_set, setup, teardown),
	    cmocka_unit_test_setup_teardown(sets_that_differ_in_what_is_withheld_are_one, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(another_processes_id_is_not_found, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_is_in_use_stays, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_full_table_forgets_the_oldest, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_set_that_is_none_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
