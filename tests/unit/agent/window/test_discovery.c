/* SPDX-License-Identifier: Apache-2.0 */
/* Discovery: what is read of a process, when it is read again, and what finds no room. */
#include "tests/unit/agent/window/discovery_rig.h"

#include "lib/metrics.h"

static void a_process_is_read_once_and_its_mapset_published(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	assert_true(discovery_busy(t.d));
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_false(discovery_busy(t.d));
	assert_int_equal(t.answers, 1);
	assert_non_null(t.last.mapset);
	assert_string_equal(t.last_name, "test_window_discovery");
	assert_int_equal(fake.process.mapset, t.last.mapset->id);
	assert_int_equal(fake.process.flags, 0);
	assert_non_null(fake_own_range(t.last.mapset));
	assert_ptr_equal(discovery_mapset(t.d, &t.record), t.last.mapset);
}

/* A fork has its parent's mappings, which are known, so only its identity is asked for. */
static void who_it_is_can_be_asked_alone(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, true), 0);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_string_equal(t.last_name, "test_window_discovery");
	assert_false(is_given_up());
}

static void a_later_owner_of_the_pid_is_not_taken_for_it(void **state)
{
	t.record.start_time -= 5 * KILN_TICK_NS;
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_null(t.last.info);
	assert_int_equal(t.last.info_error, -ESRCH);
	assert_int_equal(fake.process.mapset, 0);
	/* The process that has the pid now is read when it is sampled itself. */
	t.record.start_time += 5 * KILN_TICK_NS;
	fake.process.flags = KILN_PROCESS_PENDING;
	ask(0);
	assert_non_null(t.last.mapset);
}

static void a_program_executed_since_the_sample_is_not_taken_for_it(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	discovery_executed(t.d, t.record.tgid, t.record.time + 1);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_null(t.last.info);
	assert_int_equal(fake.process.mapset, 0);
}

/* The loop reads notes before samples. */
static void an_exec_that_is_told_of_before_the_sample_counts_too(void **state)
{
	discovery_executed(t.d, t.record.tgid, t.record.time + 1);
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	assert_null(t.last.info);
	assert_int_equal(fake.process.mapset, 0);
}

/* The new program maps them; the old program's mappings cannot be read any more. */
static void mappings_after_an_exec_are_not_read_for_the_old_program(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77, .time = 1001};
	const struct mapset_range *own;

	ask(0);
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	discovery_executed(t.d, t.record.tgid, 1000);
	discovery_mapped(t.d, &other);
	assert_int_equal(fake.process.mapset, 0);
	assert_false(discovery_busy(t.d));
}

/*
 * The new program was sampled before the note of its exec is read: its entry in the kernel stays.
 */
static void the_exec_is_the_one_of_the_program_before(void **state)
{
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	fake.process.exec_id = EXEC + 1;
	t.record.exec_id = EXEC + 1;
	t.record.time = 10;
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	discovery_executed(t.d, t.record.tgid, 5);
	while (t.answers < 2)
		uv_run(&t.loop, UV_RUN_ONCE);
	assert_int_not_equal(fake.process.mapset, 0);
	assert_non_null(discovery_mapset(t.d, &t.record));
	t.record.exec_id = EXEC;
	assert_null(discovery_mapset(t.d, &t.record));
}

static void mappings_that_change_meanwhile_are_read_again(void **state)
{
	int64_t ok = metric_get(M_MAPS_READ_OK);

	t.late_mapping = (struct sideband_mapping){
	    .tgid = t.record.tgid, .start = 0x1000, .length = 0x1000, .time = UINT64_MAX};
	ask(0);
	/* The reading is repeated a few times; then the next sample asks again. */
	assert_int_equal(t.answers, 1);
	assert_in_range(metric_get(M_MAPS_READ_OK) - ok, 2, 10);
	t.late_mapping.time = 0;
	t.record.mapset = fake.process.mapset;
	assert_true(holds());
	assert_true(discovery_busy(t.d));
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.answers, 2);
	assert_true(holds());
	assert_false(discovery_busy(t.d));
}

/* Fills the kernel's mappings for CGROUP until there is no room, or N are used. */
static void fill_mappings(uint64_t cgroup, size_t n)
{
	struct mapset_source all = {.tgid = 1, .exec_id = 1, .cgroup = cgroup};
	struct map_entry entries[FAKE_MAPPINGS / 2] = {};
	struct maps maps = {.entries = entries, .n = ARRAY_SIZE(entries)};
	struct stored_image *none[ARRAY_SIZE(entries)] = {};
	struct mapset *m;

	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		entries[i] = (struct map_entry){
		    .start = i << 12, .end = (i + 1) << 12, .kind = MAPPING_ANON};
	all.maps = &maps;
	all.images = none;
	while (n > 0) {
		maps.n = MIN(maps.n, n);
		if (mapset_store_make(fake.mapsets, &all, &m) == 0)
			n -= maps.n;
		else if (maps.n > 1)
			maps.n /= 2;
		else
			break;
	}
}

static void what_finds_no_room_is_given_up_for_a_while(void **state)
{
	fill_mappings(0, FAKE_MAPPINGS);
	ask(0);
	assert_int_equal(t.answers, 1);
	assert_null(t.last.mapset);
	/* The identity is known without mappings. */
	assert_string_equal(t.last_name, "test_window_discovery");
	assert_true(is_given_up());
	ask(-EAGAIN);
	assert_int_equal(t.answers, 1);
}

static void a_cgroup_that_has_taken_its_share_of_the_room_is_given_up(void **state)
{
	int64_t refused = metric_get(M_UNRESOLVED_NO_ROOM);

	fill_mappings(7, FAKE_MAPPINGS / 2 + 1);
	t.record.cgroup = 7;
	ask(0);
	assert_null(t.last.mapset);
	assert_true(is_given_up());
	assert_int_equal(metric_get(M_UNRESOLVED_NO_ROOM), refused + 1);
}

static void others_than_the_cgroup_that_has_taken_its_share_have_room(void **state)
{
	fill_mappings(7, FAKE_MAPPINGS / 2 + 1);
	t.record.cgroup = 8;
	ask(0);
	assert_non_null(t.last.mapset);
	assert_int_equal(t.last.mapset->cgroup, 8);
	assert_false(is_given_up());
}

static void an_exchange_is_in_force_from_its_time_on(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77, .time = 1000};
	const struct mapset_range *own;

	ask(0);
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	t.record.mapset = t.last.mapset->id;
	discovery_mapped(t.d, &other);
	assert_int_equal(fake.process.mapset, 0);
	assert_true(fake.process.flags & KILN_PROCESS_PENDING);
	t.record.time = 999;
	assert_true(holds());
	t.record.time = 1000;
	assert_false(holds());
	assert_null(discovery_mapset(t.d, &t.record));
	ask(0);
	assert_int_equal(t.answers, 2);
	/*
	 * The record was walked with the old mapset, which was wrong by then; the new one is in
	 * force.
	 */
	assert_false(holds());
	assert_ptr_equal(discovery_mapset(t.d, &t.record), t.last.mapset);
	t.record.mapset = t.last.mapset->id;
	assert_true(holds());
}

/* Mappings are read without a sample: it could come when the code is exchanged again. */
static void exchanges_are_read_at_once_and_each_sample_has_what_was_in_force(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77};
	const struct mapset_range *own;
	uint32_t ids[3];

	ask(0);
	ids[0] = fake.process.mapset;
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	for (unsigned int i = 1; i < ARRAY_SIZE(ids); i++) {
		other.time = 1000 * i;
		discovery_mapped(t.d, &other);
		assert_true(discovery_busy(t.d));
		uv_run(&t.loop, UV_RUN_DEFAULT);
		assert_int_equal(t.answers, i + 1);
		ids[i] = fake.process.mapset;
		assert_int_not_equal(ids[i], 0);
		usleep(110000);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(ids); i++) {
		t.record.time = 1000 * i + 500;
		assert_int_equal(discovery_mapset(t.d, &t.record)->id, ids[i]);
	}
	t.record.mapset = ids[1];
	assert_false(holds());
}

/* Code that is exchanged all the time is read no more often than its samples ask for. */
static void exchanges_alone_are_not_read_without_end(void **state)
{
	struct sideband_mapping other = {.tgid = t.record.tgid, .inode = 77};
	int64_t reads = metric_get(M_MAPS_READ_OK);
	const struct mapset_range *own;

	ask(0);
	own = fake_own_range(t.last.mapset);
	other.start = own->start;
	other.length = own->end - own->start;
	for (unsigned int i = 0; i < 100; i++) {
		other.time = 1000 + i;
		discovery_mapped(t.d, &other);
		uv_run(&t.loop, UV_RUN_DEFAULT);
	}
	/* One reading for the sample, and one for each 100 ms that the loop took. */
	assert_in_range(metric_get(M_MAPS_READ_OK) - reads, 2, 50);
}

/* The same file, mapped again at the same place, may hold another function than before. */
static void a_runtime_that_is_loaded_again_has_its_names_read_again(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 100};
	struct sideband_mapping again = {.tgid = t.record.tgid};
	const struct mapset_range *own;
	uint32_t budget = 10;
	struct mapset *m;

	fake_probe(1);
	t.record.runtimes = UINT32_MAX;
	ask(0);
	m = t.last.mapset;
	assert_true(runtimes_see(fake.rt, m, t.record.tgid, words, 2, 1, &budget, NULL));
	assert_int_equal(budget, 9);
	own = fake_own_range(m);
	again.dev_major = own->image->dev_major;
	again.dev_minor = own->image->dev_minor;
	again.inode = own->image->inode;
	again.start = own->start;
	again.length = own->end - own->start;
	again.offset = own->offset;
	/* A note of a mapping that was there when the maps were read. */
	again.time = m->read_ns;
	assert_true(discovery_mapped(t.d, &again));
	assert_int_equal(fake.process.mapset, m->id);
	again.time = m->read_ns + 1;
	assert_true(discovery_mapped(t.d, &again));
	assert_int_equal(fake.process.mapset, 0);
	t.record.time = again.time + 1;
	ask(0);
	assert_int_not_equal(runtimes_space(t.last.mapset, FAKE_PYTHON),
			     runtimes_space(m, FAKE_PYTHON));
	assert_true(
	    runtimes_see(fake.rt, t.last.mapset, t.record.tgid, words, 2, 1, &budget, NULL));
	assert_int_equal(budget, 8);
}

static void when_notes_were_lost_a_process_is_looked_at_once(void **state)
{
	struct mapset *m;

	ask(0);
	m = t.last.mapset;
	t.record.mapset = m->id;
	assert_true(holds());
	discovery_lost(t.d, m->read_ns);
	assert_false(holds());
	assert_null(discovery_mapset(t.d, &t.record));
	ask(0);
	assert_int_equal(t.answers, 2);
	/* Nothing was mapped since, so the mapset stays in force. */
	assert_ptr_equal(t.last.mapset, m);
	assert_int_equal(fake.process.mapset, m->id);
	assert_true(holds());
	assert_false(discovery_busy(t.d));
}

static void an_exchange_whose_note_was_lost_holds_from_the_loss_on(void **state)
{
	struct mapset *m;

	ask(0);
	m = t.last.mapset;
	t.record.mapset = m->id;
	t.record.time = m->read_ns + 1;
	/* As if another file were there now. */
	m->ranges[0].bias += 4096;
	discovery_lost(t.d, m->read_ns + 1);
	assert_false(holds());
	ask(0);
	assert_ptr_not_equal(t.last.mapset, m);
	assert_int_equal(fake.process.mapset, t.last.mapset->id);
	assert_false(holds());
	t.record.time = m->read_ns;
	assert_true(holds());
}

/* The process is gone, so there is no newer mapset than the one it has. */
static void a_process_that_cannot_be_looked_at_keeps_its_mapset(void **state)
{
	struct mapset *m;

	ask(0);
	m = t.last.mapset;
	t.record.mapset = m->id;
	discovery_lost(t.d, m->read_ns);
	assert_false(holds());
	discovery_executed(t.d, t.record.tgid, 2);
	assert_int_equal(discovery_ask(t.d, &t.record, false), 0);
	discovery_executed(t.d, t.record.tgid, 2);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_null(t.last.mapset);
	assert_int_equal(fake.process.mapset, m->id);
	assert_false(is_given_up());
	assert_true(holds());
	assert_ptr_equal(discovery_mapset(t.d, &t.record), m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_process_is_read_once_and_its_mapset_published),
	    TEST(who_it_is_can_be_asked_alone),
	    TEST(a_later_owner_of_the_pid_is_not_taken_for_it),
	    TEST(a_program_executed_since_the_sample_is_not_taken_for_it),
	    TEST(an_exec_that_is_told_of_before_the_sample_counts_too),
	    TEST(mappings_after_an_exec_are_not_read_for_the_old_program),
	    TEST(the_exec_is_the_one_of_the_program_before),
	    TEST(mappings_that_change_meanwhile_are_read_again),
	    TEST(what_finds_no_room_is_given_up_for_a_while),
	    TEST(a_cgroup_that_has_taken_its_share_of_the_room_is_given_up),
	    TEST(others_than_the_cgroup_that_has_taken_its_share_have_room),
	    TEST(an_exchange_is_in_force_from_its_time_on),
	    TEST(exchanges_are_read_at_once_and_each_sample_has_what_was_in_force),
	    TEST(exchanges_alone_are_not_read_without_end),
	    TEST(a_runtime_that_is_loaded_again_has_its_names_read_again),
	    TEST(when_notes_were_lost_a_process_is_looked_at_once),
	    TEST(an_exchange_whose_note_was_lost_holds_from_the_loss_on),
	    TEST(a_process_that_cannot_be_looked_at_keeps_its_mapset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
