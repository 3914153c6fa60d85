/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct code_finder: collects known code without unwind information and its rules, for
 * arch_known_code(); and searches for code that is known by its bytes. Stateless; any thread.
 */
#pragma once

#include "agent/elf/arch.h"

struct code_finder {
	const struct image *image;
	struct code_rule *rules;
	size_t n, max;
};

struct code_pattern {
	const char *bytes;
	size_t size;
	const struct kiln_rule *rule;
	/* Bytes before the pattern that the rule covers too, because return addresses are looked
	 * up at address - 1. */
	uint8_t before;
};

void code_finder_add(struct code_finder *f, uint64_t start, uint64_t end,
		     const struct kiln_rule *rule);
/*
 * Searches the executable segments outside of COVERED (sorted) for the N PATTERNS, and adds the
 * rule of each match.
 */
void code_finder_scan(struct code_finder *f, const struct spans *covered,
		      const struct code_pattern *patterns, size_t n);
