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
 * The zend_string at ADDRESS, up to PHP_STRING_MAX bytes of it. One that was freed has its hash for
 * long, but not its text: both have to fit. *RET_LEN: with NULs, which some names have.
 */
static int read_string(const struct target_memory *memory, uint64_t address,
		       char ret[PHP_STRING_MAX + 1], uint64_t *ret_len)
{
	uint64_t head[2]; /* hash, length */
	int r = target_read(memory, address + PHP_STRING_HASH, head, sizeof(head));

	if (r < 0)
		return r;
	if (head[1] > PHP_STRING_SANE)
		return -EFAULT;
	*ret_len = MIN(head[1], (uint64_t)PHP_STRING_MAX);
	ret[*ret_len] = '\0';
	r = *ret_len ? target_read(memory, address + PHP_STRING_TEXT, ret, *ret_len) : 0;
	if (r < 0)
		return r;
	if (head[0] && *ret_len == head[1] && php_hash(ret, *ret_len) != head[0])
		return -EFAULT;
	return 0;
}

/* Appends the zend_string at ADDRESS up to a NUL: what is behind that tells classes without a name
 * apart.
 */
static int append_string(const struct target_memory *memory, uint64_t address, struct room *room)
{
	char text[PHP_STRING_MAX + 1];
	uint64_t len;
	int r = read_string(memory, address, text, &len);

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

/*
 * The hash of the zend_string at ADDRESS in lower case, as which names of functions and classes are
 * keys.
 */
static int read_key(const struct target_memory *memory, uint64_t address, uint64_t *ret)
{
	char text[PHP_STRING_MAX + 1];
	uint64_t len;
	int r = read_string(memory, address, text, &len);

	if (r < 0)
		return r;
	for (uint64_t i = 0; i < len; i++)
		if (text[i] >= 'A' && text[i] <= 'Z')
			text[i] += 'a' - 'A';
	*ret = php_hash(text, len);
	return 0;
}

/* Appends the name of the class at SCOPE, if PHP knows one there: memory that it gave back may look
 * as before. */
static int append_class(const struct php_process *p, const struct target_memory *memory,
			uint64_t scope, struct room *room)
{
	uint64_t name, table, hash, found;
	int r = read_word(memory, scope + PHP_CLASS_NAME, &name);

	if (r == 0)
		r = read_word(memory, p->globals + p->layout->class_table, &table);
	if (r == 0)
		r = read_key(memory, name, &hash);
	if (r == 0)
		r = php_table_get(memory, table, hash, &found);
	if (r < 0 || found != scope)
		return -EFAULT;
	r = append_string(memory, name, room);
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

/* The function at ADDRESS whose head is FUNC and whose name has HASH. */
struct function {
	uint64_t address, func[FUNC_WORDS], hash;
};

static int read_function(const struct target_memory *memory, uint64_t address, struct function *ret)
{
	struct function f = {.address = address};
	int r = target_read(memory, address, f.func, sizeof(f.func));

	if (r == 0)
		r = read_word(memory, f.func[1] + PHP_STRING_HASH, &f.hash);
	if (r == 0)
		*ret = f;
	return r;
}

/* Is F still what it was? */
static int check_function(const struct target_memory *memory, const struct function *f)
{
	struct function again;
	int r;

	target_renew(memory);
	r = read_function(memory, f->address, &again);
	if (r < 0)
		return r;
	return (again.func[0] & 255) == (f->func[0] & 255) && again.func[1] == f->func[1] &&
		       again.func[2] == f->func[2] && again.hash == f->hash
		   ? 0
		   : -EFAULT;
}

/* Does PHP know F by its name? */
static int find_function(const struct php_process *p, const struct target_memory *memory,
			 const struct function *f)
{
	uint64_t table = f->func[2] + p->layout->class_functions, hash, found;
	int r = f->func[2] ? 0 : read_word(memory, p->globals + p->layout->function_table, &table);

	if (r == 0)
		r = read_key(memory, f->func[1], &hash);
	if (r == 0)
		r = php_table_get(memory, table, hash, &found);
	return r == 0 && found == f->address ? 0 : -EFAULT;
}

/* A hook of a property, "$total::get": in no table of functions. */
static bool is_hook(const struct target_memory *memory, const struct function *f)
{
	char first;

	return f->func[2] && target_read(memory, f->func[1] + PHP_STRING_TEXT, &first, 1) == 0 &&
	       first == '$';
}

static int describe(const struct php_process *p, const struct target_memory *memory,
		    const struct function *f, struct room *room, struct symbol *ret)
{
	int r = 0;

	ret->name = begin(room);
	if (f->func[2])
		r = append_class(p, memory, f->func[2], room);
	if (r == 0)
		r = append_string(memory, f->func[1], room);
	end(room);
	if (r == 0 && (f->func[0] & 255) != TYPE_INTERNAL)
		r = read_place(p->layout, memory, f->address, room, ret);
	else
		ret->line = 0;
	return r < 0 ? r : check_function(memory, f);
}

static int name_function(const struct php_process *p, const struct target_memory *memory,
			 const uint64_t words[2], struct room *room, struct symbol *ret)
{
	uint32_t type, cookie = (uint32_t)(words[1] >> 32);
	struct function f;
	int r = read_function(memory, words[0] & KILN_FRAME_PC_MASK, &f);

	if (r < 0)
		return r;
	type = f.func[0] & 255;
	if (php_function_cookie(type, f.func[1], type == TYPE_INTERNAL ? 0 : f.hash, f.func[2]) !=
	    cookie)
		return -EFAULT;
	/* A name that nothing was ever looked up by has no hash. */
	if (type != TYPE_INTERNAL && !f.hash && !is_hook(memory, &f) &&
	    find_function(p, memory, &f) < 0)
		return -EFAULT;
	ret->line = (uint32_t)words[1];
	return describe(p, memory, &f, room, ret);
}

/* A function whose zend_function was a copy: the table of its class, or that of all, has it. */
static int name_borrowed(const struct php_process *p, const struct target_memory *memory,
			 const uint64_t words[2], struct room *room, struct symbol *ret)
{
	uint64_t word = words[0] & KILN_FRAME_PC_MASK, name = PHP_BORROWED_POINTER(word);
	uint64_t scope = PHP_BORROWED_POINTER(words[1]), hash, address;
	uint64_t table = scope + p->layout->class_functions;
	struct function f;
	int r = scope ? 0 : read_word(memory, p->globals + p->layout->function_table, &table);

	if (r == 0)
		r = read_key(memory, name, &hash);
	if (r == 0)
		r = php_table_get(memory, table, hash, &address);
	if (r == 0)
		r = read_function(memory, address, &f);
	if (r < 0 || f.func[1] != name || f.func[2] != scope ||
	    php_string_cookie(f.hash, PHP_BORROWED_COOKIE_BITS) != PHP_BORROWED_REST(word))
		return -EFAULT;
	ret->line = (uint32_t)PHP_BORROWED_REST(words[1]);
	return describe(p, memory, &f, room, ret);
}

/* ---- other code ------------------------------------------------------------------------------ */

/* Appends the string at ADDRESS, if it has COOKIE. */
static int append_known(const struct target_memory *memory, uint64_t address, uint64_t cookie,
			uint32_t bits, struct room *room)
{
	uint64_t hash;
	int r = read_word(memory, address + PHP_STRING_HASH, &hash);

	if (r < 0)
		return r;
	return php_string_cookie(hash, bits) == cookie ? append_string(memory, address, room)
						       : -EFAULT;
}

/* The file whose name is at ADDRESS or, if that is another string by now, the one that was
 * included. */
static int append_file(const struct php_process *p, const struct target_memory *memory,
		       uint64_t address, uint64_t cookie, uint32_t bits, struct room *room)
{
	int r = append_known(memory, address, cookie, bits, room);

	if (r == 0 || bits != PHP_LONG_COOKIE_BITS)
		return r;
	r = php_table_find(memory, p->globals + p->layout->included_files, cookie, &address);
	return r < 0 ? -EFAULT : append_known(memory, address, cookie, bits, room);
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

/*
 * Nothing is looked at twice here: the text of the file's name has the hash that the walk saw.
 */
static int name_place(const struct php_process *p, enum php_kind kind,
		      const struct target_memory *memory, const uint64_t words[2],
		      struct room *room, struct symbol *ret)
{
	uint64_t address = words[0] & KILN_FRAME_PC_MASK, rest = PHP_PLACE_REST(words[1]);
	bool has_start = kind == PHP_CLOSURE || kind == PHP_EVAL;
	uint32_t start = has_start ? PHP_REST_START(rest) : 0;
	uint32_t bits = has_start ? PHP_COOKIE_BITS : PHP_LONG_COOKIE_BITS;
	int r;

	ret->file = begin(room);
	r = append_file(p, memory, address, has_start ? PHP_REST_COOKIE(rest) : rest, bits, room);
	if (r < 0)
		return r;
	if (kind == PHP_EVAL)
		append_eval(start, room);
	end(room);
	ret->line = PHP_PLACE_LINE(words[1]);
	ret->start_line = kind == PHP_CLOSURE ? start : 0;
	ret->name = make_name(kind, ret->file, start, room);
	return 0;
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
		r = name_function(p, memory, words, &room, &symbol);
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
