/* SPDX-License-Identifier: Apache-2.0 */
/* A gRPC client, its calls, and a peer that sends bytes given by the test. */
#pragma once

#include "lib/grpc_client.h"
#include "tests/support/h2_peer.h"
#include "tests/support/test.h"

#define SCENE_METHOD "/x.Y/Z"
#define SCENE_GRPC   ":status", "200", "content-type", "application/grpc"

struct scene {
	struct h2_peer p;
	struct grpc_client *client;
	struct grpc_unary *call; /* the last call */
	/* The last answer; `done` is the number of answers. */
	unsigned int done;
	int status;
	bool connected, has_details;
	char words[512];
	uint8_t *body, details[64];
	size_t body_len, details_len;
};

/* Headers of a good answer, and trailers: name, value, ..., NULL. */
extern const char *const scene_good[], *const scene_ok[];

/* A client with OPTIONS, whose endpoint is the peer, in plain text. */
void scene_begin(struct scene *s, const struct grpc_client_options *options);
void scene_call(struct scene *s, const void *data, size_t len, uint64_t timeout_ms);
/* Makes the first call and waits until its request is there: stream 1 of connection 0. */
void scene_begin_call(struct scene *s);
void scene_end(struct scene *s);
/* For grpc_client_call(). ARG: the scene. */
void scene_done(const struct grpc_answer *answer, void *arg);
/* Answers stream ID of connection I with OK and no message. */
void scene_answer(struct scene *s, size_t i, uint32_t id);
