/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which samples of a window are exported, which wait and which are dropped.
 *
 * A sample may leave the node only when the operator has sent a policy that allows it: the pod's
 * own, or the node's default for processes in no pod. A pod exists before the operator sends it, so
 * its first samples are taken under the default policy; they are held until its policy comes,
 * POLICY_HOLD_WINDOWS windows at most. Samples of one stack share a count, which waits as long as
 * its oldest sample.
 *
 * A pod that has a policy may still lack a container's name, which the kubelet reports only once
 * the container runs: such samples wait one window, then go without the name.
 *
 * A process is looked up once a window. Loop thread.
 */
#include "agent/window/identify.h"

#include "lib/metrics.h"

struct identifying {
	struct window *window;
	const struct policies *policies;
	bool last;
	uint64_t unresolved;
};

/* The container of a process that is gone is that of its cgroup, which may become known after its
 * first sample. */
static void place(const struct identifying *i, struct process *p)
{
	const struct container_identity *c =
	    p->unplaced ? policies_cgroup(i->policies, p->key.cgroup) : NULL;

	if (!c)
		return;
	p->info.container = *c;
	p->unplaced = false;
}

static enum policies_knowledge look_up(struct identifying *i, struct process *p)
{
	enum policies_knowledge known;
	struct identity who;

	place(i, p);
	known = policies_identify(i->policies, p->unplaced ? NULL : &p->info.container, &who);

	p->identified_window = i->window->number;
	p->identity = known == KNOWN_OUTSIDE ? 0 : window_add_identity(i->window, &who);
	p->knowledge = (uint8_t)known;
	i->unresolved += known == KNOWN_NOTHING;
	p->forbidden = who.forbidden;
	p->untold = who.untold;
	p->route = who.route;
	return known;
}

/*
 * The route of a sample is that of the policy under which it was taken. A sample in a pod under the
 * default policy was taken before the pod was known (or both policies are the same): then the pod's
 * policy counts.
 */
static uint64_t route_of(const struct identifying *i, const struct count *c,
			 enum policies_knowledge known)
{
	if (known == KNOWN_OUTSIDE)
		return 0;
	if (policies_is_default(i->policies, c->key.policy))
		return c->key.process->route;
	return policies_route_of(i->policies, c->key.policy);
}

static enum window_fate keep(const struct identifying *i, struct count *c,
			     enum policies_knowledge known)
{
	c->route = route_of(i, c, known);
	if (c->route != ROUTE_NOWHERE)
		return WINDOW_KEEP;
	metric_add(M_SAMPLES_NOWHERE, c->samples);
	return WINDOW_DROP;
}

static enum window_fate wait_up_to(const struct identifying *i, const struct count *c,
				   uint8_t windows)
{
	if (c->waits >= windows || i->last)
		return WINDOW_DROP;
	metric_add(M_SAMPLES_WAITED, c->samples);
	return WINDOW_WAIT;
}

/* Whether the sample was taken before the operator's policy for it was known here. */
static bool is_early(const struct identifying *i, const struct count *c,
		     enum policies_knowledge known)
{
	if (known == KNOWN_OUTSIDE)
		return c->key.policy == POLICY_OWN;
	return policies_is_default(i->policies, c->key.policy);
}

static enum window_fate fate_of(struct count *c, void *arg)
{
	struct identifying *i = arg;
	struct process *p = c->key.process;
	enum policies_knowledge known = p->identified_window == i->window->number
					    ? (enum policies_knowledge)p->knowledge
					    : look_up(i, p);
	enum window_fate fate;

	if (p->forbidden && is_early(i, c, known)) {
		metric_add(M_SAMPLES_TAKEN_BACK, c->samples);
		return WINDOW_DROP;
	}
	if (p->untold && is_early(i, c, known)) {
		fate = wait_up_to(i, c, POLICY_HOLD_WINDOWS);
		if (fate == WINDOW_DROP)
			metric_add(M_SAMPLES_WITHOUT_POLICY, c->samples);
		return fate;
	}
	if (known == KNOWN_OUTSIDE || known == KNOWN_CONTAINER)
		return keep(i, c, known);
	if (wait_up_to(i, c, 1) == WINDOW_WAIT)
		return WINDOW_WAIT;
	if (known == KNOWN_NOTHING)
		metric_add(M_SAMPLES_UNRESOLVED, c->samples);
	return keep(i, c, known);
}

uint64_t window_identify(struct window *w, struct window *next, const struct policies *policies,
			 bool last)
{
	struct identifying i = {.window = w, .policies = policies, .last = last};

	window_sort(w, next, fate_of, &i);
	return i.unresolved;
}
