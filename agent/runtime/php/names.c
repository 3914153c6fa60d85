// SPDX-License-Identifier: Apache-2.0
/*
 * The name, file and line of a PHP frame. The line was read by the walk. A function's name, class
 * and file are read from its zend_function; that of other code is made from its file.
 *
 * The zend_function, or the string, is looked at before and after: between, it may be freed and
 * another one may come into its place. Both times it must have the cookie that the walk saw.
 *
 * The string with the name of a file that was included may be gone: PHP has the first one of each
 * file in a table. So has it the function of which a closure was made.
 *
 * Everything is foreign: lengths are capped. Loop thread.
 */
#include <ctype.h>

#include "agent/runtime/php/php.h"

enum {
	FUNC_WORDS = 3, /* type and flags, name, scope */
	TYPE_INTERNAL = 1,
};

/* What is left of the caller's scratch. */
struct room {
	char *at;
	size_t size;
};

static int read_word(const struct target_memory *memory, uint64_t address, uint64_t *ret)
{
	return target_read(memory, address, ret, sizeof(*ret));
}

/* Appends TEXT to what is at TO, which stays a string; what does not fit is left out. */
static void append(struct room *room, const char *text)
{
	size_t n = strnlen(text, room->size ? room->size - 1 : 0);

	if (!room->size)
		return;
	memcpy(room->at, text, n);
	room->at[n] = '\0';
	room->at += n;
	room->size -= n;
}

static int read_string(const struct target_memory *memory, uint64_t address,
		       char ret[PHP_STRING_MAX + 1])
{
	uint64_t len;
	int r = read_word(memory, address + PHP_STRING_LEN, &len);

	if (r < 0)
		return r;
	if (len > PHP_STRING_SANE)
		return -EFAULT;
	len = MIN(len, PHP_STRING_MAX);
	ret[len] = '\0';
	return len ? target_read(memory, address + PHP_STRING_TEXT, ret, len) : 0;
}

/*
 * Appends the zend_string at ADDRESS up to a NUL, which is in the names of classes without one:
 * what is behind it tells them apart.
 */
static int append_string(const struct target_memory *memory, uint64_t address, struct room *room)
{
	char text[PHP_STRING_MAX + 1];
	int r = read_string(memory, address, text);

	if (r == 0)
		append(room, text);
	return r;
}

/* The next string of ROOM begins here. */
static const char *begin(struct room *room)
{
	if (room->size)
		*room->at = '\0';
	return room->size ? room->at : "";
}

static void end(struct room *room)
{
	if (room->size) {
		room->at++;
		room->size--;
	}
}

/* ---- functions ------------------------------------------------------------------------------- */

static int append_class(const struct target_memory *memory, uint64_t scope, struct room *room)
{
	uint64_t name;
	int r = read_word(memory, scope + PHP_CLASS_NAME, &name);

	if (r == 0)
		r = append_string(memory, name, room);
	if (r == 0)
		append(room, "::");
	return r;
}

/* The file and the first line of the function at ADDRESS. */
static int read_place(const struct php_layout *l, const struct target_memory *memory,
		      uint64_t address, struct room *room, struct symbol *ret)
{
	uint64_t place[2];
	int r = target_read(memory, address + l->filename, place, sizeof(place));

	if (r < 0)
		return r;
	ret->file = begin(room);
	r = append_string(memory, place[0], room);
	ret->start_line = (uint32_t)place[1];
	return r;
}

/* The function at ADDRESS, whose head is FUNC and stays that. */
static int describe(const struct php_layout *l, const struct target_memory *memory,
		    uint64_t address, const uint64_t func[FUNC_WORDS], struct room *room,
		    struct symbol *ret)
{
	uint64_t again[FUNC_WORDS];
	int r = 0;

	ret->name = begin(room);
	if (func[2])
		r = append_class(memory, func[2], room);
	if (r == 0)
		r = append_string(memory, func[1], room);
	end(room);
	if (r == 0 && (func[0] & 255) != TYPE_INTERNAL)
		r = read_place(l, memory, address, room, ret);
	else
		ret->line = 0;
	if (r < 0)
		return r;
	target_renew(memory);
	r = target_read(memory, address, again, sizeof(again));
	if (r < 0)
		return r;
	return (again[0] & 255) == (func[0] & 255) && again[1] == func[1] && again[2] == func[2]
		   ? 0
		   : -EFAULT;
}

static int name_function(const struct php_layout *l, const struct target_memory *memory,
			 const uint64_t words[2], struct room *room, struct symbol *ret)
{
	uint64_t address = words[0] & KILN_FRAME_PC_MASK, func[FUNC_WORDS];
	int r = target_read(memory, address, func, sizeof(func));

	if (r < 0)
		return r;
	if (php_function_cookie(func[0] & 255, func[1], func[2]) != (uint32_t)(words[1] >> 32))
		return -EFAULT;
	ret->line = (uint32_t)words[1];
	return describe(l, memory, address, func, room, ret);
}

/* A function whose zend_function was a copy: the table of its class, or that of all, has it. */
static int name_borrowed(const struct php_process *p, const struct target_memory *memory,
			 const uint64_t words[2], struct room *room, struct symbol *ret)
{
	uint64_t name = words[0] & KILN_FRAME_PC_MASK, scope = PHP_BORROWED_CLASS(words[1]);
	uint64_t table = scope + p->layout->class_functions, func[FUNC_WORDS];
	char key[PHP_STRING_MAX + 1];
	struct php_entry entry;
	int r = scope ? 0 : read_word(memory, p->globals + p->layout->function_table, &table);

	if (r == 0)
		r = read_string(memory, name, key);
	if (r < 0)
		return r;
	for (char *c = key; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	r = php_table_find(memory, table, php_string_cookie(php_hash(key, strlen(key)), 64), 64,
			   &entry);
	if (r == 0)
		r = target_read(memory, entry.value, func, sizeof(func));
	if (r < 0 || func[1] != name || func[2] != scope)
		return -EFAULT;
	ret->line = PHP_BORROWED_LINE(words[1]);
	return describe(p->layout, memory, entry.value, func, room, ret);
}

/* ---- other code ------------------------------------------------------------------------------ */

/* The string at ADDRESS or, if it is another by now, that of an included file. */
static int find_string(const struct php_process *p, const struct target_memory *memory,
		       uint64_t address, uint64_t cookie, uint32_t bits, uint64_t *ret)
{
	struct php_entry entry;
	uint64_t hash;
	int r = read_word(memory, address + PHP_STRING_HASH, &hash);

	if (r == 0 && php_string_cookie(hash, bits) == cookie) {
		*ret = address;
		return 0;
	}
	if (bits != PHP_LONG_COOKIE_BITS)
		return -EFAULT;
	r = php_table_find(memory, p->globals + p->layout->included_files, cookie, bits, &entry);
	*ret = entry.key;
	return r < 0 ? -EFAULT : 0;
}

static const char *make_name(enum php_kind kind, const char *file, uint32_t start,
			     struct room *room)
{
	const char *name = begin(room);
	char line[16];

	switch (kind) {
	case PHP_MAIN:
		return "{main}";
	case PHP_EVAL:
		return "{eval}";
	case PHP_INCLUDE:
		append(room, "{include:");
		append(room, file);
		break;
	default:
		snprintf(line, sizeof(line), ":%u", start);
		append(room, "{closure:");
		append(room, file);
		append(room, line);
	}
	append(room, "}");
	return name;
}

/* As PHP calls the code itself (Zend/zend_compile.c, zend_make_compiled_string_description). */
static void append_eval(uint32_t line, struct room *room)
{
	char text[40];

	snprintf(text, sizeof(text), "(%u) : eval()'d code", line);
	append(room, text);
}

static int name_place(const struct php_process *p, enum php_kind kind,
		      const struct target_memory *memory, const uint64_t words[2],
		      struct room *room, struct symbol *ret)
{
	uint64_t address = words[0] & KILN_FRAME_PC_MASK, rest = PHP_PLACE_REST(words[1]);
	bool has_start = kind == PHP_CLOSURE || kind == PHP_EVAL;
	uint32_t start = has_start ? PHP_REST_START(rest) : 0;
	uint32_t bits = has_start ? PHP_COOKIE_BITS : PHP_LONG_COOKIE_BITS;
	uint64_t cookie = has_start ? PHP_REST_COOKIE(rest) : rest, hash;
	int r = find_string(p, memory, address, cookie, bits, &address);

	if (r < 0)
		return r;
	ret->file = begin(room);
	r = append_string(memory, address, room);
	if (r < 0)
		return r;
	if (kind == PHP_EVAL)
		append_eval(start, room);
	end(room);
	ret->line = PHP_PLACE_LINE(words[1]);
	ret->start_line = kind == PHP_CLOSURE ? start : 0;
	ret->name = make_name(kind, ret->file, start, room);
	target_renew(memory);
	r = read_word(memory, address + PHP_STRING_HASH, &hash);
	if (r < 0)
		return r;
	return php_string_cookie(hash, bits) == cookie ? 0 : -EFAULT;
}

static int name_regex(struct symbol *ret)
{
	ret->name = "(regular expression)";
	return 0;
}

int php_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		  char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	const struct php_process *p = state;
	uint32_t kind = KILN_FRAME_FLAGS(words[0]);
	struct symbol symbol = {.name = "", .file = ""};
	struct room room = {scratch, scratch_size};
	int r;

	if (kind > PHP_REGEX)
		return -EFAULT;
	if (kind == PHP_REGEX)
		r = name_regex(&symbol);
	else if (kind == PHP_FUNCTION)
		r = name_function(p->layout, memory, words, &room, &symbol);
	else if (kind == PHP_BORROWED)
		r = name_borrowed(p, memory, words, &room, &symbol);
	else
		r = name_place(p, (enum php_kind)kind, memory, words, &room, &symbol);
	if (r < 0)
		return r;
	symbol.system_name = symbol.name;
	ret->type = FRAME_PHP;
	ret->n = 1;
	ret->symbols[0] = symbol;
	return 0;
}
