/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of ProfilingNodes with an API server, replicas and a clock that the test plays. */
#pragma once

#include "kiln/node/v1/node.pb-c.h"
#include "operator/nodes/nodes.h"
#include "tests/support/test.h"
#include "tests/unit/operator/reconcile/fakes.h"

struct rig {
	struct nodes *nodes;
	uint64_t started_ms;
	bool leads, has_node;
	char wanted[17];
	unsigned int turned;
	unsigned int writes, objects;	  /* answered */
	int answer;			  /* of the API server, to writes */
	const char *node_object;	  /* NULL: node_answer */
	int node_answer;		  /* its status; 403: nobody may read nodes */
	unsigned int asked;		  /* reads of it */
	Kiln__Node__V1__LeftOut left_out; /* in every node's report; without a name: none */
	uint64_t peer;			  /* the replica that reports */
	int64_t heard_ms;		  /* 0: now */
	char last[8192];		  /* the newest status, as text */
};
extern struct rig rig;

int setup(void **state);
int teardown(void **state);
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* The rig's clock, Unix time in s. */
int64_t clock_s(void);
/* MS go by; what is asked for is answered at once. */
void run(uint64_t ms);

/* The API server: a ProfilingNode as it is there. STATUS is taken; NULL: none yet. */
void show(const char *name, cJSON *status);
void answer_all(void);
/* Does the status that was written last contain TEXT? */
bool last_has(const char *text);

/* What replica rig.peer reports of a node; 1 is "me", 2 is "another". */
void tell(const char *node, bool connected, Kiln__Node__V1__Report *report);
void say(const char *node, uint64_t samples, bool healthy);
void hello(const char *node);
void leave(const char *node);
