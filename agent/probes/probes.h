/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct probes: the probes of the node: those that are asked for, what became of each, and what
 * each has counted. Loop thread.
 */
#pragma once

#include "lib/error.h"
#include "lib/probe_spec.h"

struct sampler;
struct probes;
/* S outlives it. */
int probes_new(struct sampler *s, struct probes **ret) _must_check_;
struct probes *probes_free(struct probes *p);
DEFINE_CLEANUP(struct probes *, probes_free)

/*
 * From now on these N probes and no others, PROBE_COUNT_MAX at most; of equal names the first. One
 * that is attached with the same rate already stays as it is. What cannot be attached says so in
 * its status, and is tried again by the next call, or by probes_retry().
 */
void probes_set(struct probes *p, const struct probe_spec *specs, size_t n);
void probes_retry(struct probes *p);

struct probe_status {
	const char *name;   /* its text; valid until the next probes_set() */
	const char *reason; /* why it is not attached; NULL: it is */
	int code;	    /* negative errno of that; 0: it is */
	uint32_t rate;
	uint64_t hits;	    /* that its samples stand for, about */
	uint64_t samples;   /* taken */
	uint64_t skipped;   /* hits of what no policy selects, or the process filter */
	uint64_t busy;	    /* hits that came during the sample of another: not counted in HITS */
	uint64_t lost;	    /* samples that found no room in the ring */
	uint64_t lost_hits; /* ... and the hits that they stood for */
};
size_t probes_count(const struct probes *p);
void probes_status(const struct probes *p, size_t i, struct probe_status *ret);

/* What the probe was called that samples with `detail` NUMBER are of; "" when there was none. */
const char *probes_name(const struct probes *p, uint32_t number);
