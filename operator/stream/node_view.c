/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pod is written from strings that are borrowed from the caches, into scratch memory that is
 * allocated once. Attributes that all containers share are sent once, with the pod.
 */
#include "operator/stream/node_view.h"

#include "kiln/node/v1/node.pb-c.h"
#include "lib/uthash.h"
#include "operator/cache/identity.h"
#include "operator/reconcile/match.h"
#include "operator/stream/pod_message.h"

enum { SCRATCH_SLACK = 1 << 20 }; /* attributes of the pod itself, names */

#define NODE_MESSAGE(type) Kiln__Node__V1__##type

struct policy_row {
	struct view_policy *policy;
	uint64_t revision; /* policy_set_revision() when its destinations got their settings */
	UT_hash_handle hh;
};

struct node_view {
	struct view_sources s;
	struct view_counts counts;
	struct policy_row *policies;
	struct buf scratch, container_scratch, secret_scratch;
	struct destination_table
	    *destinations; /* NULL: agents send where their configuration says */
	char cluster_uid[64];
	struct pod_info info;
	struct identity pod, container;
};

/* ---- policies -------------------------------------------------------------------------------- */

static size_t encode_policy(const struct node_view *v, const struct effective_policy *p,
			    const struct view_policy *where, uint8_t *out)
{
	NODE_MESSAGE(Policy) m = KILN__NODE__V1__POLICY__INIT;
	char *disabled[TRACER_COUNT], *ids[CONFIG_DESTINATIONS_MAX];

	m.id = p->id;
	m.enabled = p->enabled;
	m.hz = (uint32_t)p->hz;
	m.off_cpu_per_mille = (uint32_t)p->off_cpu_per_mille;
	m.priority = (uint32_t)p->priority;
	m.disabled_tracers = disabled;
	for (size_t i = 0; i < TRACER_COUNT; i++)
		if (p->tracers[i] == TOGGLE_DISABLED)
			disabled[m.n_disabled_tracers++] = (char *)tracer_names[i];
	m.labels = (char **)p->labels;
	m.n_labels = p->n_labels;
	m.timestamps = p->timestamps;
	m.routed = v->destinations != NULL;
	m.destinations = ids;
	for (; m.n_destinations < where->n_destinations; m.n_destinations++)
		ids[m.n_destinations] =
		    (char *)view_destination_id(where->destinations[m.n_destinations]);
	return out ? kiln__node__v1__policy__pack(&m, out)
		   : kiln__node__v1__policy__get_packed_size(&m);
}

static void leave_destinations(struct node_view *v, struct view_policy *p)
{
	for (size_t i = 0; i < p->n_destinations; i++)
		destination_table_unref(v->destinations, p->destinations[i]);
	p->n_destinations = 0;
}

/* Takes references on P's destinations; one for which that fails is left out. */
static void use_destinations(struct node_view *v, const struct effective_policy *p,
			     struct view_policy *ret)
{
	for (size_t i = 0; v->destinations && i < p->n_destinations; i++)
		if (destination_table_ref(v->destinations, &p->destinations[i],
					  &ret->destinations[ret->n_destinations]) == 0)
			ret->n_destinations++;
}

/*
 * Gives the destinations of P, a policy that is known already, their current settings. A
 * destination of the cluster keeps its id when its settings change. So when a config returns to an
 * older policy, which a tombstone may have kept, its destinations still have the settings of the
 * newer one.
 */
static void renew_destinations(struct node_view *v, const struct effective_policy *p,
			       struct policy_row *row)
{
	uint64_t now = policy_set_revision(v->s.policies);
	struct view_destination *d;

	if (row->revision == now)
		return;
	row->revision = now;
	for (size_t i = 0; v->destinations && i < p->n_destinations; i++)
		if (!p->destinations[i].ns[0] &&
		    destination_table_ref(v->destinations, &p->destinations[i], &d) == 0)
			destination_table_unref(v->destinations, d);
}

static struct view_policy *policy_ref(struct node_view *v, const struct effective_policy *p)
{
	struct view_policy where = {.id = p->id, .refs = 1};
	struct policy_row *row;
	size_t len;

	HASH_FIND(hh, v->policies, &p->id, sizeof(p->id), row);
	if (row) {
		renew_destinations(v, p, row);
		row->policy->refs++;
		return row->policy;
	}
	use_destinations(v, p, &where);
	len = encode_policy(v, p, &where, NULL);
	row = calloc(1, sizeof(*row));
	if (row)
		row->policy = malloc(sizeof(*row->policy) + len);
	if (!row || !row->policy) {
		leave_destinations(v, &where);
		free(row);
		return NULL;
	}
	where.len = (uint32_t)len;
	where.hh = row;
	*row->policy = where;
	(void)encode_policy(v, p, &where, row->policy->bytes);
	row->revision = policy_set_revision(v->s.policies);
	HASH_ADD_KEYPTR(hh, v->policies, &row->policy->id, sizeof(p->id), row);
	v->counts.policies++;
	return row->policy;
}

void node_view_unref(struct node_view *v, struct view_policy *policy)
{
	struct policy_row *row;

	if (!policy || --policy->refs)
		return;
	row = policy->hh;
	HASH_DEL(v->policies, row);
	leave_destinations(v, policy);
	free(policy);
	free(row);
	v->counts.policies--;
}

int node_view_default(struct node_view *v, const char *node, struct view_policy **ret)
{
	const struct namespace_config *config;
	const struct effective_policy *policy;

	v->info.name = v->info.ns = "";
	v->info.node = node;
	v->info.n_labels = v->info.n_annotations = 0;
	v->info.cut = false; /* of the pod that was read last */
	if (match_resolve(v->s.policies, v->s.namespaces, v->s.nodes, &v->info, &policy, &config) <
	    0)
		return -ENOENT;
	*ret = policy_ref(v, policy);
	return *ret ? 0 : -ENOMEM;
}

struct budget_spec node_view_budget(const struct node_view *v)
{
	const struct cluster_config *cluster = policy_set_get_cluster(v->s.policies);

	return cluster ? cluster->budget : (struct budget_spec){};
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* LIST as an array that ends with NULL, in ROOM for CONFIG_KEYS_MAX + 1. */
static const char *const *keys(const struct string_list *list, const char **room)
{
	size_t n = 0;

	for (; n < list->n && n < CONFIG_KEYS_MAX; n++)
		room[n] = list->items[n];
	room[n] = NULL;
	return room;
}

struct key_room {
	const char *lists[4][CONFIG_KEYS_MAX + 1];
};

static void identity_settings(const struct node_view *v, struct key_room *room,
			      struct identity_options *ret)
{
	const struct cluster_config *cluster = policy_set_get_cluster(v->s.policies);
	static const struct metadata_spec none = {.well_known_labels = TOGGLE_DISABLED,
						  .otel_annotations = TOGGLE_ENABLED};
	const struct metadata_spec *m = cluster ? &cluster->metadata : &none;

	*ret = (struct identity_options){
	    .cluster_name = m->cluster_name,
	    .well_known_labels = m->well_known_labels == TOGGLE_ENABLED,
	    .otel_annotations = m->otel_annotations != TOGGLE_DISABLED,
	    .pod_labels = keys(&m->pod_labels, room->lists[0]),
	    .pod_annotations = keys(&m->pod_annotations, room->lists[1]),
	    .namespace_labels = keys(&m->namespace_labels, room->lists[2]),
	    .namespace_annotations = keys(&m->namespace_annotations, room->lists[3]),
	};
}

uint64_t node_view_settings(const struct node_view *v)
{
	struct identity_options o;
	struct key_room room;
	uint64_t h;

	identity_settings(v, &room, &o);
	h = mix64(1 + o.well_known_labels + 2 * (uint64_t)o.otel_annotations);
	if (o.cluster_name)
		h = hash_bytes(o.cluster_name, strlen(o.cluster_name), h);
	for (size_t i = 0; i < ARRAY_SIZE(room.lists); i++) {
		for (const char **key = room.lists[i]; *key; key++)
			h = hash_bytes(*key, strlen(*key), h);
		h = mix64(h + 1);
	}
	return h;
}

/* ---- pods ------------------------------------------------------------------------------------ */

struct search {
	struct node_view *v;
	const uint8_t *uid;
	const struct pod *found;
	int (*fn)(void *arg, const uint8_t uid[16], const char *uid_text);
	void *arg;
};

static int compare_uid(void *arg, const struct pod *pod)
{
	struct search *s = arg;

	pod_unpack_subject(s->v->s.pods, pod, &s->v->info);
	if (memcmp(s->v->info.uid, s->uid, sizeof(s->v->info.uid)) != 0)
		return 0;
	s->found = pod;
	return 1;
}

/*
 * Finds the pod UID on NODE, and unpacks what policies need of it into v->info; NULL: there is
 * none. The look-up by uid may find another pod (mirror pods claim a second uid): then the pods of
 * NODE are searched.
 */
static const struct pod *find(struct node_view *v, const char *node, const uint8_t uid[16])
{
	struct search s = {.v = v, .uid = uid, .found = pod_store_find_uid(v->s.pods, uid)};

	if (!s.found)
		return NULL;
	pod_unpack_subject(v->s.pods, s.found, &v->info);
	if (memcmp(v->info.uid, uid, sizeof(v->info.uid)) != 0) {
		s.found = NULL;
		pod_store_each_on_node(v->s.pods, node, compare_uid, &s);
	}
	return s.found && streq(v->info.node, node) && !v->info.terminated ? s.found : NULL;
}

/* Appends container I. If that makes the pod too large, only the container's name and ids. */
static void add_container(struct node_view *v, const struct identity_source *pod, size_t i,
			  struct buf *out)
{
	struct pod_container *c = &v->info.containers[i];
	const char *name = intern_text(v->s.strings, c->name, NULL);
	struct buf *b = &v->container_scratch;
	struct identity_source source = *pod;
	uint64_t cut = 0;

	source.container = c;
	identity_build_container(&source, &v->pod, &v->container);
	buf_reset(b);
	pod_message_container(b, name, c, &v->container, &cut);
	if (out->len + b->len > VIEW_POD_MAX) {
		buf_reset(b);
		pod_message_container(b, name, c, NULL, &cut);
		v->counts.cut_containers++;
	}
	v->counts.cut_attributes += cut;
	if (buf_error(b))
		out->error = out->error ? out->error : buf_error(b);
	else
		pod_message_add(out, b);
}

static void write_pod(struct node_view *v, struct buf *out)
{
	struct identity_source source = {.intern = v->s.strings, .pod = &v->info};
	const char *services[SERVICE_NAMES_MAX];
	struct identity_options options;
	struct meta_object ns, node;
	struct key_room room;

	identity_settings(v, &room, &options);
	source.cluster_uid = node_view_cluster_uid(v);
	if (!meta_store_find(v->s.namespaces, "", v->info.ns, &ns))
		source.namespace = &ns;
	if (!meta_store_find(v->s.nodes, "", v->info.node, &node))
		source.node = &node;
	source.services = services;
	if (v->s.services)
		source.n_services = service_index_find(v->s.services, v->info.ns, v->info.uid,
						       services, ARRAY_SIZE(services));
	identity_build(&source, &options, &v->pod);
	buf_reset(out);
	pod_message_head(out, &v->info, &v->pod, &v->counts.cut_attributes);
	for (size_t i = 0; i < v->info.n_containers; i++)
		add_container(v, &source, i, out);
}

/* The policy of the pod in v->info; NULL: none. */
static struct view_policy *policy_of_pod(struct node_view *v)
{
	const struct effective_policy *effective = NULL;
	const struct namespace_config *config;
	struct view_policy *policy = NULL;

	if (match_resolve(v->s.policies, v->s.namespaces, v->s.nodes, &v->info, &effective,
			  &config) == 0)
		policy = policy_ref(v, effective);
	if (!policy)
		v->counts.without_policy++;
	return policy;
}

int node_view_pod_policy(struct node_view *v, const char *node, const uint8_t uid[16],
			 struct view_policy **ret)
{
	if (!find(v, node, uid))
		return -ENOENT;
	*ret = policy_of_pod(v);
	return 0;
}

int node_view_pod(struct node_view *v, const char *node, const uint8_t uid[16], struct buf *out,
		  struct view_policy **ret_policy)
{
	const struct pod *pod = find(v, node, uid);
	struct view_policy *policy;

	if (!pod)
		return -ENOENT;
	pod_unpack(v->s.pods, pod, &v->info);
	policy = policy_of_pod(v);
	write_pod(v, out);
	if (buf_error(out)) {
		node_view_unref(v, policy);
		return -ENOMEM;
	}
	v->counts.pods++;
	*ret_policy = policy;
	return 0;
}

static int tell_uid(void *arg, const struct pod *pod)
{
	struct search *s = arg;

	pod_unpack(s->v->s.pods, pod, &s->v->info);
	return s->fn(s->arg, s->v->info.uid, s->v->info.uid_text);
}

int node_view_each(struct node_view *v, const char *node,
		   int (*fn)(void *arg, const uint8_t uid[16], const char *uid_text), void *arg)
{
	struct search s = {.v = v, .fn = fn, .arg = arg};

	return pod_store_each_on_node(v->s.pods, node, tell_uid, &s);
}

const char *node_view_cluster_uid(struct node_view *v)
{
	struct meta_object ns;

	if (!v->cluster_uid[0] && !meta_store_find(v->s.namespaces, "", "kube-system", &ns))
		snprintf(v->cluster_uid, sizeof(v->cluster_uid), "%s", ns.uid);
	return v->cluster_uid;
}

struct buf *node_view_scratch(struct node_view *v)
{
	return &v->scratch;
}

void node_view_use_destinations(struct node_view *v, struct destination_table *destinations)
{
	v->destinations = destinations;
}

struct destination_table *node_view_destinations(const struct node_view *v)
{
	return v->destinations;
}

struct buf *node_view_secret_scratch(struct node_view *v)
{
	return &v->secret_scratch;
}

void node_view_read(const struct node_view *v, struct view_counts *ret)
{
	*ret = v->counts;
}

int node_view_new(const struct view_sources *sources, struct node_view **ret)
{
	struct node_view *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->s = *sources;
	buf_init(&v->scratch, 2 * VIEW_POD_MAX + SCRATCH_SLACK);
	buf_init(&v->container_scratch, VIEW_POD_MAX);
	buf_init(&v->secret_scratch, SCRATCH_SLACK);
	/* Allocated at once: if it moved, its old memory would not be wiped. */
	if (!buf_extend(&v->secret_scratch, SCRATCH_SLACK - 1)) {
		node_view_free(v);
		return -ENOMEM;
	}
	*ret = v;
	return 0;
}

struct node_view *node_view_free(struct node_view *v)
{
	struct policy_row *row, *next;

	if (!v)
		return NULL;
	HASH_ITER (hh, v->policies, row, next) {
		HASH_DEL(v->policies, row);
		leave_destinations(v, row->policy);
		free(row->policy);
		free(row);
	}
	buf_done(&v->scratch);
	buf_done(&v->container_scratch);
	buf_done(&v->secret_scratch);
	free(v);
	return NULL;
}
