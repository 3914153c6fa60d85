/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table with chaining, and a list in the order of last use, least recently used first. A
 * function is one allocation: its name, its file and its table follow the struct. The cookies have
 * a table of their own, of fixed size: a new cookie replaces the one in its slot.
 *
 * Invariant: `bytes` is the sum of the functions' allocations, at most `max_bytes` and one function
 * more.
 */
#include "agent/runtime/functions.h"

#include <utlist.h>

struct entry {
	struct runtime_function_key key;
	struct entry *prev, *next, *chain;
	uint64_t own[4];
	uint32_t start_line;
	/* In `room`, which begins with the name; table_at 0: there is no table. */
	uint32_t file_at, table_at, table_size;
	uint32_t size; /* of the allocation */
	char room[];
};

enum { CHAINS = 4096, COOKIES = 8192 /* powers of two */ };

struct cookie {
	uint64_t address, code, cookie;
	uint32_t space; /* 0: nothing is kept here */
	uint32_t pad;
};

struct runtime_functions {
	struct entry *chains[CHAINS], *list;
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

static struct entry **chain_of(struct runtime_functions *f, const struct runtime_function_key *key)
{
	const uint64_t words[] = {key->address, key->space};

	return &f->chains[hash_words(words, ARRAY_SIZE(words), 0) & (CHAINS - 1)];
}

static void drop(struct runtime_functions *f, struct entry *e)
{
	struct entry **at = chain_of(f, &e->key);

	while (*at != e)
		at = &(*at)->chain;
	*at = e->chain;
	DL_DELETE(f->list, e);
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
	struct entry *e = *chain_of(f, key);

	while (e && (e->key.address != key->address || e->key.cookie != key->cookie ||
		     e->key.space != key->space))
		e = e->chain;
	return e;
}

static void use(struct runtime_functions *f, struct entry *e, struct runtime_function *ret)
{
	DL_DELETE(f->list, e);
	DL_APPEND(f->list, e);
	*ret = (struct runtime_function){
	    .name = e->room,
	    .file = e->room + e->file_at,
	    .start_line = e->start_line,
	    .table = e->table_at ? e->room + e->table_at : NULL,
	    .table_size = e->table_size,
	};
	memcpy(ret->own, e->own, sizeof(ret->own));
}

bool runtime_functions_find(struct runtime_functions *f, const struct runtime_function_key *key,
			    struct runtime_function *ret)
{
	struct entry *e = find(f, key);

	if (e)
		use(f, e, ret);
	return e;
}

bool runtime_functions_guess(struct runtime_functions *f, uint32_t space, uint64_t address,
			     struct runtime_function *ret)
{
	const struct runtime_function_key key = {.address = address, .space = space};
	struct entry *e = *chain_of(f, &key);

	while (e && (e->key.address != address || e->key.space != space))
		e = e->chain;
	if (e)
		use(f, e, ret);
	return e;
}

void runtime_functions_add(struct runtime_functions *f, const struct runtime_function_key *key,
			   const struct runtime_function *function)
{
	bool has_table = function->table && function->table_size <= RUNTIME_FUNCTION_TABLE_MAX;
	size_t table = has_table ? function->table_size : 0, name = strlen(function->name) + 1,
	       file = strlen(function->file) + 1, size = sizeof(struct entry) + name + file + table;
	struct entry *e = find(f, key), **chain;

	if (size > UINT32_MAX)
		return;
	if (e)
		drop(f, e);
	while (f->list && f->bytes + size > f->max_bytes)
		drop(f, f->list);
	e = malloc(size);
	if (!e)
		return;
	*e = (struct entry){
	    .key = *key,
	    .start_line = function->start_line,
	    .file_at = (uint32_t)name,
	    .table_at = has_table ? (uint32_t)(name + file) : 0,
	    .table_size = (uint32_t)table,
	    .size = (uint32_t)size,
	};
	memcpy(e->own, function->own, sizeof(e->own));
	memcpy(e->room, function->name, name);
	memcpy(e->room + name, function->file, file);
	if (table)
		memcpy(e->room + name + file, function->table, table);
	chain = chain_of(f, key);
	e->chain = *chain;
	*chain = e;
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
