// SPDX-License-Identifier: Apache-2.0
/*
 * The name, file and line of a PHP frame. The walk has read the line. The name and file are kept
 * for frames of other lines. They come from the function (functions.c); code that has only a file
 * gets a name that is made from the file's name.
 *
 * The string with the name of an included file may have been freed. PHP keeps the first such string
 * of each file in a table.
 *
 * All memory is foreign: lengths are capped. Loop thread.
 */
#include "agent/runtime/php/functions.h"

/* Appends the string at ADDRESS if its hash has COOKIE, as the one that the walk saw. -EFAULT: it
 * is another string. */
static int append_known(const struct target_memory *memory, uint64_t address, uint64_t cookie,
			uint32_t bits, struct php_room *room)
{
	uint64_t hash;
	int r = php_read_word(memory, address + PHP_STRING_HASH, &hash);

	if (r < 0)
		return r;
	return php_string_cookie(hash, bits) == cookie ? php_append_string(memory, address, room)
						       : -EFAULT;
}

/* Appends the file's name at ADDRESS or, if another string is there, the name of the included file
 * with the same cookie. */
static int append_file(const struct php_process *p, const struct target_memory *memory,
		       uint64_t address, uint64_t cookie, uint32_t bits, struct php_room *room)
{
	int r = append_known(memory, address, cookie, bits, room);

	if (r == 0 || bits != PHP_LONG_COOKIE_BITS)
		return r;
	r = php_table_find(memory, p->globals + p->layout->included_files, cookie, &address);
	return r < 0 ? -EFAULT : append_known(memory, address, cookie, bits, room);
}

static const char *make_name(enum php_kind kind, const char *file, uint32_t start,
			     struct php_room *room)
{
	const char *name = php_begin(room);
	char line[16];

	switch (kind) {
	case PHP_MAIN:
		return "{main}";
	case PHP_EVAL:
		return "{eval}";
	case PHP_INCLUDE:
		php_append(room, "{include:");
		php_append(room, file);
		break;
	default:
		snprintf(line, sizeof(line), ":%u", start);
		php_append(room, "{closure:");
		php_append(room, file);
		php_append(room, line);
	}
	php_append(room, "}");
	return name;
}

/* Appends PHP's own description of such code (Zend/zend_compile.c,
 * zend_make_compiled_string_description). */
static void append_eval(uint32_t line, struct php_room *room)
{
	char text[40];

	snprintf(text, sizeof(text), "(%u) : eval()'d code", line);
	php_append(room, text);
}

/* Names code that has only a file. */
static int name_place(const struct php_process *p, enum php_kind kind,
		      const struct target_memory *memory, const uint64_t words[2],
		      struct php_room *room, struct runtime_function *ret)
{
	uint64_t address = words[0] & KILN_FRAME_PC_MASK, rest = PHP_PLACE_REST(words[1]);
	bool has_start = kind == PHP_CLOSURE || kind == PHP_EVAL;
	uint32_t start = has_start ? PHP_REST_START(rest) : 0;
	uint32_t bits = has_start ? PHP_COOKIE_BITS : PHP_LONG_COOKIE_BITS;
	int r;

	ret->file = php_begin(room);
	r = append_file(p, memory, address, has_start ? PHP_REST_COOKIE(rest) : rest, bits, room);
	if (r < 0)
		return r;
	if (kind == PHP_EVAL)
		append_eval(start, room);
	php_end(room);
	ret->start_line = kind == PHP_CLOSURE ? start : 0;
	ret->name = make_name(kind, ret->file, start, room);
	return 0;
}

/* The part of WORDS that all frames of a function have in common. */
static uint64_t function_cookie(enum php_kind kind, const uint64_t words[2])
{
	if (kind == PHP_FUNCTION)
		return PHP_FUNCTION_COOKIE(words[1]);
	if (kind == PHP_BORROWED)
		return PHP_BORROWED_POINTER(words[1]);
	return PHP_PLACE_REST(words[1]);
}

static uint32_t line_of(enum php_kind kind, const uint64_t words[2])
{
	if (kind == PHP_FUNCTION)
		return (uint32_t)words[1];
	if (kind == PHP_BORROWED)
		return PHP_BORROWED_REST(words[1]);
	return PHP_PLACE_LINE(words[1]);
}

static int read_function(const struct php_process *p, enum php_kind kind,
			 const struct target_memory *memory, const uint64_t words[2],
			 struct php_room *room, struct runtime_function *ret)
{
	uint64_t cookie = function_cookie(kind, words);
	bool lasts = true;
	int r;

	if (target_find_function(memory, words[0], cookie, ret))
		return 0;
	if (kind == PHP_FUNCTION)
		r = php_name_function(p, memory, words, room, ret, &lasts);
	else if (kind == PHP_BORROWED)
		r = php_name_borrowed(p, memory, words, room, ret, &lasts);
	else
		r = name_place(p, kind, memory, words, room, ret);
	if (r == 0 && lasts)
		target_keep_function(memory, words[0], cookie, ret);
	return r;
}

int php_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		  char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	enum php_kind kind = (enum php_kind)KILN_FRAME_FLAGS(words[0]);
	struct runtime_function function = {.name = "(regular expression)", .file = ""};
	struct php_room room = {scratch, scratch_size};
	int r = 0;

	if (kind > PHP_REGEX)
		return -EFAULT;
	if (kind != PHP_REGEX)
		r = read_function(state, kind, memory, words, &room, &function);
	if (r < 0)
		return r;
	ret->type = FRAME_PHP;
	ret->n = 1;
	ret->symbols[0] = (struct symbol){
	    .name = function.name,
	    .system_name = function.name,
	    .file = function.file,
	    .start_line = function.start_line,
	    .line = kind == PHP_REGEX ? 0 : line_of(kind, words),
	};
	return 0;
}
