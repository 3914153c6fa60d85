// SPDX-License-Identifier: Apache-2.0
/* Words and bytes put where the runtime would have them. */
#include "tests/unit/agent/runtime/dotnet/small.h"

enum {
	TREE = 0x11000,
	FRAGMENTS = 0x10200,
	SECTIONS = 0x10400,
	HEAP_LIST = 0x10700,
	HEADERS = 0x30000,
	MAP = 0x31000,
	CHUNK = 0x32000,
	MODULE = 0x34800,
	INFO = 0x35800,
	BUCKETS = 0x36000,
	BUCKET = 64,
	METADATA = 0x1b000,
	TABLES = METADATA + 0x80,
	METHODS = 10,
};

void small_put(struct small *s, uint64_t address, const void *bytes, size_t n)
{
	if (address >= SMALL_BASE && address - SMALL_BASE <= SMALL_BYTES - n)
		memcpy(s->bytes + (address - SMALL_BASE), bytes, n);
}

void small_word(struct small *s, uint64_t address, uint64_t value)
{
	small_put(s, address, &value, sizeof(value));
}

static void put32(struct small *s, uint64_t address, uint32_t value)
{
	small_put(s, address, &value, sizeof(value));
}

static void put16(struct small *s, uint64_t address, uint16_t value)
{
	small_put(s, address, &value, sizeof(value));
}

static int read_small(void *arg, uint64_t address, void *dst, size_t len)
{
	struct small *s = arg;

	s->reads++;
	if (address < SMALL_BASE || len > SMALL_BYTES || address - SMALL_BASE > SMALL_BYTES - len)
		return -EFAULT;
	memcpy(dst, s->bytes + (address - SMALL_BASE), len);
	return 0;
}

struct runtime_target small_target(struct small *s)
{
	return (struct runtime_target){.memory = {.read = read_small, .arg = s}, .tgid = 1};
}

/* ---- sections ---------------------------------------------------------------------------------
 */

/* Section I, of which the entries of the lowest level that it is in have a fragment. */
static void make_section(struct small *s, uint32_t i, uint64_t begin, uint64_t end, uint32_t flags)
{
	uint64_t section = SECTIONS + i * 64ULL, fragment = FRAGMENTS + i * 32ULL, entry;

	small_word(s, section, begin);
	small_word(s, section + 8, end);
	small_word(s, section + 16, flags);
	entry = TREE + (begin >> KILN_DOTNET_LEVEL_SHIFT) * 8;
	/* What was there comes behind it; the lowest bit means nothing here. */
	small_put(s, fragment, s->bytes + (entry - SMALL_BASE), 8);
	small_word(s, fragment + 8, begin);
	small_word(s, fragment + 16, end);
	small_word(s, fragment + 24, section);
	small_word(s, entry, fragment | 1);
}

static void make_map(struct small *s)
{
	for (uint32_t i = 1; i < KILN_DOTNET_LEVELS; i++)
		small_word(s, TREE + i * 0x800ULL, (TREE + (i - 1) * 0x800ULL) | 1);
	small_word(s, SMALL_TABLE, TREE + (KILN_DOTNET_LEVELS - 1) * 0x800ULL);
	make_section(s, 0, SMALL_IMAGE, SMALL_IMAGE_END, 0);
	make_section(s, 1, SMALL_HEAP, SMALL_HEAP_END, KILN_DOTNET_IS_HEAP);
	make_section(s, 2, SMALL_STUBS, SMALL_STUBS + 0x1000, KILN_DOTNET_IS_LIST);
	small_word(s, SECTIONS + 4 * 8, MODULE);
	small_word(s, SECTIONS + 64 + 5 * 8, HEAP_LIST);
	small_word(s, HEAP_LIST + KILN_DOTNET_HEAP_BASE, SMALL_HEAP);
	small_word(s, HEAP_LIST + KILN_DOTNET_HEAP_MAP, MAP);
}

void small_heap_flags(struct small *s, uint32_t flags)
{
	small_word(s, SECTIONS + 64 + 16, flags);
}

/* ---- code -------------------------------------------------------------------------------------
 */

/* A method of SIZE bytes at CODE, which is METHOD's; UNWIND are the N bytes of its UNWIND_INFO. */
static void make_code(struct small *s, uint64_t code, uint32_t size, uint64_t method,
		      const void *unwind, size_t n)
{
	uint64_t delta = code - SMALL_HEAP, header = HEADERS + delta / 16;
	uint64_t word = MAP + delta / 256 * 4;
	uint32_t nibbles, begin = (uint32_t)delta;

	memcpy(&nibbles, s->bytes + (word - SMALL_BASE), sizeof(nibbles));
	nibbles |= (uint32_t)(1 + delta % 32 / 4) << (28 - delta / 32 % 8 * 4);
	put32(s, word, nibbles);
	small_word(s, code - 8, header);
	small_word(s, header + 24, method);
	put32(s, header + 32, 1);
	put32(s, header + 36, begin);
	put32(s, header + 40, begin + size);
	put32(s, header + 44, begin + size);
	small_put(s, code + size, unwind, n);
}

void small_compile(struct small *s, uint64_t method)
{
	small_word(s, HEADERS + (SMALL_TOTAL - SMALL_HEAP) / 16 + 24, method);
}

static void make_methods(struct small *s)
{
	/* push rbp at 1, push rbx at 2, sub rsp, 0x20 at 6 */
	static const uint8_t framed[] = {0x19, 6, 3, 0, 6, 0x32, 2, 0x30, 1, 0x50};
	/* push rbp at 1; sub rsp, 0x100 at 8; lea rbp, [rsp+0x20] at 16 */
	static const uint8_t by_rbp[] = {0x19, 16, 4, 0x25, 16, 0x03, 8, 0x01, 0x20, 0, 1, 0x50};
	static const uint8_t bare[] = {0x19, 0, 0, 0};
	/* add rsp, 0x20; pop rbx; pop rbp; ret */
	static const uint8_t epilogue[] = {0x48, 0x83, 0xc4, 0x20, 0x5b, 0x5d, 0xc3};

	make_code(s, SMALL_TOTAL, 0x180, small_method(1), framed, sizeof(framed));
	small_put(s, SMALL_TOTAL_EPILOGUE, epilogue, sizeof(epilogue));
	make_code(s, SMALL_TINY, 0x20, small_method(2), bare, sizeof(bare));
	make_code(s, SMALL_MADE, 0x100, SMALL_DYNAMIC, by_rbp, sizeof(by_rbp));
	put16(s, SMALL_DYNAMIC + KILN_DOTNET_METHOD_FLAGS, KILN_DOTNET_METHOD_DYNAMIC);
	small_word(s, SMALL_DYNAMIC + 0x18, SMALL_DYNAMIC + 0x40);
	small_put(s, SMALL_DYNAMIC + 0x40, "Made", 5);
}

uint64_t small_method(uint32_t n)
{
	return SMALL_METHODS + (n - 1) * (uint64_t)SMALL_METHOD_SIZE;
}

void small_generic(struct small *s, uint16_t row, uint32_t major)
{
	const uint64_t instance = SMALL_METHOD_TABLE + 0x100, dictionary = instance + 0x40;

	put32(s, SMALL_METHOD_TABLE, 0x10);
	small_word(s, SMALL_METHOD_TABLE + 0x30, instance);
	put16(s, instance - 4, 2); /* the first one is of a base class */
	put16(s, instance - 2, 1);
	small_word(s, instance + 8, dictionary);
	small_word(s, dictionary, SMALL_ARGUMENT);
	put32(s, SMALL_ARGUMENT, 0);
	put32(s, SMALL_ARGUMENT + 8, major >= 9 ? (uint32_t)row << 8 : (uint32_t)row << 16);
	small_word(s, SMALL_ARGUMENT + 0x18, MODULE);
}

static void make_descs(struct small *s)
{
	small_word(s, CHUNK, SMALL_METHOD_TABLE);
	small_word(s, SMALL_METHOD_TABLE + 0x18, MODULE);
	small_word(s, MODULE + 0x108, SMALL_STRINGS + 1);
	for (uint32_t n = 1; n <= METHODS; n++) {
		uint64_t at = small_method(n);

		put16(s, at, (uint16_t)(n | 0xb000));
		s->bytes[at + 2 - SMALL_BASE] = (uint8_t)((n - 1) * SMALL_METHOD_SIZE / 8);
		put16(s, at + KILN_DOTNET_METHOD_FLAGS, 0xa8);
	}
}

/* ---- the image --------------------------------------------------------------------------------
 */

static void make_header(struct small *s)
{
	put16(s, SMALL_IMAGE, 0x5a4d);
	put32(s, SMALL_IMAGE + 0x3c, 0x80);
	put16(s, SMALL_IMAGE + 0x80 + 24, 0x20b);
	put32(s, SMALL_IMAGE + 0x80 + 24 + 112 + 14 * 8, 0x400);
	put32(s, SMALL_IMAGE + 0x400 + 8, METADATA - SMALL_IMAGE);
	put32(s, SMALL_IMAGE + 0x400 + 64, 0x500);
	put32(s, SMALL_IMAGE + 0x500, 0x00525452);
	put32(s, SMALL_IMAGE + 0x500 + 12, 1);
	put32(s, SMALL_IMAGE + 0x510, 102);
	put32(s, SMALL_IMAGE + 0x514, 0x600);
	put32(s, SMALL_IMAGE + 0x518, 24);
}

static void make_image(struct small *s)
{
	static const uint32_t functions[] = {0x1000, 0x1080, 0x700, 0x1080, 0x1100, 0x700};
	static const uint8_t unwind[] = {0x19, 1, 1, 0, 1, 0x50};
	uint64_t key = SMALL_AHEAD, size = 3;

	make_header(s);
	small_put(s, SMALL_IMAGE + 0x600, functions, sizeof(functions));
	small_put(s, SMALL_IMAGE + 0x700, unwind, sizeof(unwind));
	small_word(s, MODULE + 224, SMALL_IMAGE); /* from 10 on */
	small_word(s, MODULE + 0x480, INFO);
	small_word(s, INFO, MODULE);
	small_word(s, INFO + 0x50, SMALL_IMAGE + 0x600);
	put32(s, INFO + 0x58, 2);
	small_word(s, INFO + 0x1c0, BUCKETS);
	/* The function is in the bucket that its address gives; its handler is in none. */
	small_word(s, BUCKETS, size);
	for (uint64_t i = 0; i <= size; i++)
		small_word(s, BUCKETS + i * BUCKET + 32, 0);
	small_word(s, BUCKETS + (1 + (uint32_t)(key >> 2) % size) * BUCKET, key);
	small_word(s, BUCKETS + (1 + (uint32_t)(key >> 2) % size) * BUCKET + 32,
		   small_method(3) >> 1);
}

/* ---- metadata ---------------------------------------------------------------------------------
 */

/* Puts TEXT, which is found at its place from then on. */
static uint16_t add_string(struct small *s, size_t *end, const char *text)
{
	uint16_t at = (uint16_t)*end;

	small_put(s, SMALL_STRINGS + *end, text, strlen(text) + 1);
	*end += strlen(text) + 1;
	return at;
}

static void make_root(struct small *s)
{
	static const char root[] = "BSJB\1\0\1\0\0\0\0\0\14\0\0\0v4.0.30319\0\0\0\0\2\0";

	small_put(s, METADATA, root, sizeof(root) - 1);
	put32(s, METADATA + 32, TABLES - METADATA);
	put32(s, METADATA + 36, 0x400);
	small_put(s, METADATA + 40, "#~\0", 4);
	put32(s, METADATA + 44, SMALL_STRINGS - METADATA);
	put32(s, METADATA + 48, 0x400);
	small_put(s, METADATA + 52, "#Strings", 9);
}

static void make_metadata(struct small *s)
{
	static const struct {
		const char *name, *space;
		uint16_t methods, outer;
	} types[] = {
	    {"<Module>", "", 1, 0},		/* 1 */
	    {"Cart", "Shop", 1, 0},		/* 2 */
	    {"Box`1", "Shop", 4, 0},		/* 3 */
	    {"<TotalAsync>d__1", "", 5, 2},	/* 4 */
	    {"<>c", "", 6, 2},			/* 5 */
	    {"<Main>c__AnonStorey0", "", 8, 2}, /* 6 */
	    {"<<Main>b__0>d", "", 9, 5},	/* 7: an async lambda expression's */
	    {"<<Main>g__Add|0>d`1", "", 10, 2}, /* 8: an async local function's */
	};
	/* Methods 1 to 3 are Cart's, 4 is Box's, 6 and 7 are those of <>c, 8 is AnonStorey's. 5, 9
	 * and 10 are the MoveNext() of the state machines: types 4, 7 and 8. */
	static const char *const methods[METHODS] = {
	    "Total",  "Tiny",	  "Ahead",    "Put", "MoveNext", "<Main>b__0_0", "<Main>g__Add|0_1",
	    "<>m__0", "MoveNext", "MoveNext",
	};
	const uint64_t valid = 1ULL << DOTNET_TYPE_DEF | 1ULL << DOTNET_METHOD_DEF |
			       1ULL << DOTNET_NESTED_CLASS | 1ULL << DOTNET_GENERIC_PARAM;
	const uint32_t rows[] = {ARRAY_SIZE(types), METHODS, 5, 1};
	size_t end = 1;
	uint64_t at = TABLES + 24;

	make_root(s);
	small_word(s, TABLES + 8, valid);
	small_put(s, at, rows, sizeof(rows));
	at += sizeof(rows);
	(void)add_string(s, &end, "Small");
	for (size_t i = 0; i < ARRAY_SIZE(types); i++, at += 14) {
		put16(s, at + 4, add_string(s, &end, types[i].name));
		put16(s, at + 6, types[i].space[0] ? add_string(s, &end, types[i].space) : 0);
		put16(s, at + 12, types[i].methods);
	}
	for (size_t i = 0; i < METHODS; i++, at += 14)
		put16(s, at + 8, add_string(s, &end, methods[i]));
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (!types[i].outer)
			continue;
		put16(s, at, (uint16_t)(i + 1));
		put16(s, at + 2, types[i].outer);
		at += 4;
	}
	put16(s, at + 4, 3 << 1);
	put16(s, at + 6, add_string(s, &end, "T"));
}

void small_init(struct small *s)
{
	memset(s, 0, sizeof(*s));
	s->image.base.ops = &dotnet_ops;
	s->image.table = SMALL_TABLE;
	s->image.major = 8;
	make_map(s);
	make_methods(s);
	make_descs(s);
	make_image(s);
	make_metadata(s);
}
