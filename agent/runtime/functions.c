/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table, and a list with the function that was not used for longest first. A function is one
 * allocation: its name, its file and its table lie behind it. The hash of a cookie's key gives its
 * place in the table of cookies; a new cookie replaces the one there.
 *
 * Invariant: `bytes` is the sum of the functions' allocations, at most `max_bytes` and one function
 * more.
 */
#include "agent/runtime/functions.h"

#include <utlist.h>

#include "lib/uthash.h"

struct entry {
	struct runtime_function_key key;
	struct runtime_function function;
	size_t size;
	struct entry *prev, *next;
	UT_hash_handle hh;
	char room[];
};

enum { COOKIES = 8192 /* a power of two */ };

struct cookie {
	uint64_t address, code, cookie;
	uint32_t space; /* 0: nothing is kept here */
	uint32_t pad;
};

struct runtime_functions {
	struct entry *entries, *list;
	struct cookie *cookies; /* NULL: none was kept yet */
	size_t bytes, max_bytes;
	uint64_t added;
};

int runtime_functions_new(size_t max_bytes, struct runtime_functions **ret)
{
	struct runtime_functions *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->max_bytes = max_bytes;
	*ret = f;
	return 0;
}

static void drop(struct runtime_functions *f, struct entry *e)
{
	DL_DELETE(f->list, e);
	HASH_DEL(f->entries, e);
	f->bytes -= e->size;
	free(e);
}

struct runtime_functions *runtime_functions_free(struct runtime_functions *f)
{
	if (!f)
		return NULL;
	while (f->list)
		drop(f, f->list);
	free(f->cookies);
	free(f);
	return NULL;
}

static struct entry *find(struct runtime_functions *f, const struct runtime_function_key *key)
{
	struct entry *e;

	HASH_FIND(hh, f->entries, key, sizeof(*key), e);
	return e;
}

bool runtime_functions_find(struct runtime_functions *f, const struct runtime_function_key *key,
			    struct runtime_function *ret)
{
	struct entry *e = find(f, key);

	if (!e)
		return false;
	DL_DELETE(f->list, e);
	DL_APPEND(f->list, e);
	*ret = e->function;
	return true;
}

static const char *put_text(char **at, const char *s, size_t len)
{
	char *to = *at;

	memcpy(to, s, len);
	to[len] = 0;
	*at += len + 1;
	return to;
}

void runtime_functions_add(struct runtime_functions *f, const struct runtime_function_key *key,
			   const struct runtime_function *function)
{
	bool has_table = function->table && function->table_size <= RUNTIME_FUNCTION_TABLE_MAX;
	size_t table = has_table ? function->table_size : 0, name = strlen(function->name),
	       file = strlen(function->file), size = sizeof(struct entry) + name + file + 2 + table;
	struct entry *e = find(f, key);
	char *at;

	if (e)
		drop(f, e);
	while (f->list && f->bytes + size > f->max_bytes)
		drop(f, f->list);
	e = malloc(size);
	if (!e)
		return;
	*e = (struct entry){.key = *key, .function = *function, .size = size};
	at = e->room;
	e->function.name = put_text(&at, function->name, name);
	e->function.file = put_text(&at, function->file, file);
	e->function.table = has_table ? memcpy(at, function->table, table) : NULL;
	e->function.table_size = table;
	HASH_ADD(hh, f->entries, key, sizeof(e->key), e);
	DL_APPEND(f->list, e);
	f->bytes += size;
	f->added++;
}

static struct cookie *cookie_place(const struct runtime_functions *f, uint32_t space,
				   uint64_t address, uint64_t code)
{
	const uint64_t key[] = {address, code, space};

	return &f->cookies[hash_words(key, ARRAY_SIZE(key), 0) & (COOKIES - 1)];
}

bool runtime_functions_cookie(const struct runtime_functions *f, uint32_t space, uint64_t address,
			      uint64_t code, uint64_t *ret)
{
	const struct cookie *c = f->cookies ? cookie_place(f, space, address, code) : NULL;

	if (!c || c->space != space || c->address != address || c->code != code)
		return false;
	*ret = c->cookie;
	return true;
}

void runtime_functions_keep_cookie(struct runtime_functions *f, uint32_t space, uint64_t address,
				   uint64_t code, uint64_t cookie)
{
	if (!f->cookies && !(f->cookies = calloc(COOKIES, sizeof(*f->cookies))))
		return;
	*cookie_place(f, space, address, code) =
	    (struct cookie){.address = address, .code = code, .cookie = cookie, .space = space};
}

size_t runtime_functions_bytes(const struct runtime_functions *f)
{
	return f->bytes;
}

uint64_t runtime_functions_added(const struct runtime_functions *f)
{
	return f->added;
}
