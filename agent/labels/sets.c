/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of labels is stored as the kernel sent it, and decoded when a sample needs it. The result
 * for one policy's list is stored with it, because most sets are used under one policy only. Equal
 * results are one struct, so that samples whose labels differ only in labels that are not allowed
 * are counted together.
 */
#include "agent/labels/sets.h"

#include <stdatomic.h>

#include "agent/labels/context.h"
#include "agent/labels/decode.h"
#include "lib/metrics.h"

#define NS_PER_MS 1000000ULL

struct set_key {
	uint64_t id;
	uint32_t mapset, pad;
};

struct raw {
	struct set_key key;
	uint64_t used_ns;
	/* `answer` is the result for the list with this number; 0: none yet. */
	uint64_t allow;
	struct label_set *answer;
	uint64_t again_ns; /* when to decode again because names of keys were missing; 0: never */
	size_t size;
	UT_hash_handle hh; /* roughly in the order of last use */
	struct kiln_labels record;
};

struct context_key {
	uint32_t mapset, tgid;
};

struct context {
	struct context_key key;
	uint64_t next_ns;
	struct label_context read;
	UT_hash_handle hh;
};

struct label_sets {
	struct target_source source;
	struct raw *raw;
	struct label_set *answers;
	struct context *contexts;
	size_t raw_bytes, answer_bytes;
	uint64_t last_number;
	struct label_list list; /* scratch */
	char text[LABEL_LIST_BYTES];
};

struct label_set *label_set_ref(struct label_set *s)
{
	if (s)
		atomic_fetch_add(&s->refs, 1);
	return s;
}

struct label_set *label_set_unref(struct label_set *s)
{
	if (s && atomic_fetch_sub(&s->refs, 1) == 1)
		free(s);
	return NULL;
}

int label_sets_new(const struct target_source *source, struct label_sets **ret)
{
	struct label_sets *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->source = *source;
	*ret = s;
	return 0;
}

static void drop_raw(struct label_sets *s, struct raw *r)
{
	HASH_DEL(s->raw, r);
	s->raw_bytes -= sizeof(*r) + r->size;
	label_set_unref(r->answer);
	free(r);
}

static void drop_context(struct label_sets *s, struct context *c)
{
	HASH_DEL(s->contexts, c);
	label_context_done(&c->read);
	free(c);
}

static void drop_answer(struct label_sets *s, struct label_set *a)
{
	HASH_DEL(s->answers, a);
	s->answer_bytes -= sizeof(*a) + a->n * sizeof(a->labels[0]) + a->key_len;
	label_set_unref(a);
}

struct label_sets *label_sets_free(struct label_sets *s)
{
	struct raw *r, *next_raw;
	struct context *c, *next_context;
	struct label_set *a, *next_answer;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->raw, r, next_raw)
		drop_raw(s, r);
	HASH_ITER (hh, s->contexts, c, next_context)
		drop_context(s, c);
	HASH_ITER (hh, s->answers, a, next_answer)
		drop_answer(s, a);
	free(s);
	return NULL;
}

static struct raw *find_raw(struct label_sets *s, uint32_t mapset, uint64_t id)
{
	struct set_key key = {.id = id, .mapset = mapset};
	struct raw *r;

	HASH_FIND(hh, s->raw, &key, sizeof(key), r);
	return r;
}

/* Moves R to the end of the order, once a second at most. */
static void use_raw(struct label_sets *s, struct raw *r, uint64_t now_ns)
{
	if (now_ns < r->used_ns + 1000 * NS_PER_MS)
		return;
	r->used_ns = now_ns;
	HASH_DEL(s->raw, r);
	HASH_ADD(hh, s->raw, key, sizeof(r->key), r);
}

void label_sets_take(struct label_sets *s, const struct kiln_labels *record, size_t size,
		     uint64_t now_ns)
{
	struct raw *r;

	if (size < sizeof(*record) || size > sizeof(*record) + KILN_LABEL_BYTES || !record->id) {
		metric_add(M_LABELS_MALFORMED, 1);
		return;
	}
	r = find_raw(s, record->mapset, record->id);
	if (r) {
		use_raw(s, r, now_ns);
		return;
	}
	if (HASH_COUNT(s->raw) >= LABEL_SETS_MAX) {
		drop_raw(s, s->raw);
		metric_add(M_LABELS_EVICTED, 1);
	}
	r = calloc(1, sizeof(*r) + size);
	if (!r) {
		metric_add(M_LABELS_EVICTED, 1);
		return;
	}
	memcpy(&r->record, record, size);
	r->size = size;
	r->key = (struct set_key){.id = record->id, .mapset = record->mapset};
	r->used_ns = now_ns;
	HASH_ADD(hh, s->raw, key, sizeof(r->key), r);
	s->raw_bytes += sizeof(*r) + size;
	metric_add(M_LABEL_SETS, 1);
}

/* ---- names of keys ----------------------------------------------------------------------------
 */

static struct context *get_context(struct label_sets *s, const struct kiln_labels *record)
{
	struct context_key key = {record->mapset, record->tgid};
	struct context *c;

	HASH_FIND(hh, s->contexts, &key, sizeof(key), c);
	if (c)
		return c;
	if (HASH_COUNT(s->contexts) >= LABEL_CONTEXTS_MAX)
		drop_context(s, s->contexts);
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->key = key;
	HASH_ADD(hh, s->contexts, key, sizeof(c->key), c);
	return c;
}

static void read_context(struct label_sets *s, struct context *c, uint64_t now_ns)
{
	struct target t = {.source = &s->source, .tgid = c->key.tgid};
	struct target_memory memory = target_memory_of(&t);
	struct label_context fresh;
	int r;

	c->next_ns = now_ns + LABEL_CONTEXT_RETRY_MS * NS_PER_MS;
	r = label_context_read(s->source.proc_dirfd, c->key.tgid, &memory, &fresh);
	if (r < 0) {
		metric_add(r == -EBADMSG ? M_LABELS_CONTEXT_BROKEN : M_LABELS_CONTEXT_MISSING, 1);
		return;
	}
	label_context_done(&c->read);
	c->read = fresh;
}

/* ---- answers ----------------------------------------------------------------------------------
 */

/* Writes the labels of s->list that ALLOW permits into s->text. Returns the length; *RET_N is their
 * number. */
static size_t select_labels(struct label_sets *s, const struct label_allow *allow, size_t *ret_n)
{
	size_t len = 0, n = 0;

	for (size_t i = 0; i < s->list.n; i++) {
		const struct batch_label *l = &s->list.labels[i];
		size_t key = strlen(l->key) + 1, value = strlen(l->value) + 1;

		if (!(s->list.has_trace && i < 2) && !label_allow_permits(allow, l->key)) {
			metric_add(M_LABELS_NOT_ALLOWED, 1);
			continue;
		}
		if (key + value > sizeof(s->text) - len)
			break;
		memcpy(s->text + len, l->key, key);
		memcpy(s->text + len + key, l->value, value);
		len += key + value;
		n++;
	}
	*ret_n = n;
	return len;
}

static struct label_set *make_answer(struct label_sets *s, size_t len, size_t n)
{
	size_t labels = n * sizeof(struct batch_label);
	struct label_set *a;
	char *text;

	if (HASH_COUNT(s->answers) >= LABEL_RESULTS_MAX)
		return NULL;
	a = calloc(1, sizeof(*a) + labels + len);
	if (!a)
		return NULL;
	text = (char *)a + sizeof(*a) + labels;
	memcpy(text, s->text, len);
	a->number = ++s->last_number;
	a->n = n;
	a->key_len = len;
	atomic_init(&a->refs, 1);
	HASH_ADD_KEYPTR(hh, s->answers, text, len, a);
	for (size_t i = 0; i < n; i++) {
		a->labels[i].key = text;
		text += strlen(text) + 1;
		a->labels[i].value = text;
		text += strlen(text) + 1;
	}
	s->answer_bytes += sizeof(*a) + labels + len;
	return a;
}

/* Returns a reference, or NULL: no label is allowed, or there is no room. */
static struct label_set *get_answer(struct label_sets *s, const struct label_allow *allow)
{
	struct label_set *a;
	size_t n, len = select_labels(s, allow, &n);

	if (!n)
		return NULL;
	HASH_FIND(hh, s->answers, s->text, len, a);
	if (!a)
		a = make_answer(s, len, n);
	if (!a)
		metric_add(M_LABELS_EVICTED, 1);
	return label_set_ref(a);
}

static void answer(struct label_sets *s, struct raw *r, const struct label_allow *allow,
		   uint64_t now_ns)
{
	struct context *c = r->record.n_attributes ? get_context(s, &r->record) : NULL;
	int bad = label_decode(&r->record, r->size, c ? &c->read : NULL, &s->list);

	if (s->list.unresolved && c && now_ns >= c->next_ns) {
		read_context(s, c, now_ns);
		bad = label_decode(&r->record, r->size, &c->read, &s->list);
	}
	if (bad < 0)
		metric_add(M_LABELS_MALFORMED, 1);
	r->again_ns = s->list.unresolved && c ? c->next_ns : 0;
	label_set_unref(r->answer);
	r->answer = get_answer(s, allow);
	r->allow = allow ? allow->number : UINT64_MAX;
}

struct label_set *label_sets_find(struct label_sets *s, uint32_t mapset, uint64_t id,
				  const struct label_allow *allow, uint64_t now_ns)
{
	struct raw *r = find_raw(s, mapset, id);

	if (!r) {
		metric_add(M_LABELS_UNKNOWN, 1);
		return NULL;
	}
	use_raw(s, r, now_ns);
	if (r->allow != (allow ? allow->number : UINT64_MAX) ||
	    (r->again_ns && now_ns >= r->again_ns))
		answer(s, r, allow, now_ns);
	return r->answer;
}

void label_sets_sweep(struct label_sets *s, uint64_t now_ns)
{
	struct label_set *a, *next;

	while (s->raw && now_ns > s->raw->used_ns + LABEL_KEEP_MS * NS_PER_MS)
		drop_raw(s, s->raw);
	HASH_ITER (hh, s->answers, a, next)
		if (atomic_load(&a->refs) == 1)
			drop_answer(s, a);
}

size_t label_sets_bytes(const struct label_sets *s)
{
	return s->raw_bytes + s->answer_bytes;
}
