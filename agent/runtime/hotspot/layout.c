/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the layout of a JVM's structures from its own tables. These are arrays; further variables
 * tell how long an entry is, and where it has its members. An entry without a name ends an array.
 * The strings lie in the read-only data of libjvm.so, pages of which are kept while the tables are
 * read. All of it may be forged, so the number of entries is limited, and offsets must be small.
 * Loop thread.
 */
#include "agent/runtime/hotspot/hotspot.h"

enum {
	ENTRIES_MAX = 8192, /* JDK 21 has 2077 fields, types, and constants together */
	STRIDE_MAX = 256,
	CHUNK_ENTRIES = 128,
	NAME_MAX_BYTES = 128,
	PAGE = 4096,
	PAGES = 128, /* kept at once */
	OFFSET_MAX = 1 << 16,
	FLAGS_MAX = 4096, /* JDK 28 has 1,100 */
	BLOCK_MIN = 8,	  /* bytes of a HeapBlock::Header */
	BLOCK_MAX = 32,
};

/* What a row of the table below looks for. */
enum wanted_kind { FIELD, STATIC, SIZE, CONSTANT };

struct wanted {
	const char *type, *field;
	uint16_t at; /* offset in struct hotspot_layout */
	uint8_t kind;
	bool needed;
};

#define AT(member) offsetof(struct hotspot_layout, member)

/* clang-format off: one line each. */
static const struct wanted wanted[] = {
    {"CodeCache", "_heap", AT(heap), STATIC, false},   /* 8 */
    {"CodeCache", "_heaps", AT(heaps), STATIC, false}, /* 9 on */
    {"CodeHeap", "_memory", AT(heap_memory), FIELD, true},
    {"CodeHeap", "_segmap", AT(heap_segmap), FIELD, true},
    {"CodeHeap", "_log2_segment_size", AT(heap_log2_segment), FIELD, true},
    {"VirtualSpace", "_low", AT(space_low), FIELD, true},
    {"VirtualSpace", "_low_boundary", AT(space_low_boundary), FIELD, true},
    {"VirtualSpace", "_high_boundary", AT(space_high_boundary), FIELD, true},
    {"GenericGrowableArray", "_len", AT(array_len), FIELD, false}, /* to 16 */
    {"GrowableArrayBase", "_len", AT(array_len), FIELD, false},	   /* 17 on */
    {"GrowableArray<int>", "_data", AT(array_data), FIELD, false},
    {"HeapBlock", NULL, AT(block_size), SIZE, true},
    {"CodeBlob", "_name", AT(blob_name), FIELD, true},
    {"CodeBlob", "_size", AT(blob_size), FIELD, true},
    {"CodeBlob", "_frame_size", AT(blob_frame_size), FIELD, true},
    {"CodeBlob", "_frame_complete_offset", AT(blob_complete), FIELD, true},
    {"CodeBlob", "_code_begin", AT(blob_code_begin), FIELD, false},	/* 9 to 22 */
    {"CodeBlob", "_code_offset", AT(blob_code_offset), FIELD, false},	/* 8, 23 on */
    {"CodeBlob", "_mutable_data", AT(blob_mutable_data), FIELD, false}, /* 25 on */
    {"CodeBlob", "_relocation_size", AT(blob_relocation_size), FIELD, false},
    {"nmethod", NULL, AT(nmethod_size), SIZE, true},
    {"nmethod", "_compile_id", AT(nmethod_id), FIELD, true},
    {"nmethod", "_stub_offset", AT(nmethod_stub), FIELD, true},
    {"nmethod", "_orig_pc_offset", AT(nmethod_orig_pc), FIELD, true},
    {"nmethod", "_method", AT(nmethod_method), FIELD, false}, /* 8, 23 on */
    {"nmethod", "_scopes_pcs_offset", AT(nmethod_pcs), FIELD, true},
    {"nmethod", "_dependencies_offset", AT(nmethod_pcs_end), FIELD, false}, /* to 22 */
    {"nmethod", "_scopes_data_offset", AT(nmethod_scopes), FIELD, false},   /* 8, 23 on */
    {"nmethod", "_metadata_offset", AT(nmethod_metadata), FIELD, false},    /* to 24 */
    {"nmethod", "_immutable_data", AT(nmethod_immutable), FIELD, false},    /* 23 on */
    {"nmethod", "_deoptimize_offset", AT(nmethod_deopt), FIELD, false},	    /* 8 */
    {"nmethod", "_deoptimize_mh_offset", AT(nmethod_deopt_mh), FIELD, false},
    {"nmethod", "_deopt_handler_offset", AT(nmethod_deopt), FIELD, false}, /* 23 to 25 */
    {"nmethod", "_deopt_mh_handler_offset", AT(nmethod_deopt_mh), FIELD, false},
    {"nmethod", "_deopt_handler_entry_offset", AT(nmethod_deopt), FIELD, false}, /* 26 on */
    {"CompiledMethod", "_method", AT(compiled_method_method), FIELD, false},	 /* 9 to 22 */
    {"CompiledMethod", "_scopes_data_begin", AT(nmethod_scopes_begin), FIELD, false},
    {"CompiledMethod", "_deopt_handler_begin", AT(nmethod_deopt_begin), FIELD, false},
    {"CompiledMethod", "_deopt_mh_handler_begin", AT(nmethod_deopt_mh_begin), FIELD, false},
    {"PcDesc", "_pc_offset", AT(pcdesc_pc), FIELD, true},
    {"PcDesc", "_scope_decode_offset", AT(pcdesc_scope), FIELD, true},
    {"PcDesc", NULL, AT(pcdesc_size), SIZE, true},
    {"Method", "_constMethod", AT(method_const), FIELD, true},
    {"ConstMethod", "_constants", AT(const_pool), FIELD, true},
    {"ConstMethod", "_constMethod_size", AT(const_words), FIELD, true},
    {"ConstMethod", "_flags", AT(const_flags), FIELD, false},	     /* to 20: of 16 bits */
    {"ConstMethod", "_flags._flags", AT(const_flags), FIELD, false}, /* 21 on: of 32 */
    {"ConstMethod", "_code_size", AT(const_code_size), FIELD, true},
    {"ConstMethod", "_name_index", AT(const_name), FIELD, true},
    {"ConstMethod", NULL, AT(const_size), SIZE, true},
    {"ConstantPool", "_pool_holder", AT(pool_holder), FIELD, true},
    {"ConstantPool", "_source_file_name_index", AT(pool_file), FIELD, false}, /* 15 on */
    {"ConstantPool", NULL, AT(pool_size), SIZE, true},
    {"InstanceKlass", "_source_file_name_index", AT(klass_file), FIELD, false}, /* to 14 */
    {"Klass", "_name", AT(klass_name), FIELD, true},
    {"Symbol", "_length", AT(symbol_length), FIELD, true},
    {"Symbol", "_body", AT(symbol_body), FIELD, true},
    {"Symbol", "_identity_hash", AT(symbol_identity), FIELD, false}, /* to 12 or so */
    {"Symbol", "_hash_and_refcount", AT(symbol_hash), FIELD, false}, /* from then on */
    {"AbstractInterpreter", "_code", AT(interpreter), STATIC, false},
    {"StubQueue", "_stub_buffer", AT(queue_buffer), FIELD, true},
    {"StubQueue", "_queue_begin", AT(queue_begin), FIELD, true},
    {"StubQueue", "_queue_end", AT(queue_end), FIELD, true},
    {"InterpreterCodelet", "_size", AT(codelet_size), FIELD, true},
    {"InterpreterCodelet", "_description", AT(codelet_description), FIELD, true},
    {"InterpreterCodelet", "_bytecode", AT(codelet_bytecode), FIELD, true},
    {"InterpreterCodelet", NULL, AT(codelet_header), SIZE, true},
    {"PerfMemory", "_start", AT(perf_start), STATIC, false},
    {"PerfMemory", "_top", AT(perf_top), STATIC, false},
    {"Abstract_VM_Version", "_s_vm_release", AT(release), STATIC, false},
    {"Abstract_VM_Version", "_vm_major_version", AT(major), STATIC, false},
    {"Flag", "flags", AT(flags), STATIC, false}, /* 8 */
    {"Flag", "numFlags", AT(n_flags), STATIC, false},
    {"Flag", "_name", AT(flag_name), FIELD, false},
    {"Flag", "_addr", AT(flag_address), FIELD, false},
    {"Flag", NULL, AT(flag_size), SIZE, false},
    {"JVMFlag", "flags", AT(flags), STATIC, false}, /* 9 on */
    {"JVMFlag", "numFlags", AT(n_flags), STATIC, false},
    {"JVMFlag", "_name", AT(flag_name), FIELD, false},
    {"JVMFlag", "_addr", AT(flag_address), FIELD, false},
    {"JVMFlag", NULL, AT(flag_size), SIZE, false},
    {"Threads", "_thread_list", AT(threads_first), STATIC, false}, /* to 16 */
    {"JavaThread", "_next", AT(thread_next), FIELD, false},
    {"ThreadsSMRSupport", "_java_thread_list", AT(threads_list), STATIC, false}, /* 17 on */
    {"ThreadsList", "_length", AT(list_length), FIELD, false},
    {"ThreadsList", "_threads", AT(list_threads), FIELD, false},
    {"JavaThread", "_threadObj", AT(thread_object), FIELD, false},
    {"JavaThread", "_osthread", AT(thread_os), FIELD, false}, /* 8 */
    {"Thread", "_osthread", AT(thread_os), FIELD, false},
    {"OSThread", "_thread_id", AT(os_thread_id), FIELD, false},
    {"Universe", "_narrow_oop._base", AT(oop_base), STATIC, false}, /* to 12 */
    {"Universe", "_narrow_oop._shift", AT(oop_shift), STATIC, false},
    {"CompressedOops", "_narrow_oop._base", AT(oop_base), STATIC, false}, /* to 22 */
    {"CompressedOops", "_narrow_oop._shift", AT(oop_shift), STATIC, false},
    {"CompressedOops", "_base", AT(oop_base), STATIC, false}, /* from then on */
    {"CompressedOops", "_shift", AT(oop_shift), STATIC, false},
    {"ConstMethod::_has_linenumber_table", NULL, AT(has_lines), CONSTANT, false}, /* to 20 */
    {"ConstMethodFlags::_misc_has_linenumber_table", NULL, AT(has_lines), CONSTANT, false},
};
/* clang-format on */

struct reader {
	const struct target_memory *memory;
	struct hotspot_layout *layout;
	bool found[ARRAY_SIZE(wanted)];
	uint64_t type;			     /* address of the type's name in the last entry */
	bool is_of_type[ARRAY_SIZE(wanted)]; /* the rows that are for this type */
	uint64_t pages[PAGES];		     /* numbers of the pages */
	uint8_t bytes[PAGES][PAGE];
};

/* One of the JVM's tables. */
struct table {
	uint64_t at;
	uint64_t stride, name, second, third, value, flag; /* offsets in an entry */
};

static uint64_t word_at(const struct reader *r, uint64_t address)
{
	uint64_t v = 0;

	return target_read(r->memory, address, &v, sizeof(v)) < 0 ? 0 : v;
}

/* Is the string at ADDRESS TEXT? */
static bool is_text(struct reader *r, uint64_t address, const char *text)
{
	for (size_t i = 0; i < NAME_MAX_BYTES; i++, address++) {
		uint64_t page = address / PAGE;
		size_t slot = page % PAGES;

		if (r->pages[slot] != page) {
			r->pages[slot] = 0;
			if (target_read(r->memory, page * PAGE, r->bytes[slot], PAGE) < 0)
				return false;
			r->pages[slot] = page;
		}
		if ((char)r->bytes[slot][address % PAGE] != text[i])
			return false;
		if (!text[i])
			return true;
	}
	return false;
}

static uint64_t field_of(const uint8_t *entry, uint64_t at)
{
	uint64_t v;

	memcpy(&v, entry + at, sizeof(v));
	return v;
}

/* Stores VALUE in the layout, as the value of row I. False: it makes no sense. */
static bool take(struct reader *r, size_t i, uint64_t value)
{
	uint8_t *to = (uint8_t *)r->layout + wanted[i].at;
	int32_t number = (int32_t)value;

	if (wanted[i].kind == STATIC) {
		memcpy(to, &value, sizeof(value));
	} else {
		if (wanted[i].kind != CONSTANT && value >= OFFSET_MAX)
			return false;
		memcpy(to, &number, sizeof(number));
	}
	r->found[i] = true;
	return true;
}

static bool take_entry(struct reader *r, const struct table *t, const uint8_t *entry,
		       enum wanted_kind kind, bool is_fields)
{
	uint64_t name = field_of(entry, t->name);
	bool is_static = is_fields && (uint32_t)field_of(entry, t->flag);

	/* The fields of a type are next to each other, and share the string with its name. */
	for (size_t i = 0; name != r->type && i < ARRAY_SIZE(wanted); i++)
		r->is_of_type[i] = is_text(r, name, wanted[i].type);
	r->type = name;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		const struct wanted *want = &wanted[i];

		if (is_fields ? want->kind != FIELD && want->kind != STATIC : want->kind != kind)
			continue;
		if (r->found[i] || (is_fields && (want->kind == STATIC) != is_static) ||
		    !r->is_of_type[i] ||
		    (is_fields && !is_text(r, field_of(entry, t->second), want->field)))
			continue;
		return take(r, i, field_of(entry, is_static ? t->third : t->value));
	}
	return true;
}

static int read_table(struct reader *r, const struct table *t, enum wanted_kind kind)
{
	bool is_fields = kind == FIELD;
	uint8_t chunk[CHUNK_ENTRIES * STRIDE_MAX];
	uint64_t at = t->at;

	for (size_t i = 0; i < ENTRIES_MAX; i++, at += t->stride) {
		size_t in = i % CHUNK_ENTRIES;
		const uint8_t *entry = chunk + in * t->stride;

		/* The array may end in the middle of the last chunk, and the memory with it. */
		if (in == 0 && target_read(r->memory, at, chunk, CHUNK_ENTRIES * t->stride) < 0)
			for (size_t k = 0; k < CHUNK_ENTRIES; k++)
				if (target_read(r->memory, at + k * t->stride,
						chunk + k * t->stride, t->stride) < 0)
					memset(chunk + k * t->stride, 0, t->stride);
		if (!field_of(entry, t->name))
			return 0;
		if (!take_entry(r, t, entry, kind, is_fields))
			return -ENOTSUP;
	}
	return -ENOTSUP;
}

static bool is_sane(const struct table *t)
{
	return t->stride >= 8 && t->stride <= STRIDE_MAX && t->name <= t->stride - 8 &&
	       t->second <= t->stride - 8 && t->third <= t->stride - 8 &&
	       t->flag <= t->stride - 8 && t->value <= t->stride - 8;
}

static int read_tables(struct reader *r, const struct hotspot_image *image, uint64_t bias)
{
	uint64_t v[HOTSPOT_SYMBOLS];
	struct table fields, types, ints;
	int ret;

	for (size_t i = 0; i < HOTSPOT_SYMBOLS; i++)
		v[i] = word_at(r, image->symbols[i] + bias);
	fields = (struct table){.at = v[HOTSPOT_STRUCTS],
				.stride = v[HOTSPOT_STRUCT_STRIDE],
				.name = v[HOTSPOT_STRUCT_TYPE],
				.second = v[HOTSPOT_STRUCT_FIELD],
				.flag = v[HOTSPOT_STRUCT_STATIC],
				.value = v[HOTSPOT_STRUCT_OFFSET],
				.third = v[HOTSPOT_STRUCT_ADDRESS]};
	types = (struct table){.at = v[HOTSPOT_TYPES],
			       .stride = v[HOTSPOT_TYPE_STRIDE],
			       .name = v[HOTSPOT_TYPE_NAME],
			       .value = v[HOTSPOT_TYPE_SIZE]};
	ints = (struct table){.at = v[HOTSPOT_INTS],
			      .stride = v[HOTSPOT_INT_STRIDE],
			      .name = v[HOTSPOT_INT_NAME],
			      .value = v[HOTSPOT_INT_VALUE]};
	/* Static constructors fill these in when the library is loaded. */
	if (!fields.at || !fields.stride || !types.at || !types.stride || !ints.at || !ints.stride)
		return -EAGAIN;
	if (!is_sane(&fields) || !is_sane(&types) || !is_sane(&ints))
		return -ENOTSUP;
	ret = read_table(r, &fields, FIELD);
	if (ret == 0)
		ret = read_table(r, &types, SIZE);
	if (ret == 0)
		ret = read_table(r, &ints, CONSTANT);
	return ret;
}

int hotspot_layout_check(const struct hotspot_layout *l, struct error *err)
{
	if (!l->heap && (!l->heaps || l->array_len < 0 || l->array_data < 0))
		return error_set(err, -ENOTSUP, "this JVM does not tell its CodeHeaps");
	if (l->blob_code_begin < 0 && l->blob_code_offset < 0)
		return error_set(err, -ENOTSUP,
				 "this JVM does not tell where a CodeBlob's code is");
	if (l->nmethod_method < 0 && l->compiled_method_method < 0)
		return error_set(err, -ENOTSUP, "this JVM does not tell an nmethod's Method");
	if (l->nmethod_scopes < 0 && l->nmethod_scopes_begin < 0)
		return error_set(err, -ENOTSUP, "this JVM does not tell an nmethod's scopes");
	if (l->nmethod_metadata < 0 && (l->blob_mutable_data < 0 || l->blob_relocation_size < 0))
		return error_set(err, -ENOTSUP, "this JVM does not tell an nmethod's metadata");
	if (l->nmethod_immutable < 0 && l->nmethod_pcs_end < 0)
		return error_set(err, -ENOTSUP,
				 "this JVM does not tell the end of an nmethod's pcs");
	if (l->symbol_hash < 0 && l->symbol_identity < 0)
		return error_set(err, -ENOTSUP, "this JVM does not tell a Symbol's identity");
	if (l->block_size < BLOCK_MIN || l->block_size > BLOCK_MAX)
		return error_set(err, -ENOTSUP, "this JVM tells of a HeapBlock of %d bytes",
				 l->block_size);
	if (l->pcdesc_size < 8 || l->pcdesc_pc > l->pcdesc_size - 4 ||
	    l->pcdesc_scope > l->pcdesc_size - 4)
		return error_set(err, -ENOTSUP, "this JVM tells of a PcDesc of %d bytes",
				 l->pcdesc_size);
	return 0;
}

static int check(const struct reader *r, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (wanted[i].needed && !r->found[i])
			return error_set(err, -ENOTSUP, "this JVM does not tell %s%s%s",
					 wanted[i].type, wanted[i].field ? "::" : "'s size",
					 wanted[i].field ? wanted[i].field : "");
	return hotspot_layout_check(r->layout, err);
}

/* Is the option NAME, a bool, on? */
static bool is_on(struct reader *r, const char *name)
{
	const struct hotspot_layout *l = r->layout;
	uint64_t at = l->flags ? word_at(r, l->flags) : 0;
	uint64_t n = l->n_flags ? word_at(r, l->n_flags) : 0;
	uint8_t value;

	if (!at || l->flag_name < 0 || l->flag_address < 0 || l->flag_size <= 0)
		return false;
	for (uint64_t i = 0; i < MIN(n, (uint64_t)FLAGS_MAX); i++, at += (uint64_t)l->flag_size) {
		uint64_t text = word_at(r, at + (uint64_t)l->flag_name);

		if (text && is_text(r, text, name))
			return target_read(r->memory, word_at(r, at + (uint64_t)l->flag_address),
					   &value, sizeof(value)) == 0 &&
			       value == 1;
	}
	return false;
}

int hotspot_layout_read(const struct hotspot_image *image, uint64_t bias,
			const struct target_memory *memory, struct hotspot_layout *ret,
			struct error *err)
{
	_cleanup_free_ struct reader *r = calloc(1, sizeof(*r));
	int result;

	if (!r)
		return -ENOMEM;
	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		const int32_t none = HOTSPOT_NO_FIELD;

		if (wanted[i].kind != STATIC)
			memcpy((uint8_t *)ret + wanted[i].at, &none, sizeof(none));
	}
	r->memory = memory;
	r->layout = ret;
	result = read_tables(r, image, bias);
	if (result == -ENOTSUP)
		return error_set(err, -ENOTSUP, "the tables of this JVM make no sense");
	if (result == 0)
		result = check(r, err);
	if (result == 0) {
		ret->describes_all = is_on(r, "DebugNonSafepoints");
		ret->narrow_oops = is_on(r, "UseCompressedOops");
	}
	return result;
}
