/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/runtime/hotspot/forged.h"

enum {
	STRUCTS = 0x11000,
	STRUCT_BYTES = 48, /* type, field, a text, whether it is static, offset, address */
	TYPES = 0x12000,
	TYPE_BYTES = 16, /* name, size */
	INTS = 0x12200,
	TEXTS = 0x12400,
	HEAP = 0x13800, /* a CodeHeap */
	HEAP_LIST = 0x13a00,
	INTERPRETER = 0x13b00, /* AbstractInterpreter::_code */
	QUEUE = 0x13b40,
	MAJOR = 0x13b80,
	SEGMAP = 0x13c00,
	CODE = 0x14000,
	CODE_END = 0x18000,
	CODELET = 0x14080,
	STUB_BLOB = 0x14400,
	CONST_METHOD = 0x18100,
	POOL = 0x18200,
	KLASS = 0x18300,
	SYMBOLS = 0x18400,
	DESC = 0x18800,
	SCOPES = 0x18a00,
	METADATA = 0x18b00,
};

/* Values of FORGED_BASE and more are addresses: the field is static. */
static const struct told {
	const char *type, *field;
	uint64_t value;
} told[] = {
    {"CodeCache", "_heaps", HEAP_LIST},
    {"CodeHeap", "_memory", 16},
    {"CodeHeap", "_segmap", 128},
    {"CodeHeap", "_log2_segment_size", 240},
    {"VirtualSpace", "_low_boundary", 0},
    {"VirtualSpace", "_high_boundary", 8},
    {"VirtualSpace", "_low", 16},
    {"GrowableArrayBase", "_len", 0},
    {"GrowableArray<int>", "_data", 16},
    {"HeapBlock", NULL, 16},
    {"CodeBlob", "_name", 0},
    {"CodeBlob", "_size", 8},
    {"CodeBlob", "_frame_size", 12},
    {"CodeBlob", "_frame_complete_offset", 16},
    {"CodeBlob", "_code_offset", 20},
    {"CodeBlob", "_mutable_data", 24},
    {"CodeBlob", "_relocation_size", 32},
    {"nmethod", NULL, 96},
    {"nmethod", "_compile_id", 40},
    {"nmethod", "_stub_offset", 44},
    {"nmethod", "_orig_pc_offset", 48},
    {"nmethod", "_method", 56},
    {"nmethod", "_scopes_pcs_offset", 64},
    {"nmethod", "_scopes_data_offset", 68},
    {"nmethod", "_immutable_data", 72},
    {"nmethod", "_deopt_handler_entry_offset", 80},
    {"PcDesc", NULL, 16},
    {"PcDesc", "_pc_offset", 0},
    {"PcDesc", "_scope_decode_offset", 4},
    {"Method", "_constMethod", 8},
    {"ConstMethod", NULL, 32},
    {"ConstMethod", "_constants", 8},
    {"ConstMethod", "_constMethod_size", 16},
    {"ConstMethod", "_flags._flags", 20},
    {"ConstMethod", "_code_size", 24},
    {"ConstMethod", "_name_index", 26},
    {"ConstantPool", NULL, 24},
    {"ConstantPool", "_pool_holder", 8},
    {"ConstantPool", "_source_file_name_index", 16},
    {"Klass", "_name", 8},
    {"Symbol", "_hash_and_refcount", 0},
    {"Symbol", "_length", 4},
    {"Symbol", "_body", 6},
    {"AbstractInterpreter", "_code", INTERPRETER},
    {"StubQueue", "_stub_buffer", 0},
    {"StubQueue", "_queue_begin", 8},
    {"StubQueue", "_queue_end", 12},
    {"InterpreterCodelet", NULL, 24},
    {"InterpreterCodelet", "_size", 0},
    {"InterpreterCodelet", "_description", 8},
    {"InterpreterCodelet", "_bytecode", 16},
    {"Abstract_VM_Version", "_vm_major_version", MAJOR},
};

static bool is_static(const struct told *t)
{
	return t->value >= FORGED_BASE;
}

static void put(struct forged *f, uint64_t address, const void *src, size_t len)
{
	memcpy(f->bytes + (address - FORGED_BASE), src, len);
}

void forged_word(struct forged *f, uint64_t address, uint64_t value)
{
	put(f, address, &value, sizeof(value));
}

static void put_int(struct forged *f, uint64_t address, uint32_t value)
{
	put(f, address, &value, sizeof(value));
}

static void put_half(struct forged *f, uint64_t address, uint16_t value)
{
	put(f, address, &value, sizeof(value));
}

/* The address of TEXT in the forged memory; adds it if it is missing. */
static uint64_t text_at(struct forged *f, const char *text)
{
	uint64_t at = TEXTS;

	while (f->bytes[at - FORGED_BASE]) {
		const char *there = (const char *)f->bytes + (at - FORGED_BASE);

		if (streq(there, text))
			return at;
		at += strlen(there) + 1;
	}
	put(f, at, text, strlen(text) + 1);
	return at;
}

void forged_tell(struct forged *f, const char *type, const char *field, uint64_t value)
{
	uint64_t structs = STRUCTS, types = TYPES;

	for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
		const struct told *t = &told[i];
		bool found = streq(t->type, type) && !t->field == !field &&
			     (!field || streq(t->field, field));

		if (!t->field && found)
			forged_word(f, types + 8, value);
		else if (found)
			forged_word(f, structs + (is_static(t) ? 40 : 32), value);
		if (t->field)
			structs += STRUCT_BYTES;
		else
			types += TYPE_BYTES;
	}
}

static void put_tables(struct forged *f)
{
	const uint64_t variables[HOTSPOT_SYMBOLS] = {
	    [HOTSPOT_STRUCTS] = STRUCTS,
	    [HOTSPOT_STRUCT_TYPE] = 0,
	    [HOTSPOT_STRUCT_FIELD] = 8,
	    [HOTSPOT_STRUCT_STATIC] = 24,
	    [HOTSPOT_STRUCT_OFFSET] = 32,
	    [HOTSPOT_STRUCT_ADDRESS] = 40,
	    [HOTSPOT_STRUCT_STRIDE] = STRUCT_BYTES,
	    [HOTSPOT_TYPES] = TYPES,
	    [HOTSPOT_TYPE_NAME] = 0,
	    [HOTSPOT_TYPE_SIZE] = 8,
	    [HOTSPOT_TYPE_STRIDE] = TYPE_BYTES,
	    [HOTSPOT_INTS] = INTS,
	    [HOTSPOT_INT_NAME] = 0,
	    [HOTSPOT_INT_VALUE] = 8,
	    [HOTSPOT_INT_STRIDE] = 16,
	};
	uint64_t structs = STRUCTS, types = TYPES;

	for (size_t i = 0; i < HOTSPOT_SYMBOLS; i++) {
		f->image.symbols[i] = i * 8;
		forged_word(f, FORGED_LIBRARY + i * 8, variables[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
		const struct told *t = &told[i];

		if (!t->field) {
			forged_word(f, types, text_at(f, t->type));
			forged_word(f, types + 8, t->value);
			types += TYPE_BYTES;
			continue;
		}
		forged_word(f, structs, text_at(f, t->type));
		forged_word(f, structs + 8, text_at(f, t->field));
		put_int(f, structs + 24, is_static(t));
		forged_word(f, structs + (is_static(t) ? 40 : 32), t->value);
		structs += STRUCT_BYTES;
	}
	forged_word(f, INTS, text_at(f, "ConstMethodFlags::_misc_has_linenumber_table"));
	forged_word(f, INTS + 8, 1);
}

static void put_block(struct forged *f, uint64_t at, const char *name, uint32_t segments,
		      uint32_t code_offset)
{
	forged_word(f, at, segments);
	f->bytes[at + 8 - FORGED_BASE] = 1;
	forged_word(f, at + 16, text_at(f, name));
	put_int(f, at + 16 + 8, segments * 64 - 16);
	put_int(f, at + 16 + 12, 4);
	put_int(f, at + 16 + 20, code_offset);
}

static void put_codelet(struct forged *f, uint64_t at, const char *name, const void *code,
			size_t size)
{
	put_int(f, at, 0x100);
	forged_word(f, at + 8, text_at(f, name));
	put_int(f, at + 16, UINT32_MAX);
	put(f, at + 0x20, code, size);
}

static void put_code(struct forged *f)
{
	static const uint8_t enter[] = {0x58, 0x50, 0x55, 0x48, 0x8b, 0xec,
					0x41, 0x55, 0x6a, 0x00, 0xff, 0xe0},
			     leave[] = {0x48, 0x8b, 0x5d, 0xf8, 0xc9, 0x5f,
					0x48, 0x8b, 0xe3, 0xff, 0xe7},
			     stub[] = {0x55, 0x48, 0x8b, 0xec, 0xff, 0xd0, 0xc9, 0xc3};
	uint64_t compiled = FORGED_COMPILED_BLOB - 16;

	forged_word(f, HEAP + 16, CODE);
	forged_word(f, HEAP + 24, CODE_END);
	forged_word(f, HEAP + 32, CODE);
	forged_word(f, HEAP + 144, SEGMAP);
	put_int(f, HEAP + 240, 6);
	forged_word(f, HEAP_LIST, HEAP_LIST + 16);
	put_int(f, HEAP_LIST + 16, 1);
	forged_word(f, HEAP_LIST + 32, HEAP_LIST + 64);
	forged_word(f, HEAP_LIST + 64, HEAP);
	put_int(f, MAJOR, 28);

	put_block(f, CODE, "Interpreter", 16, 64);
	forged_word(f, INTERPRETER, QUEUE);
	forged_word(f, QUEUE, CODELET);
	put_int(f, QUEUE + 12, 0x200);
	put_codelet(f, CODELET, "method entry point", enter, sizeof(enter));
	put_codelet(f, CODELET + 0x100, "return", leave, sizeof(leave));

	put_block(f, STUB_BLOB, "StubRoutines (1)", 8, 64);
	put(f, FORGED_STUB_PC - 4, stub, sizeof(stub));
	forged_word(f, FORGED_LIBRARY + FORGED_DESCS, DESC);
	forged_word(f, DESC, DESC + 64);
	forged_word(f, DESC + 8, text_at(f, "StubRoutines"));
	forged_word(f, DESC + 16, text_at(f, "call_stub"));
	forged_word(f, DESC + 24, FORGED_STUB_PC - 4);
	forged_word(f, DESC + 32, FORGED_STUB_PC + 4);

	put_block(f, compiled, "nmethod", 8, 64);
	put_int(f, FORGED_COMPILED_BLOB + 40, FORGED_COMPILED_ID);
	forged_word(f, FORGED_COMPILED_BLOB + 24, METADATA);
	forged_word(f, FORGED_COMPILED_BLOB + 56, FORGED_METHOD);
	forged_word(f, FORGED_COMPILED_BLOB + 72, SCOPES);
	put_int(f, FORGED_COMPILED_BLOB + 68, 64);
	/* The PcDesc of FORGED_COMPILED_PC, three PcDescs of other pcs, which no test looks up, and
	 * the scope that the first one points to. */
	put_int(f, SCOPES, FORGED_COMPILED_PC - (FORGED_COMPILED_BLOB + 64));
	put_int(f, SCOPES + 4, 4);
	put_int(f, SCOPES + 16, INT32_MAX);
	put_int(f, SCOPES + 32, INT32_MAX);
	put_int(f, SCOPES + 48, INT32_MAX);
	put(f, SCOPES + 64 + 4, "\1\2\2", 3);
	forged_word(f, METADATA, FORGED_METHOD);
}

static void put_symbol(struct forged *f, uint64_t at, const char *text)
{
	put_int(f, at, 0x12340001);
	put_half(f, at + 4, (uint16_t)strlen(text));
	put(f, at + 6, text, strlen(text));
}

static void put_method(struct forged *f)
{
	put_symbol(f, SYMBOLS, "kiln/Forged");
	put_symbol(f, SYMBOLS + 64, "burn");
	put_symbol(f, SYMBOLS + 128, "Forged.java");
	forged_word(f, FORGED_METHOD + 8, CONST_METHOD);
	forged_word(f, CONST_METHOD + 8, POOL);
	put_int(f, CONST_METHOD + 16, 8);
	put_int(f, CONST_METHOD + 20, 1);
	put_half(f, CONST_METHOD + 24, 8);
	put_half(f, CONST_METHOD + 26, 1);
	/* Line table behind 8 bytes of bytecodes: line 5 from the first one on. */
	f->bytes[CONST_METHOD + 32 + 8 - FORGED_BASE] = 5;
	forged_word(f, POOL + 8, KLASS);
	put_half(f, POOL + 16, 2);
	forged_word(f, POOL + 24 + 8, SYMBOLS + 64);
	forged_word(f, POOL + 24 + 16, SYMBOLS + 128);
	forged_word(f, KLASS + 8, SYMBOLS);
}

void forged_init(struct forged *f)
{
	memset(f, 0, sizeof(*f));
	f->image.variables_end = FORGED_LIBRARY_BYTES;
	put_tables(f);
	put_code(f);
	put_method(f);
}

void forged_name_stub(struct forged *f, const char *name)
{
	forged_word(f, STUB_BLOB + 16, text_at(f, name));
}

static int read_forged(void *arg, uint64_t address, void *dst, size_t len)
{
	struct forged *f = arg;

	f->reads++;
	if (address < FORGED_BASE || address - FORGED_BASE > FORGED_BYTES ||
	    len > FORGED_BYTES - (address - FORGED_BASE))
		return -EFAULT;
	memcpy(dst, f->bytes + (address - FORGED_BASE), len);
	return 0;
}

struct runtime_target forged_target(struct forged *f)
{
	return (struct runtime_target){.memory = {.read = read_forged, .arg = f},
				       .bias = FORGED_LIBRARY};
}
