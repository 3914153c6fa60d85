/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/waiting.h"
#include "tests/support/test.h"

/* A record with a dump of LEN bytes, each the low byte of its place. */
static struct kiln_sample *record_with(uint32_t tid, uint32_t len)
{
	uint32_t size = (uint32_t)(sizeof(struct kiln_sample) + sizeof(struct kiln_resume) + len);
	struct kiln_sample *r = calloc(1, size);
	unsigned char *end = (unsigned char *)r + size;

	assert_non_null(r);
	r->tid = tid;
	r->size = size;
	r->dump_len = len;
	for (uint32_t i = 0; i < len; i++)
		end[(int64_t)i - len] = (unsigned char)i;
	return r;
}

static bool add(struct waiting_list *l, uint32_t tid, uint32_t len, struct process *p,
		struct mapset *m)
{
	_cleanup_free_ struct kiln_sample *r = record_with(tid, len);

	return waiting_add(l, r, p, m);
}

static void they_come_back_in_order_and_whole(void **state)
{
	struct waiting_list l = {};
	struct process p = {};
	struct mapset m = {};
	struct waiting *w;

	for (uint32_t i = 1; i <= 3; i++)
		assert_true(add(&l, i, 100 * i, &p, &m));
	assert_int_equal(l.n, 3);
	assert_int_equal(m.refs, 3);
	for (uint32_t i = 1; i <= 3; i++) {
		_cleanup_free_ struct kiln_sample *want = record_with(i, 100 * i);

		w = waiting_take(&l);
		assert_ptr_equal(w->process, &p);
		assert_int_equal(w->record.size, want->size);
		assert_memory_equal(&w->record, want, want->size);
		waiting_free(w);
	}
	assert_null(waiting_take(&l));
	assert_int_equal(l.n, 0);
	assert_int_equal(l.bytes, 0);
	assert_int_equal(m.refs, 0);
}

static void what_waits_is_bounded(void **state)
{
	struct waiting_list l = {};
	struct process p = {};
	struct mapset m = {};
	uint32_t n = 0;

	while (n <= WAITING_MAX && add(&l, n, 0, &p, &m))
		n++;
	assert_int_equal(n, WAITING_MAX);
	while (l.first)
		waiting_free(waiting_take(&l));
	/* Of long ones only the lower part once half of the room is taken. */
	for (n = 0; n <= WAITING_MAX && add(&l, n, KILN_DUMP_MAX, &p, &m); n++)
		assert_int_equal(l.first->prev->record.dump_len,
				 l.bytes - l.first->prev->record.size > WAITING_BYTES_MAX / 2
				     ? KILN_DUMP_SMALL
				     : KILN_DUMP_MAX);
	assert_in_range(l.bytes, WAITING_BYTES_MAX / 2, WAITING_BYTES_MAX);
	assert_in_range(n, 2, WAITING_MAX);
	while (l.first)
		waiting_free(waiting_take(&l));
	assert_int_equal(l.bytes, 0);
	assert_int_equal(m.refs, 0);
}

static void processes_of_what_waits_are_in_use(void **state)
{
	struct waiting_list l = {};
	struct process a = {.last_window = 1}, b = {.last_window = 1}, c = {.last_window = 1};
	struct mapset m = {};

	assert_true(add(&l, 1, 0, &a, &m));
	assert_true(add(&l, 2, 0, &b, &m));
	waiting_free(waiting_take(&l));
	waiting_touch(&l, 5);
	assert_int_equal(a.last_window, 1);
	assert_int_equal(b.last_window, 5);
	assert_int_equal(c.last_window, 1);
	waiting_free(waiting_take(&l));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(they_come_back_in_order_and_whole),
	    cmocka_unit_test(what_waits_is_bounded),
	    cmocka_unit_test(processes_of_what_waits_are_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
