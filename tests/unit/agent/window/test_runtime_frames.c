/* SPDX-License-Identifier: Apache-2.0 */
/* From the words of a stack with frames of runtimes to the locations of a batch. */
#include "agent/window/naming.h"
#include "agent/window/runtime_frames.h"
#include "lib/metrics.h"
#include "tests/unit/agent/runtime/fake.h"

enum { PY = FAKE_PYTHON, V8 = FAKE_V8, TGID = 4242 };

static struct {
	struct config *config;
	struct naming *naming;
	struct stack_table *stacks;
	struct runtime_frames *frames;
	struct window window;
	struct process process;
	struct mapset *m;
	struct batch *batch;
} t;

static const struct tracer no_tracers[] = {{}};

static int setup(void **state)
{
	enum config_action action;

	memset(&t, 0, sizeof(t));
	if (fake_setup(state) < 0)
		return -1;
	fake_probe(1);
	t.m = fake_read(2);
	assert_int_equal(
	    config_load(2, (char *const[]){(char *)"kiln-agent", (char *)"--stdout", NULL},
			(const char *const[]){NULL}, no_tracers, &t.config, &action, NULL),
	    0);
	assert_int_equal(naming_new(t.config, &t.naming, NULL), 0);
	naming_use_runtimes(t.naming, fake.rt);
	assert_int_equal(stack_table_new(&t.stacks), 0);
	assert_int_equal(runtime_frames_new(fake.rt, &t.frames), 0);
	window_init(&t.window);
	window_reset(&t.window, 1, 1);
	t.process.key.tgid = TGID;
	t.process.info.executable_name = (char *)"program";
	t.process.info.executable_path = (char *)"/bin/program";
	return 0;
}

static int teardown(void **state)
{
	t.batch = batch_unref(t.batch);
	window_done(&t.window);
	t.frames = runtime_frames_free(t.frames);
	t.stacks = stack_table_free(t.stacks);
	t.naming = naming_free(t.naming);
	config_free(t.config);
	return fake_teardown(state);
}

static struct stack *sample(const uint64_t *words, uint16_t n)
{
	struct stack *stack = NULL;

	assert_int_equal(stack_table_get(t.stacks, 1, t.m, KILN_END_ROOT, words, 0, words, n,
					 t.window.number, &stack),
			 0);
	if (stack->runtimes[0].id)
		runtime_frames_see(t.frames, stack, t.m, TGID, t.window.number, 3);
	assert_int_equal(window_add(&t.window, &(struct window_sample){.stack = stack,
								       .process = &t.process,
								       .tid = 1,
								       .comm = "main",
								       .value = 1000,
								       .period = 1000}),
			 0);
	return stack;
}

static void name(void)
{
	t.batch = batch_unref(t.batch);
	assert_int_equal(naming_build(t.naming, &t.window, 0, 1000, &t.batch), 0);
}

/* Line LINE of frame I of the only stack, as its function. */
static const struct batch_function *function(uint32_t i, uint32_t line)
{
	const struct batch_location *l =
	    &t.batch->locations[t.batch->stack_locations[t.batch->stacks[0].first + i]];

	assert_true(i < t.batch->stacks[0].len);
	assert_true(line < l->n_lines);
	return &t.batch->functions[t.batch->lines[l->first_line + line].function];
}

static const struct batch_location *location(uint32_t i)
{
	return &t.batch->locations[t.batch->stack_locations[t.batch->stacks[0].first + i]];
}

static void frames_have_their_type_and_all_inlined_lines(void **state)
{
	const uint64_t native = fake_own_range(t.m)->start + 16;
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8),
				  100,
				  fake_word(KILN_FRAME_NATIVE, native),
				  fake_word(KILN_FRAME_RUNTIME(FAKE_V8), 8),
				  200,
				  fake_word(KILN_FRAME_NATIVE, native) | KILN_FRAME_RETURN};

	sample(words, ARRAY_SIZE(words));
	name();
	assert_int_equal(t.batch->n_stacks, 1);
	assert_int_equal(t.batch->stacks[0].len, 4);
	assert_int_equal(location(0)->type, FRAME_CPYTHON);
	assert_int_equal(location(0)->n_lines, 2);
	assert_string_equal(function(0, 0)->name, "f100");
	assert_string_equal(function(0, 0)->file, "a.py");
	assert_int_equal(function(0, 0)->start_line, 5);
	assert_int_equal(t.batch->lines[location(0)->first_line].line, 7);
	assert_string_equal(function(0, 1)->name, "outer");
	assert_int_equal(t.batch->lines[location(0)->first_line + 1].line, 9);
	assert_int_equal(location(0)->mapping, BATCH_NO_MAPPING);
	assert_int_equal(location(1)->type, FRAME_NATIVE);
	assert_int_equal(location(2)->type, FRAME_V8JS);
	assert_string_equal(function(2, 0)->name, "f200");
	assert_int_equal(location(3)->type, FRAME_NATIVE);
}

/* A second word may have the bits of any first word. */
static void second_words_are_never_taken_for_frames(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8),
				  fake_word(KILN_FRAME_MISSING, PY << 8 | KILN_MISSING_READ),
				  fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8),
				  fake_word(KILN_FRAME_RUNTIME(FAKE_V8), 16)};
	struct stack *s = sample(words, ARRAY_SIZE(words));

	assert_int_equal(s->runtimes[0].id, PY);
	assert_int_equal(s->runtimes[0].frames, 2);
	assert_int_equal(s->runtimes[0].missing, 0);
	assert_int_equal(s->runtimes[1].id, 0);
	name();
	assert_int_equal(t.batch->stacks[0].len, 2);
	assert_int_equal(location(0)->type, FRAME_CPYTHON);
	assert_int_equal(location(1)->type, FRAME_CPYTHON);
}

static const char *name_of(uint32_t stack, uint32_t i)
{
	const struct batch_stack *s = &t.batch->stacks[stack];
	const struct batch_location *l =
	    &t.batch->locations[t.batch->stack_locations[s->first + i]];

	assert_true(i < s->len);
	return t.batch->functions[t.batch->lines[l->first_line].function].name;
}

static void outer_frames_that_were_named_before_have_the_same_names(void **state)
{
	const uint64_t py = fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8);
	const uint64_t v8 = fake_word(KILN_FRAME_RUNTIME(FAKE_V8), 8);
	const uint64_t first[] = {py, 100, py, 200, v8, 300},
		       deeper[] = {v8, 400, py, 500, py, 200, v8, 300}, /* outer two of `first` */
	    other[] = {py, 600, v8, 300};				/* outermost of `first` */

	sample(first, ARRAY_SIZE(first));
	sample(deeper, ARRAY_SIZE(deeper));
	sample(other, ARRAY_SIZE(other));
	name();
	assert_int_equal(t.batch->n_stacks, 3);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t len = t.batch->stacks[i].len;

		assert_string_equal(name_of(i, len - 1), "f300");
		if (len == 2) {
			assert_string_equal(name_of(i, 0), "f600");
			continue;
		}
		assert_string_equal(name_of(i, len - 2), "f200");
		assert_string_equal(name_of(i, len - 3), len == 3 ? "f100" : "f500");
		if (len == 4)
			assert_string_equal(name_of(i, 0), "f400");
	}
}

static int64_t v8_unreadable(void)
{
	return metric_family_get("kiln_runtime_missing_total",
				 "runtime=\"v8\",reason=\"unreadable\"");
}

static void frames_that_are_missing_say_why(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_MISSING, PY << 8 | KILN_MISSING_UNKNOWN),
				  fake_word(KILN_FRAME_MISSING, V8 << 8 | KILN_MISSING_READ),
				  fake_word(KILN_FRAME_MISSING, PY << 8 | KILN_MISSING_BUDGET)};
	int64_t before = v8_unreadable();

	sample(words, ARRAY_SIZE(words));
	name();
	assert_int_equal(t.batch->stacks[0].len, 3);
	assert_string_equal(function(0, 0)->name, "[python: not read yet]");
	assert_string_equal(function(1, 0)->name, "[v8: memory not readable]");
	assert_string_equal(function(2, 0)->name, "[python: more frames than one walk may follow]");
	assert_int_equal(location(0)->type, FRAME_ABORT);
	assert_int_equal(v8_unreadable(), before + 1);
}

static void a_frame_without_a_name_says_so_and_is_counted(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 101};
	int64_t before = metric_get(M_RUNTIME_NAMES_FAILED);

	sample(words, 2);
	sample(words, 2);
	name();
	assert_string_equal(function(0, 0)->name, "[python: no name]");
	assert_int_equal(location(0)->type, FRAME_CPYTHON);
	assert_int_equal(metric_get(M_RUNTIME_NAMES_FAILED), before + 1);
}

/* Freed memory may be valid again later, so a later sample tries again. */
static void a_name_that_was_not_there_is_looked_for_with_a_later_sample(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 101};
	int tried = fake.r[PY].symbolizes;

	for (int i = 0; i < 2 * RUNTIME_NAME_TRIES; i++) {
		sample(words, 2);
		sample(words, 2);
		assert_int_equal(fake.r[PY].symbolizes, tried + MIN(i + 1, RUNTIME_NAME_TRIES));
		runtime_frames_begin(t.frames, 1);
	}
}

/*
 * A drain names a limited number of frames; the next one goes on, at the latest at the window's
 * end.
 */
static void many_new_frames_at_once_all_get_names(void **state)
{
	enum { PER_STACK = 500, STACKS = 5, WORDS = 2 * PER_STACK };
	static uint64_t words[STACKS][WORDS];
	int64_t late = metric_get(M_RUNTIME_NAMES_LATE);
	uint32_t unnamed = 0;

	for (uint32_t s = 0; s < STACKS; s++) {
		for (uint32_t i = 0; i < PER_STACK; i++) {
			words[s][2 * i] = fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8);
			words[s][2 * i + 1] = 1000 + 2 * (s * PER_STACK + i);
		}
		sample(words[s], WORDS);
	}
	assert_int_equal(fake.r[PY].symbolizes, RUNTIME_FRAMES_PER_DRAIN);
	assert_true(metric_get(M_RUNTIME_NAMES_LATE) > late);
	runtime_frames_begin(t.frames, 1);
	assert_int_equal(fake.r[PY].symbolizes, 2 * RUNTIME_FRAMES_PER_DRAIN);
	runtime_frames_finish(t.frames, 1);
	assert_int_equal(fake.r[PY].symbolizes, STACKS * PER_STACK);
	name();
	for (uint32_t i = 0; i < t.batch->n_functions; i++)
		unnamed += streq(t.batch->functions[i].name, "[python: no name]");
	assert_int_equal(unnamed, 0);
}

/* The stack is known, so it is not treated as a new one, but its names must be read again. */
static void a_stack_that_comes_again_after_its_names_went_is_read_again(void **state)
{
	const uint64_t words[] = {fake_word(KILN_FRAME_RUNTIME(FAKE_PYTHON), 8), 100};

	sample(words, 2);
	runtime_frames_sweep(t.frames, 100);
	window_reset(&t.window, 100, 1);
	sample(words, 2);
	name();
	assert_string_equal(function(0, 0)->name, "f100");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(frames_have_their_type_and_all_inlined_lines),
	    TEST(outer_frames_that_were_named_before_have_the_same_names),
	    TEST(second_words_are_never_taken_for_frames),
	    TEST(frames_that_are_missing_say_why),
	    TEST(a_frame_without_a_name_says_so_and_is_counted),
	    TEST(a_name_that_was_not_there_is_looked_for_with_a_later_sample),
	    TEST(many_new_frames_at_once_all_get_names),
	    TEST(a_stack_that_comes_again_after_its_names_went_is_read_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
