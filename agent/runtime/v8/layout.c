/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the layout of a build of V8: one pass over its symbols looks up each v8dbg_ name in
 * `fields`. `constants` has by version what no symbol says. Then check() wants everything that a
 * walk needs. Any thread; nothing is shared.
 *
 * Sources: V8's tools/gen-postmortem-metadata.py writes the v8dbg_ names, in the versions that are
 * named below; constants that have no such name are next to the name of V8's file.
 */
#include "agent/runtime/v8/layout.h"

#include <elf.h>

enum { SYMBOLS_MAX = 1 << 20, NAME_MAX_LEN = 160 };

struct field {
	const char *name; /* without "v8dbg_" */
	size_t at;
};

#define FIELD(member, name)                                                                        \
	{                                                                                          \
		name, offsetof(struct v8_layout, member)                                           \
	}

/* Sorted by name (test_v8_layout). A member with several names has one or the other, by version. */
static const struct field fields[] = {
    FIELD(code_baseline, "CodeKindBaseline"),
    FIELD(code_kind_mask, "CodeKindFieldMask"),
    FIELD(cons, "ConsStringTag"),
    FIELD(deopt_inlined_count, "DeoptimizationDataInlinedFunctionCountIndex"),
    FIELD(deopt_inlining, "DeoptimizationDataInliningPositionsIndex"),
    FIELD(deopt_literals, "DeoptimizationDataLiteralArrayIndex"),
    FIELD(external, "ExternalStringTag"),
    FIELD(first_non_string, "FirstNonstringType"),
    FIELD(one_byte, "OneByteStringTag"),
    FIELD(sequential, "SeqStringTag"),
    FIELD(sliced, "SlicedStringTag"),
    FIELD(encoding_mask, "StringEncodingMask"),
    FIELD(representation_mask, "StringRepresentationMask"),
    FIELD(thin, "ThinStringTag"),
    FIELD(bytecode_data, "class_BytecodeArray__data__uintptr_t"),
    FIELD(code_flags, "class_Code__flags__uint32_t"),
    FIELD(code_size, "class_Code__instruction_size__int"),
    FIELD(code_start, "class_Code__instruction_start__Address"),
    FIELD(code_start, "class_Code__instruction_start__uintptr_t"),
    FIELD(cons_first, "class_ConsString__first__String"),
    FIELD(cons_second, "class_ConsString__second__String"),
    FIELD(array_length, "class_FixedArrayBase__length__SMI"),
    FIELD(array_data, "class_FixedArray__data__uintptr_t"),
    FIELD(function_shared, "class_JSFunction__shared__SharedFunctionInfo"),
    FIELD(map_type, "class_Map__instance_type__uint16_t"),
    FIELD(script_line_ends, "class_Script__line_ends__Object"),
    FIELD(script_name, "class_Script__name__Object"),
    FIELD(script_source, "class_Script__source__Object"),
    FIELD(one_byte_chars, "class_SeqOneByteString__chars__char"),
    FIELD(two_byte_chars, "class_SeqTwoByteString__chars__char"),
    FIELD(shared_flags, "class_SharedFunctionInfo__flags__int"),
    FIELD(shared_data, "class_SharedFunctionInfo__function_data__Object"),
    FIELD(shared_lengths, "class_SharedFunctionInfo__length__uint16_t"),
    FIELD(shared_name, "class_SharedFunctionInfo__name_or_scope_info__Object"),
    FIELD(shared_name, "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_"),
    FIELD(shared_name, "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_"),
    FIELD(shared_token, "class_SharedFunctionInfo__raw_function_token_offset__int16_t"),
    FIELD(shared_script, "class_SharedFunctionInfo__script__Tagged_HeapObject_"),
    FIELD(shared_script, "class_SharedFunctionInfo__script_or_debug_info__HeapObject"),
    FIELD(sliced_offset, "class_SlicedString__offset__SMI"),
    FIELD(sliced_parent, "class_SlicedString__parent__String"),
    FIELD(string_length, "class_String__length__int32_t"),
    FIELD(thin_actual, "class_ThinString__actual__String"),
    FIELD(frame_regexp, "frametype_IrregexpFrame"),
    FIELD(frame_wasm, "frametype_WasmFrame"),
    FIELD(type_bytecode_array, "type_BytecodeArray__BYTECODE_ARRAY_TYPE"),
    FIELD(type_code, "type_Code__CODE_TYPE"),
    FIELD(type_fixed_array, "type_FixedArray__FIXED_ARRAY_TYPE"),
    FIELD(type_instruction_stream, "type_InstructionStream__INSTRUCTION_STREAM_TYPE"),
    FIELD(type_scope_info, "type_ScopeInfo__SCOPE_INFO_TYPE"),
    FIELD(type_script, "type_Script__SCRIPT_TYPE"),
    FIELD(type_shared_wrapper, "type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE"),
    FIELD(type_shared, "type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE"),
};

/* The value of a member in versions [from, to], when no symbol has set it. */
struct constant {
	int32_t from, to;
	size_t at;
	int32_t value;
};

#define CONSTANT(from, to, member, value)                                                          \
	{                                                                                          \
		from, to, offsetof(struct v8_layout, member), value                                \
	}

static const struct constant constants[] = {
    /* src/objects/string.tq ExternalString: resource, then resource_data. */
    CONSTANT(904, 1406, external_data, 24),
    /* src/objects/script.tq: source, name, line_offset. */
    CONSTANT(904, 1406, script_source, 8),
    CONSTANT(904, 1406, script_line_offset, 24),
    /*
     * src/objects/shared-function-info.tq: function_data comes first, later trusted_function_data.
     */
    CONSTANT(904, 1406, shared_data, 8),
    /* src/objects/scope-info.tq: flags, parameter_count, context_local_count, names; from 12.5 on
     * position_info comes before the names, and the scopes' types are numbered anew. */
    CONSTANT(904, 1406, scope_flags, 8),
    CONSTANT(904, 1406, scope_locals, 24),
    CONSTANT(904, 1204, scope_first, 32),
    CONSTANT(1205, 1406, scope_first, 48),
    CONSTANT(904, 1204, scope_positions, 0),
    CONSTANT(1205, 1406, scope_positions, 32),
    /* src/common/globals.h enum ScopeType: CLASS_SCOPE. */
    CONSTANT(904, 1204, scope_class, 0),
    CONSTANT(1205, 1406, scope_class, 2),
    /* src/objects/bytecode-array.tq: constant_pool, handler_table, source_position_table; from 12.1
     * on a TrustedObject: wrapper, source_position_table. */
    CONSTANT(904, 1200, bytecode_positions, 32),
    CONSTANT(1201, 1406, bytecode_positions, 24),
    CONSTANT(904, 904, bytecode_data, 54),
    /* src/objects/code.h CODE_FIELDS: relocation info, deoptimization data, positions; relocation
     * info is in the InstructionStream since 12.1. */
    CONSTANT(904, 1200, code_deopt, 16),
    CONSTANT(904, 1200, code_positions, 24),
    CONSTANT(1201, 1406, code_deopt, 8),
    CONSTANT(1201, 1406, code_positions, 16),
    CONSTANT(904, 1002, code_size, 40),
    CONSTANT(1100, 1200, code_size, 56),
    CONSTANT(1100, 1200, code_start, 40),
    CONSTANT(904, 1200, code_flags, 48),
    /* src/objects/code-kind.h: BASELINE. */
    CONSTANT(904, 904, code_baseline, 11),
    CONSTANT(904, 904, code_kind_mask, 15),
    /* src/objects/instruction-stream.h: map, code; from 12.1 on relocation info and size too. */
    CONSTANT(904, 1002, stream_header, 0),
    CONSTANT(1100, 1200, stream_header, 16),
    CONSTANT(1201, 1406, stream_header, 32),
    CONSTANT(904, 1002, type_instruction_stream, 0),
    /* src/objects/code.h DeoptimizationData. */
    CONSTANT(904, 1002, deopt_inlined_count, 1),
    CONSTANT(904, 1002, deopt_literals, 2),
    CONSTANT(904, 1002, deopt_inlining, 7),
    /* No wrapper of SharedFunctionInfo before trusted space. */
    CONSTANT(904, 1406, type_shared_wrapper, 0),
    /* No frames of regular expressions before 11.0. */
    CONSTANT(904, 1406, frame_regexp, 0),
};

uint32_t v8_position_flags(const struct v8_layout *l)
{
	return l->major >= 14 ? 2 : 0;
}

static int32_t *member(struct v8_layout *l, size_t at)
{
	return (int32_t *)(void *)((char *)l + at);
}

bool v8_image_int(const struct image *image, uint64_t vaddr, int32_t *ret)
{
	struct cursor c = image_at_vaddr(image, vaddr);
	int32_t v = cursor_i32(&c);

	if (c.bad) {
		/* What a segment has beyond its part of the file is 0. */
		for (size_t i = 0; i < image->n_segments; i++)
			if (vaddr >= image->segments[i].vaddr &&
			    vaddr - image->segments[i].vaddr < image->segments[i].memsz) {
				*ret = 0;
				return true;
			}
		return false;
	}
	*ret = v;
	return true;
}

static int compare_field(const void *key, const void *element)
{
	return strcmp(key, ((const struct field *)element)->name);
}

static const struct {
	const char *name;
	size_t at;
} places[] = {
    {"_ZN2v88internal7Version6major_E", offsetof(struct v8_places, version[0])},
    {"_ZN2v88internal7Version6minor_E", offsetof(struct v8_places, version[1])},
    {"_ZN2v88internal7Version6build_E", offsetof(struct v8_places, version[2])},
    {"_ZN2v88internal7Version6patch_E", offsetof(struct v8_places, version[3])},
    /* V8 up to 9.x calls the code ..._data_, and has a pointer of the second name. */
    {"v8_Default_embedded_blob_code_data_", offsetof(struct v8_places, builtins)},
    {"v8_Default_embedded_blob_code_", offsetof(struct v8_places, builtins)},
    {"v8_Default_embedded_blob_code_size_", offsetof(struct v8_places, builtins_size)},
    {"Builtins_InterpreterEntryTrampoline", offsetof(struct v8_places, interpreter)},
    {"Builtins_InterpreterEnterAtNextBytecode", offsetof(struct v8_places, enter_next)},
    {"Builtins_BaselineOrInterpreterEnterAtNextBytecode", offsetof(struct v8_places, enter_either)},
    {"_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE",
     offsetof(struct v8_places, bytecode_sizes)},
    /* A static array in a function of that name. */
    {"_ZZN2v88internal29TranslationOpcodeOperandCountENS0_17TranslationOpcodeEE6counts",
     offsetof(struct v8_places, opcodes)},
};

static void take_symbol(const struct image *image, const char *name, uint64_t vaddr, uint64_t size,
			struct v8_layout *l, struct v8_places *p)
{
	const struct field *f;
	int32_t value;

	if (strncmp(name, "v8dbg_", 6) == 0) {
		f = bsearch(name + 6, fields, ARRAY_SIZE(fields), sizeof(fields[0]), compare_field);
		if (f && v8_image_int(image, vaddr, &value))
			*member(l, f->at) = value;
		if (strcmp(name + 6, "frametype_WasmToJsFrame") == 0 &&
		    v8_image_int(image, vaddr, &value))
			l->frame_wasm_end = value + 1;
		if (strcmp(name + 6, "scopeinfo_idx_first_vars") == 0 &&
		    v8_image_int(image, vaddr, &value))
			l->scope_first = 8 + 8 * value;
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct v8_symbol *s = (struct v8_symbol *)(void *)((char *)p + places[i].at);

		if (strcmp(name, places[i].name) != 0)
			continue;
		/* 9.x's pointer of that name is data. */
		if (s == &p->builtins && !image_is_code(image, vaddr))
			continue;
		*s = (struct v8_symbol){.name = places[i].name, .vaddr = vaddr, .size = size};
	}
}

static void read_symbols(const struct image *image, const struct image_section *section,
			 struct v8_layout *l, struct v8_places *p)
{
	const struct image_section *strings;
	struct cursor table, names;

	if (section->link >= image->n_sections)
		return;
	strings = &image->sections[section->link];
	table = image_section_data(image, section);
	names = image_section_data(image, strings);
	for (size_t n = 0; cursor_left(&table) >= sizeof(Elf64_Sym) && n < SYMBOLS_MAX; n++) {
		Elf64_Sym s;
		struct cursor c = names;
		const char *name;

		memcpy(&s, cursor_bytes(&table, sizeof(s)), sizeof(s));
		if (s.st_shndx == SHN_UNDEF)
			continue;
		cursor_seek(&c, s.st_name);
		/* All wanted names begin with one of these letters. */
		if (cursor_left(&c) < 8 ||
		    (c.data[c.pos] != 'v' && c.data[c.pos] != '_' && c.data[c.pos] != 'B'))
			continue;
		name = cursor_str(&c);
		if (name && strnlen(name, NAME_MAX_LEN) < NAME_MAX_LEN)
			take_symbol(image, name, s.st_value, s.st_size, l, p);
	}
}

/*
 * Reads the symbols of all sections of TYPE. True: v8::internal::Version was found, so the file has
 * V8.
 */
static bool has_symbols(const struct image *image, struct v8_layout *l, struct v8_places *p,
			uint32_t type)
{
	for (size_t i = 0; i < image->n_sections; i++)
		if (image->sections[i].type == type)
			read_symbols(image, &image->sections[i], l, p);
	return p->version[0].name && p->version[1].name;
}

static int check(const struct v8_layout *l, const struct v8_places *p, struct error *err)
{
	const char *missing = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (*member((struct v8_layout *)l, fields[i].at) == V8_ANY)
			missing = fields[i].name;
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++)
		if (*member((struct v8_layout *)l, constants[i].at) == V8_ANY)
			missing = "a constant of the version";
	if (!p->builtins.name || !p->builtins_size.name || !p->interpreter.name)
		missing = "the built-in functions (no symbol table)";
	/* The walker reads flags and lengths at once. */
	if (l->shared_flags != l->shared_lengths + 8)
		missing = "that flags come right after the lengths of a function";
	if (!missing)
		return 0;
	return error_set(err, -ENOTSUP, "V8 %d.%d.%d: nothing says %s", l->major, l->minor,
			 l->build, missing);
}

int v8_layout_read(const struct image *image, struct v8_layout *ret, struct v8_places *ret_places,
		   struct error *err)
{
	struct v8_layout l;
	struct v8_places p = {0};
	int32_t version;

	memset(&l, 0xff, sizeof(l));
	if (!has_symbols(image, &l, &p, SHT_DYNSYM))
		return -ENOENT;
	if (!v8_image_int(image, p.version[0].vaddr, &l.major) ||
	    !v8_image_int(image, p.version[1].vaddr, &l.minor))
		return -ENOENT;
	if (!p.version[2].name || !v8_image_int(image, p.version[2].vaddr, &l.build))
		l.build = 0;
	if (!p.version[3].name || !v8_image_int(image, p.version[3].vaddr, &l.patch))
		l.patch = 0;
	version = l.major * 100 + l.minor;
	(void)has_symbols(image, &l, &p, SHT_SYMTAB);
	*ret = l;
	*ret_places = p;
	if (l.major > 100 || version < V8_VERSIONS_MIN || version > V8_VERSIONS_MAX ||
	    (version > V8_VERSIONS_GAP && l.major < 14))
		return error_set(err, -ENOTSUP, "V8 %d.%d.%d is not known", l.major, l.minor,
				 l.build);
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++)
		if (version >= constants[i].from && version <= constants[i].to &&
		    *member(&l, constants[i].at) == V8_ANY)
			*member(&l, constants[i].at) = constants[i].value;
	/* Without a type of its own for WasmToJs frames there is one type of WebAssembly frames. */
	if (l.frame_wasm_end == V8_ANY)
		l.frame_wasm_end = l.frame_wasm + 1;
	if (check(&l, &p, err) < 0)
		return -ENOTSUP;
	*ret = l;
	return 0;
}
