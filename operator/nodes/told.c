/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of thousands of nodes come every few seconds, and mostly differ only in counters. So an
 * event is kept in packed form, and its facts are compared by the hash of the same message with all
 * counters at 0. Loop thread.
 */
#include "operator/nodes/told.h"

struct parts {
	Kiln__Node__V1__Report report;
	Kiln__Node__V1__AppliedPolicy policies[TOLD_POLICIES_MAX], *list[TOLD_POLICIES_MAX];
	Kiln__Node__V1__BudgetState budget;
	Kiln__Node__V1__CutPolicy cut[TOLD_POLICIES_MAX], *cut_list[TOLD_POLICIES_MAX];
};

/* -E2BIG, or the packed message in RET, which the caller frees. */
static int pack(const Kiln__Node__V1__NodeEvent *event, uint8_t **ret, size_t *ret_len)
{
	size_t len = kiln__node__v1__node_event__get_packed_size(event);
	uint8_t *bytes;

	if (len > TOLD_BYTES_MAX)
		return -E2BIG;
	bytes = malloc(len + 1);
	if (!bytes)
		return -ENOMEM;
	kiln__node__v1__node_event__pack(event, bytes);
	*ret = bytes;
	*ret_len = len;
	return 0;
}

/*
 * Takes the current rates of cut policies out of the facts: they change often, the list of cut
 * policies does not. Returns their hash.
 */
static uint64_t take_rates(Kiln__Node__V1__Report *r, struct parts *parts)
{
	uint64_t rates = r->budget->detail;

	parts->budget = *r->budget;
	parts->budget.detail = 0;
	parts->budget.policy = parts->cut_list;
	for (size_t i = 0; i < parts->budget.n_policy; i++) {
		parts->cut[i] = *r->budget->policy[i];
		rates = mix64(rates ^ parts->cut[i].hz_now);
		parts->cut[i].hz_now = parts->cut[i].hz_now > 0;
		parts->cut_list[i] = &parts->cut[i];
	}
	r->budget = &parts->budget;
	return rates;
}

/* Sets the counters of R to 0, and returns their hash. */
static uint64_t take_counters(Kiln__Node__V1__Report *r, struct parts *parts)
{
	const uint64_t numbers[] = {r->samples, r->dropped, r->truncated, r->exported,
				    r->unresolved_containers};
	uint64_t counters = hash_bytes(numbers, sizeof(numbers), 1);

	r->samples = r->dropped = r->truncated = r->exported = r->unresolved_containers = 0;
	for (size_t i = 0; i < r->n_policies; i++) {
		parts->policies[i] = *r->policies[i];
		counters = mix64(counters ^ parts->policies[i].containers);
		parts->policies[i].containers = 0;
		parts->list[i] = &parts->policies[i];
	}
	r->policies = parts->list;
	return r->budget ? mix64(counters ^ take_rates(r, parts)) : counters;
}

static int hash(const Kiln__Node__V1__NodeEvent *event, struct told *ret)
{
	Kiln__Node__V1__NodeEvent e = *event;
	_cleanup_free_ uint8_t *bytes = NULL;
	struct parts parts;
	size_t len;
	int r;

	e.heard = 0;
	if (e.report) {
		parts.report = *e.report;
		e.report = &parts.report;
		ret->counters = take_counters(e.report, &parts);
	}
	r = pack(&e, &bytes, &len);
	if (r < 0)
		return r;
	ret->facts = hash_bytes(bytes, len, 2);
	return 0;
}

static void cut_report(Kiln__Node__V1__Report *r, Kiln__Node__V1__BudgetState *budget)
{
	if (r->budget) {
		*budget = *r->budget;
		budget->base.n_unknown_fields = 0;
		budget->n_policy = MIN(budget->n_policy, (size_t)TOLD_POLICIES_MAX);
		r->budget = budget;
	}
	r->base.n_unknown_fields = 0; /* of a newer agent: nobody here could use them */
	r->n_tracers = MIN(r->n_tracers, (size_t)TOLD_TRACERS_MAX);
	r->n_exporters = MIN(r->n_exporters, (size_t)TOLD_EXPORTERS_MAX);
	r->n_probes = MIN(r->n_probes, (size_t)TOLD_PROBES_MAX);
	r->n_policies = MIN(r->n_policies, (size_t)TOLD_POLICIES_MAX);
}

int told_set(struct told *t, const Kiln__Node__V1__NodeEvent *event)
{
	Kiln__Node__V1__NodeEvent e = *event;
	struct told n = {.has_report = e.report, .has_runtime = e.container_runtime[0]};
	Kiln__Node__V1__BudgetState budget;
	Kiln__Node__V1__Report report;
	int r;

	e.base.n_unknown_fields = 0;
	e.n_left_out = MIN(e.n_left_out, (size_t)TOLD_LEFT_OUT_MAX);
	if (e.report) {
		report = *e.report;
		cut_report(&report, &budget);
		e.report = &report;
	}
	r = pack(&e, &n.bytes, &n.len);
	if (!r)
		r = hash(&e, &n);
	if (r < 0) {
		free(n.bytes);
		return r;
	}
	told_done(t);
	*t = n;
	return 0;
}

Kiln__Node__V1__NodeEvent *told_get(const struct told *t)
{
	return t->bytes ? kiln__node__v1__node_event__unpack(NULL, t->len, t->bytes) : NULL;
}

void told_done(struct told *t)
{
	free(t->bytes);
	*t = (struct told){NULL};
}
