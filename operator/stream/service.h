/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stream_service: the node stream as the operator runs it: its certificate, its own client
 * for TokenReviews (5,000 agents that come at once must not wait behind the writes' limit), its
 * server. Loop thread only.
 */
#pragma once

#include "operator/stream/server.h"

struct stream_options {	     /* of the command line; strings are borrowed */
	const char *address; /* NULL: no node stream */
	/* All or none of the first two; without them a CA and a certificate are made here. */
	const char *cert_file, *key_file, *ca_file;
};

struct stream_service;
int stream_service_new(uv_loop_t *loop, const struct stream_options *options,
		       const struct kube_credentials *credentials, const char *ns,
		       const struct view_sources *sources, struct stream_service **ret,
		       struct error *err) _must_check_;
/* Run the loop on after this. */
struct stream_service *stream_service_free(struct stream_service *service);
/* For what the caches tell; NULL of NULL. */
struct node_server *stream_service_server(struct stream_service *service);
/* The pods' store keeps the annotations that the cluster's config asks for. */
void stream_keep_annotations(struct pod_store *pods, const struct policy_set *policies);
