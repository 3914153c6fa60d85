/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the cluster's config to the objects that run the agents: a pure function. The same input
 * gives the same bytes, so that a hash tells whether anything is to be written. Names, labels and
 * annotations: docs/operator.md.
 */
#pragma once

#include <cjson/cJSON.h>

#include "operator/kube/resource.h"
#include "operator/policy/config.h"

enum { RENDER_OBJECTS_MAX = 64, RENDER_TERMS_MAX = 64 };

struct render_input {
	const struct cluster_config *config;
	const char *ns;	   /* the operator's, where everything goes */
	const char *image; /* of the agent when the config names none */
	bool stream;	   /* agents come to the operator for pods and policies */
	int max_hz; /* the timer of nodes without a group: what any policy can ask for there */
	int group_hz[CONFIG_GROUPS_MAX]; /* of a group's nodes; 0: the group's own rate, or max_hz
					  */
};

struct rendered_object {
	enum kube_kind kind;
	char *ns, *name;
	char hash[17]; /* 16 hex digits of the contents; also its annotation
			  profiling.kiln.dev/applied-hash */
	cJSON *object; /* apiVersion, kind, metadata, ... as server-side apply wants it */
};
struct rendered {
	struct rendered_object *objects; /* in the order in which they are to be applied */
	size_t n;
	char config_hash[17]; /* of all ConfigMaps: what agents report as applied */
};

/*
 * -EINVAL with the field when the config asks for what cannot be rendered: too many node-affinity
 * terms, a destination that nothing defines, ...
 */
int render(const struct render_input *input, struct rendered **ret, struct error *err) _must_check_;
struct rendered *rendered_free(struct rendered *r);
DEFINE_CLEANUP(struct rendered *, rendered_free)

/* The kinds that render() ever makes: what the reconciler watches and prunes. */
extern const enum kube_kind render_kinds[];
extern const size_t n_render_kinds;
/*
 * Does LIVE, an object as the API server has it, still say everything that WANT says? Fields that
 * WANT does not have may be anything (defaults, status, other managers'). Lists compare by element.
 */
bool render_covers(const cJSON *live, const cJSON *want);
