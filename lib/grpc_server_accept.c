/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New calls. Some requests for a call wait in the core at any time (STREAM_SERVER_ACCEPTS), each
 * with memory of its own; one that is answered is replaced before anything else is done. Who asks
 * for another method, or is one too many, is told so by a stream that nobody listens to. Loop
 * thread only.
 */
#include "lib/grpc_server_internal.h"

#include <grpc/slice.h>
#include <grpc/support/alloc.h>

static void on_accept(struct grpc_tag *tag);

static bool arm(struct accept *a)
{
	grpc_call_details_init(&a->details);
	grpc_metadata_array_init(&a->metadata);
	a->call = NULL;
	a->tag.done = on_accept;
	grpc_queue_hand_over(&a->server->queue);
	return grpc_server_request_call(a->server->core, &a->call, &a->details, &a->metadata,
					a->server->queue.cq, a->server->queue.cq,
					&a->tag) == GRPC_CALL_OK;
}

static void disarm(grpc_call_details *details, grpc_metadata_array *metadata)
{
	grpc_call_details_destroy(details);
	grpc_metadata_array_destroy(metadata);
}

/* The caller frees; NULL when absent, twice there, or out of memory. */
static char *find_authorization(const grpc_metadata_array *metadata)
{
	const grpc_slice *found = NULL;

	for (size_t i = 0; i < metadata->count; i++) {
		if (grpc_slice_str_cmp(metadata->metadata[i].key, "authorization"))
			continue;
		if (found)
			return NULL;
		found = &metadata->metadata[i].value;
	}
	return found
		   ? strndup((const char *)GRPC_SLICE_START_PTR(*found), GRPC_SLICE_LENGTH(*found))
		   : NULL;
}

/* The core names such a connection's peer "fd:N"; -1: not known. */
static int fd_of(grpc_call *call)
{
	char *peer = grpc_call_get_peer(call);
	int fd = -1;

	if (peer && sscanf(peer, "fd:%d", &fd) != 1)
		fd = -1;
	gpr_free(peer);
	return fd;
}

static void open_stream(struct server_stream *s, const grpc_metadata_array *metadata, bool known)
{
	struct stream_server *server = s->server;
	char *authorization;

	if (!known) {
		server->counts.unknown_method++;
		server_stream_finish(s, RPC_UNIMPLEMENTED, "no such method");
		return;
	}
	if (server->counts.open > server->max_streams) {
		server->counts.refused++;
		server_stream_finish(s, RPC_RESOURCE_EXHAUSTED, "too many streams");
		return;
	}
	server->counts.opened++;
	authorization = find_authorization(metadata);
	s->arg = server->events.opened(server->events.arg, s, authorization ? authorization : "",
				       fd_of(s->call));
	if (authorization)
		explicit_bzero(authorization, strlen(authorization));
	free(authorization);
	if (!s->arg)
		server_stream_finish(s, RPC_UNAVAILABLE, "out of memory");
}

static void on_accept(struct grpc_tag *tag)
{
	struct accept *a = container_of(tag, struct accept, tag);
	struct stream_server *server = a->server;
	grpc_call_details details = a->details;
	grpc_metadata_array metadata = a->metadata;
	grpc_call *call = a->call;
	struct server_stream *s;
	bool known;

	if (!tag->ok) { /* the server ends */
		disarm(&a->details, &a->metadata);
		a->server = NULL;
		return;
	}
	known = !grpc_slice_str_cmp(details.method, server->method);
	if (!arm(a)) {
		disarm(&a->details, &a->metadata);
		a->server = NULL;
	}
	s = server_stream_new(server, call);
	if (s)
		open_stream(s, &metadata, known);
	disarm(&details, &metadata);
}

int stream_server_accept(struct stream_server *server, struct error *err)
{
	for (size_t i = 0; i < STREAM_SERVER_ACCEPTS; i++) {
		server->accepts[i].server = server;
		if (!arm(&server->accepts[i]))
			return error_set(err, -EIO, "the gRPC library takes no calls");
	}
	return 0;
}

void stream_server_accept_done(struct stream_server *server)
{
	for (size_t i = 0; i < STREAM_SERVER_ACCEPTS; i++) {
		if (!server->accepts[i].server)
			continue;
		if (server->accepts[i].call)
			grpc_call_unref(server->accepts[i].call);
		disarm(&server->accepts[i].details, &server->accepts[i].metadata);
	}
}
