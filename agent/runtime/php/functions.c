// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a function's name, class and file from its zend_function. The zend_function is read before
 * and after them, because in between it may be freed and replaced by another. Both times it must
 * have the cookie that the walk saw.
 *
 * Freed memory may look unchanged for a long time. So the text of a name must have the hash that
 * the walk saw, or PHP's own table must find the function by that name; and a class must be the one
 * that PHP's table has under its name.
 */
#include "agent/runtime/php/functions.h"

enum {
	FUNC_WORDS = 3, /* type and flags, name, scope */
	TYPE_INTERNAL = 1,
};

/* A function: its address, the first words of its zend_function, and the hash of its name. */
struct function {
	uint64_t address, func[FUNC_WORDS], hash;
};

static int read_function(const struct target_memory *memory, uint64_t address, struct function *ret)
{
	struct function f = {.address = address};
	int r = target_read(memory, address, f.func, sizeof(f.func));

	if (r == 0)
		r = php_read_word(memory, f.func[1] + PHP_STRING_HASH, &f.hash);
	if (r == 0)
		*ret = f;
	return r;
}

/* Reads the function F again. -EFAULT: it has changed. */
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

/* The address of the table of functions of the class at SCOPE; SCOPE 0: those without a class. */
static int find_table(const struct php_process *p, const struct target_memory *memory,
		      uint64_t scope, uint64_t *ret)
{
	if (!scope)
		return php_read_word(memory, p->globals + p->layout->function_table, ret);
	*ret = scope + p->layout->class_functions;
	return 0;
}

/* The address of the function that PHP finds by the string at NAME in the class at SCOPE. */
static int find_function(const struct php_process *p, const struct target_memory *memory,
			 uint64_t scope, uint64_t name, uint64_t *ret)
{
	uint64_t table, hash;
	int r = find_table(p, memory, scope, &table);

	if (r == 0)
		r = php_read_key(memory, name, &hash);
	return r < 0 ? r : php_table_get(memory, table, hash, ret);
}

/* Is F a hook of a property, such as "$total::get"? Hooks are in no table of functions. */
static bool is_hook(const struct target_memory *memory, const struct function *f)
{
	char first;

	return f->func[2] && target_read(memory, f->func[1] + PHP_STRING_TEXT, &first, 1) == 0 &&
	       first == '$';
}

/* Appends the name of the class at SCOPE and "::". */
static int append_class(const struct php_process *p, const struct target_memory *memory,
			uint64_t scope, struct php_room *room)
{
	uint64_t name, table, hash, found;
	int r = php_read_word(memory, scope + PHP_CLASS_NAME, &name);

	if (r == 0)
		r = php_read_word(memory, p->globals + p->layout->class_table, &table);
	if (r == 0)
		r = php_read_key(memory, name, &hash);
	if (r == 0)
		r = php_table_get(memory, table, hash, &found);
	if (r < 0 || found != scope)
		return -EFAULT;
	r = php_append_string(memory, name, room);
	php_append(room, "::");
	return r;
}

/* Reads the file and the first line of the function at ADDRESS. */
static int read_place(const struct php_layout *l, const struct target_memory *memory,
		      uint64_t address, struct php_room *room, struct runtime_function *ret)
{
	uint64_t place[2];
	int r = target_read(memory, address + l->filename, place, sizeof(place));

	if (r < 0)
		return r;
	ret->file = php_begin(room);
	r = php_append_string(memory, place[0], room);
	ret->start_line = (uint32_t)place[1];
	return r;
}

static int describe(const struct php_process *p, const struct target_memory *memory,
		    const struct function *f, struct php_room *room, struct runtime_function *ret)
{
	int r = 0;

	ret->name = php_begin(room);
	if (f->func[2])
		r = append_class(p, memory, f->func[2], room);
	if (r == 0)
		r = php_append_string(memory, f->func[1], room);
	php_end(room);
	if (r == 0 && (f->func[0] & 255) != TYPE_INTERNAL)
		r = read_place(p->layout, memory, f->address, room, ret);
	return r < 0 ? r : check_function(memory, f);
}

int php_name_function(const struct php_process *p, const struct target_memory *memory,
		      const uint64_t words[2], struct php_room *room, struct runtime_function *ret,
		      bool *ret_lasts)
{
	uint32_t type, cookie = PHP_FUNCTION_COOKIE(words[1]);
	uint64_t found = 0;
	struct function f;
	int r = read_function(memory, words[0] & KILN_FRAME_PC_MASK, &f);

	if (r < 0)
		return r;
	type = f.func[0] & 255;
	*ret_lasts = type == TYPE_INTERNAL || f.hash;
	if (php_function_cookie(type, f.func[1], type == TYPE_INTERNAL ? 0 : f.hash, f.func[2]) !=
	    cookie)
		return -EFAULT;
	/* A name by which nothing was ever looked up has no hash: PHP's table has to confirm it. */
	if (!*ret_lasts && !is_hook(memory, &f) &&
	    (find_function(p, memory, f.func[2], f.func[1], &found) < 0 || found != f.address))
		return -EFAULT;
	return describe(p, memory, &f, room, ret);
}

int php_name_borrowed(const struct php_process *p, const struct target_memory *memory,
		      const uint64_t words[2], struct php_room *room, struct runtime_function *ret,
		      bool *ret_lasts)
{
	uint64_t word = words[0] & KILN_FRAME_PC_MASK, name = PHP_BORROWED_POINTER(word);
	uint64_t scope = PHP_BORROWED_POINTER(words[1]), address;
	struct function f;
	int r = find_function(p, memory, scope, name, &address);

	if (r == 0)
		r = read_function(memory, address, &f);
	if (r < 0 || f.func[1] != name || f.func[2] != scope ||
	    php_string_cookie(f.hash, PHP_BORROWED_COOKIE_BITS) != PHP_BORROWED_REST(word))
		return -EFAULT;
	/* The frame has only seven bits of the name's hash. */
	*ret_lasts = false;
	return describe(p, memory, &f, room, ret);
}
