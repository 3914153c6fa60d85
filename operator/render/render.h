/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the objects that run the agents from the cluster's config: a pure function. The same input
 * gives the same bytes, so that a hash shows whether anything is to be written. Names, labels and
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
	bool stream;	   /* agents get pods and policies from the node stream */
	int max_hz;	   /* highest rate that a policy can ask for on nodes without a group */
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
	char config_hash[17]; /* of the names and hashes of all ConfigMaps */
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
 * True when LIVE, an object as the API server has it, has all fields of WANT with the same values.
 * Fields that WANT does not have may be anything (defaults, status, other managers'). Lists compare
 * by element.
 */
bool render_covers(const cJSON *live, const cJSON *want);
