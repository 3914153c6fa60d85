/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A window has few routes, as many as policies. The parts are made by refinement: at first all
 * receivers of the default route are one part; a route that contains some receivers of a part, but
 * not all, splits it in two. A route equal to the last one is skipped, so the normal case costs one
 * comparison per count.
 */
#include "agent/window/split.h"

static void refine(struct split *s, uint64_t route)
{
	size_t n = s->n;

	for (size_t i = 0; i < n; i++) {
		uint64_t in = s->parts[i] & route;

		if (!in || in == s->parts[i])
			continue;
		s->parts[i] &= ~route;
		s->parts[s->n++] = in;
	}
}

static void add(struct split *s, uint64_t *known, uint64_t route)
{
	uint64_t fresh = route & ~*known;

	*known |= route;
	refine(s, route);
	if (fresh) /* receivers that no earlier route contained */
		s->parts[s->n++] = fresh;
}

void window_split(const struct window *w, struct split *ret)
{
	uint64_t known = w->default_route & ~ROUTE_NOWHERE, last = w->default_route;

	*ret = (struct split){.parts = {known}, .n = known != 0, .whole = known != 0};
	for (const struct count *c = w->list; c; c = c->next) {
		uint64_t route = window_route(w, c);

		if (route == last)
			continue;
		last = route;
		route &= ~ROUTE_NOWHERE;
		ret->whole &= route != 0;
		add(ret, &known, route);
	}
	ret->whole &= ret->n == 1;
}

uint64_t split_whose(const struct split *s, size_t i)
{
	return s->whole ? 0 : s->parts[i];
}
