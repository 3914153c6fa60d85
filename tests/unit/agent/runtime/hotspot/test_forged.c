/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that says it is a JVM: what is read from a valid one, and the bounds for forged ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/agent/runtime/hotspot/forged.h"

enum { READS_MAX = 1 << 18, ROUNDS = 3000 };

static struct forged forged;
static struct error err;

static int attach(struct kiln_runtime *kernel, void **state)
{
	struct runtime_target target = forged_target(&forged);

	err = (struct error){0};
	return hotspot_ops.attach(&forged.image.base, &target, kernel, state, &err);
}

/* Attaches, reads the code and names a frame of each kind; NAME gets the names, a line each. */
static int use(char *name, size_t size)
{
	const uint64_t compiled[] = {
	    FORGED_COMPILED_PC,
	    KILN_HOTSPOT_CODE(FORGED_COMPILED_ID, FORGED_COMPILED_PC - FORGED_COMPILED_BLOB)};
	const uint64_t stub[] = {(uint64_t)KILN_HOTSPOT_STUB << KILN_FRAME_FLAG_SHIFT |
				     FORGED_STUB_PC,
				 KILN_HOTSPOT_CODE(0, KILN_HOTSPOT_DISTANCE_MAX)};
	const uint64_t *const frames[] = {compiled, stub};
	struct runtime_target target = forged_target(&forged);
	static char scratch[1 << 16];
	struct unwind_table *t = NULL;
	struct symbol_result got;
	struct kiln_runtime kernel;
	void *state;
	int r = attach(&kernel, &state);

	name[0] = 0;
	if (r < 0)
		return r;
	if (hotspot_ops.read_code(state, &target.memory, false, &kernel, &t) == 0)
		unwind_table_free(t);
	for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
		got.n = 0;
		r = hotspot_ops.symbolize(state, &target.memory, frames[i], scratch,
					  sizeof(scratch), &got);
		if (r == 0 && got.n) {
			size_t n = strlen(name);

			snprintf(name + n, size - n, "%s %s:%u\n", got.symbols[0].name,
				 got.symbols[0].file, got.symbols[0].line);
		}
	}
	hotspot_ops.detach(state);
	return 0;
}

static void test_a_small_machine_is_read(void **state)
{
	char names[256];

	forged_init(&forged);
	forged.image.descs = FORGED_DESCS;
	assert_int_equal(use(names, sizeof(names)), 0);
	assert_string_equal(names, "kiln.Forged.burn Forged.java:5\n"
				   "StubRoutines::call :0\n");
	/* If the list of stubs is not exported, it is searched for. */
	forged.image.descs = 0;
	assert_int_equal(use(names, sizeof(names)), 0);
	assert_non_null(strstr(names, "StubRoutines::call"));
}

/* A compiler's buffer is no piece of the machine's own code: other code lies there soon. */
static void test_buffers_of_compilers_are_passed_over(void **state)
{
	static const struct {
		const char *name;
		bool is_own;
	} blobs[] = {{"ExceptionBlob", true},
		     {"Compile::Fill_buffer", false},
		     {"Compile::scratch_buffer", false},
		     {"C1 temporary CodeBuffer", false},
		     {"JVMCI Compiler CodeBuffer", false}};
	struct runtime_target target = forged_target(&forged);
	struct hotspot_pieces pieces;
	struct kiln_runtime kernel;
	void *attached;

	for (size_t i = 0; i < ARRAY_SIZE(blobs); i++) {
		forged_init(&forged);
		forged.image.descs = FORGED_DESCS;
		forged_word(&forged, FORGED_LIBRARY + FORGED_DESCS, 0);
		forged_name_stub(&forged, blobs[i].name);
		assert_int_equal(attach(&kernel, &attached), 0);
		assert_int_equal(hotspot_pieces_find(attached, &target.memory, &pieces), 0);
		if ((hotspot_piece_at(&pieces, FORGED_STUB_PC) != NULL) != blobs[i].is_own)
			fail_msg("%s", blobs[i].name);
		hotspot_pieces_done(&pieces);
		hotspot_ops.detach(attached);
	}
}

static void test_sizes_and_offsets_that_make_no_sense_are_refused(void **state)
{
	static const struct {
		const char *type, *field;
		uint64_t value;
	} lies[] = {
	    {"PcDesc", NULL, 0},
	    {"PcDesc", NULL, 7},
	    {"PcDesc", "_pc_offset", 13},
	    {"PcDesc", "_scope_decode_offset", 65535},
	    {"HeapBlock", NULL, 0},
	    {"HeapBlock", NULL, 33},
	    {"CodeBlob", "_size", 101},
	    {"CodeBlob", "_size", 65535},
	    {"CodeBlob", "_name", 97},
	    {"CodeBlob", "_frame_size", 101},
	    {"CodeBlob", "_code_offset", 97},
	};
	struct kiln_runtime kernel;
	void *attached;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		forged_init(&forged);
		forged_tell(&forged, lies[i].type, lies[i].field, lies[i].value);
		if (attach(&kernel, &attached) != -ENOTSUP)
			fail_msg("%s %s: %llu was taken", lies[i].type,
				 lies[i].field ? lies[i].field : "",
				 (unsigned long long)lies[i].value);
		assert_true(err.message[0]);
	}
}

/*
 * If the code returns between the leaf and the next description, the leaf is in the method itself,
 * however far the description is. If the code runs on to the description, the leaf is in the
 * function inlined there.
 */
static void test_a_leaf_that_returns_is_in_no_later_call(void **state)
{
	enum { PCS = 0x18a00, CODE = FORGED_COMPILED_BLOB + 64, NOP = 0x90, RET = 0xc3 };
	static const struct {
		uint32_t distance;
		uint8_t code;
		int places;
	} cases[] = {{100, NOP, 2}, {100, RET, 1}, {3000, NOP, 2}, {3000, RET, 1}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const uint32_t at = FORGED_COMPILED_PC - CODE, next = at + cases[i].distance;
		struct runtime_target target = forged_target(&forged);
		struct hotspot_place places[HOTSPOT_PLACES];
		struct kiln_runtime kernel;
		void *attached;

		forged_init(&forged);
		memset(forged.bytes + (FORGED_COMPILED_PC - FORGED_BASE), NOP, cases[i].distance);
		/*
		 * A return between the previous description and the leaf: control does not flow
		 * from one to the other.
		 */
		forged.bytes[FORGED_COMPILED_PC + 4 - FORGED_BASE] = RET;
		forged.bytes[FORGED_COMPILED_PC + 20 - FORGED_BASE] = cases[i].code;
		/* A method that the compiled one calls, inlined. */
		forged_word(&forged, PCS + 16, next | 8ULL << 32);
		memcpy(forged.bytes + (PCS + 64 + 8 - FORGED_BASE), "\5\2\3", 3);
		assert_int_equal(attach(&kernel, &attached), 0);
		assert_int_equal(hotspot_code_places(attached, &target.memory, FORGED_COMPILED_BLOB,
						     FORGED_COMPILED_PC + 8, places,
						     HOTSPOT_PLACES),
				 cases[i].places);
		hotspot_ops.detach(attached);
	}
}

/* A method's entry has a description without a bytecode, wherever its code lies. */
static void test_a_leaf_before_the_code_of_the_entry_has_a_line(void **state)
{
	enum { PCS = 0x18a00, CODE = FORGED_COMPILED_BLOB + 64, RET = 0xc3 };
	const uint32_t at = FORGED_COMPILED_PC - CODE;
	struct runtime_target target = forged_target(&forged);
	struct hotspot_place places[HOTSPOT_PLACES];
	struct kiln_runtime kernel;
	void *attached;

	forged_init(&forged);
	forged.bytes[FORGED_COMPILED_PC + 20 - FORGED_BASE] = RET;
	forged_word(&forged, PCS + 16, (at + 100) | 8ULL << 32);
	memcpy(forged.bytes + (PCS + 64 + 8 - FORGED_BASE), "\1\2\1", 3);
	assert_int_equal(attach(&kernel, &attached), 0);
	assert_int_equal(hotspot_code_places(attached, &target.memory, FORGED_COMPILED_BLOB,
					     FORGED_COMPILED_PC + 8, places, HOTSPOT_PLACES),
			 1);
	assert_int_equal(places[0].bci, 0);
	hotspot_ops.detach(attached);
}

/* All descriptions are before the leaf; the bytes behind the last one look like another. */
static void test_a_description_before_the_leaf_is_not_followed(void **state)
{
	enum { PCS = 0x18a00, CODE = FORGED_COMPILED_BLOB + 64, DESCS = 4 };
	struct runtime_target target = forged_target(&forged);
	struct hotspot_place places[HOTSPOT_PLACES];
	struct kiln_runtime kernel;
	void *attached;

	forged_init(&forged);
	for (uint64_t i = 0; i < DESCS; i++)
		forged_word(&forged, PCS + i * 16, (FORGED_COMPILED_PC - CODE) | 4ULL << 32);
	memset(forged.bytes + (PCS + DESCS * 16 - FORGED_BASE), 0, 4);
	assert_int_equal(attach(&kernel, &attached), 0);
	assert_int_equal(hotspot_code_places(attached, &target.memory, FORGED_COMPILED_BLOB,
					     FORGED_COMPILED_PC + 8, places, HOTSPOT_PLACES),
			 1);
	hotspot_ops.detach(attached);
}

/* Code between two calls of inlined code that belongs to the method itself. */
static void test_a_leaf_among_inlined_code_may_be_the_methods(void **state)
{
	enum { PCS = 0x18a00, CODE = FORGED_COMPILED_BLOB + 64, RET = 0xc3, CALL = 0xe8 };
	static const struct {
		uint8_t end;
		int places;
	} cases[] = {{RET, 1}, {CALL, 2}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct runtime_target target = forged_target(&forged);
		struct hotspot_place places[HOTSPOT_PLACES];
		struct kiln_runtime kernel;
		void *attached;

		forged_init(&forged);
		memset(forged.bytes + (FORGED_COMPILED_PC - FORGED_BASE), 0x90, 512);
		forged.bytes[FORGED_COMPILED_PC + 4 - FORGED_BASE] = RET;
		/* jl back; jmp +64, to the instruction that ends the case. */
		memcpy(forged.bytes + (FORGED_COMPILED_PC + 16 - FORGED_BASE), "\x7c\xf6\xeb\x40",
		       4);
		forged.bytes[FORGED_COMPILED_PC + 100 - FORGED_BASE] = cases[i].end;
		forged_word(&forged, PCS, (FORGED_COMPILED_PC - CODE) | 8ULL << 32);
		forged_word(&forged, PCS + 16, (FORGED_COMPILED_PC + 64 - CODE) | 8ULL << 32);
		memcpy(forged.bytes + (PCS + 64 + 8 - FORGED_BASE), "\5\2\3", 3);
		assert_int_equal(attach(&kernel, &attached), 0);
		assert_int_equal(hotspot_code_places(attached, &target.memory, FORGED_COMPILED_BLOB,
						     FORGED_COMPILED_PC + 8, places,
						     HOTSPOT_PLACES),
				 cases[i].places);
		hotspot_ops.detach(attached);
	}
}

/* Each variable leads to a ring of structures that look like stubs; none is a stub of the JVM. */
static void test_the_search_for_the_stubs_ends(void **state)
{
	char names[256];
	uint64_t ring = 0x1c000;

	forged_init(&forged);
	for (uint64_t at = FORGED_DESCS; at < FORGED_LIBRARY_BYTES; at += 8)
		forged_word(&forged, FORGED_LIBRARY + at, ring);
	for (uint64_t i = 0; i < 64; i++) {
		forged_word(&forged, ring + i * 64, ring + (i + 1) % 64 * 64);
		forged_word(&forged, ring + i * 64 + 8, FORGED_BASE);
		forged_word(&forged, ring + i * 64 + 16, FORGED_BASE);
		forged_word(&forged, ring + i * 64 + 24, FORGED_STUB_PC);
		forged_word(&forged, ring + i * 64 + 32, FORGED_STUB_PC + 4);
	}
	assert_int_equal(use(names, sizeof(names)), 0);
	assert_true(forged.reads < READS_MAX);
}

static void test_random_words_cost_little(void **state)
{
	uint64_t seed = 1;
	char names[256];

	for (int i = 0; i < ROUNDS; i++) {
		forged_init(&forged);
		for (int n = 0; n < 1 + i % 8; n++) {
			uint64_t at, value;

			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			at = FORGED_BASE + (seed >> 33) % (FORGED_BYTES - 8);
			value = seed >> 62 == 0	  ? seed
				: seed >> 62 == 1 ? FORGED_BASE + (seed >> 20) % FORGED_BYTES
						  : (seed >> 40) % 256;
			forged_word(&forged, at, value);
		}
		(void)use(names, sizeof(names));
		assert_true(forged.reads < READS_MAX);
	}
}

static int compare_cookies(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Classes that come to lie in the same place, one after another, differ in their names' identity.
 */
static void test_methods_in_one_place_have_different_cookies(void **state)
{
	enum { CLASSES = 1 << 16 };
	static uint32_t cookies[CLASSES];

	for (uint32_t i = 0; i < CLASSES; i++)
		cookies[i] = kiln_hotspot_cookie(0x7f0012345678, 0x7f00abcdef08, i, 21);
	qsort(cookies, CLASSES, sizeof(*cookies), compare_cookies);
	for (uint32_t i = 1; i < CLASSES; i++)
		assert_int_not_equal(cookies[i - 1], cookies[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_methods_in_one_place_have_different_cookies),
	    cmocka_unit_test(test_a_small_machine_is_read),
	    cmocka_unit_test(test_buffers_of_compilers_are_passed_over),
	    cmocka_unit_test(test_sizes_and_offsets_that_make_no_sense_are_refused),
	    cmocka_unit_test(test_a_leaf_that_returns_is_in_no_later_call),
	    cmocka_unit_test(test_a_leaf_before_the_code_of_the_entry_has_a_line),
	    cmocka_unit_test(test_a_description_before_the_leaf_is_not_followed),
	    cmocka_unit_test(test_a_leaf_among_inlined_code_may_be_the_methods),
	    cmocka_unit_test(test_the_search_for_the_stubs_ends),
	    cmocka_unit_test(test_random_words_cost_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
