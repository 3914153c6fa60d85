/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds the method of a pc; a part of walker.h. The runtime keeps a tree of all address ranges that
 * may hold code. A heap of compiled code has a map with four bits for each 32 bytes, which say
 * where methods begin; an image has a sorted table of functions.
 */
#pragma once

/* Words of w->scratch. */
enum {
	DOTNET_SECTION = 0, /* RangeSection */
	DOTNET_NIBBLES = 8, /* 64 bytes of a nibble map; later: codes of unwind information */
	DOTNET_BASE = 16,   /* what a function's offsets count from */
	DOTNET_TABLE = 17,  /* RUNTIME_FUNCTIONs */
	DOTNET_COUNT = 18,  /* number of RUNTIME_FUNCTIONs */
	DOTNET_START = 19,  /* where the method begins */
	DOTNET_COOKIE = 20,
	DOTNET_DYNAMIC = 21,  /* the method is a dynamic one */
	DOTNET_FUNCTION = 22, /* struct kiln_dotnet_function: 2 words */
	DOTNET_WORD = 24,     /* a word of a nibble map */
	DOTNET_INDEX = 25,    /* the number of that word */
	DOTNET_LOW = 24,      /* while a table is searched */
	DOTNET_HIGH = 25,
	DOTNET_POSITION = 24, /* while unwind codes are read: bytes from the base register */
	DOTNET_AT = 25,	      /* ... which code is next */
	DOTNET_FP_AT = 26,    /* ... where rbp and rbx are saved; 0: they are not */
	DOTNET_RBX_AT = 27,
	DOTNET_BY_FP = 28, /* ... the base register is rbp */
};

enum {
	DOTNET_CHUNKS = 32,   /* pieces of a nibble map that are searched, 4 KiB of code each */
	DOTNET_HALVINGS = 20, /* a table of a million functions */
};

enum dotnet_found {
	DOTNET_NOTHING,
	DOTNET_JIT,
	DOTNET_R2R,
	DOTNET_R2R_UNREAD, /* its table of functions is not in memory */
	DOTNET_STUB,
};

KILN_INLINE const struct kiln_dotnet *dotnet_data(const struct kiln_walk *w)
{
	return (const struct kiln_dotnet *)w->runtime.data;
}

/* Puts the RangeSection that holds PC into w->scratch. 0, or -1. */
KILN_GLOBAL int dotnet_section(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t node, section = 0;

	if (!w)
		return -1;
	node = dotnet_data(w)->map;
	for (int i = KILN_DOTNET_LEVELS - 1; i >= 0; i--) {
		uint64_t at = (pc >> (KILN_DOTNET_LEVEL_SHIFT + i * 8) & 255) * 8;

		if (env_read(&node, 8, (node & ~1ULL) + at) || !(node & ~1ULL))
			return -1;
	}
	for (int i = 0; i < KILN_DOTNET_FRAGMENTS && !section; i++) {
		/* next, begin, end, section */
		if (!(node & ~1ULL) || env_read(w->scratch, 32, node & ~1ULL))
			return -1;
		node = w->scratch[0];
		if (pc >= w->scratch[1] && pc < w->scratch[2])
			section = w->scratch[3];
	}
	if (!section || env_read(w->scratch, KILN_DOTNET_SECTION_WORDS * 8, section))
		return -1;
	return pc >= w->scratch[KILN_DOTNET_SECTION_BEGIN] &&
		       pc < w->scratch[KILN_DOTNET_SECTION_END]
		   ? 0
		   : -1;
}

/*
 * Returns where the last method of WORD, of a nibble map, begins: its distance from the beginning
 * of the word's code, plus 1; 0: none.
 */
KILN_INLINE uint32_t dotnet_last_nibble(uint32_t word)
{
	uint32_t place = 7;

	if (!(word & 0xffff)) {
		word >>= 16;
		place -= 4;
	}
	if (!(word & 0xff)) {
		word >>= 8;
		place -= 2;
	}
	if (!(word & 0xf)) {
		word >>= 4;
		place -= 1;
	}
	return word & 15 ? place * 32 + ((word & 15) - 1) * 4 + 1 : 0;
}

/*
 * Finds the last word before number END that is not 0, among the 16 words of a nibble map in
 * w->scratch. Puts the word and its number into w->scratch, because the verifier does not follow
 * values there. 0, or -1: all are 0.
 */
KILN_GLOBAL int dotnet_last_word(uint32_t slot, uint32_t end)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return -1;
	w->scratch[DOTNET_WORD] = 0;
	for (uint32_t i = 0; i < 16; i++) {
		uint32_t word = (uint32_t)(w->scratch[DOTNET_NIBBLES + i / 2] >> i % 2 * 32);

		if (word && i < end) {
			w->scratch[DOTNET_WORD] = word;
			w->scratch[DOTNET_INDEX] = i;
		}
	}
	return w->scratch[DOTNET_WORD] ? 0 : -1;
}

/*
 * Puts the beginning of the last method of WORD, which is number INDEX of a nibble map, into
 * w->value. 0, or -1.
 */
KILN_GLOBAL int dotnet_word(uint32_t slot, uint32_t word, uint64_t index)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w || !word)
		return -1;
	if ((word & 15) > 8) {
		w->value = (word & ~15U) + ((word & 15) - 9) * 4;
		return 0;
	}
	word = dotnet_last_nibble(word);
	if (!word)
		return -1;
	w->value = index * 256 + word - 1;
	return 0;
}

/*
 * Finds where the method begins that holds the byte DELTA bytes behind the base of the nibble map
 * at MAP; puts that, as a distance from the base, into w->value. 0, or -1. A word of the map is for
 * 256 bytes of code, its highest four bits for the first 32: 0, or 1 + the place in these where a
 * method begins, in units of 4 bytes. From 10 on a word whose lowest four bits are more than 8 is
 * the distance itself (v10.0.0, docs/design/datacontracts/ExecutionManager.md, "NibbleMap").
 */
KILN_GLOBAL int dotnet_method_start(uint32_t slot, uint64_t map, uint64_t delta)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t last = delta >> 8, chunk = last >> 4;
	uint32_t word = 0, shift = (7 - (delta >> 5 & 7)) * 4, end = (uint32_t)last & 15;

	if (!w || last >> 24 || env_read(&word, 4, map + last * 4))
		return -1;
	/* In the word of the byte itself, methods that begin behind the byte do not count. */
	if ((word & 15) <= 8) {
		word = word >> shift << shift;
		if ((word >> shift & 15) > (delta >> 2 & 7) + 1)
			word &= ~(15U << shift);
	}
	if (!dotnet_word(slot, word, last))
		return 0;
	for (int round = 0; round < DOTNET_CHUNKS; round++) {
		if (env_read(w->scratch + DOTNET_NIBBLES, 64, map + chunk * 64))
			return -1;
		if (!dotnet_last_word(slot, end))
			return dotnet_word(slot, (uint32_t)w->scratch[DOTNET_WORD],
					   chunk * 16 + (w->scratch[DOTNET_INDEX] & 15));
		if (!chunk--)
			return -1;
		end = 16;
	}
	return -1;
}

/* Finds the function that holds RVA in the table in w->scratch, and puts it into w->scratch. 0; 1:
 * none does; -1: it cannot be read. */
KILN_GLOBAL int dotnet_function(uint32_t slot, uint32_t rva)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_dotnet_function *f;
	uint64_t table, lo;
	uint32_t begin = 0;

	if (!w)
		return -1;
	table = w->scratch[DOTNET_TABLE];
	w->scratch[DOTNET_LOW] = 0;
	w->scratch[DOTNET_HIGH] = w->scratch[DOTNET_COUNT] & ((1U << DOTNET_HALVINGS) - 1);
	/* Search for the first function that begins behind RVA. */
	for (int i = 0; i < DOTNET_HALVINGS; i++) {
		uint64_t low = w->scratch[DOTNET_LOW], high = w->scratch[DOTNET_HIGH], mid;

		if (low >= high)
			break;
		mid = (low + high) / 2;
		if (env_read(&begin, 4, table + mid * sizeof(*f)))
			return -1;
		if (begin <= rva)
			w->scratch[DOTNET_LOW] = mid + 1;
		else
			w->scratch[DOTNET_HIGH] = mid;
	}
	lo = w->scratch[DOTNET_LOW];
	f = (struct kiln_dotnet_function *)(w->scratch + DOTNET_FUNCTION);
	if (!lo)
		return 1;
	if (env_read(f, sizeof(*f), table + (lo - 1) * sizeof(*f)))
		return -1;
	return rva >= f->begin && rva < f->end ? 0 : 1;
}

/* Puts the cookie of the method METHOD, whose code has HEADER, into w->scratch. 0, or -1. */
KILN_INLINE int dotnet_read_cookie(struct kiln_walk *w, uint64_t header, uint64_t method)
{
	uint64_t name = 0;
	uint16_t flags;

	if (env_read(&flags, 2, method + KILN_DOTNET_METHOD_FLAGS))
		return -1;
	w->scratch[DOTNET_DYNAMIC] =
	    (flags & KILN_DOTNET_METHOD_CLASS) == KILN_DOTNET_METHOD_DYNAMIC;
	if (w->scratch[DOTNET_DYNAMIC] && env_read(&name, 8, method + dotnet_data(w)->dynamic_name))
		return -1;
	w->scratch[DOTNET_COOKIE] = kiln_dotnet_cookie(method, header, name);
	return 0;
}

/*
 * Finds the compiled method at PC in the heap of the section in w->scratch. Returns enum
 * dotnet_found.
 */
KILN_GLOBAL int dotnet_find_compiled(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t heap, base = 0, map = 0, start, header = 0, method = 0;
	const struct kiln_dotnet *v;
	uint32_t info[2] = {}; /* number of functions, and where the first one begins */

	if (!w)
		return DOTNET_NOTHING;
	v = dotnet_data(w);
	heap = w->scratch[DOTNET_SECTION + KILN_DOTNET_SECTION_HEAP];
	if (env_read(&base, 8, heap + KILN_DOTNET_HEAP_BASE) ||
	    env_read(&map, 8, heap + KILN_DOTNET_HEAP_MAP) || pc < base ||
	    dotnet_method_start(slot, map, pc - base))
		return DOTNET_NOTHING;
	start = base + w->value;
	if (env_read(&header, 8, start - 8))
		return DOTNET_NOTHING;
	w->scratch[DOTNET_START] = start;
	if (header <= KILN_DOTNET_STUB_LAST) {
		w->scratch[DOTNET_COOKIE] = header;
		return DOTNET_STUB;
	}
	if (env_read(&method, 8, header + v->header_method) ||
	    env_read(info, 8, header + v->header_infos) || dotnet_read_cookie(w, header, method))
		return DOTNET_NOTHING;
	w->scratch[DOTNET_BASE] = start - info[1];
	w->scratch[DOTNET_TABLE] = header + v->header_infos + 4;
	w->scratch[DOTNET_COUNT] = info[0];
	return DOTNET_JIT;
}

/*
 * Finds the table of functions of the image that the section in w->scratch is. Returns enum
 * dotnet_found.
 */
KILN_INLINE int dotnet_find_ahead(struct kiln_walk *w)
{
	const struct kiln_dotnet *v = dotnet_data(w);
	uint64_t module = w->scratch[DOTNET_SECTION + KILN_DOTNET_SECTION_MODULE], info = 0;
	uint32_t count = 0;

	if (env_read(&info, 8, module + v->module_r2r) ||
	    env_read(w->scratch + DOTNET_TABLE, 8, info + v->functions) ||
	    env_read(&count, 4, info + v->functions + 8))
		return DOTNET_NOTHING;
	w->scratch[DOTNET_BASE] = w->scratch[DOTNET_SECTION + KILN_DOTNET_SECTION_BEGIN];
	w->scratch[DOTNET_COUNT] = count;
	return DOTNET_R2R;
}

/*
 * Finds the code at PC. Returns enum dotnet_found; the method and its function are in w->scratch
 * then.
 */
KILN_INLINE int dotnet_find(struct kiln_walk *w, uint64_t pc)
{
	uint32_t flags, slot = w->slot;
	int found, r;

	if (dotnet_section(slot, pc))
		return DOTNET_NOTHING;
	flags = (uint32_t)w->scratch[DOTNET_SECTION + KILN_DOTNET_SECTION_FLAGS];
	w->scratch[DOTNET_COOKIE] = 0;
	if (flags & KILN_DOTNET_IS_LIST)
		return DOTNET_STUB;
	found = flags & KILN_DOTNET_IS_HEAP ? dotnet_find_compiled(slot, pc) : dotnet_find_ahead(w);
	if (found != DOTNET_JIT && found != DOTNET_R2R)
		return found;
	r = dotnet_function(slot, (uint32_t)(pc - w->scratch[DOTNET_BASE]));
	if (!r)
		return found;
	/* Reading the frame's name makes the page of an image present for the next time. */
	if (r < 0)
		return found == DOTNET_R2R ? DOTNET_R2R_UNREAD : DOTNET_NOTHING;
	/* The code of delay-loaded calls lies between functions. */
	return found == DOTNET_R2R ? DOTNET_STUB : DOTNET_NOTHING;
}
