/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hash tables and a list. The list has the frames by the window in which they were touched
 * last, oldest first, so eviction takes from its head and never searches. Functions count the
 * frames' lines that point to them and go with the last.
 *
 * Invariant: `bytes` is the sum of all allocations but the hash tables' own.
 */
#include "agent/runtime/names.h"

#include <pthread.h>
#include <utlist.h>

#include "lib/metrics.h"
#include "lib/uthash.h"

struct function {
	uint32_t refs, start_line;
	size_t len; /* of text */
	const char *name, *system_name, *file;
	UT_hash_handle hh;
	char text[]; /* the key: start line, name, system name, file, each ended */
};

struct key {
	uint64_t words[2];
	uint32_t space, pad;
};

struct line {
	struct function *function;
	uint32_t line;
};

struct name {
	struct key key;
	uint32_t window; /* in which it was touched last */
	uint32_t n;
	uint32_t round; /* of the last try to read it */
	uint32_t tries; /* in the window */
	struct name *prev, *next;
	UT_hash_handle hh;
	enum frame_type type;
	struct line lines[];
};

struct runtime_names {
	pthread_mutex_t lock;
	struct name *names;
	struct name *list;
	struct function *functions;
	uint32_t round;
	size_t bytes, max_bytes;
	char scratch[3 * RUNTIME_NAME_MAX + 16];
};

int runtime_names_new(size_t max_bytes, struct runtime_names **ret)
{
	struct runtime_names *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->max_bytes = max_bytes;
	pthread_mutex_init(&n->lock, NULL);
	*ret = n;
	return 0;
}

static size_t name_size(const struct name *name)
{
	return sizeof(*name) + name->n * sizeof(name->lines[0]);
}

static void put_function(struct runtime_names *n, struct function *f)
{
	if (--f->refs)
		return;
	HASH_DEL(n->functions, f);
	n->bytes -= sizeof(*f) + f->len;
	free(f);
}

static void drop(struct runtime_names *n, struct name *name)
{
	DL_DELETE(n->list, name);
	HASH_DEL(n->names, name);
	for (uint32_t i = 0; i < name->n; i++)
		put_function(n, name->lines[i].function);
	n->bytes -= name_size(name);
	free(name);
}

struct runtime_names *runtime_names_free(struct runtime_names *n)
{
	if (!n)
		return NULL;
	while (n->list)
		drop(n, n->list);
	pthread_mutex_destroy(&n->lock);
	free(n);
	return NULL;
}

static size_t add_text(char *to, const char *s)
{
	size_t len = strnlen(s ? s : "", RUNTIME_NAME_MAX - 1);

	if (len)
		memcpy(to, s, len);
	to[len] = 0;
	return len + 1;
}

/* The function of SYM, with one reference more. NULL without memory. */
static struct function *get_function(struct runtime_names *n, const struct symbol *sym)
{
	const char *system_name = sym->system_name ? sym->system_name : sym->name;
	char *text = n->scratch;
	size_t name_len, system_len, len = sizeof(sym->start_line);
	struct function *f;
	unsigned int hash;

	memcpy(text, &sym->start_line, sizeof(sym->start_line));
	len += name_len = add_text(text + len, sym->name);
	/* Mostly the same: then it is not kept twice. */
	len += system_len =
	    add_text(text + len, sym->name && streq(system_name, sym->name) ? "" : system_name);
	len += add_text(text + len, sym->file);
	hash = (unsigned int)hash_bytes(text, len, 0);
	HASH_FIND_BYHASHVALUE(hh, n->functions, text, len, hash, f);
	if (!f) {
		f = malloc(sizeof(*f) + len);
		if (!f)
			return NULL;
		*f = (struct function){.start_line = sym->start_line, .len = len};
		memcpy(f->text, text, len);
		f->name = f->text + sizeof(sym->start_line);
		f->system_name = system_len > 1 ? f->name + name_len : f->name;
		f->file = f->name + name_len + system_len;
		HASH_ADD_KEYPTR_BYHASHVALUE(hh, n->functions, f->text, len, hash, f);
		n->bytes += sizeof(*f) + len;
	}
	f->refs++;
	return f;
}

static struct name *find(struct runtime_names *n, uint32_t space, const uint64_t words[2])
{
	struct key key = {.words = {words[0], words[1]}, .space = space};
	struct name *name;

	HASH_FIND(hh, n->names, &key, sizeof(key), name);
	return name;
}

static bool may_try_again(const struct runtime_names *n, const struct name *name)
{
	return name->tries < RUNTIME_NAME_TRIES && name->round != n->round;
}

enum runtime_name_state runtime_names_touch(struct runtime_names *n, uint32_t space,
					    const uint64_t words[2], uint32_t window)
{
	enum runtime_name_state state = RUNTIME_NAME_UNKNOWN;
	struct name *name;

	pthread_mutex_lock(&n->lock);
	name = find(n, space, words);
	if (name) {
		if (name->window != window)
			name->tries = 0;
		state = name->n					 ? RUNTIME_NAME_KNOWN
			: !name->tries || may_try_again(n, name) ? RUNTIME_NAME_FAILED
								 : RUNTIME_NAME_FAILED_NOW;
		if (name->window != window) {
			name->window = window;
			DL_DELETE(n->list, name);
			DL_APPEND(n->list, name);
		}
	}
	pthread_mutex_unlock(&n->lock);
	return state;
}

/* Room for one more, whatever its size: the cap is passed by one at most. */
static bool make_room(struct runtime_names *n, uint32_t window)
{
	while (n->bytes >= n->max_bytes) {
		if (!n->list || (int32_t)(n->list->window + RUNTIME_NAMES_WINDOWS - window) > 0)
			return false;
		drop(n, n->list);
		metric_add(M_RUNTIME_NAME_EVICTIONS, 1);
	}
	return true;
}

static int add(struct runtime_names *n, uint32_t space, const uint64_t words[2],
	       const struct symbol_result *sym, uint32_t window, uint32_t tries)
{
	uint32_t count = sym ? MIN(sym->n, SYMBOL_INLINE_MAX) : 0;
	struct name *name = malloc(sizeof(*name) + count * sizeof(name->lines[0]));

	if (!name)
		return -ENOMEM;
	*name = (struct name){
	    .key = {.words = {words[0], words[1]}, .space = space},
	    .window = window,
	    .round = n->round,
	    .tries = tries,
	    .type = sym ? sym->type : FRAME_ABORT,
	};
	for (; name->n < count; name->n++) {
		struct function *f = get_function(n, &sym->symbols[name->n]);

		if (!f)
			break;
		name->lines[name->n] = (struct line){f, sym->symbols[name->n].line};
	}
	HASH_ADD(hh, n->names, key, sizeof(name->key), name);
	DL_APPEND(n->list, name);
	n->bytes += name_size(name);
	return 0;
}

int runtime_names_put(struct runtime_names *n, uint32_t space, const uint64_t words[2],
		      const struct symbol_result *sym, uint32_t window)
{
	struct name *old;
	uint32_t tries = 1;
	int r = -ENOSPC;

	pthread_mutex_lock(&n->lock);
	old = find(n, space, words);
	if (old) {
		tries += old->tries;
		drop(n, old);
	}
	if (make_room(n, window))
		r = add(n, space, words, sym, window, tries);
	pthread_mutex_unlock(&n->lock);
	return r;
}

bool runtime_names_get(struct runtime_names *n, uint32_t space, const uint64_t words[2],
		       struct symbol_result *ret)
{
	const struct name *name;
	bool known;

	pthread_mutex_lock(&n->lock);
	name = find(n, space, words);
	known = name && name->n;
	if (known) {
		ret->type = name->type;
		ret->n = name->n;
		for (uint32_t i = 0; i < name->n; i++) {
			const struct function *f = name->lines[i].function;

			ret->symbols[i] = (struct symbol){.name = f->name,
							  .system_name = f->system_name,
							  .file = f->file,
							  .line = name->lines[i].line,
							  .start_line = f->start_line};
		}
	}
	pthread_mutex_unlock(&n->lock);
	return known;
}

void runtime_names_sweep(struct runtime_names *n, uint32_t before_window)
{
	pthread_mutex_lock(&n->lock);
	while (n->list && (int32_t)(n->list->window - before_window) < 0)
		drop(n, n->list);
	pthread_mutex_unlock(&n->lock);
}

void runtime_names_next_round(struct runtime_names *n)
{
	pthread_mutex_lock(&n->lock);
	n->round++;
	pthread_mutex_unlock(&n->lock);
}

size_t runtime_names_bytes(struct runtime_names *n)
{
	size_t bytes;

	pthread_mutex_lock(&n->lock);
	bytes = n->bytes;
	pthread_mutex_unlock(&n->lock);
	return bytes;
}

size_t runtime_names_count(struct runtime_names *n)
{
	size_t count;

	pthread_mutex_lock(&n->lock);
	count = HASH_COUNT(n->names);
	pthread_mutex_unlock(&n->lock);
	return count;
}
