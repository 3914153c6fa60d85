/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each object is read into a record as it comes; the JSON is not kept. Two tables refer to the same
 * records: by name, and by match_node_key(), which identifies nodes in the counts of configs. Two
 * names with the same key would count as one node in a status; both are kept by name.
 */
#define HASH_NONFATAL_OOM 1 /* an element that could not be added has no hh.tbl */
#include "operator/nodes/node_store.h"

#include <time.h>

#include "lib/uthash.h"
#include "operator/cache/kept.h"
#include "operator/kube/json.h"
#include "operator/reconcile/condition.h"

enum {
	FAILING_MAX = 16, /* the most that an agent has: agent/export/route.h */
	REASON_MAX = 64,
	CAUSE_MAX = 896, /* as operator/stream/destinations.h */
};

struct entry {
	struct stored_node node; /* first */
	UT_hash_handle hh, hh_key;
	uint64_t key;
	uint32_t generation;
	uint16_t n_policies;
	uint64_t policies[TOLD_POLICIES_MAX];
	/*
	 * Tenants' destinations that the agent cannot export to: node_text_hash() of
	 * "NAMESPACE/NAME".
	 */
	uint16_t n_failing;
	uint64_t failing[FAILING_MAX];
	/*
	 * Destinations that the agent needs and that it is not sent, and a hash of them with their
	 * causes.
	 */
	struct cause **causes;
	size_t n_causes;
	uint64_t causes_hash;
	char name[];
};

/* Why a destination is left out, from the last status that says so. */
struct cause {
	uint64_t destination; /* node_text_hash() of "NAMESPACE/NAME" or, the cluster's, "NAME" */
	uint32_t nodes;
	char reason[REASON_MAX];
	char text[CAUSE_MAX];
	UT_hash_handle hh;
};

/* On how many nodes a destination fails. */
struct failing {
	uint64_t destination;
	uint32_t nodes;
	UT_hash_handle hh;
};

struct node_store {
	struct entry *by_name, *by_key;
	struct node_store_options options;
	struct node_totals totals;
	struct failing *failing;
	struct cause *causes;
	uint64_t refused;
};

uint64_t node_text_hash(const char *text)
{
	uint64_t h = text && text[0] ? hash_bytes(text, strlen(text), 3) : 0;

	return text && text[0] && !h ? 1 : h;
}

/* ---- reading an object ----------------------------------------------------------------------- */

static const cJSON *member(const cJSON *object, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *text_of(const cJSON *object, const char *key)
{
	const char *text = cJSON_GetStringValue(member(object, key));

	return text ? text : "";
}

static int64_t parse_time(const char *text)
{
	struct tm tm = {0};
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

	return end && streq(end, "Z") ? (int64_t)timegm(&tm) : 0;
}

static void read_conditions(const cJSON *conditions, struct node_turns *ret)
{
	for (size_t i = 0; i < NODE_CONDITIONS; i++) {
		const cJSON *c = condition_find(conditions, node_condition_names[i]);
		const char *status = text_of(c, "status");

		ret->status[i] = streq(status, "True")	  ? CONDITION_TRUE
				 : streq(status, "False") ? CONDITION_FALSE
							  : CONDITION_UNKNOWN;
		ret->since[i] = parse_time(text_of(c, "lastTransitionTime"));
	}
}

static void read_policies(const cJSON *list, struct entry *ret)
{
	const cJSON *item;

	ret->n_policies = 0;
	cJSON_ArrayForEach(item, list)
	{
		if (ret->n_policies < TOLD_POLICIES_MAX)
			ret->policies[ret->n_policies++] = strtoull(text_of(item, "id"), NULL, 16);
	}
}

static void read_failing(const cJSON *list, struct entry *ret)
{
	const cJSON *item;

	ret->n_failing = 0;
	cJSON_ArrayForEach(item, list)
	{
		if (ret->n_failing < FAILING_MAX && strchr(text_of(item, "name"), '/') &&
		    streq(text_of(item, "state"), "Failing"))
			ret->failing[ret->n_failing++] = node_text_hash(text_of(item, "name"));
	}
}

static void read_object(const cJSON *object, struct entry *ret)
{
	const cJSON *status = member(object, "status"), *meta = member(object, "metadata");
	const cJSON *owner = cJSON_GetArrayItem(member(meta, "ownerReferences"), 0);
	struct stored_node *n = &ret->node;

	n->owner = node_text_hash(text_of(owner, "uid"));
	n->has_status = cJSON_IsArray(member(status, "conditions"));
	n->replica = node_text_hash(text_of(status, "operator"));
	n->reported = parse_time(text_of(status, "lastReportTime"));
	read_conditions(member(status, "conditions"), &n->turns);
	read_policies(member(status, "policies"), ret);
	read_failing(member(status, "exporters"), ret);
}

static int parse(const struct kube_item *item, cJSON **ret, const char **ret_name)
{
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	const char *name;

	if (item->encoding != KUBE_JSON)
		return -EBADMSG;
	object = cJSON_ParseWithLength((const char *)item->bytes, item->len);
	name = text_of(member(object, "metadata"), "name");
	if (!kept_is_name((struct slice){name, (uint32_t)strlen(name)}))
		return -EBADMSG;
	*ret_name = name;
	*ret = TAKE_PTR(object);
	return 0;
}

/* ---- destinations that are left out ---------------------------------------------------------- */

static struct cause *find_cause(const struct node_store *s, uint64_t destination)
{
	struct cause *c = NULL;

	if (s->causes)
		HASH_FIND(hh, s->causes, &destination, sizeof(destination), c);
	return c;
}

static struct cause *hold_cause(struct node_store *s, uint64_t destination)
{
	struct cause *c = find_cause(s, destination);

	if (!c) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return NULL;
		c->destination = destination;
		HASH_ADD(hh, s->causes, destination, sizeof(c->destination), c);
		if (!c->hh.tbl) {
			free(c);
			return NULL;
		}
	}
	c->nodes++;
	return c;
}

static void drop_causes(struct node_store *s, struct entry *e)
{
	for (size_t i = 0; i < e->n_causes; i++) {
		struct cause *c = e->causes[i];

		if (--c->nodes)
			continue;
		HASH_DEL(s->causes, c);
		free(c);
	}
	free(e->causes);
	e->causes = NULL;
	e->n_causes = 0;
	e->causes_hash = 0;
}

/* Reads status.leftOut. Without memory, causes are left out. */
static void read_causes(struct node_store *s, const cJSON *list, struct entry *ret)
{
	const cJSON *item;

	if (cJSON_GetArraySize(list) > 0)
		ret->causes = calloc(TOLD_LEFT_OUT_MAX, sizeof(struct cause *));
	cJSON_ArrayForEach(item, list)
	{
		const char *name = text_of(item, "name"), *text = text_of(item, "message");
		struct cause *c = NULL;

		if (ret->causes && ret->n_causes < TOLD_LEFT_OUT_MAX && name[0])
			c = hold_cause(s, node_text_hash(name));
		if (!c)
			continue;
		snprintf(c->reason, sizeof(c->reason), "%s", text_of(item, "reason"));
		snprintf(c->text, sizeof(c->text), "%s", text);
		ret->causes[ret->n_causes++] = c;
		ret->causes_hash =
		    hash_bytes(text, strlen(text), mix64(ret->causes_hash ^ c->destination));
	}
}

bool node_store_left_out(void *store, const char *ns, const char *name, struct status_cause *ret)
{
	const struct cause *c;
	char text[320];

	snprintf(text, sizeof(text), "%s%s%s", ns, ns[0] ? "/" : "", name);
	c = find_cause(store, node_text_hash(text));
	if (!c)
		return false;
	ret->reason = c->reason;
	snprintf(ret->text, sizeof(ret->text), "%s", c->text);
	return true;
}

/* ---- adding up ------------------------------------------------------------------------------- */

static bool is_degraded(const struct stored_node *n)
{
	return n->has_status && n->turns.status[NODE_READY] != CONDITION_TRUE;
}

/* True when the agent has a stream, and is not known to run an old configuration. */
static bool is_applied(const struct stored_node *n)
{
	return n->has_status && n->replica &&
	       n->turns.status[NODE_CONFIG_APPLIED] != CONDITION_FALSE;
}

static void count_failing(struct node_store *s, uint64_t destination, uint32_t step)
{
	struct failing *f = NULL;

	if (s->failing)
		HASH_FIND(hh, s->failing, &destination, sizeof(destination), f);
	if (!f && step == 1) {
		f = calloc(1, sizeof(*f));
		if (!f)
			return;
		f->destination = destination;
		HASH_ADD(hh, s->failing, destination, sizeof(f->destination), f);
		if (!f->hh.tbl) {
			free(f);
			return;
		}
	}
	if (!f)
		return;
	f->nodes += step;
	if (f->nodes)
		return;
	HASH_DEL(s->failing, f);
	free(f);
}

/* Adds E to the totals when STEP is 1, removes it when STEP is -1 as an unsigned number. */
static void count(struct node_store *s, const struct entry *e, uint32_t step)
{
	const struct stored_node *n = &e->node;

	s->totals.nodes += n->has_status ? step : 0;
	s->totals.applied += is_applied(n) ? step : 0;
	s->totals.degraded += is_degraded(n) ? step : 0;
	for (size_t i = 0; i < e->n_failing; i++)
		count_failing(s, e->failing[i], step);
}

static bool same_word(const struct entry *a, const struct entry *b)
{
	return a->node.has_status == b->node.has_status &&
	       is_applied(&a->node) == is_applied(&b->node) &&
	       is_degraded(&a->node) == is_degraded(&b->node) && a->n_policies == b->n_policies &&
	       same_bytes(a->policies, b->policies, a->n_policies * sizeof(a->policies[0])) &&
	       a->causes_hash == b->causes_hash && a->n_failing == b->n_failing &&
	       same_bytes(a->failing, b->failing, a->n_failing * sizeof(a->failing[0]));
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct entry *find(const struct node_store *s, const char *name)
{
	struct entry *e = NULL;

	if (s->by_name)
		HASH_FIND(hh, s->by_name, name, strlen(name), e);
	return e;
}

static struct entry *find_key(const struct node_store *s, uint64_t key)
{
	struct entry *e = NULL;

	if (s->by_key)
		HASH_FIND(hh_key, s->by_key, &key, sizeof(key), e);
	return e;
}

static int add(struct node_store *s, const char *name, struct entry **ret)
{
	size_t len = strlen(name);
	struct entry *e = calloc(1, sizeof(*e) + len + 1);

	if (!e)
		return -ENOMEM;
	memcpy(e->name, name, len + 1);
	e->node.name = e->name;
	e->key = match_node_key(name);
	HASH_ADD_KEYPTR(hh, s->by_name, e->name, len, e);
	if (!e->hh.tbl) {
		free(e);
		return -ENOMEM;
	}
	if (!find_key(s, e->key))
		HASH_ADD(hh_key, s->by_key, key, sizeof(e->key), e);
	*ret = e;
	return 0;
}

static void drop(struct node_store *s, struct entry *e)
{
	count(s, e, (uint32_t)-1);
	drop_causes(s, e);
	HASH_DELETE(hh, s->by_name, e);
	if (find_key(s, e->key) == e)
		HASH_DELETE(hh_key, s->by_key, e);
	if (s->options.changed)
		s->options.changed(s->options.arg, e->name);
	free(e);
}

int node_store_put(void *store, const struct kube_item *item, uint32_t generation)
{
	struct node_store *s = store;
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	struct entry *e, before = {.generation = 0};
	const char *name;
	int r = parse(item, &object, &name);

	if (r < 0)
		return r;
	e = find(s, name);
	if (!e && HASH_CNT(hh, s->by_name) >= s->options.max_nodes) {
		s->refused++;
		return 0;
	}
	if (!e) {
		r = add(s, name, &e);
		if (r < 0)
			return r;
	}
	before = *e;
	count(s, e, (uint32_t)-1);
	drop_causes(s, e);
	e->generation = generation;
	read_object(object, e);
	read_causes(s, member(member(object, "status"), "leftOut"), e);
	count(s, e, 1);
	if (s->options.changed)
		s->options.changed(s->options.arg, e->name);
	if (!same_word(&before, e) && s->options.turned)
		s->options.turned(s->options.arg);
	return 0;
}

int node_store_remove(void *store, const struct kube_item *item)
{
	struct node_store *s = store;
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	struct entry *e;
	const char *name;
	int r = parse(item, &object, &name);

	if (r < 0)
		return r;
	e = find(s, name);
	if (!e)
		return 0;
	drop(s, e);
	if (s->options.turned)
		s->options.turned(s->options.arg);
	return 0;
}

int node_store_replaced(void *store, uint32_t generation)
{
	struct node_store *s = store;
	struct entry *e, *next;
	bool any = false;

	HASH_ITER (hh, s->by_name, e, next)
		if (e->generation != generation) {
			drop(s, e);
			any = true;
		}
	if (any && s->options.turned)
		s->options.turned(s->options.arg);
	return 0;
}

const struct stored_node *node_store_find(const struct node_store *s, const char *name)
{
	const struct entry *e = find(s, name);

	return e ? &e->node : NULL;
}

int node_store_each(const struct node_store *s,
		    int (*fn)(void *arg, const struct stored_node *node), void *arg)
{
	struct entry *e, *next;
	int r;

	HASH_ITER (hh, s->by_name, e, next) {
		r = fn(arg, &e->node);
		if (r)
			return r;
	}
	return 0;
}

size_t node_store_count(const struct node_store *s)
{
	return HASH_CNT(hh, s->by_name);
}

uint64_t node_store_refused(const struct node_store *s)
{
	return s->refused;
}

/* An agent without a stream still applies the policies that it received last. */
unsigned int node_store_state(void *store, uint64_t node, uint64_t policy)
{
	const struct entry *e = find_key(store, node);
	unsigned int state = 0;

	if (!e || !e->node.has_status)
		return 0;
	if (is_degraded(&e->node))
		state |= NODE_DEGRADED;
	for (size_t i = 0; i < e->n_policies; i++)
		if (e->policies[i] == policy)
			state |= NODE_APPLIES;
	return state;
}

void node_store_totals(void *store, struct node_totals *ret)
{
	const struct node_store *s = store;

	*ret = s->totals;
}

uint32_t node_store_failing(void *store, const char *ns, const char *name)
{
	const struct node_store *s = store;
	struct failing *f = NULL;
	char text[320];
	uint64_t hash;

	snprintf(text, sizeof(text), "%s/%s", ns, name);
	hash = node_text_hash(text);
	if (s->failing)
		HASH_FIND(hh, s->failing, &hash, sizeof(hash), f);
	return f ? f->nodes : 0;
}

int node_store_new(const struct node_store_options *options, struct node_store **ret)
{
	struct node_store *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->options = *options;
	*ret = s;
	return 0;
}

struct node_store *node_store_free(struct node_store *s)
{
	struct entry *e, *next;

	if (!s)
		return NULL;
	s->options.changed = NULL;
	HASH_ITER (hh, s->by_name, e, next)
		drop(s, e);
	free(s);
	return NULL;
}
