/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct probes: the probes of the node: which are wanted, whether each is attached, and the counts
 * of each. Loop thread.
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
 * Sets the N wanted probes, PROBE_COUNT_MAX at most; of equal names the first counts. A probe that
 * is attached with the same rate stays as it is. For one that cannot be attached the status has the
 * reason; the next call, or probes_retry(), tries again.
 */
void probes_set(struct probes *p, const struct probe_spec *specs, size_t n);
void probes_retry(struct probes *p);

struct probe_status {
	const char *name;   /* its text; valid until the next probes_set() */
	const char *reason; /* why it is not attached; NULL: it is */
	int code;	    /* negative errno of that; 0: it is */
	uint32_t rate;
	uint64_t hits;	  /* how many hits the samples stand for, about */
	uint64_t samples; /* taken */
	uint64_t skipped; /* hits in processes that the policies or the process filter leave out */
	uint64_t busy;	  /* hits during the sample of another hit; not counted in HITS */
	uint64_t lost;	  /* samples that found no room in the ring */
	uint64_t lost_hits; /* ... and the hits that these samples stood for */
};
size_t probes_count(const struct probes *p);
void probes_status(const struct probes *p, size_t i, struct probe_status *ret);

/* The name of the probe whose samples have NUMBER as `detail`; "" when there was none. */
const char *probes_name(const struct probes *p, uint32_t number);
