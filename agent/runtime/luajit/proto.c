// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the prototype of the function that has an instruction, and the lines of instructions. Loop
 * thread; keeps no state.
 *
 * Sources: LuaJIT src/lj_obj.h (GCproto, GCstr), src/lj_bc.h (the headers of functions),
 * src/lj_debug.c (lj_debug_line()).
 */
#include "agent/runtime/luajit/luajit.h"

enum {
	CHUNK = 1024, /* bytes read at once; divides a page, so no read crosses a page's end */
	PAGE = 4096,
	/* BC_FUNCF is 0x59, or 0x60 where operators on bits have instructions of their own. */
	HEADER_FROM = 0x59,
	HEADER_TO = 0x66,
};

static uint64_t word(const uint8_t *bytes, size_t offset)
{
	uint64_t v;

	memcpy(&v, bytes + offset, sizeof(v));
	return v;
}

static uint32_t half(const uint8_t *bytes, size_t offset)
{
	uint32_t v;

	memcpy(&v, bytes + offset, sizeof(v));
	return v;
}

/* Reads the prototype whose bytecode begins at START. -EFAULT: there is none, or it has no
 * instruction at AT. */
static int read_proto(const struct target_memory *m, uint64_t start, uint64_t at,
		      struct luajit_proto *ret)
{
	uint8_t b[LUAJIT_PROTO_SIZE];
	struct luajit_proto p = {.address = start - LUAJIT_PROTO_SIZE};

	if (target_read(m, p.address, b, sizeof(b)) < 0)
		return -EFAULT;
	p.k = word(b, LUAJIT_PROTO_K);
	p.chunk = word(b, LUAJIT_PROTO_CHUNK);
	p.lineinfo = word(b, LUAJIT_PROTO_LINEINFO);
	p.uvinfo = word(b, LUAJIT_PROTO_UVINFO);
	p.varinfo = word(b, LUAJIT_PROTO_VARINFO);
	p.sizebc = half(b, LUAJIT_PROTO_SIZEBC);
	p.sizekgc = half(b, LUAJIT_PROTO_SIZEKGC);
	p.sizept = half(b, LUAJIT_PROTO_SIZEPT);
	p.sizeuv = b[LUAJIT_PROTO_SIZEUV];
	p.first_line = half(b, LUAJIT_PROTO_FIRSTLINE);
	p.lines = half(b, LUAJIT_PROTO_NUMLINE);
	p.cookie = kiln_luajit_cookie(p.chunk, word(b, LUAJIT_PROTO_FIRSTLINE));
	/* The prototype, its instructions and its constants lie in one block of memory. */
	if (b[LUAJIT_GCT] != LUAJIT_TYPE_PROTO || (at - start) / 4 >= p.sizebc ||
	    p.sizept < LUAJIT_PROTO_SIZE + (uint64_t)p.sizebc * 4 || p.k - p.address > p.sizept)
		return -EFAULT;
	*ret = p;
	return 0;
}

/*
 * An instruction has no link to its function, so the function is searched backwards from it: the
 * function's first instruction is a header, and the prototype lies before the header.
 */
int luajit_find_proto(const struct target_memory *m, uint64_t at, struct luajit_proto *ret)
{
	uint64_t low = at > LUAJIT_BYTECODE_MAX * 4 ? at - LUAJIT_BYTECODE_MAX * 4 : 0;
	uint8_t chunk[CHUNK];

	for (uint64_t from = at & ~(uint64_t)(CHUNK - 1); from >= low && from; from -= CHUNK) {
		uint64_t p = MIN(at & ~7ULL, from + CHUNK - 8);

		if (target_read(m, from, chunk, sizeof(chunk)) < 0)
			return -EFAULT;
		for (; p >= from; p -= 8) {
			uint8_t op = chunk[p - from];

			if (op >= HEADER_FROM && op <= HEADER_TO && read_proto(m, p, at, ret) == 0)
				return 0;
		}
	}
	return -EFAULT;
}

uint32_t luajit_line(const struct target_memory *m, const struct luajit_proto *p, uint32_t pos)
{
	uint32_t size = p->lines < 256 ? 1 : p->lines < 65536 ? 2 : 4, v = 0;

	if (!p->lineinfo || p->lineinfo - p->address > p->sizept || pos >= p->sizebc)
		return 0;
	if (pos == 0)
		return p->first_line;
	if (target_read(m, p->lineinfo + (uint64_t)(pos - 1) * size, &v, size) < 0)
		return 0;
	return v <= p->lines ? p->first_line + v : 0;
}

int luajit_text(const struct target_memory *m, uint64_t address, char *ret, size_t size)
{
	size_t n = 0;

	while (n + 1 < size) {
		size_t part =
		    MIN(MIN(size - 1 - n, (size_t)64), (size_t)(PAGE - (address + n) % PAGE));
		const char *end;

		if (target_read(m, address + n, ret + n, part) < 0)
			return -EFAULT;
		end = memchr(ret + n, 0, part);
		if (end)
			return 0;
		n += part;
	}
	ret[n] = 0;
	return 0;
}

int luajit_string(const struct target_memory *m, uint64_t address, char *ret, size_t size)
{
	uint8_t head[LUAJIT_STR_DATA];

	if (address % 8 || address >> LUAJIT_TAG_SHIFT ||
	    target_read(m, address, head, sizeof(head)) < 0 || head[LUAJIT_GCT] != LUAJIT_TYPE_STR)
		return -EFAULT;
	return luajit_text(m, address + LUAJIT_STR_DATA, ret, size);
}
