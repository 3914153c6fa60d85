/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specs of ClusterProfilingConfig and ProfilingConfig (crds/, profiling.kiln.dev/v1alpha1) as
 * structs. Parsed from JSON by config_parse.c, which checks the rules of the schema again: the
 * operator may meet objects of another schema version. Strings belong to the struct. Absent scalars
 * keep the ABSENT value of their type, so that inheritance can tell "not set" from any value. Pure
 * data, any thread.
 */
#pragma once

#include <cjson/cJSON.h>

#include "lib/base.h"
#include "lib/error.h"

enum {
	CONFIG_DESTINATIONS_MAX = 8,
	CONFIG_TENANT_DESTINATIONS_MAX = 4,
	CONFIG_HEADERS_MAX = 16,
	CONFIG_ENDPOINTS_MAX = 32,
	CONFIG_KEYS_MAX = 32,	/* metadata keys of each kind */
	CONFIG_LABELS_MAX = 32, /* keys of samples' labels */
	CONFIG_GROUPS_MAX = 8,
	CONFIG_SELECTOR_MAX = 16, /* labels, expressions, values */
	CONFIG_PRIORITY_MIN = 0,
	CONFIG_PRIORITY_MAX = 1000,
};

/* The names in the API, in its order: tracer_names[TRACER_PYTHON] is "python". */
enum tracer {
	TRACER_NATIVE,
	TRACER_GO,
	TRACER_JVM,
	TRACER_PYTHON,
	TRACER_V8,
	TRACER_RUBY,
	TRACER_PHP,
	TRACER_PERL,
	TRACER_DOTNET,
	TRACER_BEAM,
	TRACER_LUAJIT,
	TRACER_COUNT,
	/* the number of tracers that are part of every policy's id */
	TRACERS_FIRST = TRACER_DOTNET + 1,
};
extern const char *const tracer_names[TRACER_COUNT + 1]; /* ends with NULL */

enum profile_mode { MODE_ABSENT, MODE_ENABLED, MODE_DISABLED, MODE_OPT_IN };
enum toggle { TOGGLE_ABSENT, TOGGLE_AUTO, TOGGLE_ENABLED, TOGGLE_DISABLED };
enum { NUMBER_ABSENT = -1 };

struct string_list {
	char **items;
	size_t n;
	bool set; /* present in the object, maybe empty: replaces what is inherited */
};

struct profile_spec {
	enum profile_mode mode;
	int hz;
	enum toggle off_cpu;
	int off_cpu_per_mille;
	enum toggle tracers[TRACER_COUNT];
	struct string_list destination_refs;
	struct string_list labels; /* keys that may leave the node */
	enum toggle timestamps;
};

enum selector_operator { SELECTOR_IN, SELECTOR_NOT_IN, SELECTOR_EXISTS, SELECTOR_DOES_NOT_EXIST };
struct selector_requirement {
	char *key;
	enum selector_operator op;
	char **values;
	size_t n_values;
};
/* matchLabels become IN requirements with one value. No requirement matches everything. */
struct selector {
	struct selector_requirement *requirements;
	size_t n;
	bool set;
};

struct secret_ref {
	char *name, *key; /* NULL: not given */
};
struct destination_header {
	char *name;
	char *value; /* NULL when from a secret */
	struct secret_ref ref;
};
enum otlp_protocol { OTLP_GRPC, OTLP_HTTP };
enum destination_type { DESTINATION_OTLP, DESTINATION_TEXT };
enum tls_mode { TLS_VERIFY, TLS_SKIP_VERIFY, TLS_PLAINTEXT };
struct destination {
	char *name;
	enum destination_type type;
	/* of OTLP */
	char *endpoint;
	char *host; /* of the endpoint, without brackets */
	int port;   /* of the endpoint, or the default of its scheme */
	enum otlp_protocol protocol;
	char *compression; /* "gzip", "zstd", "none" as the agent's YAML spells them */
	int timeout_s;
	enum tls_mode tls;
	char *server_name;
	struct secret_ref ca;
	char *client_certificate_secret;
	struct destination_header *headers;
	size_t n_headers;
	char *proto_generation; /* "g4", "g5", "g6"; NULL: the agent's default */
};

struct metadata_spec {
	char *cluster_name; /* NULL: none */
	enum toggle well_known_labels, otel_annotations;
	struct string_list pod_labels, pod_annotations, namespace_labels, namespace_annotations;
};

struct guardrails {
	struct selector namespaces;
	int min_hz, max_hz;
	bool off_cpu_forbidden;
	int max_off_cpu_per_mille;
	bool tracer_denied[TRACER_COUNT];
	struct string_list allowed_destinations;
	struct string_list allowed_labels;
	bool tenant_destinations; /* SameNamespaceSecret */
	struct string_list tenant_endpoints;
	bool pod_opt_out_forbidden;
};

/* The parts of the DaemonSet that only pass through to its manifest stay JSON, checked for shape.
 */
struct agent_spec {
	char *image, *image_pull_policy, *priority_class, *log_level, *max_unavailable;
	char *security_mode; /* "Capabilities", "Privileged"; NULL: absent */
	char *when_unknown;  /* "hold" or "default", as in the agent's YAML; NULL: absent */
	int report_interval_s;
	enum toggle metrics_service, network_policy;
	cJSON *image_pull_secrets, *node_selector, *tolerations, *resources, *pod_labels,
	    *pod_annotations; /* NULL: absent */
};

struct node_group {
	char *name;
	struct selector nodes; /* IN requirements with one value each */
	int hz;		       /* NUMBER_ABSENT: the cluster's */
	struct agent_spec agent;
};

struct object_id {
	char *ns; /* "" for cluster-scoped */
	char *name;
	char *uid;
	int64_t generation;
	int64_t created; /* seconds since the epoch */
	char *ignored;	 /* the first unknown field of the object; NULL: none */
};

/* What an agent may cost. */
struct budget_spec {
	int cpu;	/* millionths of all CPUs of the node; 0: no limit */
	int64_t memory; /* bytes; 0: what the memory limit of its container leaves */
};

struct probe_config {
	char *probe;
	int rate; /* NUMBER_ABSENT: the default */
};

struct cluster_config {
	struct object_id id;
	struct budget_spec budget;
	struct profile_spec defaults;
	struct metadata_spec metadata;
	struct destination *destinations;
	size_t n_destinations;
	struct guardrails guardrails;
	struct agent_spec agent;
	struct node_group *groups;
	size_t n_groups;
	struct probe_config *probes;
	size_t n_probes;
};

struct namespace_config {
	struct object_id id;
	struct selector pods; /* not set: the namespace's default */
	int priority;
	struct profile_spec profile;
	struct destination *destinations;
	size_t n_destinations;
};

/*
 * A whole object (metadata and spec) -> struct. -EINVAL with the place and cause, as it goes into
 * the condition Accepted: "spec.sampling.hz: want 1..1000, got 5000". Unknown fields are ignored
 * and noted in object_id.ignored: the object may be of a newer schema than this program.
 */
int cluster_config_parse(const cJSON *object, struct cluster_config **ret,
			 struct error *err) _must_check_;
int namespace_config_parse(const cJSON *object, struct namespace_config **ret,
			   struct error *err) _must_check_;
/*
 * Makes the stand-in for a refused ProfilingConfig: mode Disabled for the pods that its selector
 * matches; when selector or priority cannot be read, for the whole namespace and before all other
 * configs. *RET_DISABLED: the object itself has mode: Disabled. The object must have a name.
 * -ENOMEM.
 */
int namespace_config_salvage(const cJSON *object, struct namespace_config **ret,
			     bool *ret_disabled) _must_check_;
/* True when the refused ClusterProfilingConfig has defaults.mode: Disabled. */
bool cluster_config_is_disabled(const cJSON *object);
struct cluster_config *cluster_config_free(struct cluster_config *c);
struct namespace_config *namespace_config_free(struct namespace_config *c);
DEFINE_CLEANUP(struct cluster_config *, cluster_config_free)
DEFINE_CLEANUP(struct namespace_config *, namespace_config_free)
