/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pod of a container is known before the container runs, but by the operator; its word may come
 * after the first samples. What the wait is for is the container's name too, which the kubelet
 * reports only once it runs. So everything about a pod that is not wholly known waits, one window.
 *
 * A process is looked up once a window.
 */
#include "agent/window/identify.h"

#include "lib/metrics.h"

struct identifying {
	struct window *window;
	const struct policies *policies;
	bool last;
	uint64_t unresolved;
};

static enum policies_knowledge look_up(struct identifying *i, struct process *p)
{
	struct identity who;
	enum policies_knowledge known = policies_identify(i->policies, &p->info.container, &who);

	p->identified_window = i->window->number;
	p->identity = known == KNOWN_OUTSIDE ? 0 : window_add_identity(i->window, &who);
	p->knowledge = (uint8_t)known;
	i->unresolved += known == KNOWN_NOTHING;
	p->forbidden = who.forbidden;
	p->route = who.route;
	return known;
}

/*
 * Who gets it, as the policy said that it was taken under. Under a default's it was taken because
 * nobody had told of the pod (or both have the same): then the pod's policy counts, by now known.
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
	metric_add(M_SAMPLES_NOWHERE, c->value);
	return WINDOW_DROP;
}

static enum window_fate fate_of(struct count *c, void *arg)
{
	struct identifying *i = arg;
	struct process *p = c->key.process;
	enum policies_knowledge known = p->identified_window == i->window->number
					    ? (enum policies_knowledge)p->knowledge
					    : look_up(i, p);

	if (p->forbidden && policies_is_default(i->policies, c->key.policy)) {
		metric_add(M_SAMPLES_TAKEN_BACK, c->value);
		return WINDOW_DROP;
	}
	if (known == KNOWN_OUTSIDE || known == KNOWN_CONTAINER)
		return keep(i, c, known);
	if (!c->waited && !i->last) {
		metric_add(M_SAMPLES_WAITED, c->value);
		return WINDOW_WAIT;
	}
	if (known == KNOWN_NOTHING)
		metric_add(M_SAMPLES_UNRESOLVED, c->value);
	return keep(i, c, known);
}

uint64_t window_identify(struct window *w, struct window *next, const struct policies *policies,
			 bool last)
{
	struct identifying i = {.window = w, .policies = policies, .last = last};

	window_sort(w, next, fate_of, &i);
	return i.unresolved;
}
