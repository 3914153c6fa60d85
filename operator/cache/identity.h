/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the attributes that identify a container in OpenTelemetry: the keys of the Collector's
 * k8sattributes processor, and service.* by the precedence of the semantic conventions
 * (docs/non-normative/k8s-attributes.md). A pure function of its arguments.
 *
 *   service.name         annotation, [labels app.kubernetes.io/instance, .../name], deployment,
 *                        replica set, stateful set, daemon set, cron job, job, pod
 *   service.namespace    annotation, namespace
 *   service.version      annotation, [label app.kubernetes.io/version], image tag@digest
 *   service.instance.id  annotation, namespace.pod.container
 *
 * Annotations are resource.opentelemetry.io/KEY. Any other KEY becomes an attribute, too, unless
 * the attribute is set already: a pod cannot override its own name. The most important attributes
 * come first: a caller that has room for some takes the first ones.
 */
#pragma once

#include "operator/cache/meta_store.h"
#include "operator/cache/pod_store.h"

enum { IDENTITY_MAX = 192, IDENTITY_TEXT_MAX = 16384 };

/* spec.metadata of ClusterProfilingConfig. Lists end with NULL. */
struct identity_options {
	const char *cluster_name; /* NULL: none */
	bool well_known_labels, otel_annotations;
	const char *const *pod_labels, *const *pod_annotations;
	const char *const *namespace_labels, *const *namespace_annotations;
};

struct identity_source {
	const struct intern *intern; /* of the pod store */
	const struct pod_info *pod;
	const struct pod_container *container; /* NULL: attributes of the pod only */
	/* Objects related to the pod; NULL: not known (yet). */
	const struct meta_object *namespace, *node;
	const struct meta_object *replica_set, *job; /* the pod's controller */
	const char *cluster_uid;		     /* uid of the namespace kube-system */
	const char *const *services;		     /* in alphabetical order */
	size_t n_services;
};

struct attribute {
	const char *key, *value; /* into the identity, the source, or constant */
	bool list;		 /* the attribute's type is string[]; value is its only element */
};

struct identity {
	struct attribute attributes[IDENTITY_MAX];
	size_t n;
	size_t cut; /* number of attributes left out, because there was no room */
	size_t used;
	char text[IDENTITY_TEXT_MAX];
};

/* Valid as long as SOURCE's strings. */
void identity_build(const struct identity_source *source, const struct identity_options *options,
		    struct identity *ret);
/*
 * Builds only the attributes that SOURCE's container adds to POD, or has with another value. POD is
 * the result of identity_build() for SOURCE without a container. Both together hold what
 * identity_build() returns for the container, at a tenth of its cost.
 */
void identity_build_container(const struct identity_source *source, const struct identity *pod,
			      struct identity *ret);
/* NULL when IDENTITY has no attribute KEY. */
const char *identity_get(const struct identity *identity, const char *key);
