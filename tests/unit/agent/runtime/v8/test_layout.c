/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What layout.c makes of the symbols of a file: an image with nothing else in it, with what Node.js
 * 26 (V8 14.6) says of itself, and with versions that nothing is known of.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <elf.h>

#include "agent/runtime/v8/layout.h"

enum {
	SYMBOLS_MAX = 128,
	STRINGS = 0x4000,
	VALUES = 0xc000,
	FILE_SIZE = 0x10000,
	FIRST_VARS = 5,
	WASM_TO_JS = 25
};

/* Each with the member that it is for. */
static const struct {
	const char *name;
	int32_t value;
	size_t at;
} said[] = {
    {"v8dbg_CodeKindBaseline", 11, offsetof(struct v8_layout, code_baseline)},
    {"v8dbg_CodeKindFieldMask", 15, offsetof(struct v8_layout, code_kind_mask)},
    {"v8dbg_ConsStringTag", 1, offsetof(struct v8_layout, cons)},
    {"v8dbg_DeoptimizationDataInlinedFunctionCountIndex", 1,
     offsetof(struct v8_layout, deopt_inlined_count)},
    {"v8dbg_DeoptimizationDataInliningPositionsIndex", 8,
     offsetof(struct v8_layout, deopt_inlining)},
    {"v8dbg_DeoptimizationDataLiteralArrayIndex", 3, offsetof(struct v8_layout, deopt_literals)},
    {"v8dbg_ExternalStringTag", 2, offsetof(struct v8_layout, external)},
    {"v8dbg_FirstNonstringType", 128, offsetof(struct v8_layout, first_non_string)},
    {"v8dbg_OneByteStringTag", 8, offsetof(struct v8_layout, one_byte)},
    {"v8dbg_SeqStringTag", 0, offsetof(struct v8_layout, sequential)},
    {"v8dbg_SlicedStringTag", 3, offsetof(struct v8_layout, sliced)},
    {"v8dbg_StringEncodingMask", 8, offsetof(struct v8_layout, encoding_mask)},
    {"v8dbg_StringRepresentationMask", 7, offsetof(struct v8_layout, representation_mask)},
    {"v8dbg_ThinStringTag", 5, offsetof(struct v8_layout, thin)},
    {"v8dbg_class_BytecodeArray__data__uintptr_t", 64, offsetof(struct v8_layout, bytecode_data)},
    {"v8dbg_class_Code__flags__uint32_t", 52, offsetof(struct v8_layout, code_flags)},
    {"v8dbg_class_Code__instruction_size__int", 56, offsetof(struct v8_layout, code_size)},
    {"v8dbg_class_Code__instruction_start__Address", 40, offsetof(struct v8_layout, code_start)},
    {"v8dbg_class_ConsString__first__String", 16, offsetof(struct v8_layout, cons_first)},
    {"v8dbg_class_ConsString__second__String", 24, offsetof(struct v8_layout, cons_second)},
    {"v8dbg_class_FixedArrayBase__length__SMI", 8, offsetof(struct v8_layout, array_length)},
    {"v8dbg_class_FixedArray__data__uintptr_t", 16, offsetof(struct v8_layout, array_data)},
    {"v8dbg_class_JSFunction__shared__SharedFunctionInfo", 32,
     offsetof(struct v8_layout, function_shared)},
    {"v8dbg_class_Map__instance_type__uint16_t", 12, offsetof(struct v8_layout, map_type)},
    {"v8dbg_class_Script__line_ends__Object", 56, offsetof(struct v8_layout, script_line_ends)},
    {"v8dbg_class_Script__name__Object", 16, offsetof(struct v8_layout, script_name)},
    {"v8dbg_class_Script__source__Object", 8, offsetof(struct v8_layout, script_source)},
    {"v8dbg_class_SeqOneByteString__chars__char", 16, offsetof(struct v8_layout, one_byte_chars)},
    {"v8dbg_class_SeqTwoByteString__chars__char", 16, offsetof(struct v8_layout, two_byte_chars)},
    {"v8dbg_class_SharedFunctionInfo__flags__int", 56, offsetof(struct v8_layout, shared_flags)},
    {"v8dbg_class_SharedFunctionInfo__length__uint16_t", 48,
     offsetof(struct v8_layout, shared_lengths)},
    {"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_", 24,
     offsetof(struct v8_layout, shared_name)},
    {"v8dbg_class_SharedFunctionInfo__raw_function_token_offset__int16_t", 52,
     offsetof(struct v8_layout, shared_token)},
    {"v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_", 40,
     offsetof(struct v8_layout, shared_script)},
    {"v8dbg_class_SlicedString__offset__SMI", 24, offsetof(struct v8_layout, sliced_offset)},
    {"v8dbg_class_SlicedString__parent__String", 16, offsetof(struct v8_layout, sliced_parent)},
    {"v8dbg_class_String__length__int32_t", 12, offsetof(struct v8_layout, string_length)},
    {"v8dbg_class_ThinString__actual__String", 16, offsetof(struct v8_layout, thin_actual)},
    {"v8dbg_frametype_IrregexpFrame", 23, offsetof(struct v8_layout, frame_regexp)},
    {"v8dbg_frametype_WasmFrame", 24, offsetof(struct v8_layout, frame_wasm)},
    {"v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE", 185,
     offsetof(struct v8_layout, type_bytecode_array)},
    {"v8dbg_type_Code__CODE_TYPE", 186, offsetof(struct v8_layout, type_code)},
    {"v8dbg_type_FixedArray__FIXED_ARRAY_TYPE", 205, offsetof(struct v8_layout, type_fixed_array)},
    {"v8dbg_type_InstructionStream__INSTRUCTION_STREAM_TYPE", 192,
     offsetof(struct v8_layout, type_instruction_stream)},
    {"v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE", 286, offsetof(struct v8_layout, type_scope_info)},
    {"v8dbg_type_Script__SCRIPT_TYPE", 166, offsetof(struct v8_layout, type_script)},
    {"v8dbg_type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE", 195,
     offsetof(struct v8_layout, type_shared_wrapper)},
    {"v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", 288,
     offsetof(struct v8_layout, type_shared)},
};

static uint8_t data[FILE_SIZE] __attribute__((aligned(8)));
static uint32_t n_symbols, n_strings;
static struct image_section sections[2];
static struct image_segment segment = {
    .memsz = FILE_SIZE, .filesz = FILE_SIZE, .flags = PF_R | PF_X};
static const struct image image = {
    .data = data,
    .size = FILE_SIZE,
    .segments = &segment,
    .n_segments = 1,
    .sections = sections,
    .n_sections = 2,
};

/* A symbol whose 4 bytes hold VALUE. */
static void add(const char *name, int32_t value)
{
	uint64_t at = VALUES + 4 * n_symbols;
	Elf64_Sym s = {.st_name = n_strings, .st_shndx = 1, .st_value = at, .st_size = 4};

	assert_true(n_symbols < SYMBOLS_MAX);
	memcpy(data + n_symbols++ * sizeof(s), &s, sizeof(s));
	memcpy(data + at, &value, sizeof(value));
	memcpy(data + STRINGS + n_strings, name, strlen(name) + 1);
	n_strings += (uint32_t)strlen(name) + 1;
}

/* V8 MAJOR.MINOR, less the symbol WITHOUT. */
static int read_version(int major, int minor, const char *without, struct v8_layout *ret,
			struct error *err)
{
	struct v8_places places;

	memset(data, 0, sizeof(data));
	n_symbols = n_strings = 0;
	add("_ZN2v88internal7Version6major_E", major);
	add("_ZN2v88internal7Version6minor_E", minor);
	add("_ZN2v88internal7Version6build_E", 202);
	add("_ZN2v88internal7Version6patch_E", 34);
	add("v8_Default_embedded_blob_code_", 0);
	add("v8_Default_embedded_blob_code_size_", 1);
	add("Builtins_InterpreterEntryTrampoline", 0);
	add("v8dbg_scopeinfo_idx_first_vars", FIRST_VARS);
	add("v8dbg_frametype_WasmToJsFrame", WASM_TO_JS);
	for (size_t i = 0; i < ARRAY_SIZE(said); i++)
		if (!without || strcmp(said[i].name, without) != 0)
			add(said[i].name, said[i].value);
	sections[0] = (struct image_section){.name = ".dynsym",
					     .size = n_symbols * sizeof(Elf64_Sym),
					     .type = SHT_DYNSYM,
					     .link = 1};
	sections[1] = (struct image_section){
	    .name = ".dynstr", .offset = STRINGS, .size = n_strings, .type = SHT_STRTAB};
	*err = (struct error){0};
	return v8_layout_read(&image, ret, &places, err);
}

static void all_that_node_26_says_of_itself_is_taken(void **state)
{
	struct v8_layout l;
	struct error err;

	assert_int_equal(read_version(14, 6, NULL, &l, &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(said); i++)
		if (*(const int32_t *)(const void *)((const char *)&l + said[i].at) !=
		    said[i].value)
			fail_msg("%s is not taken", said[i].name);
	assert_int_equal(l.scope_first, 8 + 8 * FIRST_VARS);
	/* WebAssembly's own code and what calls JavaScript from it. */
	assert_int_equal(l.frame_wasm_end, WASM_TO_JS + 1);
	assert_int_equal(v8_position_flags(&l), 2);
	/* Those of the table. */
	assert_int_equal(l.bytecode_positions, 24);
	assert_int_equal(l.code_deopt, 8);
	assert_int_equal(l.code_positions, 16);
	assert_int_equal(l.stream_header, 32);
	assert_int_equal(l.scope_class, 2);
}

static void versions_that_nothing_is_known_of_are_refused_with_their_number(void **state)
{
	static const struct {
		int major, minor;
		const char *message;
	} cases[] = {
	    {8, 4, "V8 8.4.202 is not known"},	 {9, 3, "V8 9.3.202 is not known"},
	    {13, 7, "V8 13.7.202 is not known"}, {14, 7, "V8 14.7.202 is not known"},
	    {15, 0, "V8 15.0.202 is not known"},
	};
	struct v8_layout l;
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(read_version(cases[i].major, cases[i].minor, NULL, &l, &err),
				 -ENOTSUP);
		assert_string_equal(err.message, cases[i].message);
	}
	assert_int_equal(read_version(13, 6, NULL, &l, &err), 0);
	assert_int_equal(v8_position_flags(&l), 0);
	assert_int_equal(read_version(14, 1, NULL, &l, &err), 0);
}

static void what_a_walk_cannot_do_without_must_be_said(void **state)
{
	struct v8_layout l;
	struct error err;

	assert_int_equal(
	    read_version(14, 6, "v8dbg_class_SharedFunctionInfo__length__uint16_t", &l, &err),
	    -ENOTSUP);
	assert_string_equal(err.message,
			    "V8 14.6.202: nothing says that flags come right after the "
			    "lengths of a function");
	assert_int_equal(read_version(14, 6, "v8dbg_type_Code__CODE_TYPE", &l, &err), -ENOTSUP);
	assert_string_equal(err.message, "V8 14.6.202: nothing says type_Code__CODE_TYPE");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_that_node_26_says_of_itself_is_taken),
	    cmocka_unit_test(versions_that_nothing_is_known_of_are_refused_with_their_number),
	    cmocka_unit_test(what_a_walk_cannot_do_without_must_be_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
