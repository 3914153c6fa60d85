// SPDX-License-Identifier: Apache-2.0
/*
 * The walk and the names over recorded memory of each version (hack/record-python), and over the
 * same memory with forged structures: the work is bounded, and a broken structure gives a "missing"
 * entry.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/unit/agent/runtime/python/host_walk.h"
#include "tests/unit/agent/runtime/python/recording.h"

static const char *const versions[] = {
    "3.6.15", "3.7.16", "3.8.18", "3.9.18", "3.10.13", "3.11.7", "3.11.2-distribution",
    "3.12.1", "3.13.0", "3.14.8", "3.15.0",
};

struct fixture {
	struct recording *r;
	struct target_memory memory;
	struct kiln_runtime kernel;
	const struct kiln_python *data;
	void *state;
};

static struct fixture open_recording(const char *version)
{
	struct fixture f = {0};
	struct runtime_target target;
	struct error err = {0};
	char path[256];

	snprintf(path, sizeof(path), TEST_DATA "/python/%s.txt", version);
	f.r = recording_read(path);
	assert_non_null(f.r);
	f.memory = recorded_memory_target(&f.r->memory);
	target = recording_target(f.r);
	if (python_attach(&f.r->image.base, &target, &f.kernel, &f.state, &err) < 0)
		fail_msg("%s: %s", version, err.message);
	return f;
}

static void close_recording(struct fixture *f)
{
	python_detach(f->state);
	recording_free(f->r);
}

static enum kiln_missing missing_in(uint32_t n)
{
	for (uint32_t i = 0; i < n; i += kiln_frame_words(host.words[i])) {
		if (KILN_FRAME_KIND(host.words[i]) == KILN_FRAME_MISSING)
			return (enum kiln_missing)(host.words[i] & 255);
	}
	return KILN_MISSING_NONE;
}

static uint64_t code_of(uint32_t frame)
{
	return host.words[(size_t)frame * 2] & KILN_FRAME_PC_MASK;
}

static void every_version_has_its_frames(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint32_t n = host_walk(&f.memory, &f.kernel, f.r->thread);

		assert_int_equal(n, f.r->n_frames * 2);
		assert_int_equal(f.r->n_frames, 18);
		for (uint32_t i = 0; i < n / 2; i++) {
			const struct recording_frame *want = &f.r->frames[i];
			struct symbol_result got = {0};
			char scratch[4096];
			size_t len = strlen(want->file);

			assert_int_equal(python_symbolize(f.state, &f.memory, host.words + i * 2,
							  scratch, sizeof(scratch), &got),
					 0);
			assert_int_equal(got.n, 1);
			assert_int_equal(got.type, FRAME_CPYTHON);
			assert_string_equal(got.symbols[0].name, want->name);
			assert_int_equal(got.symbols[0].line, want->line);
			assert_int_equal(got.symbols[0].start_line, want->start_line);
			assert_true(strlen(got.symbols[0].file) >= len);
			assert_string_equal(got.symbols[0].file + strlen(got.symbols[0].file) - len,
					    want->file);
		}
		/* The recorded frames are those that the program is written to have. */
		assert_string_equal(f.r->frames[2].name, "größe");
		assert_string_equal(f.r->frames[17].name, "<module>");
		close_recording(&f);
	}
}

static int unreadable(void *arg, uint64_t address, void *dst, size_t len)
{
	return -EFAULT;
}

static void a_known_function_is_named_without_a_look_at_the_process(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint32_t n = host_walk(&f.memory, &f.kernel, f.r->thread);
		struct symbol_result got;
		char scratch[4096];
		bool found = false;

		assert_int_equal(runtime_functions_new(1 << 20, &f.memory.functions), 0);
		f.memory.found = &found;
		for (uint32_t i = 0; i < n; i += 2)
			assert_int_equal(python_symbolize(f.state, &f.memory, host.words + i,
							  scratch, sizeof(scratch), &got),
					 0);
		f.memory.read = unreadable;
		for (uint32_t i = 0; i < n; i += 2) {
			const struct recording_frame *want = &f.r->frames[i / 2];

			found = false;

			assert_int_equal(python_symbolize(f.state, &f.memory, host.words + i,
							  scratch, sizeof(scratch), &got),
					 0);
			assert_true(found);
			assert_string_equal(got.symbols[0].name, want->name);
			assert_int_equal(got.symbols[0].line, want->line);
			assert_int_equal(got.symbols[0].start_line, want->start_line);
		}
		/* Another code object at the same address is another function: no name. */
		host.words[1] ^= 1ULL << 40;
		assert_int_equal(python_symbolize(f.state, &f.memory, host.words, scratch,
						  sizeof(scratch), &got),
				 -EFAULT);
		runtime_functions_free(f.memory.functions);
		close_recording(&f);
	}
}

static void the_bound_state_does_without_the_running_one(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		struct kiln_python *k = (struct kiln_python *)f.kernel.data;

		assert_true(k->flags & KILN_PYTHON_HAS_TSD);
		k->flags = KILN_PYTHON_HAS_TSD;
		assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread), 36);
		close_recording(&f);
	}
}

static void the_list_of_threads_does_without_both(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		struct kiln_python *k = (struct kiln_python *)f.kernel.data;

		k->flags = KILN_PYTHON_HAS_LIST;
		assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread), 36);
		close_recording(&f);
	}
}

static void another_thread_has_no_frames_of_this_one(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		struct kiln_python *k = (struct kiln_python *)f.kernel.data;
		uint8_t flags = k->flags;

		/* The recording has no memory of other threads. */
		k->flags &= KILN_PYTHON_HAS_CURRENT;
		assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread + 4096), 1);
		assert_int_equal(missing_in(1), KILN_MISSING_NO_THREAD);
		k->flags = flags;
		assert_int_equal(host_walk(&f.memory, &f.kernel, 0), 1);
		close_recording(&f);
	}
}

static void memory_that_cannot_be_read_is_no_thread_without_python(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		struct kiln_python *k = (struct kiln_python *)f.kernel.data;

		k->flags = KILN_PYTHON_HAS_LIST;
		k->interpreters = 8;
		assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread), 1);
		assert_int_equal(missing_in(1), KILN_MISSING_READ);
		close_recording(&f);
	}
}

static void a_replaced_code_object_is_noticed(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		struct python_process *p = f.state;
		struct symbol_result got = {0};
		char scratch[4096];
		uint8_t *line;

		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		line = recorded_memory_at(&f.r->memory, code_of(0) + p->layout.code_firstlineno, 4);
		assert_non_null(line);
		*line += 1;
		assert_int_equal(python_symbolize(f.state, &f.memory, host.words, scratch,
						  sizeof(scratch), &got),
				 -EFAULT);
		close_recording(&f);
	}
}

/* ---- forged structures ------------------------------------------------------------------------
 */

/* The address of frame N of the chain; STATE: the thread's state. */
static uint64_t frame_address(struct fixture *f, uint64_t state, int n)
{
	const struct kiln_python *k = (const struct kiln_python *)f->kernel.data;
	uint64_t at = 0;

	memcpy(&at, recorded_memory_at(&f->r->memory, state + k->thread_frame, 8), 8);
	if (k->cframe_frame != KILN_PYTHON_NONE && k->kind != KILN_PYTHON_OBJECTS)
		memcpy(&at, recorded_memory_at(&f->r->memory, at + k->cframe_frame, 8), 8);
	for (; n > 0; n--)
		memcpy(&at,
		       recorded_memory_at(&f->r->memory, at + k->frame_from + k->frame_previous, 8),
		       8);
	return at;
}

static void a_cycle_ends(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		const struct kiln_python *k = (const struct kiln_python *)f.kernel.data;
		uint64_t state, last, first;
		uint32_t n;

		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		state = host.walk.cursor.words[PYTHON_STATE];
		first = frame_address(&f, state, 1);
		last = frame_address(&f, state, 9);
		recorded_memory_put(&f.r->memory, last + k->frame_from + k->frame_previous, first);
		n = host_walk(&f.memory, &f.kernel, f.r->thread);
		assert_int_equal(missing_in(n), KILN_MISSING_BROKEN);
		assert_true(n < 100 && host.reads < 300);
		close_recording(&f);
	}
}

static void wild_pointers_are_said(void **unused)
{
	static const uint64_t wild[] = {8, 0xdeadbeefdeadbeef, UINT64_MAX, 1ULL << 47};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		for (size_t i = 0; i < ARRAY_SIZE(wild); i++) {
			struct fixture f = open_recording(versions[v]);
			const struct kiln_python *k = (const struct kiln_python *)f.kernel.data;
			uint64_t frame;
			uint32_t n;

			(void)host_walk(&f.memory, &f.kernel, f.r->thread);
			frame = frame_address(&f, host.walk.cursor.words[PYTHON_STATE], 2);
			recorded_memory_put(&f.r->memory, frame + k->frame_from + k->frame_previous,
					    wild[i]);
			n = host_walk(&f.memory, &f.kernel, f.r->thread);
			assert_int_equal(missing_in(n), KILN_MISSING_READ);
			/*
			 * The frames before it are still found; from 3.12 on one of them is a shim.
			 */
			assert_int_equal(n, (k->kind == KILN_PYTHON_SHIM ? 2 : 3) * 2 + 1);
			close_recording(&f);
		}
	}
}

static void what_is_no_code_object_is_said(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		const struct kiln_python *k = (const struct kiln_python *)f.kernel.data;

		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		recorded_memory_put(&f.r->memory, code_of(0) + k->code_from, 0x1234);
		assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread), 1);
		assert_int_equal(missing_in(1), KILN_MISSING_BROKEN);
		close_recording(&f);
	}
}

static void a_frame_without_code_is_said(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		const struct kiln_python *k = (const struct kiln_python *)f.kernel.data;
		uint64_t frame;

		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		frame = frame_address(&f, host.walk.cursor.words[PYTHON_STATE], 0);
		recorded_memory_put(&f.r->memory, frame + k->frame_from + k->frame_code, 0);
		assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread), 1);
		assert_int_equal(missing_in(1), KILN_MISSING_BROKEN);
		close_recording(&f);
	}
}

/* Memory without an end: every structure is full of pointers to another one. */
static int endless(void *arg, uint64_t address, void *dst, size_t len)
{
	uint64_t *step = arg, value;

	for (size_t i = 0; i < len; i++) {
		value = (address + *step) & ~7ULL;
		((uint8_t *)dst)[i] = (uint8_t)(value >> ((address + i) % 8 * 8));
	}
	return 0;
}

static void chains_without_end_are_bounded(void **unused)
{
	static const uint64_t steps[] = {0, 8, 16, 128, 4096, 1 << 20};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		struct kiln_python *k = (struct kiln_python *)f.kernel.data;

		k->code_type = 0;
		for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
			uint64_t step = steps[i];
			struct target_memory memory = {.read = endless, .arg = &step};

			(void)host_walk(&memory, &f.kernel, f.r->thread);
			assert_true(host.walk.runtime_frames <= KILN_MAX_USER_FRAMES);
			assert_true(host.reads < 3 * KILN_PYTHON_STEPS_MAX);
		}
		close_recording(&f);
	}
}

/* Puts nonsense into each recorded word in turn: walking and naming must end. */
static void nonsense_anywhere_does_no_harm(void **unused)
{
	static const uint64_t nonsense[] = {0, 1, UINT64_MAX, 0x4141414141414141};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		for (size_t i = 0; i < f.r->memory.n_pieces; i++) {
			struct recorded_piece *p = &f.r->memory.pieces[i];

			for (uint64_t at = 0; at + 8 <= p->size; at += 8) {
				struct runtime_target target = recording_target(f.r);
				struct kiln_runtime kernel;
				uint64_t saved;
				void *state;
				uint32_t n;

				memcpy(&saved, p->bytes + at, 8);
				memcpy(p->bytes + at, &nonsense[(at / 8 + i) % 4], 8);
				n = host_walk(&f.memory, &f.kernel, f.r->thread);
				for (uint32_t k = 0; k + 1 < n; k += 2) {
					struct symbol_result got;
					char scratch[512];

					if (!kiln_frame_runtime(host.words[k]))
						break;
					(void)python_symbolize(f.state, &f.memory, host.words + k,
							       scratch, sizeof(scratch), &got);
				}
				if (python_attach(&f.r->image.base, &target, &kernel, &state,
						  NULL) == 0)
					python_detach(state);
				memcpy(p->bytes + at, &saved, 8);
			}
		}
		close_recording(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_version_has_its_frames),
	    cmocka_unit_test(a_known_function_is_named_without_a_look_at_the_process),
	    cmocka_unit_test(the_bound_state_does_without_the_running_one),
	    cmocka_unit_test(the_list_of_threads_does_without_both),
	    cmocka_unit_test(another_thread_has_no_frames_of_this_one),
	    cmocka_unit_test(memory_that_cannot_be_read_is_no_thread_without_python),
	    cmocka_unit_test(a_replaced_code_object_is_noticed),
	    cmocka_unit_test(a_cycle_ends),
	    cmocka_unit_test(wild_pointers_are_said),
	    cmocka_unit_test(what_is_no_code_object_is_said),
	    cmocka_unit_test(a_frame_without_code_is_said),
	    cmocka_unit_test(chains_without_end_are_bounded),
	    cmocka_unit_test(nonsense_anywhere_does_no_harm),
	};

	return cmocka_run_group_tests_name("python_recorded", tests, NULL, NULL);
}
