/* SPDX-License-Identifier: Apache-2.0 */
/* Strings, scripts and position tables of forged heaps: every shape, and shapes without an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "agent/runtime/v8/code.h"
#include "agent/runtime/v8/deopt.h"
#include "agent/runtime/v8/image.h"
#include "agent/runtime/v8/script.h"

enum { HEAP = 0x10000, HEAP_SIZE = 1 << 16 };

static uint8_t heap[HEAP_SIZE];
static uint64_t end; /* of what is used */
static uint32_t reads;
static struct v8_layout layout;

static int read_heap(void *arg, uint64_t address, void *dst, size_t len)
{
	reads++;
	if (address < HEAP || len > HEAP_SIZE || address - HEAP > HEAP_SIZE - len)
		return -EFAULT;
	memcpy(dst, heap + (address - HEAP), len);
	return 0;
}

static const struct target_memory memory = {.read = read_heap};
static const struct v8_heap h = {.memory = &memory, .layout = &layout};

static void put(uint64_t object, uint32_t offset, uint64_t v)
{
	memcpy(heap + (object & ~3ULL) - HEAP + offset, &v, sizeof(v));
}

/* An object of TYPE; its map is made for it. */
static uint64_t object(uint16_t type, uint32_t size)
{
	uint64_t map = HEAP + end + 1, o;

	end += 16;
	memcpy(heap + (map - 1) - HEAP + 12, &type, sizeof(type));
	o = HEAP + end + 1;
	end += ALIGN_UP(size, 8) + 16;
	assert_true(end < HEAP_SIZE);
	put(o, 0, map);
	return o;
}

/* The numbers of V8 11.3: v8dbg_*StringTag. */
enum {
	ONE_BYTE = 8,
	CONS = 1,
	EXTERNAL = 2,
	SLICED = 3,
	THIN = 5,
	FIXED_ARRAY = 175,
	SCRIPT = 167
};

static int setup(void **state)
{
	memset(heap, 0, sizeof(heap));
	end = 64;
	reads = 0;
	memset(&layout, 0, sizeof(layout));
	layout.map_type = 12;
	layout.first_non_string = 128;
	layout.representation_mask = 7;
	layout.encoding_mask = layout.one_byte = ONE_BYTE;
	layout.cons = CONS;
	layout.external = EXTERNAL;
	layout.sliced = SLICED;
	layout.thin = THIN;
	layout.string_length = 12;
	layout.one_byte_chars = layout.two_byte_chars = 16;
	layout.cons_first = layout.sliced_parent = layout.thin_actual = 16;
	layout.cons_second = layout.sliced_offset = layout.external_data = 24;
	layout.array_length = 8;
	layout.array_data = 16;
	layout.bytecode_positions = 32;
	layout.type_fixed_array = FIXED_ARRAY;
	layout.type_script = SCRIPT;
	layout.script_source = 8;
	layout.script_name = 16;
	layout.script_line_offset = 24;
	layout.script_line_ends = 56;
	return 0;
}

static void set_length(uint64_t s, uint32_t n)
{
	memcpy(heap + (s - 1) - HEAP + 12, &n, sizeof(n));
}

static uint64_t text(const char *s)
{
	uint64_t o = object(ONE_BYTE, (uint32_t)(16 + strlen(s)));

	set_length(o, (uint32_t)strlen(s));
	memcpy(heap + (o - 1) - HEAP + 16, s, strlen(s));
	return o;
}

static uint64_t cons(uint64_t a, uint64_t b, uint32_t n)
{
	uint64_t o = object(ONE_BYTE | CONS, 32);

	set_length(o, n);
	put(o, 16, a);
	put(o, 24, b);
	return o;
}

static uint64_t thin(uint64_t actual)
{
	uint64_t o = object(ONE_BYTE | THIN, 24);

	put(o, 16, actual);
	return o;
}

static void expect(uint64_t s, const char *want)
{
	char room[2 * V8_STRING_MAX];
	struct v8_text t = {room, sizeof(room)};
	const char *got = "";

	assert_int_equal(v8_string(&h, s, &t, &got), 0);
	assert_string_equal(got, want);
}

static void strings_of_every_shape_read_as_their_characters(void **state)
{
	uint64_t ab = text("ab"), cde = text("cde"), two = object(0, 32),
		 slice = object(ONE_BYTE | SLICED, 32), out = object(ONE_BYTE | EXTERNAL, 32);
	static const uint16_t wide[] = {0xe4, 0x20ac, 0xd83d, 0xde00, 0xdc00};

	expect(ab, "ab");
	expect(cons(ab, cons(cde, ab, 5), 7), "abcdeab");
	expect(thin(thin(cde)), "cde");
	expect(cons(thin(ab), text(""), 2), "ab");
	put(slice, 16, thin(cde));
	put(slice, 24, 1ULL << 32);
	set_length(slice, 2);
	expect(slice, "de");
	set_length(two, ARRAY_SIZE(wide));
	memcpy(heap + (two - 1) - HEAP + 16, wide, sizeof(wide));
	expect(two, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbd");
	put(out, 24, ab - 1 + 16);
	set_length(out, 2);
	expect(out, "ab");
}

static void strings_without_end_end(void **state)
{
	char room[2 * V8_STRING_MAX];
	struct v8_text t = {room, sizeof(room)};
	uint64_t loop = thin(0), fork = cons(0, 0, 1 << 30), slice = object(ONE_BYTE | SLICED, 32);
	const char *got;

	put(loop, 16, loop);
	assert_true(v8_string(&h, loop, &t, &got) < 0);
	put(fork, 16, fork);
	put(fork, 24, fork);
	assert_true(v8_string(&h, fork, &t, &got) < 0);
	/* A slice that reaches beyond its parent's end. */
	put(slice, 16, text("abc"));
	put(slice, 24, 2ULL << 32);
	set_length(slice, 2);
	assert_true(v8_string(&h, slice, &t, &got) < 0);
	assert_true(reads < 2000);
}

static uint64_t script(uint64_t source, uint64_t name)
{
	uint64_t o = object(SCRIPT, 120);

	put(o, 8, source);
	put(o, 16, name);
	return o;
}

static uint32_t line_of(struct v8_scripts *s, uint64_t script, int32_t position)
{
	return v8_line_at(v8_script_lines(s, &h, script), position);
}

static void lines_end_as_ecma262_says(void **state)
{
	struct v8_scripts s = {0};
	uint64_t o = script(text("a\nb\r\nc\rd\n\ne"), text("x"));
	static const uint32_t line[] = {1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6};

	for (int32_t i = 0; i < (int32_t)ARRAY_SIZE(line); i++)
		assert_int_equal(line_of(&s, o, i), line[i]);
	assert_int_equal(line_of(&s, o, -1), 0);
	v8_scripts_done(&s);
}

static void lines_are_computed_once(void **state)
{
	struct v8_scripts s = {0};
	uint64_t o = script(text("a\nb\nc\n"), text("x"));
	uint32_t first;

	assert_int_equal(line_of(&s, o, 2), 2);
	first = reads;
	assert_int_equal(line_of(&s, o, 4), 3);
	assert_true(reads - first < first);
	/* The script gets another source. */
	put(o, 8, text("aaaaaa\n"));
	assert_int_equal(line_of(&s, o, 4), 1);
	v8_scripts_done(&s);
}

/* Cached functions refer to the lines of their script by number; a number is not reused when the
 * process is attached to again. */
static void lines_of_one_number_are_of_one_script(void **state)
{
	struct v8_scripts before = {0}, after = {0};
	uint64_t o = script(text("a\nb\nc\n"), text("x")), other = script(text("d"), text("y"));
	uint64_t number = v8_script_lines(&before, &h, o)->number;

	assert_non_null(v8_lines_numbered(&before, number));
	v8_scripts_done(&before);
	assert_non_null(v8_script_lines(&after, &h, other));
	assert_null(v8_lines_numbered(&after, number));
	v8_scripts_done(&after);
}

static void what_is_known_of_a_process_stays(void **state)
{
	struct v8_image image = {.layout.major = 11};
	struct runtime_image ri = {.ops = &v8_ops, .own = &image};
	struct runtime_target target = {0};
	struct kiln_runtime kernel;
	struct error err = {0};
	void *first, *second;

	assert_int_equal(v8_ops.attach(&ri, &target, &kernel, &first, &err), 0);
	target.previous = first;
	assert_int_equal(v8_ops.attach(&ri, &target, &kernel, &second, &err), 0);
	assert_ptr_equal(first, second);
	v8_ops.detach(first);
	v8_ops.detach(second);
}

static void v8s_own_line_ends_are_taken(void **state)
{
	struct v8_scripts s = {0};
	uint64_t o = script(text("abcdefghij"), text("x")), ends = object(FIXED_ARRAY, 40);

	put(ends, 8, 2ULL << 32);
	put(ends, 16, 4ULL << 32);
	put(ends, 24, 9ULL << 32);
	put(o, 56, ends);
	put(o, 24, 10ULL << 32); /* begins at line 11 of its page */
	assert_int_equal(line_of(&s, o, 4), 11);
	assert_int_equal(line_of(&s, o, 5), 12);
	v8_scripts_done(&s);
}

static void file_urls_are_paths(void **state)
{
	static const char *const cases[][2] = {
	    {"file:///a/b%20c%25.mjs", "/a/b c%.mjs"},
	    {"file:///a%0", "/a%0"},
	    {"file:///a%0ab", "/a%0ab"},
	    {"node:fs", "node:fs"},
	    {"file:x", "file:x"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char room[256];
		struct v8_text t = {room, sizeof(room)};
		const char *got = "";

		assert_int_equal(v8_script_name(&h, script(text(""), text(cases[i][0])), &t, &got),
				 0);
		assert_string_equal(got, cases[i][1]);
	}
}

static void position_is_that_of_the_last_entry_before(void **state)
{
	/* (0, 46 statement), (4, 57 expression), (16, 64): as V8 11.3 prints and codes them. */
	static const uint8_t table[] = {2, 0xbc, 1, 9, 44, 25, 28};
	uint64_t bytes = object(190, 32), array = object(191, 64);

	put(bytes, 8, (uint64_t)sizeof(table) << 32);
	memcpy(heap + (bytes - 1) - HEAP + 16, table, sizeof(table));
	put(array, 32, bytes);
	assert_int_equal(v8_bytecode_position(&h, array, 0), 46);
	assert_int_equal(v8_bytecode_position(&h, array, 3), 46);
	assert_int_equal(v8_bytecode_position(&h, array, 4), 57);
	assert_int_equal(v8_bytecode_position(&h, array, 15), 57);
	assert_int_equal(v8_bytecode_position(&h, array, 16), 64);
	/* A table that says to be longer than it is. */
	put(bytes, 8, 0x7fffffffULL << 32);
	assert_int_equal(v8_bytecode_position(&h, array, 3), -1);
}

static void positions_of_v8_14_have_flags_below_the_offset(void **state)
{
	/* (-1, 55), (0, 61 statement), (7, 67), (11, 74 statement): as V8 14.6 codes them. */
	static const uint8_t table[] = {2, 0xe0, 1, 7, 24, 30, 24, 19, 28};
	uint64_t bytes = object(190, 32), array = object(191, 64);

	layout.major = 14;
	put(bytes, 8, (uint64_t)sizeof(table) << 32);
	memcpy(heap + (bytes - 1) - HEAP + 16, table, sizeof(table));
	put(array, 32, bytes);
	assert_int_equal(v8_bytecode_position(&h, array, 0), 61);
	assert_int_equal(v8_bytecode_position(&h, array, 6), 61);
	assert_int_equal(v8_bytecode_position(&h, array, 7), 67);
	assert_int_equal(v8_bytecode_position(&h, array, 10), 67);
	assert_int_equal(v8_bytecode_position(&h, array, 11), 74);
}

/* As V8 13.6 has it, up to its last opcode. */
static const uint32_t opcodes_13_6[] = {6, 4, 3, 3, 2, 1, 3, 4, 3, 3, 3, 1, 0, 0, 3, 3, 1, 1, 2, 1};

static void a_table_of_opcodes_is_taken_when_it_is_one(void **state)
{
	uint32_t table[ARRAY_SIZE(opcodes_13_6)];
	struct v8_opcodes o = {0};

	assert_int_equal(v8_opcodes_init(&o, cursor_of(opcodes_13_6, sizeof(opcodes_13_6))), 0);
	assert_int_equal(o.n, ARRAY_SIZE(opcodes_13_6));
	assert_int_equal(o.begin, 14);
	assert_int_equal(o.operands[0], 6);
	/* Of another order, as that of V8 up to 12. */
	memcpy(table, opcodes_13_6, sizeof(table));
	table[0] = 1;
	table[1] = 0;
	assert_int_equal(v8_opcodes_init(&o, cursor_of(table, sizeof(table))), -ENOTSUP);
	memcpy(table, opcodes_13_6, sizeof(table));
	table[5] = UINT32_MAX;
	assert_int_equal(v8_opcodes_init(&o, cursor_of(table, sizeof(table))), -ENOTSUP);
	assert_int_equal(v8_opcodes_init(&o, cursor_of(table, 3)), -ENOTSUP);
	assert_int_equal(v8_opcodes_init(&o, cursor_of(NULL, 0)), -ENOTSUP);
	assert_int_equal(o.operands[0], 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(strings_of_every_shape_read_as_their_characters, setup),
	    cmocka_unit_test_setup(strings_without_end_end, setup),
	    cmocka_unit_test_setup(lines_end_as_ecma262_says, setup),
	    cmocka_unit_test_setup(lines_are_computed_once, setup),
	    cmocka_unit_test_setup(lines_of_one_number_are_of_one_script, setup),
	    cmocka_unit_test(what_is_known_of_a_process_stays),
	    cmocka_unit_test_setup(v8s_own_line_ends_are_taken, setup),
	    cmocka_unit_test_setup(file_urls_are_paths, setup),
	    cmocka_unit_test_setup(position_is_that_of_the_last_entry_before, setup),
	    cmocka_unit_test_setup(positions_of_v8_14_have_flags_below_the_offset, setup),
	    cmocka_unit_test(a_table_of_opcodes_is_taken_when_it_is_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
