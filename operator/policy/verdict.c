/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of a config that the guard-rails change, in the order of its fields: the rows of
 * status.clamped. Inherited values are not listed: they are in the status of the config that sets
 * them. A list of destinations is one row, so that all fields fit POLICY_CLAMPED_MAX. Pure
 * functions.
 */
#include "operator/policy/merge.h"

static struct policy_clamp *new_clamp(struct policy_verdict *v, const char *prefix,
				      const char *field)
{
	struct policy_clamp *c;

	if (v->n_clamped == POLICY_CLAMPED_MAX)
		return NULL;
	c = &v->clamped[v->n_clamped++];
	*c = (struct policy_clamp){.field = ""};
	snprintf(c->field, sizeof(c->field), "%s%s", prefix, field);
	return c;
}

#define SET(array, ...) snprintf(array, sizeof(array), __VA_ARGS__)

static void clamp_hz(const struct guardrails *g, int hz, const char *prefix,
		     struct policy_verdict *v)
{
	int effective = hz_clamp(g, hz);
	struct policy_clamp *c;

	if (hz == NUMBER_ABSENT || effective == hz)
		return;
	c = new_clamp(v, prefix, "sampling.hz");
	if (!c)
		return;
	SET(c->requested, "%d", hz);
	SET(c->effective, "%d", effective);
	SET(c->reason, "guardrails.sampling.%s is %d", hz > effective ? "maxHz" : "minHz",
	    effective);
}

static void clamp_off_cpu(const struct guardrails *g, const struct profile_spec *p,
			  const char *prefix, struct policy_verdict *v)
{
	struct policy_clamp *c = NULL;

	if (p->off_cpu == TOGGLE_ENABLED && g->off_cpu_forbidden &&
	    (c = new_clamp(v, prefix, "offCPU.mode"))) {
		SET(c->requested, "Enabled");
		SET(c->effective, "Disabled");
		SET(c->reason, "guardrails.offCPU.mode is Forbidden");
	}
	if (p->off_cpu_per_mille > g->max_off_cpu_per_mille &&
	    (c = new_clamp(v, prefix, "offCPU.perMille"))) {
		SET(c->requested, "%d", p->off_cpu_per_mille);
		SET(c->effective, "%d", g->max_off_cpu_per_mille);
		SET(c->reason, "guardrails.offCPU.maxPerMille is %d", g->max_off_cpu_per_mille);
	}
}

static void clamp_tracers(const struct guardrails *g, const struct profile_spec *p,
			  const char *prefix, struct policy_verdict *v)
{
	for (size_t i = 0; i < TRACER_COUNT; i++) {
		char field[32];
		struct policy_clamp *c;

		if (!g->tracer_denied[i] ||
		    (p->tracers[i] != TOGGLE_AUTO && p->tracers[i] != TOGGLE_ENABLED))
			continue;
		snprintf(field, sizeof(field), "tracers.%s", tracer_names[i]);
		c = new_clamp(v, prefix, field);
		if (!c)
			return;
		SET(c->requested, "%s", p->tracers[i] == TOGGLE_AUTO ? "Auto" : "Enabled");
		SET(c->effective, "Disabled");
		SET(c->reason, "guardrails.deniedTracers has %s", tracer_names[i]);
	}
}

/*
 * Adds one name of a list to ROW. WHY: the reason that it is removed, NULL: it stays. ROW keeps the
 * first reason.
 */
static void clamp_name(struct policy_clamp *row, const char *name, const char *why);
static void report_names(struct policy_verdict *v, const char *prefix, const char *field,
			 const struct policy_clamp *row);

static void clamp_labels(const struct guardrails *g, const struct profile_spec *p,
			 const char *prefix, struct policy_verdict *v)
{
	struct policy_clamp row = {.field = ""};

	for (size_t i = 0; i < p->labels.n; i++)
		clamp_name(&row, p->labels.items[i],
			   label_allowed(g, p->labels.items[i])
			       ? NULL
			       : "guardrails.allowedLabels does not name it");
	report_names(v, prefix, "labels.allow", &row);
}

static void clamp_profile(const struct guardrails *g, const struct profile_spec *p,
			  const char *prefix, struct policy_verdict *v)
{
	clamp_hz(g, p->hz, prefix, v);
	clamp_off_cpu(g, p, prefix, v);
	clamp_tracers(g, p, prefix, v);
	clamp_labels(g, p, prefix, v);
}

/* "a, b, c", or with dots at the end when there is no room. */
static void append_name(char *list, size_t size, const char *name)
{
	size_t n = strlen(list);

	if ((size_t)snprintf(list + n, size - n, "%s%s", n ? ", " : "", name) >= size - n)
		strcpy(list + size - 4, "...");
}

static void clamp_name(struct policy_clamp *row, const char *name, const char *why)
{
	append_name(row->requested, sizeof(row->requested), name);
	if (!why)
		append_name(row->effective, sizeof(row->effective), name);
	else if (!row->reason[0])
		SET(row->reason, "%s: %s", name, why);
}

/* Reports ROW under FIELD, if one of its names was removed. */
static void report_names(struct policy_verdict *v, const char *prefix, const char *field,
			 const struct policy_clamp *row)
{
	struct policy_clamp *c = row->reason[0] ? new_clamp(v, prefix, field) : NULL;

	if (!c)
		return;
	memcpy(c->requested, row->requested, sizeof(c->requested));
	memcpy(c->reason, row->reason, sizeof(c->reason));
	SET(c->effective, "%s", row->effective[0] ? row->effective : "none");
}

static void clamp_refs(const struct cluster_config *cluster, const struct namespace_config *n,
		       struct policy_verdict *v)
{
	const struct string_list *refs = &n->profile.destination_refs;
	struct policy_clamp row = {.field = ""};

	for (size_t i = 0; i < refs->n; i++) {
		bool own;
		const struct destination *d = destination_find(cluster, n, refs->items[i], &own);

		clamp_name(
		    &row, refs->items[i],
		    destination_refused(&cluster->guardrails, refs->items[i], own ? d : NULL));
	}
	report_names(v, "", "destinationRefs", &row);
}

/* The destinations that the config itself defines. */
static void clamp_own(const struct cluster_config *cluster, const struct namespace_config *n,
		      struct policy_verdict *v)
{
	struct policy_clamp row = {.field = ""};

	for (size_t i = 0; i < n->n_destinations; i++) {
		const struct destination *d = &n->destinations[i];

		clamp_name(&row, d->name, destination_refused(&cluster->guardrails, d->name, d));
	}
	report_names(v, "", "destinations", &row);
}

void clamps_of_namespace(const struct cluster_config *cluster, const struct namespace_config *n,
			 struct policy_verdict *v)
{
	clamp_profile(&cluster->guardrails, &n->profile, "", v);
	clamp_refs(cluster, n, v);
	clamp_own(cluster, n, v);
}

void clamps_of_cluster(const struct cluster_config *cluster, struct policy_verdict *v)
{
	clamp_profile(&cluster->guardrails, &cluster->defaults, "defaults.", v);
	for (size_t i = 0; i < cluster->n_groups; i++) {
		char prefix[48];

		snprintf(prefix, sizeof(prefix), "nodeGroups[%zu].", i);
		clamp_hz(&cluster->guardrails, cluster->groups[i].hz, prefix, v);
	}
}
