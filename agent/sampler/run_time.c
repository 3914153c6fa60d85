/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/run_time.h"

#define NS_PER_MS 1000000ULL

/* COUNTED, which was measured during PART_NS, scaled to NS. */
static uint64_t scaled(uint64_t counted, uint64_t ns, uint64_t part_ns)
{
	return (uint64_t)((unsigned __int128)counted * ns / part_ns);
}

void run_time_look(struct run_time *r, uint64_t now, const struct run_count *counted)
{
	if (r->on) {
		r->total.ns += counted->ns - r->kernel.ns;
		r->total.runs += counted->runs - r->kernel.runs;
	} else if (r->part_ns) {
		r->total.ns += scaled(r->part.ns, now - r->at, r->part_ns);
		r->total.runs += scaled(r->part.runs, now - r->at, r->part_ns);
	}
	r->kernel = *counted;
	r->at = now;
}

bool run_time_wants(const struct run_time *r, uint64_t now, bool sparing)
{
	uint64_t passed = now - r->turned;

	if (!sparing)
		return true;
	return r->on ? passed < RUN_TIME_ON_MS * NS_PER_MS
		     : passed >= (RUN_TIME_ALL_MS - RUN_TIME_ON_MS) * NS_PER_MS;
}

void run_time_turn(struct run_time *r, uint64_t now, bool on)
{
	if (on) {
		r->began = r->kernel;
	} else if (r->on && now > r->turned) {
		r->part.ns = r->kernel.ns - r->began.ns;
		r->part.runs = r->kernel.runs - r->began.runs;
		r->part_ns = now - r->turned;
	}
	r->on = on;
	r->turned = now;
}
