/* SPDX-License-Identifier: Apache-2.0 */
/* struct policy_set, shared by policy_set.c (stores configs) and policy_resolve.c (queries). */
#pragma once

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has no hh.tbl */

#include "lib/uthash.h"
#include "operator/policy/merge.h"
#include "operator/policy/policy.h"
#include "operator/policy/policy_index.h"

/* A policy by its digest: equal digests are equal policies, even if somebody tries to forge one. */
struct interned {
	struct effective_policy policy;
	uint8_t digest[POLICY_DIGEST_SIZE];
	UT_hash_handle hh;
};

/*
 * The result of one choice of layers: on[0] for nodes of no group, on[i + 1] for nodes of group i;
 * NULL: not resolved yet.
 */
struct answer {
	uint64_t revision; /* of the set, when this was resolved */
	enum profile_mode mode;
	bool no_room; /* for one of its policies */
	const struct effective_policy *on[CONFIG_GROUPS_MAX + 1];
};

enum standing { ACCEPTED, INVALID, NO_CLUSTER, NO_DESTINATION, CONFLICT, TOO_MANY };

struct config_entry {
	char *name;
	/*
	 * The config in use: the object's newest version or, when that was refused, the last
	 * accepted one, or a stand-in that is Disabled.
	 */
	struct namespace_config *config;
	bool stands_in;
	char *cause;		    /* why the newest version was refused; NULL: it was not */
	int64_t refused_generation; /* of that version */
	enum standing standing;
	struct answer answer;
	UT_hash_handle hh;
};

struct ns_entry {
	char *ns;
	struct config_entry *configs;
	bool closed;		       /* see policy_set_close() */
	bool ordered;		       /* the members below are up to date */
	struct config_entry *fallback; /* the namespace's default */
	struct policy_index index;     /* accepted configs with a podSelector */
	UT_hash_handle hh;
};

struct policy_set {
	struct cluster_config *cluster;
	char *cluster_cause; /* why it is invalid, when there is no valid one */
	struct ns_entry *namespaces;
	size_t n_configs;
	uint64_t revision;
	struct interned *interned;
	struct effective_policy off;
	uint64_t without_room; /* see policy_set_without_room() */
	struct answer base;    /* the cluster's defaults alone */
	uint64_t hz_revision;
	int max_hz[CONFIG_GROUPS_MAX + 1];
};

struct ns_entry *policy_set_find_ns(const struct policy_set *set, const char *ns);
struct config_entry *policy_set_find(const struct ns_entry *n, const char *name);
