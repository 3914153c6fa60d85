/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stream_service: the node stream as the operator runs it: its CA and certificate
 * (ca_keeper.h) or those from files, its own client for TokenReviews (5,000 agents that come at
 * once must not wait behind the writes' limit), its server. Without an address, in the role
 * controller, it looks after the CA and serves nobody. Loop thread only.
 */
#pragma once

#include "operator/reconcile/recorder.h"
#include "operator/stream/server.h"

#define STREAM_SERVICE "kiln-operator-stream" /* the Service by which agents come */
enum { STREAM_SERVICE_PORT = 8443 };

struct stream_options {	     /* of the command line; strings are borrowed */
	const char *address; /* NULL: nobody is served */
	/* All or none of the first two; without them the CA in the Secret signs. */
	const char *cert_file, *key_file, *ca_file;
	int64_t ca_life_s; /* 0: a year */
};

struct stream_service_options {
	const struct stream_options *stream;
	const struct kube_credentials *credentials;
	const char *ns;
	struct recorder *events;
	bool (*may_write)(void *arg); /* true while we lead; NULL: the CA is only read */
	/* As in destinations.h. */
	void (*left_out)(void *arg, const char *ns, const char *name, const char *cause);
	/* As in server.h. */
	const char *replica;
	void (*agent_events)(void *arg, const uint8_t *bytes, size_t len);
	void *arg;
};

struct stream_service;
/* Starts to look after the CA. */
int stream_service_new(uv_loop_t *loop, const struct stream_service_options *options,
		       struct stream_service **ret, struct error *err) _must_check_;
/*
 * Starts to serve agents, once the caches are synced. -EAGAIN: there is no certificate yet, call
 * again. Without an address, and after a success, it does nothing.
 */
int stream_service_serve(struct stream_service *service, const struct view_sources *sources,
			 struct error *err) _must_check_;
/* The lead was gained. Takes NULL. */
void stream_service_lead(struct stream_service *service);
/* The CA that agents verify the stream's certificates with; NULL: not known yet. Takes NULL. */
const char *stream_service_ca(const struct stream_service *service);
/* Run the loop on after this. */
struct stream_service *stream_service_free(struct stream_service *service);
/* The server, for the caches' changes; NULL before it serves, and if SERVICE is NULL. */
struct node_server *stream_service_server(struct stream_service *service);
void stream_service_metrics(struct stream_service *service, struct buf *out);
