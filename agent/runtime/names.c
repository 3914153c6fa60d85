/* SPDX-License-Identifier: Apache-2.0 */
/*
 * There may be a hundred thousand names, so both kinds of record are small, and are found by tables
 * of 32-bit ids (lib/ref_table.h). The list has the names by the window in which they were touched
 * last, oldest first: eviction takes from its head and never searches. A function counts the lines
 * of names that refer to it, and goes with the last one.
 *
 * Invariant: `bytes` is the sum of all allocations but the tables' own.
 */
#include "agent/runtime/names.h"

#include <pthread.h>
#include <sys/random.h>

#include "lib/metrics.h"
#include "lib/ref_table.h"

enum {
	RECORDS_MAX = 1 << 24,
	RECENT = 1024, /* a power of two */
};

/* Records by id; the first id is 1. */
struct ids {
	void **records; /* at a free id: the next free one, as a number */
	uint32_t n, used, free;
	size_t cap;
};

struct function {
	uint32_t refs, start_line;
	uint32_t len;		    /* bytes of text */
	uint16_t system_name, file; /* where these begin in text */
	char text[];		    /* name, system name, file, each with a NUL */
};

/* The id of a function, and the line in it. */
struct line {
	uint32_t function, line;
};

struct name {
	uint64_t words[2];
	uint32_t space;
	uint32_t window;     /* in which it was touched last */
	uint32_t prev, next; /* neighbours in the list, by id; 0: none */
	uint32_t round;	     /* of the last try to read it */
	uint8_t n;	     /* lines; 0: it could not be read */
	uint8_t tries;	     /* tries in the window */
	uint8_t type;	     /* enum frame_type */
	struct line lines[];
};

/* The key of a name that is known and was touched in WINDOW: a small cache in front of the table.
 */
struct recent {
	uint64_t words[2];
	uint32_t space; /* 0: none */
	uint32_t window;
};

struct runtime_names {
	pthread_mutex_t lock;
	struct recent
	    recent[RECENT]; /* slot: the key's hash; consecutive stacks share most frames */
	struct ids names, functions;
	struct ref_table name_table, function_table;
	uint32_t first, last; /* of the list */
	uint32_t round;
	uint64_t seed;
	size_t bytes, max_bytes;
	char scratch[3 * RUNTIME_NAME_MAX + 16];
};

int runtime_names_new(size_t max_bytes, struct runtime_names **ret)
{
	struct runtime_names *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->max_bytes = max_bytes;
	if (getrandom(&n->seed, sizeof(n->seed), GRND_NONBLOCK) < 0)
		n->seed = (uintptr_t)n;
	pthread_mutex_init(&n->lock, NULL);
	*ret = n;
	return 0;
}

/* ---- records by id --------------------------------------------------------------------------- */

static void *record_of(const struct ids *ids, uint32_t id)
{
	return ids->records[id - 1];
}

/* Adds RECORD and returns its id; 0: no memory. */
static uint32_t add_record(struct ids *ids, void *record)
{
	uint32_t id = ids->free;

	if (id) {
		ids->free = (uint32_t)(uintptr_t)ids->records[id - 1];
	} else {
		if (grow_array((void **)&ids->records, &ids->cap, (size_t)ids->n + 1,
			       sizeof(*ids->records), RECORDS_MAX) < 0)
			return 0;
		id = ++ids->n;
	}
	ids->records[id - 1] = record;
	ids->used++;
	return id;
}

static void forget_ids(struct ids *ids)
{
	free(ids->records);
	*ids = (struct ids){};
}

/* Frees the record ID; with the last record, the array too. */
static void remove_record(struct ids *ids, uint32_t id)
{
	free(ids->records[id - 1]);
	ids->records[id - 1] = (void *)(uintptr_t)ids->free;
	ids->free = id;
	if (--ids->used == 0)
		forget_ids(ids);
}

/* ---- functions ------------------------------------------------------------------------------- */

static size_t name_size(const struct name *name)
{
	return sizeof(*name) + name->n * sizeof(name->lines[0]);
}

static uint64_t function_hash(const struct runtime_names *n, uint32_t start_line, const char *text,
			      size_t len)
{
	return hash_bytes(text, len, n->seed ^ start_line);
}

static void put_function(struct runtime_names *n, uint32_t id)
{
	struct function *f = record_of(&n->functions, id);

	if (--f->refs)
		return;
	ref_table_remove(&n->function_table, function_hash(n, f->start_line, f->text, f->len), id);
	n->bytes -= sizeof(*f) + f->len;
	remove_record(&n->functions, id);
}

static size_t add_text(char *to, const char *s)
{
	size_t len = strnlen(s ? s : "", RUNTIME_NAME_MAX - 1);

	if (len)
		memcpy(to, s, len);
	to[len] = 0;
	return len + 1;
}

/* Returns the id of the function of SYM, with one reference more; 0: no memory. */
static uint32_t get_function(struct runtime_names *n, const struct symbol *sym)
{
	const char *system_name = sym->system_name ? sym->system_name : sym->name;
	size_t system_at, file_at, len;
	struct function *f;
	uint32_t pos = REF_TABLE_START, id;
	uint64_t hash;

	system_at = add_text(n->scratch, sym->name);
	/* The system name is mostly the same as the name: then it is not kept twice. */
	file_at =
	    system_at + add_text(n->scratch + system_at,
				 sym->name && streq(system_name, sym->name) ? "" : system_name);
	len = file_at + add_text(n->scratch + file_at, sym->file);
	hash = function_hash(n, sym->start_line, n->scratch, len);
	while ((id = ref_table_next(&n->function_table, hash, &pos))) {
		f = record_of(&n->functions, id);
		if (f->start_line == sym->start_line && f->len == len &&
		    !memcmp(f->text, n->scratch, len)) {
			f->refs++;
			return id;
		}
	}
	f = malloc(sizeof(*f) + len);
	id = f && !ref_table_reserve(&n->function_table, 1) ? add_record(&n->functions, f) : 0;
	if (!id) {
		free(f);
		return 0;
	}
	*f = (struct function){.refs = 1,
			       .start_line = sym->start_line,
			       .len = (uint32_t)len,
			       .system_name = system_at + 1 < file_at ? (uint16_t)system_at : 0,
			       .file = (uint16_t)file_at};
	memcpy(f->text, n->scratch, len);
	ref_table_insert(&n->function_table, hash, id);
	n->bytes += sizeof(*f) + len;
	return id;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A process chooses the words, so the hash has a random seed. */
static uint64_t name_hash(const struct runtime_names *n, uint32_t space, const uint64_t words[2])
{
	const uint64_t key[] = {words[0], words[1], space};

	return hash_words(key, ARRAY_SIZE(key), n->seed);
}

static struct name *find_by_hash(struct runtime_names *n, uint64_t hash, uint32_t space,
				 const uint64_t words[2], uint32_t *ret_id)
{
	uint32_t pos = REF_TABLE_START, id;

	while ((id = ref_table_next(&n->name_table, hash, &pos))) {
		struct name *name = record_of(&n->names, id);

		if (name->words[0] == words[0] && name->words[1] == words[1] &&
		    name->space == space) {
			*ret_id = id;
			return name;
		}
	}
	return NULL;
}

static struct name *find(struct runtime_names *n, uint32_t space, const uint64_t words[2],
			 uint32_t *ret_id)
{
	return find_by_hash(n, name_hash(n, space, words), space, words, ret_id);
}

static struct recent *recent_of(struct runtime_names *n, uint64_t hash)
{
	return &n->recent[hash % RECENT];
}

static bool is_recent(const struct recent *r, uint32_t space, const uint64_t words[2])
{
	return r->words[0] == words[0] && r->words[1] == words[1] && r->space == space;
}

static void unlink_name(struct runtime_names *n, const struct name *name)
{
	if (name->prev)
		((struct name *)record_of(&n->names, name->prev))->next = name->next;
	else
		n->first = name->next;
	if (name->next)
		((struct name *)record_of(&n->names, name->next))->prev = name->prev;
	else
		n->last = name->prev;
}

static void append_name(struct runtime_names *n, struct name *name, uint32_t id)
{
	name->prev = n->last;
	name->next = 0;
	if (n->last)
		((struct name *)record_of(&n->names, n->last))->next = id;
	else
		n->first = id;
	n->last = id;
}

static void drop(struct runtime_names *n, uint32_t id)
{
	struct name *name = record_of(&n->names, id);
	uint64_t hash = name_hash(n, name->space, name->words);

	if (is_recent(recent_of(n, hash), name->space, name->words))
		*recent_of(n, hash) = (struct recent){};
	unlink_name(n, name);
	ref_table_remove(&n->name_table, hash, id);
	for (uint32_t i = 0; i < name->n; i++)
		put_function(n, name->lines[i].function);
	n->bytes -= name_size(name);
	remove_record(&n->names, id);
}

static const struct name *oldest(const struct runtime_names *n)
{
	return n->first ? record_of(&n->names, n->first) : NULL;
}

struct runtime_names *runtime_names_free(struct runtime_names *n)
{
	if (!n)
		return NULL;
	while (n->first)
		drop(n, n->first);
	ref_table_done(&n->name_table);
	ref_table_done(&n->function_table);
	pthread_mutex_destroy(&n->lock);
	free(n);
	return NULL;
}

static bool may_try_again(const struct runtime_names *n, const struct name *name)
{
	return name->tries < RUNTIME_NAME_TRIES && name->round != n->round;
}

/* Marks NAME as used in WINDOW, and moves it to the end of the list of last use. Returns its state.
 */
static enum runtime_name_state touch(struct runtime_names *n, struct name *name, uint32_t id,
				     uint32_t window)
{
	enum runtime_name_state state;

	if (name->window != window)
		name->tries = 0;
	state = name->n					 ? RUNTIME_NAME_KNOWN
		: !name->tries || may_try_again(n, name) ? RUNTIME_NAME_FAILED
							 : RUNTIME_NAME_FAILED_NOW;
	if (name->window != window) {
		name->window = window;
		unlink_name(n, name);
		append_name(n, name, id);
	}
	return state;
}

enum runtime_name_state runtime_names_touch(struct runtime_names *n, uint32_t space,
					    const uint64_t words[2], uint32_t window)
{
	uint64_t hash = name_hash(n, space, words);
	enum runtime_name_state state = RUNTIME_NAME_UNKNOWN;
	struct recent *recent = recent_of(n, hash);
	struct name *name;
	uint32_t id;

	pthread_mutex_lock(&n->lock);
	if (is_recent(recent, space, words) && recent->window == window) {
		state = RUNTIME_NAME_KNOWN;
	} else {
		name = find_by_hash(n, hash, space, words, &id);
		if (name)
			state = touch(n, name, id, window);
		if (state == RUNTIME_NAME_KNOWN)
			*recent = (struct recent){{words[0], words[1]}, space, window};
	}
	pthread_mutex_unlock(&n->lock);
	return state;
}

/*
 * Makes room for one more name of any size: the cap is passed by one name at most. False: all names
 * are in use.
 */
static bool make_room(struct runtime_names *n, uint32_t window)
{
	while (n->bytes >= n->max_bytes) {
		if (!n->first || (int32_t)(oldest(n)->window + RUNTIME_NAMES_WINDOWS - window) > 0)
			return false;
		drop(n, n->first);
		metric_add(M_RUNTIME_NAME_EVICTIONS, 1);
	}
	return true;
}

static int add(struct runtime_names *n, uint32_t space, const uint64_t words[2],
	       const struct symbol_result *sym, uint32_t window, uint32_t tries)
{
	uint32_t count = sym ? MIN(sym->n, SYMBOL_INLINE_MAX) : 0, id;
	struct name *name = malloc(sizeof(*name) + count * sizeof(name->lines[0]));

	id = name && !ref_table_reserve(&n->name_table, 1) ? add_record(&n->names, name) : 0;
	if (!id) {
		free(name);
		return -ENOMEM;
	}
	*name = (struct name){
	    .words = {words[0], words[1]},
	    .space = space,
	    .window = window,
	    .round = n->round,
	    .tries = (uint8_t)MIN(tries, (uint32_t)UINT8_MAX),
	    .type = (uint8_t)(sym ? sym->type : FRAME_ABORT),
	};
	for (; name->n < count; name->n++) {
		uint32_t f = get_function(n, &sym->symbols[name->n]);

		if (!f)
			break;
		name->lines[name->n] = (struct line){f, sym->symbols[name->n].line};
	}
	ref_table_insert(&n->name_table, name_hash(n, space, words), id);
	append_name(n, name, id);
	n->bytes += name_size(name);
	return 0;
}

int runtime_names_put(struct runtime_names *n, uint32_t space, const uint64_t words[2],
		      const struct symbol_result *sym, uint32_t window)
{
	const struct name *old;
	uint32_t tries = 1, id;
	int r = -ENOSPC;

	pthread_mutex_lock(&n->lock);
	old = find(n, space, words, &id);
	if (old) {
		tries += old->tries;
		drop(n, id);
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
	uint32_t id;
	bool known;

	pthread_mutex_lock(&n->lock);
	name = find(n, space, words, &id);
	known = name && name->n;
	if (known) {
		ret->type = (enum frame_type)name->type;
		ret->n = name->n;
		for (uint32_t i = 0; i < name->n; i++) {
			const struct function *f =
			    record_of(&n->functions, name->lines[i].function);

			ret->symbols[i] = (struct symbol){.name = f->text,
							  .system_name = f->text + f->system_name,
							  .file = f->text + f->file,
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
	while (n->first && (int32_t)(oldest(n)->window - before_window) < 0)
		drop(n, n->first);
	ref_table_trim(&n->name_table);
	ref_table_trim(&n->function_table);
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
	count = n->name_table.count;
	pthread_mutex_unlock(&n->lock);
	return count;
}
