/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's client of the node stream, a fake operator on loopback, and what either says. */
#pragma once

#include "agent/meta/client.h"
#include "kiln/node/v1/node.pb-c.h"
#include "tests/support/grpc_fake.h"
#include "tests/support/test.h"

enum { WAIT_S = 30, UNAVAILABLE = 14, UNAUTHENTICATED = 16 };

struct test {
	uv_loop_t loop;
	struct fake_server *server;
	struct meta_client *client;
	struct meta_options options;
	char dir[64], endpoint[64], token[96], snapshot[96], ca[96];
	unsigned int settled;
	uint64_t want; /* the count that the condition waits for */
};

/* A source of random numbers for the retries. */
double half(void *arg);
void write_text(const char *path, const char *text);
/* Writes a JWT that has nothing but its expiry; RANK makes two of them differ. */
void write_token(struct test *t, int64_t expires, int rank);

/* Starts the operator; setup() does so too. */
void serve(struct test *t, const struct fake_options *o);
/* O may be NULL. The client begins with begin(). */
void setup(struct test *t, const struct fake_options *o);
void begin(struct test *t);
void stop_client(struct test *t);
void teardown(struct test *t);
struct meta_status status_of(const struct test *t);
/* The client's pod NAME, or NULL. */
const struct pod_entry *pod(const struct test *t, const char *name);

/* Conditions for fake_pump(). is_time(): uv_hrtime() has reached T->want. */
bool is_connected(void *arg);
bool is_disconnected(void *arg);
bool is_time(void *arg);

/* What the operator says. */
void say_welcome(struct fake_call *c);
void say_begin(struct fake_call *c, uint64_t epoch);
void say_end(struct fake_call *c, uint64_t epoch, uint64_t revision);
void say_update(struct fake_call *c, Kiln__Node__V1__Update *u);
void say_pod(struct fake_call *c, uint64_t revision, const char *name);
/* The state of epoch 7, revision 10: one pod. */
void say_all(struct fake_call *c, const char *name);

/* What the agent says: its I-th message, which the caller frees. */
Kiln__Node__V1__AgentMessage *heard(const struct fake_call *c, size_t i);
void assert_hello(const struct fake_call *c, uint64_t epoch, uint64_t revision);
/* Waits for the I-th call and its first message. */
struct fake_call *expect_call(struct test *t, size_t i);
void expect_ack(struct test *t, uint64_t revision);
