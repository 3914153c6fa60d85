/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes of a window are few: as many as it has policies. Parts are made by refinement: first
 * everybody is in one, then each route that goes to some of a part and not to its others cuts it in
 * two. A route that was met last is not looked at again, so the normal case costs one comparison a
 * count.
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
	if (fresh) /* nobody before has sent them anything */
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
