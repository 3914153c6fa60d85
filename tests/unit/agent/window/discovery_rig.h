/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery whose process is this one, and whose kernel is tests/unit/agent/runtime/fake.c. Clocks
 * that count from boot can be put forward.
 */
#pragma once

#include "agent/window/discovery.h"

#include <stdatomic.h>

#include "tests/unit/agent/runtime/fake.h"

enum { EXEC = 3 };

struct discovery_rig {
	uv_loop_t loop;
	struct discovery *d;
	struct map_notes *notes;
	union {
		struct kiln_sample record;
		uint8_t bytes[sizeof(struct kiln_sample) + sizeof(struct kiln_resume)];
	};
	struct sideband_mapping late_mapping; /* reported by `before` if it has a time */
	unsigned int answers;
	struct discovery_answer last;
	char last_name[64];
};
extern struct discovery_rig t;
extern atomic_llong ahead_ns; /* how far those clocks are ahead */

int setup(void **state);
int teardown(void **state);
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* The clocks, as discovery reads them. */
uint64_t monotonic_ns(void);
uint64_t boot_ns(void);
/* Asks about t.record, whose answer WANT must be, and runs the loop until all is done. */
void ask(int want);
/* Does discovery hold the mapset of t.record? */
bool holds(void);
/* Does the kernel know that the process cannot be read? */
bool is_given_up(void);
