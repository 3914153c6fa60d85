/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The readers of V8's objects. The input is the heap; addresses are taken modulo 64 KiB, so that
 * most words point into it. Objects of each kind are read at addresses that the heap's first words
 * give.
 */
#include "agent/runtime/v8/code.h"
#include "agent/runtime/v8/function.h"
#include "agent/runtime/v8/optimized.h"
#include "agent/runtime/v8/script.h"

enum { ADDRESSES = 1 << 16, STARTS = 4 };

/* V8 11.3 (Node.js 20). */
static const struct v8_layout layout = {
    .type_bytecode_array = 191,
    .type_code = 245,
    .type_fixed_array = 175,
    .type_instruction_stream = 252,
    .type_scope_info = 261,
    .type_script = 167,
    .type_shared = 262,
    .type_shared_wrapper = 263,
    .first_non_string = 128,
    .representation_mask = 7,
    .encoding_mask = 8,
    .one_byte = 8,
    .cons = 1,
    .external = 2,
    .sliced = 3,
    .thin = 5,
    .string_length = 12,
    .one_byte_chars = 16,
    .two_byte_chars = 16,
    .cons_first = 16,
    .cons_second = 24,
    .sliced_parent = 16,
    .sliced_offset = 24,
    .thin_actual = 16,
    .external_data = 24,
    .map_type = 12,
    .array_length = 8,
    .array_data = 16,
    .function_shared = 24,
    .shared_data = 8,
    .shared_name = 16,
    .shared_script = 32,
    .shared_lengths = 40,
    .shared_token = 44,
    .shared_flags = 48,
    .script_source = 8,
    .script_name = 16,
    .script_line_offset = 24,
    .script_line_ends = 56,
    .scope_flags = 8,
    .scope_locals = 24,
    .scope_first = 32,
    .bytecode_positions = 32,
    .bytecode_data = 54,
    .code_deopt = 16,
    .code_positions = 24,
    .code_start = 40,
    .code_size = 56,
    .code_flags = 48,
    .code_kind_mask = 15,
    .code_baseline = 11,
    .stream_header = 16,
    .deopt_inlined_count = 1,
    .deopt_literals = 2,
    .deopt_inlining = 7,
};

static int read_input(void *arg, uint64_t address, void *dst, size_t len)
{
	const struct cursor *input = arg;
	struct cursor c = *input;
	const uint8_t *p;

	cursor_seek(&c, address % ADDRESSES);
	p = cursor_bytes(&c, len);
	if (!p)
		return -EFAULT;
	memcpy(dst, p, len);
	return 0;
}

static void read_all(const struct v8_heap *h, uint64_t object, uint32_t offset)
{
	static char room[1 << 16];
	static const struct v8_bytecodes sizes = {.sizes = {{1, 2, 3, 4}, {2, 3, 4}, {4}}, .n = 4};
	static const struct v8_opcodes opcodes = {
	    .operands = {6, 4, 3, 3, 1, 0, 3, 3, 1, 2, 1}, .n = 11, .begin = 6};
	struct v8_text text = {room, sizeof(room)};
	struct v8_place places[V8_INLINE_MAX];
	struct v8_scripts scripts = {0};
	struct v8_code code = {.object = object, .size = offset};
	struct v8_function f;
	const char *name;
	uint64_t array, hint = 0;

	(void)v8_string(h, object, &text, &name);
	(void)v8_function_read(h, object, &text, &f);
	(void)v8_script_name(h, object, &text, &name);
	(void)v8_line_at(v8_script_lines(&scripts, h, object), (int32_t)offset);
	(void)v8_bytecode_of(h, object, &array);
	(void)v8_bytecode_position(h, object, offset);
	(void)v8_baseline_offset(h, &code, object, &sizes, offset);
	for (int i = 0; i < 4; i++) {
		code.maglev = i & 1;
		(void)v8_optimized_places(h, &code, &opcodes, offset, i & 2, object, places);
	}
	(void)v8_code_find(h, object + offset, &hint, &code);
	v8_scripts_done(&scripts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor heap = cursor_of(data, MIN(size, (size_t)ADDRESSES)), c = heap;
	const struct target_memory memory = {.read = read_input, .arg = &heap};
	struct v8_layout newer = layout; /* differs only in how V8 14 encodes positions */
	const struct v8_heap h = {.memory = &memory, .layout = &layout};
	const struct v8_heap h14 = {.memory = &memory, .layout = &newer};

	newer.major = 14;
	for (int i = 0; i < STARTS; i++) {
		uint64_t object = cursor_u16(&c) | 1;
		uint32_t offset = cursor_u16(&c);

		read_all(&h, object, offset);
		read_all(&h14, object, offset);
	}
	return 0;
}
