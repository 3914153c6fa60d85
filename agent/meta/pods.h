/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct pod_table: this node's pods, the policies that apply to them and the destinations of
 * these, as sent by the operator (proto/kiln/node/v1/node.proto) or read from the last known good
 * snapshot. meta_client fills it; the rest of the agent reads it.
 *
 * The table belongs to the loop thread. The structs that it returns (struct pod_entry, pod_policy,
 * pod_destination) never change: a change makes a new one. A pointer is valid until control returns
 * to the loop; to keep it longer, or to use it on another thread, take a reference (any thread may
 * ref and unref).
 *
 * A deleted pod, and an id that a container had before, can be found for another 120 s, so that
 * samples of the last window are named. Times are milliseconds of one monotonic clock (uv_now()),
 * passed in.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum {
	POD_CONTAINER_ID_BYTES = 32,
	POD_LINGER_MS = 120000,
	/* What the operator sends beyond these limits is left out and counted (struct
	 * pod_counters). */
	POD_PODS_MAX = 4096,	  /* live ones */
	POD_LINGERING_MAX = 4096, /* deleted ones: the oldest go first */
	POD_IDS_MAX = 65536,	  /* container ids, former ones too */
	POD_CONTAINERS_MAX = 64,  /* of a pod */
	POD_ATTRIBUTES_MAX = 64,  /* of a pod, and of a container */
	POD_VALUES_MAX = 64,	  /* of a list attribute */
	POD_KEY_MAX = 256,	  /* bytes of an attribute's key */
	POD_VALUE_MAX = 1024,	  /* bytes of a value, and of each of a list */
	POD_NAME_MAX = 253,	  /* bytes of names, uids, hashes */
	POD_POLICIES_MAX = 1024,
	POD_POLICY_NAMES_MAX = 32, /* disabled tracers, and destinations, of a policy */
	POD_DESTINATIONS_MAX = 256,
	POD_HEADERS_MAX = 32, /* of a destination */
	POD_PEM_MAX = 65536,  /* bytes of a certificate, key or CA bundle */
	POD_HZ_MAX = 1000,
};

/* ---- what it holds --------------------------------------------------------------------------- */

struct pod_attribute {
	const char *key;	   /* "k8s.pod.name" */
	const char *value;	   /* "" for a list attribute */
	const char *const *values; /* of a list attribute; else NULL */
	size_t n_values;
};

struct pod_container {
	const char *name;
	bool has_id, has_previous_id;
	uint8_t id[POD_CONTAINER_ID_BYTES];
	uint8_t previous_id[POD_CONTAINER_ID_BYTES]; /* of its former instance */
	const struct pod_attribute
	    *attributes; /* besides the pod's; if both have a key, this value counts */
	size_t n_attributes;
};

struct pod_entry {
	const char *uid;
	const char *config_hash; /* of static pods: names their cgroup; else "" */
	const char *ns, *name;
	uint64_t policy; /* pod_table_policy() */
	const struct pod_attribute *attributes;
	size_t n_attributes;
	const struct pod_container *containers;
	size_t n_containers;
};

struct pod_policy {
	uint64_t id;
	bool enabled;
	uint32_t hz;		    /* 1..POD_HZ_MAX; no meaning unless enabled */
	uint32_t off_cpu_per_mille; /* 0..1000 */
	uint32_t priority;	    /* the budget cuts the lowest first */
	const char *const *disabled_tracers;
	size_t n_disabled_tracers;
	const char *const *destinations; /* pod_table_destination() */
	size_t n_destinations;
	const char *const *labels; /* keys that may leave the node */
	size_t n_labels;
	bool timestamps;
	/* True: `destinations` applies, even if it is empty; false: the configured exporters. */
	bool routed;
};

enum pod_destination_kind { POD_DESTINATION_TEXT, POD_DESTINATION_GRPC, POD_DESTINATION_HTTP };
enum pod_tls_mode { POD_TLS_VERIFY, POD_TLS_SKIP_VERIFY, POD_TLS_PLAINTEXT };

struct pod_header {
	const char *name, *value; /* the value may be secret */
};

struct pod_destination {
	const char *id;
	enum pod_destination_kind kind;
	/* From disk, without its secrets: not usable until the operator sends it. */
	bool incomplete;
	const char *endpoint, *compression, *proto_generation;
	uint32_t timeout_ms;
	enum pod_tls_mode tls_mode;
	const char *server_name;
	const char *ca_pem, *certificate_pem, *key_pem; /* NULL: none; the key is secret */
	const struct pod_header *headers;
	size_t n_headers;
};

/* The container of E whose id, or former id, is ID; NULL when there is none. */
const struct pod_container *pod_entry_container(const struct pod_entry *e,
						const uint8_t id[POD_CONTAINER_ID_BYTES]);

const struct pod_entry *pod_entry_ref(const struct pod_entry *e);
const struct pod_entry *pod_entry_unref(const struct pod_entry *e); /* NULL is fine */
const struct pod_policy *pod_policy_ref(const struct pod_policy *p);
const struct pod_policy *pod_policy_unref(const struct pod_policy *p);
const struct pod_destination *pod_destination_ref(const struct pod_destination *d);
const struct pod_destination *pod_destination_unref(const struct pod_destination *d);

/* ---- the table ------------------------------------------------------------------------------- */

/*
 * Changes, reported on the loop thread from inside the call that changed the table. OLD is NULL for
 * something new, NOW for something deleted; both are valid during the callback. A snapshot reports
 * only what it changed. Callbacks must not change or free the table.
 */
struct pod_events {
	void (*pod)(const struct pod_entry *old, const struct pod_entry *now, void *arg);
	/* Also for the default policy: IS_DEFAULT is set then. */
	void (*policy)(const struct pod_policy *old, const struct pod_policy *now, bool is_default,
		       void *arg);
	void (*destination)(const struct pod_destination *old, const struct pod_destination *now,
			    void *arg);
	/* After the last change of a message or snapshot: the table is consistent again. */
	void (*settled)(void *arg);
	void *arg;
};

/* Since the start. Refused: left out because of a limit, or because it was invalid. */
struct pod_counters {
	uint64_t updates; /* applied */
	uint64_t snapshots;
	uint64_t pods_refused, containers_refused, attributes_refused, ids_refused;
	uint64_t policies_refused, destinations_refused;
};

struct pod_table;

/* EVENTS is copied; its members may be NULL. */
int pod_table_new(const struct pod_events *events, struct pod_table **ret) _must_check_;
struct pod_table *pod_table_free(struct pod_table *t); /* no callbacks */
DEFINE_CLEANUP(struct pod_table *, pod_table_free)

/* The pod that has, or until 120 s ago had, a container of this id. */
const struct pod_entry *pod_table_find_container(const struct pod_table *t,
						 const uint8_t id[POD_CONTAINER_ID_BYTES]);
/* By metadata.uid (with dashes), or by the config hash that static pods' cgroups are named by. */
const struct pod_entry *pod_table_find_uid(const struct pod_table *t, const char *uid_or_hash);

/* The agent's budget as sent by the operator; 0: not sent. */
struct pod_table_budget {
	uint32_t cpu;	 /* millionths of all CPUs */
	uint64_t memory; /* bytes */
};
struct pod_table_budget pod_table_budget(const struct pod_table *t);

/* NULL when the operator has sent no policy with this id: the default policy applies then. */
const struct pod_policy *pod_table_policy(const struct pod_table *t, uint64_t id);
/* For processes outside of pods; NULL: none was sent. */
const struct pod_policy *pod_table_default_policy(const struct pod_table *t);
const struct pod_destination *pod_table_destination(const struct pod_table *t, const char *id);

/* All of them, in no order; the default policy is not among the policies. FN returns false to stop.
 */
void pod_table_policies(const struct pod_table *t,
			bool (*fn)(const struct pod_policy *p, void *arg), void *arg);
void pod_table_pods(const struct pod_table *t, bool (*fn)(const struct pod_entry *e, void *arg),
		    void *arg); /* live ones */
void pod_table_destinations(const struct pod_table *t,
			    bool (*fn)(const struct pod_destination *d, void *arg), void *arg);

size_t pod_table_count(const struct pod_table *t); /* live pods */
size_t pod_table_lingering(const struct pod_table *t);
const struct pod_counters *pod_table_counters(const struct pod_table *t);
/* The epoch and revision of the state; both 0: there is none. */
void pod_table_state(const struct pod_table *t, uint64_t *ret_epoch, uint64_t *ret_revision);
/* Increases with every change: to find out whether anything has changed. */
uint64_t pod_table_generation(const struct pod_table *t);

/* Forgets pods and ids whose 120 s are over. */
void pod_table_expire(struct pod_table *t, uint64_t now_ms);
