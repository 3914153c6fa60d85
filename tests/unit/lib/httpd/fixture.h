/* SPDX-License-Identifier: Apache-2.0 */
/* Two servers on one loop, with handlers that the tests of the HTTP server ask. */
#pragma once

#include "tests/unit/lib/httpd/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <cmocka.h>

enum {
	BIG = 8 << 20,	 /* bytes of the answer of /big */
	IMPATIENT_S = 2, /* timeouts of setup_impatient() */
	N_ROUTES = 8,
};

struct fixture {
	struct loop_thread *thread;
	struct httpd *server, *second;
	uint16_t port, second_port;
	struct httpd_request *kept[8]; /* loop's thread */
	atomic_int n_kept, n_gone, n_handled;
	uv_check_t turns;
	atomic_int n_turns; /* of the loop */
	struct httpd_options options;
};

extern struct fixture f;
extern char *big; /* the answer of /big */
extern const struct httpd_route routes[N_ROUTES];

/* Timeouts so long that no client is cut off, however busy the machine is. */
int setup(void **state);
/* For tests of timeouts. */
int setup_impatient(void **state);
int teardown(void **state);
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define IMPATIENT(test)	  cmocka_unit_test_setup_teardown(test, setup_impatient, teardown)

/* Waits until an atomic has at least this value; gives up after a minute. */
bool wait_for(atomic_int *value, int want);
/* For loop_thread_call(): the number of connections, into the unsigned int at ARG. */
void get_connections(void *arg);
bool wait_for_connections(unsigned int want);
void expect_status(const char *request, int status);
void expect_text(const char *target, int status, const char *text);

/* A test, the last of a program: no file descriptor was closed twice in the tests before. */
void nothing_was_closed_twice(void **state);
/* Runs TESTS. */
#define run_httpd_tests(tests) run_with_answer(tests, ARRAY_SIZE(tests))
int run_with_answer(const struct CMUnitTest *tests, size_t n);
