/* SPDX-License-Identifier: Apache-2.0 */
/* A pod store that keeps three annotations (`keys` in pod_store_rig.c), and `view`: the pod that a
 * test describes there and then puts into the store. */
#pragma once

#include "lib/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "operator/cache/pod_store.h"
#include "tests/unit/operator/cache/views.h"

#define UID(n) "00000000-0000-0000-0000-0000000000" n
#define ID(hex2)                                                                                   \
	"containerd://" hex2 "00000000000000000000000000000000000000000000000000000000000000"

extern struct intern *in;
extern struct pod_store *store;
extern struct pod_view view; /* what put() puts */
extern struct pod_info info; /* what get() got */
extern uint64_t told;	     /* changes that the store reported */

/* Makes the store; setup() and teardown() are for TEST(). */
void start(size_t max_bytes, size_t max_pods);
/* Begins anew with a store of other limits. */
void restart(size_t max_bytes, size_t max_pods);
int setup(void **unused);
int teardown(void **unused);
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

void put(void);
/* The pod, which must be there. */
const struct pod_info *get(const char *ns, const char *name);
struct pod_store_stats stats(void);
/* A container id that begins with FIRST, as ID() writes it. */
void id_of(uint8_t first, uint8_t ret[32]);
