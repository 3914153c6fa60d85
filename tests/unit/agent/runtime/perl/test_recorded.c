// SPDX-License-Identifier: Apache-2.0
/*
 * The walk and the names over recorded memory of each version (hack/record-perl), and over the same
 * memory with forged structures: the work is bounded, and a broken structure gives a "missing"
 * entry.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/agent/runtime/perl/host_walk.h"
#include "tests/unit/agent/runtime/perl/recording.h"

static const char *const versions[] = {
    "5.26.3", "5.28.3", "5.32.1", "5.34.3", "5.36.0", "5.36.0-unthreaded",
    "5.38.2", "5.40.1", "5.42.3", "5.44.0",
};

enum { FRAMES = 19, GROUPS = 5, READS_MAX = 8 * KILN_PERL_CONTEXTS_MAX };

struct fixture {
	struct recording *r;
	struct target_memory memory;
	struct kiln_runtime kernel;
	void *state;
};

static const struct kiln_perl *data_of(const struct fixture *f)
{
	return (const struct kiln_perl *)f->kernel.data;
}

static struct fixture open_recording(const char *version)
{
	struct fixture f = {0};
	struct runtime_target target;
	char path[256];

	snprintf(path, sizeof(path), TEST_DATA "/perl/%s.txt", version);
	f.r = recording_read(path);
	assert_non_null(f.r);
	f.memory = recorded_memory_target(&f.r->memory);
	target = recording_target(f.r);
	assert_int_equal(perl_attach(&f.r->image.base, &target, &f.kernel, &f.state, NULL), 0);
	return f;
}

static void close_recording(struct fixture *f)
{
	perl_detach(f->state);
	recording_free(f->r);
}

static uint32_t walk(struct fixture *f)
{
	return host_walk(&f->memory, &f->kernel, f->r->state);
}

static enum kiln_missing missing_in(uint32_t n)
{
	for (uint32_t i = 0; i < n; i += kiln_frame_words(host.words[i])) {
		if (KILN_FRAME_KIND(host.words[i]) == KILN_FRAME_MISSING)
			return (enum kiln_missing)(host.words[i] & 255);
	}
	return KILN_MISSING_NONE;
}

/* The address of the interpreter's variable at OFFSET in the recording. */
static uint64_t variable(const struct fixture *f, uint64_t offset)
{
	return offset + (data_of(f)->kind == KILN_PERL_STATE_RBX ? f->r->state : 0);
}

static uint64_t newest_stack(struct fixture *f)
{
	return recorded_memory_word(&f->r->memory, variable(f, data_of(f)->at.curstackinfo));
}

/* The newest context of the newest stack. */
static uint64_t newest_context(struct fixture *f)
{
	uint64_t stack = newest_stack(f);

	return recorded_memory_word(&f->r->memory, stack + PERL_SI_CXSTACK) +
	       (uint64_t)(uint32_t)recorded_memory_word(&f->r->memory, stack + PERL_SI_CXIX) *
		   data_of(f)->context_size;
}

static void check_symbol(const struct symbol_result *got, const struct recording_frame *want)
{
	const char *file = got->symbols[0].file;

	assert_int_equal(got->n, 1);
	assert_int_equal(got->type, FRAME_PERL);
	assert_string_equal(got->symbols[0].name, want->name);
	assert_int_equal(got->symbols[0].line, want->line);
	assert_int_equal(got->symbols[0].start_line, want->start_line);
	assert_true(strlen(file) >= strlen(want->file));
	assert_string_equal(file + strlen(file) - strlen(want->file), want->file);
}

static void every_version_has_its_frames(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint32_t n = walk(&f);

		assert_int_equal(n, f.r->n_frames * 2);
		assert_int_equal(f.r->n_frames, FRAMES);
		for (uint32_t i = 0; i < n / 2; i++) {
			struct symbol_result got = {0};
			char scratch[4096];

			assert_int_equal(perl_symbolize(f.state, &f.memory, host.words + i * 2,
							scratch, sizeof(scratch), &got),
					 0);
			check_symbol(&got, &f.r->frames[i]);
		}
		/* The recorded frames are those that the program is written to have. */
		assert_string_equal(f.r->frames[0].name, "main::leaf");
		assert_string_equal(f.r->frames[1].name, "Shop::Cart::total");
		assert_string_equal(f.r->frames[4].name, "inner");
		assert_string_equal(f.r->frames[10].name, "main::größe");
		assert_string_equal(f.r->frames[11].name, "main::été_名");
		assert_string_equal(f.r->frames[18].name, "(main)");
		close_recording(&f);
	}
}

static void groups_end_where_c_called(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		(void)walk(&f);
		assert_int_equal(groups.n, GROUPS);
		assert_int_equal(f.r->n_groups, GROUPS);
		for (size_t i = 0; i < f.r->n_frames; i++) {
			assert_true(groups.ends[f.r->frames[i].group] > i * 2);
			assert_true(f.r->frames[i].group == 0 ||
				    groups.ends[f.r->frames[i].group - 1] <= i * 2);
		}
		close_recording(&f);
	}
}

static void what_is_sent_names_the_frame_as_memory_does(void **unused)
{

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		(void)walk(&f);
		for (size_t i = 0; i < f.r->n_frames; i++) {
			const struct kiln_text *text = host_text(host.words + i * 2);
			struct symbol_result got = {0};
			char scratch[4096];

			/* The walker sends no text for "(eval)". */
			if (streq(f.r->frames[i].name, "(eval)")) {
				assert_null(text);
				continue;
			}
			assert_non_null(text);
			assert_int_equal(
			    perl_read_text(f.state, text, scratch, sizeof(scratch), &got), 0);
			check_symbol(&got, &f.r->frames[i]);
		}
		close_recording(&f);
	}
}

static void a_replaced_statement_is_noticed(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint32_t n = walk(&f);

		for (uint32_t i = 0; i < n; i += 2) {
			uint64_t cop = KILN_PERL_AT(host.words[i + 1]) << 3, seq;
			struct symbol_result got = {0};
			char scratch[4096];

			if (KILN_PERL_PLACE(host.words[i]) != KILN_PERL_PLACE_COP)
				continue;
			/* cop_hints, cop_seq */
			seq = recorded_memory_word(&f.r->memory, cop + PERL_COP_SEQ - 4);
			recorded_memory_put(&f.r->memory, cop + PERL_COP_SEQ - 4,
					    seq + (1ULL << 32));
			assert_int_equal(perl_symbolize(f.state, &f.memory, host.words + i, scratch,
							sizeof(scratch), &got),
					 -EFAULT);
			recorded_memory_put(&f.r->memory, cop + PERL_COP_SEQ - 4, seq);
		}
		close_recording(&f);
	}
}

/* ---- forged structures ------------------------------------------------------------------------
 */

static void a_cycle_of_stacks_ends(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint64_t stack = newest_stack(&f),
			 index = recorded_memory_word(&f.r->memory, stack + PERL_SI_CXIX);
		uint32_t n;

		recorded_memory_put(&f.r->memory, stack + PERL_SI_PREV, stack);
		n = walk(&f);
		assert_true(missing_in(n) == KILN_MISSING_BUDGET || host.walk.full);
		assert_true(host.reads < READS_MAX);
		/* ... and with empty stacks. */
		recorded_memory_put(&f.r->memory, stack + PERL_SI_CXIX, index | UINT32_MAX);
		n = walk(&f);
		assert_int_equal(missing_in(n), KILN_MISSING_BUDGET);
		assert_true(host.reads < READS_MAX);
		close_recording(&f);
	}
}

static void counts_that_make_no_sense_are_said(void **unused)
{
	static const uint64_t counts[] = {0x7fffffffULL, 0x7fffffff7fffffffULL,
					  0x80000000fffffff0ULL, 0xffffffff00000005ULL};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
			struct fixture f = open_recording(versions[v]);

			recorded_memory_put(&f.r->memory, newest_stack(&f) + PERL_SI_CXIX,
					    counts[i]);
			assert_int_equal(missing_in(walk(&f)), KILN_MISSING_BROKEN);
			close_recording(&f);
		}
	}
}

static void wild_pointers_are_said(void **unused)
{
	static const uint64_t wild[] = {8, 0xdeadbeefdeadbee8, UINT64_MAX, 1ULL << 47};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		for (size_t i = 0; i < ARRAY_SIZE(wild); i++) {
			struct fixture f = open_recording(versions[v]);
			uint32_t n;

			/*
			 * The newest context may be half-written, so the one before it is forged.
			 */
			recorded_memory_put(&f.r->memory,
					    newest_context(&f) - data_of(&f)->context_size +
						data_of(&f)->sub_cv,
					    wild[i]);
			n = walk(&f);
			assert_int_equal(missing_in(n), KILN_MISSING_READ);
			/* All other frames are found. */
			assert_int_equal(n, (FRAMES - 1) * 2 + 1);
			recorded_memory_put(&f.r->memory, newest_stack(&f) + PERL_SI_CXSTACK,
					    wild[i]);
			assert_int_equal(missing_in(walk(&f)), KILN_MISSING_READ);
			recorded_memory_put(&f.r->memory,
					    variable(&f, data_of(&f)->at.curstackinfo), wild[i]);
			assert_int_equal(missing_in(walk(&f)), KILN_MISSING_READ);
			close_recording(&f);
		}
	}
}

static void a_half_written_context_is_passed_over(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		recorded_memory_put(&f.r->memory, newest_context(&f) + data_of(&f)->sub_cv, 0);
		assert_int_equal(walk(&f), (FRAMES - 1) * 2);
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

static void structures_without_end_are_bounded(void **unused)
{
	static const uint64_t steps[] = {0, 8, 16, 128, 4096, 1 << 20, 1ULL << 40};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
			uint64_t step = steps[i];
			struct target_memory memory = {.read = endless, .arg = &step};

			(void)host_walk(&memory, &f.kernel, f.r->state);
			assert_true(host.walk.runtime_frames <= KILN_MAX_USER_FRAMES);
			assert_true(host.reads < READS_MAX);
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
				uint64_t saved;
				uint32_t n;

				memcpy(&saved, p->bytes + at, 8);
				memcpy(p->bytes + at, &nonsense[(at / 8 + i) % 4], 8);
				n = walk(&f);
				for (uint32_t k = 0; k + 1 < n;
				     k += kiln_frame_words(host.words[k])) {
					struct symbol_result got;
					char scratch[512];

					if (!kiln_frame_runtime(host.words[k]))
						continue;
					(void)perl_symbolize(f.state, &f.memory, host.words + k,
							     scratch, sizeof(scratch), &got);
				}
				assert_true(host.reads < READS_MAX);
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
	    cmocka_unit_test(groups_end_where_c_called),
	    cmocka_unit_test(what_is_sent_names_the_frame_as_memory_does),
	    cmocka_unit_test(a_replaced_statement_is_noticed),
	    cmocka_unit_test(a_cycle_of_stacks_ends),
	    cmocka_unit_test(counts_that_make_no_sense_are_said),
	    cmocka_unit_test(wild_pointers_are_said),
	    cmocka_unit_test(a_half_written_context_is_passed_over),
	    cmocka_unit_test(structures_without_end_are_bounded),
	    cmocka_unit_test(nonsense_anywhere_does_no_harm),
	};

	return cmocka_run_group_tests_name("perl_recorded", tests, NULL, NULL);
}
