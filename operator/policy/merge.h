/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of docs/policy.md without any state: merge layers into one profile, apply the
 * guard-rails, make the digest of the result. policy_set.c keeps the configs and calls these; so
 * does the verdict of each config.
 */
#pragma once

#include "operator/policy/policy.h"

/* The built-in layer: values that no config sets. */
enum { BUILT_IN_HZ = 20, BUILT_IN_OFF_CPU_PER_MILLE = 20 };

/* A profile with nothing absent, before the guard-rails. */
struct merged_profile {
	enum profile_mode mode;
	int hz;
	enum toggle off_cpu;
	int off_cpu_per_mille;
	int priority; /* of the namespace's config that decided last; 0: of none */
	enum toggle tracers[TRACER_COUNT];
	const struct string_list *labels; /* NULL: none */
	bool timestamps;
	const struct string_list *refs; /* NULL: all the cluster's destinations */
	/* the config that has `refs`; NULL: the cluster's */
	const struct namespace_config *refs_of;
};

/* Built-in <- CLUSTER <- GROUP's rate <- NS_DEFAULT <- BEST; the last three may be NULL. */
void profile_merge(const struct cluster_config *cluster, const struct node_group *group,
		   const struct namespace_config *ns_default, const struct namespace_config *best,
		   struct merged_profile *ret);

/*
 * Finds the destination that NAME in destinationRefs of CONFIG (NULL: of the cluster) refers to:
 * one of CONFIG itself (*RET_OWN), else one of the cluster; NULL: none.
 */
const struct destination *destination_find(const struct cluster_config *cluster,
					   const struct namespace_config *config, const char *name,
					   bool *ret_own);
/*
 * Whether a namespace's config may send to the destination NAME under the guard-rails G: NULL when
 * it may, else the reason. OWN is the destination when the config itself defines it, NULL when NAME
 * refers to one of the cluster's.
 */
const char *destination_refused(const struct guardrails *g, const char *name,
				const struct destination *own);
/*
 * Whether DESTINATION's endpoint matches PATTERN: "HOST", "*.DOMAIN" (every host name that ends in
 * ".DOMAIN") or "[IPv6]", upper and lower case alike; with ":PORT" after it, on that port only.
 */
bool endpoint_matches(const char *pattern, const struct destination *destination);

/* True when the guard-rails let agents export labels with this KEY. */
bool label_allowed(const struct guardrails *g, const char *key);

int hz_clamp(const struct guardrails *g, int hz);
/* The effective policy of an enabled pod. `id` stays 0. */
void profile_clamp(const struct cluster_config *cluster, const struct merged_profile *merged,
		   struct effective_policy *ret);

enum { POLICY_DIGEST_SIZE = 32 };
/* SHA-256 of the contents, destinations by value: the same in every process. */
int policy_digest(const struct effective_policy *policy,
		  uint8_t ret[POLICY_DIGEST_SIZE]) _must_check_;
uint64_t policy_id(const uint8_t digest[POLICY_DIGEST_SIZE]);

/* Writes the settings of the config that have no effect to V->ineffective. */
void ineffective_of_cluster(const struct cluster_config *cluster, struct policy_verdict *v);
void ineffective_of_namespace(const struct namespace_config *c, struct policy_verdict *v);

/* Writes the fields that the config itself sets and the guard-rails change to V->clamped. */
void clamps_of_cluster(const struct cluster_config *cluster, struct policy_verdict *v);
void clamps_of_namespace(const struct cluster_config *cluster, const struct namespace_config *c,
			 struct policy_verdict *v);
