/* SPDX-License-Identifier: Apache-2.0 */
/* The API kinds that the operator uses, and their paths. Constant data. */
#pragma once

#include "lib/base.h"
#include "lib/buf.h"

struct kube_resource {
	const char *group; /* "" for core */
	const char *version, *plural, *kind;
	bool namespaced;
};

#define KUBE_RESOURCES(X)                                                                          \
	X(PODS, "", "v1", "pods", "Pod", true)                                                     \
	X(NAMESPACES, "", "v1", "namespaces", "Namespace", false)                                  \
	X(NODES, "", "v1", "nodes", "Node", false)                                                 \
	X(SERVICES, "", "v1", "services", "Service", true)                                         \
	X(CONFIG_MAPS, "", "v1", "configmaps", "ConfigMap", true)                                  \
	X(SECRETS, "", "v1", "secrets", "Secret", true)                                            \
	X(SERVICE_ACCOUNTS, "", "v1", "serviceaccounts", "ServiceAccount", true)                   \
	X(DAEMON_SETS, "apps", "v1", "daemonsets", "DaemonSet", true)                              \
	X(REPLICA_SETS, "apps", "v1", "replicasets", "ReplicaSet", true)                           \
	X(JOBS, "batch", "v1", "jobs", "Job", true)                                                \
	X(ENDPOINT_SLICES, "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true)      \
	X(LEASES, "coordination.k8s.io", "v1", "leases", "Lease", true)                            \
	X(EVENTS, "events.k8s.io", "v1", "events", "Event", true)                                  \
	X(NETWORK_POLICIES, "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true)   \
	X(ROLES, "rbac.authorization.k8s.io", "v1", "roles", "Role", true)                         \
	X(ROLE_BINDINGS, "rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true)   \
	X(CLUSTER_CONFIGS, "profiling.kiln.dev", "v1alpha1", "clusterprofilingconfigs",            \
	  "ClusterProfilingConfig", false)                                                         \
	X(CONFIGS, "profiling.kiln.dev", "v1alpha1", "profilingconfigs", "ProfilingConfig", true)  \
	X(PROFILING_NODES, "profiling.kiln.dev", "v1alpha1", "profilingnodes", "ProfilingNode",    \
	  false)                                                                                   \
	X(TOKEN_REVIEWS, "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false)

enum kube_kind {
#define X(id, ...) KUBE_##id,
	KUBE_RESOURCES(X)
#undef X
	    KUBE_KIND_COUNT
};
extern const struct kube_resource kube_resources[KUBE_KIND_COUNT];

/*
 * Appends "/apis/GROUP/VERSION/namespaces/NS/PLURAL/NAME/SUB", each part percent-encoded. NS NULL:
 * cluster scope or all namespaces; NAME and SUB may be NULL. Query parameters follow with
 * kube_path_query(), which knows whether '?' or '&' is due.
 */
int kube_path(struct buf *out, enum kube_kind kind, const char *ns, const char *name,
	      const char *sub);
int kube_path_query(struct buf *out, const char *key, const char *value);
