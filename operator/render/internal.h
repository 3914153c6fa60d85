/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of operator/render. One struct agent_target is one DaemonSet with its
 * ConfigMap: a node group, or the nodes of no group. Everything borrows from the render_input. Any
 * thread.
 */
#pragma once

#include "operator/render/json.h"
#include "operator/render/render.h"

#define KILN_LABEL_GROUP    "profiling.kiln.dev/group"
#define KILN_LABEL_METRICS  "profiling.kiln.dev/metrics"
#define KILN_CONFIG_HASH    "profiling.kiln.dev/config-hash"
#define KILN_APPLIED_HASH   "profiling.kiln.dev/applied-hash"
#define KILN_AGENT_NAME	    "kiln-agent"
#define KILN_SECRET_ROLE    "kiln-stream-destinations"
#define KILN_STREAM_ACCOUNT "kiln-stream" /* of the role stream */

enum {
	AGENT_PORT = 13133,
	AGENT_SPOOL_MIB = 512, /* of all destinations together */
	AGENT_STATE_MIB = 1024,
	AGENT_NAME_MAX = 254,
	HEADER_ENV_MAX = 128,
	ENDPOINT_MAX = 1024,
	HASH_MAX = 17,
};

struct agent_target {
	const char *group; /* "" for the nodes of no group; no group has this name */
	char name[AGENT_NAME_MAX];
	struct agent_spec agent; /* the group's fields over the cluster's; borrowed */
	int hz;
	cJSON *terms; /* nodeSelectorTerms */
	char *yaml;
	char config_hash[HASH_MAX];
};

/* agent_config.c: the agent's YAML. */
int agent_config_text(const struct render_input *in, const struct agent_target *target, char **ret,
		      struct error *err) _must_check_;
/* The environment variable that has the value of header H of D: KILN_MAIN_HEADER_0. */
void header_env_name(const struct destination *d, size_t h, char ret[static HEADER_ENV_MAX]);
/* Where the TLS files of D are mounted. */
#define TLS_DIR "/etc/kiln-tls"

/* Paths in the agent's pod: STREAM_DIR has its token and the CA, mounted by the kubelet. The
 * directory STREAM_KEPT_DIR is an emptyDir, deleted with the pod, for the agent's snapshot of the
 * node stream. docs/operator.md */
#define STREAM_DIR	"/etc/kiln-operator"
#define STREAM_AUDIENCE "kiln.dev/node-stream"
#define STREAM_KEPT_DIR "/var/lib/kiln"

/* destination.c: -EINVAL with the field for what the agent would refuse at its start. */
int destination_check(const struct destination *d, struct error *err) _must_check_;
bool destination_is_plaintext(const struct destination *d);
bool destination_has_files(const struct destination *d);

/*
 * node_terms.c: the nodeSelectorTerms of the nodes that are in group INDEX and in no earlier one;
 * INDEX n_groups: of the nodes of no group.
 */
int node_terms(const struct node_group *groups, size_t n_groups, size_t index, cJSON **ret,
	       struct error *err) _must_check_;

/* secret_role.c: *RET is NULL when no destination of the cluster names a Secret. */
int secret_role_make(const struct cluster_config *config, cJSON **ret) _must_check_;
int secret_binding_make(const char *ns, cJSON **ret) _must_check_;

/* daemon_set.c, shared.c: whole objects, without metadata. */
int daemon_set_make(const struct render_input *in, const struct agent_target *target,
		    cJSON **ret) _must_check_;
int service_account_make(cJSON **ret) _must_check_;
int service_make(cJSON **ret) _must_check_;
/* TARGETS: those without a NetworkPolicy are left out of it. */
int network_policy_make(const struct agent_target *targets, size_t n, cJSON **ret) _must_check_;

/* quantity.c: "100m", "0.1", "128Mi" as m * 2^a * 5^b with m odd and no multiple of 5. */
struct quantity {
	uint64_t m;
	int a, b;
	bool negative;
};
int quantity_parse(const char *text, struct quantity *ret) _must_check_;
bool quantity_equal(const struct quantity *a, const struct quantity *b);
double quantity_value(const struct quantity *q);
