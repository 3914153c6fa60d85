/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of tracers. The caller passes in the known ones, because the list of runtimes is in a
 * higher layer (agent/runtime/runtime.h).
 */
#include "agent/config/internal.h"

static const char *tracer_name(const void *arg, size_t i)
{
	return i ? ((const struct tracer *)arg)[i - 1].name : "all";
}

static int find_bits(const struct tracer *known, const char *name, uint32_t *ret, struct error *err)
{
	const char *nearest;
	size_t n = 1;

	if (strcasecmp(name, "all") == 0) {
		*ret = TRACERS_ALL;
		return 0;
	}
	for (const struct tracer *t = known; t->name; t++, n++)
		if (strcasecmp(name, t->name) == 0) {
			*ret = t->id ? 1U << t->id : 0;
			return 0;
		}
	nearest = nearest_name(name, n, tracer_name, known);
	return error_set(err, -EINVAL, "unknown tracer %s%s%s%s", quote_text(name).text,
			 nearest ? "; did you mean " : "", nearest ? nearest : "",
			 nearest ? "?" : "");
}

int parse_tracers(const struct tracer *known, const char *text, uint32_t *ret, struct error *err)
{
	_cleanup_free_ char *copy = strdup(text);
	char *rest = copy, *item;
	uint32_t all = 0, n = 0;

	if (!copy)
		return error_set(err, -ENOMEM, "out of memory");
	while ((item = strsep(&rest, ","))) {
		uint32_t bits = 0;
		int r;

		item = trim_space(item);
		if (!*item)
			continue;
		r = find_bits(known, item, &bits, err);
		if (r < 0)
			return r;
		all |= bits;
		n++;
	}
	if (!n)
		return error_set(err, -EINVAL, "want names of tracers, or all");
	*ret = all;
	return 0;
}

void warn_of_tracers(struct loading *l)
{
	uint32_t named = l->config->receiver.named_tracers;
	char names[256];
	size_t len = 0;

	/* The operator's file lists every tracer that a policy may enable. With an operator, the
	 * status of the ProfilingNode shows which are missing. */
	if (named == TRACERS_ALL || l->config->processors.node_stream.enabled)
		return;
	for (const struct tracer *t = l->config->known_tracers; t->name; t++)
		if (!t->walked && named & 1U << t->id && len < sizeof(names))
			len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s",
						len ? ", " : "", t->name);
	if (len)
		loading_warn(
		    l, "tracers: this version does not walk the stacks of %s; the others are on",
		    names);
}
