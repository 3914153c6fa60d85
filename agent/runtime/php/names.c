// SPDX-License-Identifier: Apache-2.0
/*
 * The name, file and line of a PHP frame. The line was read by the walk. A function's name, class
 * and file are read from its zend_function; that of other code is made from its file.
 *
 * The zend_function, or the string, is looked at before and after: between, it may be freed and
 * another one may come into its place. Both times it must have the cookie that the walk saw.
 * Everything is foreign: lengths are capped. Loop thread.
 */
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

/*
 * Appends the zend_string at ADDRESS up to a NUL, which is in the names of classes without one:
 * what is behind it tells them apart.
 */
static int append_string(const struct target_memory *memory, uint64_t address, struct room *room)
{
	char text[PHP_STRING_MAX + 1];
	uint64_t len;
	int r = read_word(memory, address + PHP_STRING_LEN, &len);

	if (r < 0)
		return r;
	if (len > PHP_STRING_SANE)
		return -EFAULT;
	len = MIN(len, PHP_STRING_MAX);
	r = len ? target_read(memory, address + PHP_STRING_TEXT, text, len) : 0;
	if (r < 0)
		return r;
	text[len] = '\0';
	append(room, text);
	return 0;
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

static int read_function(const struct target_memory *memory, uint64_t address, uint32_t cookie,
			 uint64_t ret[FUNC_WORDS])
{
	uint64_t words[FUNC_WORDS];
	int r = target_read(memory, address, words, sizeof(words));

	if (r < 0)
		return r;
	if (php_function_cookie(words[0] & 255, words[1], words[2]) != cookie)
		return -EFAULT;
	memcpy(ret, words, sizeof(words));
	return 0;
}

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

static int name_function(const struct php_layout *l, const struct target_memory *memory,
			 const uint64_t words[2], struct room *room, struct symbol *ret)
{
	uint64_t address = words[0] & KILN_FRAME_PC_MASK, func[FUNC_WORDS];
	uint32_t cookie = (uint32_t)(words[1] >> 32);
	int r = read_function(memory, address, cookie, func);

	if (r < 0)
		return r;
	ret->name = begin(room);
	if (func[2])
		r = append_class(memory, func[2], room);
	if (r == 0)
		r = append_string(memory, func[1], room);
	if (r < 0)
		return r;
	end(room);
	if ((func[0] & 255) != TYPE_INTERNAL) {
		r = read_place(l, memory, address, room, ret);
		if (r < 0)
			return r;
		ret->line = (uint32_t)words[1];
	}
	target_renew(memory);
	return read_function(memory, address, cookie, func);
}

/* ---- other code ------------------------------------------------------------------------------ */

static int check_string(const struct target_memory *memory, uint64_t address, uint32_t cookie)
{
	uint64_t head[2]; /* hash, length */
	int r = target_read(memory, address + PHP_STRING_HASH, head, sizeof(head));

	if (r < 0)
		return r;
	return php_string_cookie(head[0], head[1]) == cookie ? 0 : -EFAULT;
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

static int name_place(enum php_kind kind, const struct target_memory *memory,
		      const uint64_t words[2], struct room *room, struct symbol *ret)
{
	uint64_t address = words[0] & KILN_FRAME_PC_MASK;
	uint32_t cookie = PHP_PLACE_COOKIE(words[1]);
	int r = check_string(memory, address, cookie);

	if (r < 0)
		return r;
	ret->file = begin(room);
	r = append_string(memory, address, room);
	if (r < 0)
		return r;
	end(room);
	ret->line = PHP_PLACE_LINE(words[1]);
	ret->start_line = PHP_PLACE_START(words[1]);
	ret->name = make_name(kind, ret->file, ret->start_line, room);
	target_renew(memory);
	return check_string(memory, address, cookie);
}

int php_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		  char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	uint32_t kind = KILN_FRAME_FLAGS(words[0]);
	struct symbol symbol = {.name = "", .file = ""};
	struct room room = {scratch, scratch_size};
	int r;

	if (kind > PHP_EVAL)
		return -EFAULT;
	if (kind == PHP_FUNCTION)
		r = name_function(state, memory, words, &room, &symbol);
	else
		r = name_place((enum php_kind)kind, memory, words, &room, &symbol);
	if (r < 0)
		return r;
	symbol.system_name = symbol.name;
	ret->type = FRAME_PHP;
	ret->n = 1;
	ret->symbols[0] = symbol;
	return 0;
}
