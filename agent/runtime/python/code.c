// SPDX-License-Identifier: Apache-2.0
/*
 * The name, file and line of a Python frame, from its code object.
 *
 * The code object is read before and after its strings, because it may be freed in between and
 * another object may take its place. It must have the cookie that the walker saw both times. The
 * name, the file and the table of lines are kept for frames of the function's other instructions
 * (agent/runtime/functions.h). Everything read is foreign: lengths are capped, and the kind of each
 * string is checked. Loop thread.
 */
#include "agent/runtime/python/python.h"

enum {
	CODE_BYTES = KILN_PYTHON_CODE_WORDS * 8,
	HEAD_MAX = 80, /* bytes in front of a str object's characters */
	CHUNK = 4096,
	PART_BYTES = 128, /* of a part that are read ahead */
	REPLACEMENT = 0xfffd,
};

/* str.state: `interned`, then kind (3 bits), compact and ascii (1 bit each). */
struct string_state {
	unsigned int kind; /* bytes per character */
	bool compact, ascii;
};

/*
 * Decodes str.state. Its `interned` has 2 bits, 8 bits in free-threaded 3.13 and 16 bits in 3.14
 * (Include/cpython/unicodeobject.h): all three are tried. The values of `interned` are below 4, so
 * a shift that is too small finds kind 0, which no string has.
 */
static bool read_state(uint32_t state, struct string_state *ret)
{
	static const unsigned int shifts[] = {2, 8, 16};

	for (size_t i = 0; i < ARRAY_SIZE(shifts); i++) {
		uint32_t s = state >> shifts[i];

		*ret = (struct string_state){s & 7, s >> 3 & 1, s >> 4 & 1};
		if (ret->kind && ret->kind != 3 && ret->kind <= 4)
			return ret->compact && (!ret->ascii || ret->kind == 1);
	}
	return false;
}

/* Puts the character C at OUT, which has room for four bytes; returns how many it takes. */
static size_t put_utf8(char *out, uint32_t c)
{
	if (c >= 0x110000 || (c >= 0xd800 && c < 0xe000))
		c = REPLACEMENT;
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 63));
	out[2] = (char)(0x80 | (c >> 6 & 63));
	out[3] = (char)(0x80 | (c & 63));
	return 4;
}

static uint32_t character(const uint8_t *p, unsigned int kind)
{
	uint32_t c = 0;

	memcpy(&c, p, kind);
	return c;
}

/* The unused part of the caller's scratch. */
struct room {
	char *at;
	size_t size;
};

/* Copies the str object at ADDRESS to ROOM as UTF-8 with a NUL. *RET points to the copy. */
static int read_string(const struct python_layout *l, const struct target_memory *memory,
		       uint64_t address, struct room *room, const char **ret)
{
	uint8_t head[HEAD_MAX] = {0}, data[CHUNK];
	size_t head_size = l->string_ascii, n = 0, used = 0;
	struct string_state state;
	uint64_t length;
	uint32_t bits;
	int r;

	if (head_size > HEAD_MAX || l->string_length + 8 > head_size ||
	    l->string_state + 4 > head_size || room->size < 8)
		return -EFAULT;
	r = target_read(memory, address, head, head_size);
	if (r < 0)
		return r;
	memcpy(&length, head + l->string_length, sizeof(length));
	memcpy(&bits, head + l->string_state, sizeof(bits));
	if (!read_state(bits, &state))
		return -EFAULT;
	length = MIN(length, PYTHON_STRING_MAX);
	address += state.ascii ? l->string_ascii : l->string_compact;
	while (n < length && used + 5 <= room->size) {
		size_t part = MIN(length - n, CHUNK / 4);

		r = target_read(memory, address + n * state.kind, data, part * state.kind);
		if (r < 0)
			return r;
		for (size_t i = 0; i < part && used + 5 <= room->size; i++)
			used +=
			    put_utf8(room->at + used, character(data + i * state.kind, state.kind));
		n += part;
	}
	room->at[used] = '\0';
	*ret = room->at;
	room->at += used + 1;
	room->size -= used + 1;
	return 0;
}

/*
 * Checks that the code object at ADDRESS is the one with COOKIE. -EFAULT: it is another one; other
 * errors: it cannot be read.
 */
static int read_code(const struct python_process *p, const struct target_memory *memory,
		     uint64_t address, uint32_t cookie)
{
	uint64_t words[KILN_PYTHON_CODE_WORDS];
	int r = target_read(memory, address + p->code_from, words, sizeof(words));

	if (r < 0)
		return r;
	if (kiln_python_cookie(words, p->layout.code_mask) != cookie ||
	    (p->code_type && words[0] != p->code_type))
		return -EFAULT;
	return 0;
}

static int read_pointer(const struct target_memory *memory, uint64_t address, uint64_t *ret)
{
	return target_read(memory, address, ret, sizeof(*ret));
}

/* Reads together the beginnings of what the code object at CODE points to. */
static void read_parts(const struct python_layout *l, const struct target_memory *memory,
		       uint64_t code, uint64_t name, uint64_t file)
{
	struct target_span spans[] = {{name, PART_BYTES}, {file, PART_BYTES}, {0, PART_BYTES}};

	(void)read_pointer(memory, code + l->code_lines, &spans[2].address);
	target_read_together(memory, spans, ARRAY_SIZE(spans));
}

/* The code object's table of lines, which the caller frees; NULL when it cannot be read. */
static void *read_lines(const struct python_layout *l, const struct target_memory *memory,
			uint64_t code, size_t *ret_size)
{
	_cleanup_free_ void *table = NULL;
	uint64_t bytes, size;

	if (read_pointer(memory, code + l->code_lines, &bytes) < 0 ||
	    read_pointer(memory, bytes + l->bytes_size, &size) < 0 || size > PYTHON_LINE_TABLE_MAX)
		return NULL;
	table = malloc(MAX(size, 1));
	if (!table || (size && target_read(memory, bytes + l->bytes_data, table, size) < 0))
		return NULL;
	*ret_size = size;
	return TAKE_PTR(table);
}

/*
 * Reads the function of the code object at CODE; the strings go to SCRATCH. The caller frees
 * *RET_TABLE.
 */
static int read_function(const struct python_process *p, const struct target_memory *memory,
			 uint64_t code, uint32_t cookie, char *scratch, size_t scratch_size,
			 struct runtime_function *ret, void **ret_table)
{
	const struct python_layout *l = &p->layout;
	/* The name gets half of SCRATCH, the file the rest. */
	struct room room = {scratch, scratch_size / 2};
	uint64_t name, file;
	uint32_t first;
	int r = read_code(p, memory, code, cookie);

	if (r < 0)
		return r;
	r = read_pointer(
	    memory, code + (l->code_qualname != PYTHON_NO_FIELD ? l->code_qualname : l->code_name),
	    &name);
	if (r == 0)
		r = read_pointer(memory, code + l->code_filename, &file);
	if (r == 0)
		r = target_read(memory, code + l->code_firstlineno, &first, sizeof(first));
	if (r == 0)
		read_parts(l, memory, code, name, file);
	if (r == 0)
		r = read_string(l, memory, name, &room, &ret->name);
	if (r < 0)
		return r;
	room.size += scratch_size - scratch_size / 2;
	r = read_string(l, memory, file, &room, &ret->file);
	if (r < 0)
		return r;
	ret->own[0] = first;
	ret->start_line = first <= INT32_MAX ? first : 0;
	*ret_table = read_lines(l, memory, code, &ret->table_size);
	ret->table = *ret_table;
	target_renew(memory);
	return read_code(p, memory, code, cookie);
}

int python_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		     char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	const struct python_process *p = state;
	uint64_t code = words[0] & KILN_FRAME_PC_MASK;
	uint32_t cookie = (uint32_t)(words[1] >> 32);
	struct runtime_function f = {.name = "", .file = ""};
	_cleanup_free_ void *table = NULL;
	int r;

	if (!target_find_function(memory, code, cookie, &f)) {
		r = read_function(p, memory, code, cookie, scratch, scratch_size, &f, &table);
		if (r < 0)
			return r;
		/* Without its table, the function's next frame would have no line. */
		if (f.table && f.table_size <= RUNTIME_FUNCTION_TABLE_MAX)
			target_keep_function(memory, code, cookie, &f);
	}
	ret->type = FRAME_CPYTHON;
	ret->n = 1;
	ret->symbols[0] = (struct symbol){
	    .name = f.name,
	    .system_name = f.name,
	    .file = f.file,
	    .start_line = f.start_line,
	    .line = f.table ? python_line(p->minor, cursor_of(f.table, f.table_size),
					  (uint32_t)f.own[0], (int32_t)(uint32_t)words[1])
			    : 0,
	};
	return 0;
}
