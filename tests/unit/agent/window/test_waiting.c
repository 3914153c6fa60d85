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

static const struct waiting_key table = {.kind = WAITING_TABLE, .number = 1},
				other_table = {.kind = WAITING_TABLE, .number = 2},
				program = {.kind = WAITING_PROCESS, .number = 1, .id = 1};

static bool add(struct waiting_room *room, struct waiting_key key, uint32_t tid, uint32_t len,
		struct process *p, struct mapset *m)
{
	_cleanup_free_ struct kiln_sample *r = record_with(tid, len);

	return waiting_add(room, key, r, p, m);
}

static bool add_of_cgroup(struct waiting_room *room, uint64_t cgroup)
{
	_cleanup_free_ struct kiln_sample *r = record_with(1, 0);

	r->cgroup = cgroup;
	return waiting_add(room, table, r, NULL, NULL);
}

static void free_all(struct waiting *first)
{
	struct waiting *w, *next;

	for (w = first; w; w = next) {
		next = w->next;
		waiting_free(w);
	}
}

static void they_come_back_in_order_and_whole(void **state)
{
	struct waiting_room room = {};
	struct process p = {};
	struct mapset m = {};
	struct waiting *w, *first;
	uint32_t i = 1;

	for (; i <= 3; i++)
		assert_true(add(&room, table, i, 100 * i, &p, &m));
	assert_int_equal(room.n, 3);
	assert_int_equal(m.refs, 3);
	first = waiting_take(&room, table);
	for (w = first, i = 1; w; w = w->next, i++) {
		_cleanup_free_ struct kiln_sample *want = record_with(i, 100 * i);

		assert_ptr_equal(w->process, &p);
		assert_int_equal(w->record.size, want->size);
		assert_memory_equal(&w->record, want, want->size);
	}
	assert_int_equal(i, 4);
	free_all(first);
	assert_null(waiting_take(&room, table));
	assert_int_equal(room.n, 0);
	assert_int_equal(room.bytes, 0);
	assert_null(room.queues);
	assert_null(room.shares);
	assert_int_equal(m.refs, 0);
}

static void each_waits_for_its_own(void **state)
{
	struct waiting_room room = {};
	struct process p = {};
	struct mapset m = {};
	struct waiting *first;

	assert_true(add(&room, table, 1, 0, &p, &m));
	assert_true(add(&room, program, 2, 0, NULL, NULL));
	assert_true(add(&room, other_table, 3, 0, &p, &m));
	assert_true(add(&room, program, 4, 0, &p, NULL));
	first = waiting_take(&room, program);
	assert_int_equal(first->record.tid, 2);
	assert_null(first->process);
	assert_int_equal(first->next->record.tid, 4);
	assert_null(first->next->next);
	free_all(first);
	assert_null(waiting_take(&room, program));
	assert_int_equal(room.n, 2);
	first = waiting_take_all(&room);
	assert_non_null(first->next);
	assert_null(first->next->next);
	free_all(first);
	assert_int_equal(room.n, 0);
	assert_int_equal(m.refs, 0);
}

static void what_waits_is_bounded(void **state)
{
	struct waiting_room room = {};
	struct process p = {};
	struct mapset m = {};
	uint32_t n = 0;

	while (n <= WAITING_MAX && add(&room, table, n, 0, &p, &m))
		n++;
	assert_int_equal(n, WAITING_MAX);
	free_all(waiting_take(&room, table));
	/* Once half of the room is in use, only the lower part of a long dump is kept. */
	for (n = 0; n <= WAITING_MAX && add(&room, other_table, n, KILN_DUMP_MAX, &p, &m); n++)
		;
	assert_in_range(room.bytes, WAITING_BYTES_MAX / 2, WAITING_BYTES_MAX);
	assert_in_range(n,
			WAITING_BYTES_MAX / 2 / (KILN_DUMP_MAX + 1000) +
			    WAITING_BYTES_MAX / 2 / (KILN_DUMP_SMALL + 1000),
			WAITING_MAX);
	free_all(waiting_take_all(&room));
	assert_int_equal(room.bytes, 0);
	assert_int_equal(m.refs, 0);
}

static void a_cgroup_leaves_room_for_others(void **state)
{
	struct waiting_room room = {};
	uint32_t n = 0;

	while (n <= WAITING_MAX && add_of_cgroup(&room, 7))
		n++;
	assert_int_equal(n, WAITING_MAX / 2);
	while (n <= WAITING_MAX && add_of_cgroup(&room, 8))
		n++;
	assert_int_equal(n, WAITING_MAX);
	free_all(waiting_take_all(&room));
	assert_null(room.shares);
}

static void processes_of_what_waits_are_in_use(void **state)
{
	struct waiting_room room = {};
	struct process a = {.last_window = 1}, b = {.last_window = 1}, c = {.last_window = 1};
	struct mapset m = {};

	assert_true(add(&room, table, 1, 0, &a, &m));
	assert_true(add(&room, other_table, 2, 0, &b, &m));
	assert_true(add(&room, program, 3, 0, NULL, NULL));
	free_all(waiting_take(&room, table));
	waiting_touch(&room, 5);
	assert_int_equal(a.last_window, 1);
	assert_int_equal(b.last_window, 5);
	assert_int_equal(c.last_window, 1);
	free_all(waiting_take_all(&room));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(they_come_back_in_order_and_whole),
	    cmocka_unit_test(each_waits_for_its_own),
	    cmocka_unit_test(what_waits_is_bounded),
	    cmocka_unit_test(a_cgroup_leaves_room_for_others),
	    cmocka_unit_test(processes_of_what_waits_are_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
