/* SPDX-License-Identifier: Apache-2.0 */
/* When processes are attached to and when not, and how their frames get names. */
#include "tests/unit/agent/runtime/fake.h"

#include "lib/metrics.h"

enum { PY = FAKE_PYTHON, V8 = FAKE_V8 };
#define MS 1000000ULL

static struct fake_runtime *const python = &fake.r[PY], *const v8 = &fake.r[V8];

static void a_process_known_before_its_file_is_attached_to_once_that_is_probed(void **state)
{
	struct mapset *m = fake_read(1);
	const struct fake_entry *e;

	assert_null(fake_find(m, PY));
	fake_probe(2);
	e = fake_find(m, PY);
	assert_non_null(e);
	assert_int_equal(e->value.data[0], fake_own_range(m)->bias + PY);
	assert_int_not_equal(python->bias, 0);
}

static void a_new_mapset_is_attached_to_before_the_kernel_walks_by_it(void **state)
{
	struct mapset *m;

	fake_probe(1);
	fake.published_bare = false;
	m = fake_read(2);
	assert_int_equal(fake.process.mapset, m->id);
	assert_non_null(fake_find(m, PY));
	assert_false(fake.published_bare);
}

static void two_runtimes_of_one_process_are_both_attached_to(void **state)
{
	struct mapset *m;

	fake_probe(1);
	m = fake_read(2);
	assert_int_equal(fake_find(m, PY)->value.data[0] + V8 - PY,
			 fake_find(m, V8)->value.data[0]);
}

static void a_runtime_that_is_not_ready_is_tried_again_and_each_time_later(void **state)
{
	struct mapset *m;
	int tries;

	fake_probe(1);
	python->attach_result = -EAGAIN;
	m = fake_read(1000 * MS);
	assert_null(fake_find(m, PY));
	tries = python->attaches;
	runtimes_missed(fake.rt, m, PY, (1000 + RUNTIME_RETRY_MIN_MS) * MS - 1);
	assert_int_equal(python->attaches, tries);
	runtimes_missed(fake.rt, m, PY, (1000 + RUNTIME_RETRY_MIN_MS) * MS);
	assert_int_equal(python->attaches, tries + 1);
	runtimes_missed(fake.rt, m, PY, (1000 + 3 * RUNTIME_RETRY_MIN_MS) * MS - 1);
	assert_int_equal(python->attaches, tries + 1);
	python->attach_result = 0;
	runtimes_missed(fake.rt, m, PY, (1000 + 3 * RUNTIME_RETRY_MIN_MS) * MS);
	assert_non_null(fake_find(m, PY));
	runtimes_missed(fake.rt, m, PY, 100000 * MS);
	assert_int_equal(python->attaches, tries + 2);
}

static void what_fails_for_good_is_not_tried_again(void **state)
{
	struct mapset *m;
	int tries;

	fake_probe(1);
	python->attach_result = -ENOTSUP;
	m = fake_read(2);
	tries = python->attaches;
	runtimes_missed(fake.rt, m, PY, 100000 * MS);
	assert_int_equal(python->attaches, tries);
	assert_null(fake_find(m, PY));
	assert_non_null(fake_find(m, V8));
}

static void a_version_that_is_not_supported_is_told(void **state)
{
	struct runtime_status status;

	python->probe_result = -ENOTSUP;
	fake_probe(1);
	assert_null(fake_find(fake_read(2), PY));
	assert_int_equal(python->attaches, 0);
	assert_true(runtimes_status(fake.rt, PY, &status));
	assert_string_equal(status.unsupported, "version 9.9 is not known");
	assert_int_equal(status.attached_ever, 0);
	assert_true(runtimes_status(fake.rt, V8, &status));
	assert_string_equal(status.unsupported, "");
	assert_true(status.attached_ever > 0);
}

static void a_version_of_which_only_native_frames_are_walked_is_told_too(void **state)
{
	struct runtime_status status;
	struct mapset *m;

	python->native_only = true;
	fake_probe(1);
	m = fake_read(2);
	assert_non_null(fake_find(m, PY));
	assert_true(runtimes_status(fake.rt, PY, &status));
	assert_string_equal(status.unsupported, "version 9.9 is not known");
	assert_int_equal(status.attached, 0);
	assert_int_equal(status.attached_ever, 0);
}

static void a_tracer_that_is_off_touches_nothing(void **state)
{
	struct runtime_status status;
	struct mapset *m;

	fake_restart(~(1U << PY));
	fake_probe(1);
	m = fake_read(2);
	assert_int_equal(python->probes, 0);
	assert_int_equal(python->attaches, 0);
	assert_null(fake_find(m, PY));
	assert_non_null(fake_find(m, V8));
	assert_true(runtimes_status(fake.rt, PY, &status));
	assert_false(status.enabled);
	assert_false(runtimes_status(fake.rt, 3, &status));
}

static void a_process_whose_policy_has_the_tracer_off_is_attached_to_when_one_asks(void **state)
{
	struct mapset *m;

	runtimes_asked(fake.rt, ~(1U << PY));
	m = fake_read(1);
	fake_probe(2); /* the file is probed after the process's maps were read ... */
	assert_int_equal(python->probes, 1);
	assert_int_equal(python->attaches, 0);
	fake_read(3); /* ... and before they are read */
	assert_int_equal(python->attaches, 0);
	assert_null(fake_find(m, PY));
	assert_non_null(fake_find(m, V8));
	runtimes_missed(fake.rt, m, PY, 4);
	assert_int_equal(python->attaches, 1);
	assert_non_null(fake_find(m, PY));
	runtimes_missed(fake.rt, m, PY, 100000 * MS);
	assert_int_equal(python->attaches, 1);
}

static void what_is_asked_for_late_and_not_ready_is_tried_again(void **state)
{
	struct mapset *m;

	runtimes_asked(fake.rt, 0);
	fake_probe(1);
	m = fake_read(2);
	python->attach_result = -EAGAIN;
	runtimes_missed(fake.rt, m, PY, 1000 * MS);
	runtimes_missed(fake.rt, m, PY, 1000 * MS);
	assert_int_equal(python->attaches, 1);
	python->attach_result = 0;
	runtimes_missed(fake.rt, m, PY, (1000 + RUNTIME_RETRY_MIN_MS) * MS);
	assert_non_null(fake_find(m, PY));
	assert_int_equal(v8->attaches, 0);
}

static void an_attachment_goes_with_its_mapset(void **state)
{
	struct runtime_status status;
	struct mapset *m, *kept;
	uint32_t named;

	fake_probe(1);
	m = fake_read(2);
	kept = fake_read(3);
	named = kept->id;
	assert_non_null(fake_find(m, PY));
	for (int i = 0; i < 3; i++)
		mapset_store_sweep(fake.mapsets, &named, 1, 1000);
	assert_int_equal(mapset_store_count(fake.mapsets), 1);
	assert_non_null(fake_find(kept, PY));
	assert_true(runtimes_status(fake.rt, PY, &status));
	assert_int_equal(status.attached, 1);
	assert_int_equal(fake.r[0].detaches, python->attaches + v8->attaches - 2);
}

static void a_full_kernel_map_costs_frames_and_nothing_else(void **state)
{
	struct mapset *m;

	fake.max_runtimes = 0;
	fake_probe(1);
	m = fake_read(2);
	assert_null(fake_find(m, PY));
	/* Attachments that the full map refused were detached. */
	assert_int_equal(fake.r[0].detaches, python->attaches + v8->attaches);
}

static void a_full_map_is_tried_again_when_there_is_room(void **state)
{
	struct mapset *m;

	fake.max_runtimes = 0;
	fake_probe(1);
	m = fake_read(2);
	runtimes_missed(fake.rt, m, PY, 100000 * MS);
	assert_null(fake_find(m, PY));
	fake.max_runtimes = FAKE_RUNTIMES;
	runtimes_missed(fake.rt, m, PY, 200000 * MS);
	assert_non_null(fake_find(m, PY));
}

static void one_build_is_probed_into_the_registry_once(void **state)
{
	struct runtime_status status;

	fake_probe(1);
	assert_true(runtimes_status(fake.rt, PY, &status));
	fake_probe(2);
	assert_int_equal(python->probes, 2);
	/* Each of the two mapsets is attached to once. */
	assert_int_equal(python->attaches, 2);
}

static int64_t programs(const char *version)
{
	char labels[64];

	snprintf(labels, sizeof(labels), "runtime=\"python\",version=\"%s\"", version);
	return metric_family_get("kiln_runtime_programs_total", labels);
}

/* Versions are those of the file, or those that attach() read in the process; eight at most. */
static void versions_that_were_attached_to_are_told(void **state)
{
	static const char *const others[] = {"2", "3", "4\"}\nkiln_forged 1", "5", "6", "7", "8",
					     "9", "10"};
	int64_t before, more = programs("other");
	struct runtime_status status;
	uint32_t named;

	fake_probe(1);
	before = programs("1.0");
	(void)fake_read(2);
	(void)fake_read(2);
	assert_int_equal(programs("1.0"), before + 2);
	assert_true(runtimes_status(fake.rt, PY, &status));
	assert_int_equal(status.n_versions, 1);
	assert_string_equal(status.versions[0], "1.0");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		python->version = others[i];
		named = fake_read(2)->id;
		/* Old attachments must go: there is room for a few only. */
		for (int k = 0; k < 3; k++)
			mapset_store_sweep(fake.mapsets, &named, 1, 1000);
	}
	assert_true(runtimes_status(fake.rt, PY, &status));
	assert_int_equal(status.n_versions, RUNTIME_VERSIONS_MAX);
	assert_string_equal(status.versions[3], "4");
	assert_string_equal(status.versions[7], "8");
	assert_int_equal(programs("4"), 1);
	assert_int_equal(programs("other"), more + 2);
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *name_of(const struct mapset *m, const uint64_t words[2])
{
	static struct symbol_result sym;
	uint32_t space = runtimes_space(m, runtimes_ops(fake.rt, words[0])->id);

	if (!space || !runtime_names_get(runtimes_names(fake.rt), space, words, &sym))
		return NULL;
	return sym.symbols[0].name;
}

static void frames_are_named_when_they_are_seen_and_once(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_NATIVE, 2),
				  fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8),
				  100,
				  fake_word(KILN_FRAME_MISSING, 0x201),
				  fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8),
				  102,
				  fake_word(KILN_FRAME_RUNTIME(FAKE_V8), 8),
				  104};
	uint32_t budget = 10;
	struct mapset *m;

	fake_probe(1);
	m = fake_read(2);
	assert_true(runtimes_see(fake.rt, m, 4242, words, ARRAY_SIZE(words), 1, &budget, NULL));
	assert_int_equal(budget, 7);
	assert_int_equal(fake.last_tgid, 4242);
	assert_string_equal(name_of(m, words + 1), "f100");
	assert_string_equal(name_of(m, words + 4), "f102");
	assert_string_equal(name_of(m, words + 6), "f104");
	assert_true(runtimes_see(fake.rt, m, 1, words, ARRAY_SIZE(words), 1, &budget, NULL));
	assert_true(runtimes_see(fake.rt, m, 1, words, ARRAY_SIZE(words), 2, &budget, NULL));
	assert_int_equal(budget, 7);
}

static void what_is_beyond_the_budget_is_left_for_the_next_time(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 100,
				  fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 102};
	uint32_t budget = 1;
	struct mapset *m;

	fake_probe(1);
	m = fake_read(2);
	assert_false(runtimes_see(fake.rt, m, 1, words, 4, 1, &budget, NULL));
	assert_string_equal(name_of(m, words), "f100");
	assert_null(name_of(m, words + 2));
	budget = 1;
	assert_true(runtimes_see(fake.rt, m, 1, words, 4, 1, &budget, NULL));
	assert_string_equal(name_of(m, words + 2), "f102");
}

static void memory_that_cannot_be_read_is_tried_once_a_window(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 101};
	uint32_t budget = 10;
	struct mapset *m;

	fake_probe(1);
	m = fake_read(2);
	for (int i = 0; i < 3; i++)
		assert_true(runtimes_see(fake.rt, m, 1, words, 2, 1, &budget, NULL));
	assert_int_equal(budget, 9);
	assert_null(name_of(m, words));
	assert_true(runtimes_see(fake.rt, m, 1, words, 2, 2, &budget, NULL));
	assert_int_equal(budget, 8);
}

static void names_outlive_a_mapset_of_the_same_process(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 100};
	uint32_t budget = 10;
	struct mapset *m, *fresh;

	fake_probe(1);
	m = fake_read(2);
	assert_true(runtimes_see(fake.rt, m, 1, words, 2, 1, &budget, NULL));
	fresh = fake_read(3);
	assert_ptr_not_equal(fresh, m);
	assert_true(runtimes_see(fake.rt, fresh, 1, words, 2, 1, &budget, NULL));
	assert_int_equal(budget, 9);
	assert_string_equal(name_of(fresh, words), "f100");
}

/* The frames were walked with the older mapset, which was attached to. */
static void a_mapset_that_could_not_be_attached_to_uses_what_the_process_has(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 100};
	uint32_t budget = 10;
	struct mapset *fresh;

	fake_probe(1);
	(void)fake_read(2);
	python->attach_result = -EAGAIN;
	fresh = fake_read(3);
	assert_null(fake_find(fresh, PY));
	assert_true(runtimes_see(fake.rt, fresh, 1, words, 2, 1, &budget, NULL));
	assert_string_equal(name_of(fresh, words), "f100");
}

static void a_cut_frame_at_the_end_of_the_words_is_no_frame(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 100};
	uint32_t budget = 10;
	struct mapset *m;

	fake_probe(1);
	m = fake_read(2);
	assert_true(runtimes_see(fake.rt, m, 1, words, 1, 1, &budget, NULL));
	assert_int_equal(budget, 10);
}

static struct kiln_text text_of(uint32_t kind, const uint64_t words[2], const char *name)
{
	struct kiln_text text = {.type = KILN_RECORD_TEXT, .runtime = kind};

	memcpy(text.words, words, sizeof(text.words));
	snprintf((char *)text.bytes, sizeof(text.bytes), "%s", name);
	return text;
}

static void what_a_walker_sent_is_not_read_from_memory(void **state)
{
	uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(V8), 64), 100};
	struct kiln_text text = text_of(V8, words, "sent");
	struct symbol_result got;
	struct mapset *m;
	uint32_t budget = 10;

	fake_probe(1);
	m = fake_read(2);
	runtimes_take_text(fake.rt, m, &text, 1);
	assert_true(runtimes_see(fake.rt, m, 1, words, 2, 1, &budget, NULL));
	assert_int_equal(v8->symbolizes, 0);
	assert_true(runtime_names_get(runtimes_names(fake.rt), runtimes_space(m, V8), words, &got));
	assert_string_equal(got.symbols[0].name, "sent");
	/* A name that is known is not replaced. */
	text = text_of(V8, words, "again");
	runtimes_take_text(fake.rt, m, &text, 1);
	assert_true(runtime_names_get(runtimes_names(fake.rt), runtimes_space(m, V8), words, &got));
	assert_string_equal(got.symbols[0].name, "sent");
}

static void a_text_that_nobody_can_read_changes_nothing(void **state)
{
	uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(V8), 64), 100};
	uint64_t others[] = {fake_word(KILN_FRAME_RUNTIME(PY), 64), 102};
	struct kiln_text empty = text_of(V8, words, ""), other = text_of(PY, others, "sent");
	struct symbol_result got;
	struct mapset *m;
	uint32_t budget = 10;

	fake_probe(1);
	m = fake_read(2);
	runtimes_take_text(fake.rt, NULL, &other, 1);
	runtimes_take_text(fake.rt, m, &other, 1);
	runtimes_take_text(fake.rt, m, &empty, 1);
	assert_int_equal(runtime_names_count(runtimes_names(fake.rt)), 0);
	assert_true(runtimes_see(fake.rt, m, 1, words, 2, 1, &budget, NULL));
	assert_int_equal(v8->symbolizes, 1);
	assert_true(runtime_names_get(runtimes_names(fake.rt), runtimes_space(m, V8), words, &got));
	assert_string_equal(got.symbols[0].name, "f100");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_process_known_before_its_file_is_attached_to_once_that_is_probed),
	    TEST(a_new_mapset_is_attached_to_before_the_kernel_walks_by_it),
	    TEST(two_runtimes_of_one_process_are_both_attached_to),
	    TEST(a_runtime_that_is_not_ready_is_tried_again_and_each_time_later),
	    TEST(what_fails_for_good_is_not_tried_again),
	    TEST(a_version_that_is_not_supported_is_told),
	    TEST(a_version_of_which_only_native_frames_are_walked_is_told_too),
	    TEST(a_tracer_that_is_off_touches_nothing),
	    TEST(a_process_whose_policy_has_the_tracer_off_is_attached_to_when_one_asks),
	    TEST(what_is_asked_for_late_and_not_ready_is_tried_again),
	    TEST(an_attachment_goes_with_its_mapset),
	    TEST(a_full_kernel_map_costs_frames_and_nothing_else),
	    TEST(a_full_map_is_tried_again_when_there_is_room),
	    TEST(one_build_is_probed_into_the_registry_once),
	    TEST(versions_that_were_attached_to_are_told),
	    TEST(frames_are_named_when_they_are_seen_and_once),
	    TEST(what_is_beyond_the_budget_is_left_for_the_next_time),
	    TEST(memory_that_cannot_be_read_is_tried_once_a_window),
	    TEST(names_outlive_a_mapset_of_the_same_process),
	    TEST(a_mapset_that_could_not_be_attached_to_uses_what_the_process_has),
	    TEST(a_cut_frame_at_the_end_of_the_words_is_no_frame),
	    TEST(what_a_walker_sent_is_not_read_from_memory),
	    TEST(a_text_that_nobody_can_read_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
