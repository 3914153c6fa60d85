/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct v8_layout: offsets and constants of one build of V8. The build's v8dbg_ symbols have most
 * of them (V8 tools/gen-postmortem-metadata.py); a table by version has the rest.
 */
#pragma once

#include "agent/elf/image.h"

enum {
	V8_ANY = -1,		/* not known */
	V8_VERSIONS_MIN = 904,	/* 100 * major + minor: Node.js 16 */
	V8_VERSIONS_GAP = 1306, /* Node.js 24; versions between this one and 14.0 are not known */
	V8_VERSIONS_MAX = 1406, /* Node.js 26 */
};

/* Offsets are in bytes from an object's address: the pointer less its tag. */
struct v8_layout {
	int32_t major, minor, build, patch;
	/* Instance types. */
	int32_t type_bytecode_array, type_code, type_fixed_array, type_instruction_stream,
	    type_scope_info, type_script, type_shared, type_shared_wrapper;
	/* Type numbers of frames. */
	int32_t frame_wasm, frame_wasm_end, frame_regexp;
	/* Strings. */
	int32_t first_non_string, representation_mask, encoding_mask, one_byte;
	int32_t sequential, cons, external, sliced, thin;
	int32_t string_length, one_byte_chars, two_byte_chars, cons_first, cons_second,
	    sliced_parent, sliced_offset, thin_actual, external_data;
	/* Other objects. */
	int32_t map_type, array_length, array_data;
	int32_t function_shared;
	int32_t shared_data, shared_name, shared_script, shared_lengths, shared_token, shared_flags;
	int32_t script_source, script_name, script_line_offset, script_line_ends;
	int32_t scope_flags, scope_locals, scope_first, scope_positions, scope_class;
	int32_t bytecode_positions, bytecode_data;
	int32_t code_deopt, code_positions, code_start, code_size, code_flags, code_kind_mask,
	    code_baseline;
	int32_t stream_header; /* 0: instructions are in the Code object itself */
	int32_t deopt_inlined_count, deopt_literals, deopt_inlining;
};

/* A symbol of the image. NAME NULL: the image does not have it. */
struct v8_symbol {
	const char *name;
	uint64_t vaddr, size;
};

/* Where the built-in functions and tables of the file are. */
struct v8_places {
	struct v8_symbol version[4]; /* major, minor, build, patch */
	struct v8_symbol builtins, builtins_size, interpreter, bytecode_sizes, opcodes;
	/* Where deoptimized frames go on in the interpreter. */
	struct v8_symbol enter_next, enter_either;
};

/*
 * Reads the layout of the V8 in IMAGE. -ENOENT: it has no V8. -ENOTSUP and ERR: the version is not
 * known, or symbols that a walk needs are missing; RET then has the version, and RET_PLACES the
 * symbols that are there.
 */
int v8_layout_read(const struct image *image, struct v8_layout *ret, struct v8_places *ret_places,
		   struct error *err) _must_check_;
/*
 * The number of flag bits below the code offset in each entry of a position table: two from V8 14
 * on (statement, may have a breakpoint), else 0: the sign tells statements from expressions
 * (src/codegen/source-position-table.cc EncodeEntry).
 */
uint32_t v8_position_flags(const struct v8_layout *l);
/* Reads the 4-byte integer at VADDR of the image. */
bool v8_image_int(const struct image *image, uint64_t vaddr, int32_t *ret);
