/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of a config that agents of this version do not support: an accepted setting takes
 * effect, or its condition says that it does not. Pure functions.
 */
#include <stdarg.h>

#include "lib/parse.h"
#include "operator/policy/merge.h"

/* The runtimes that agents of this version walk: the folders of agent/runtime/ (hack/lint
 * compares). */
static const bool has_walker[TRACER_COUNT] = {
    [TRACER_NATIVE] = true, [TRACER_GO] = true,	  [TRACER_PYTHON] = true, [TRACER_V8] = true,
    [TRACER_RUBY] = true,   [TRACER_PHP] = true,  [TRACER_PERL] = true,	  [TRACER_JVM] = true,
    [TRACER_DOTNET] = true, [TRACER_BEAM] = true, [TRACER_LUAJIT] = true,
};

static void add(struct policy_verdict *v, const char *format, ...) _printf_(2, 3);
static void add(struct policy_verdict *v, const char *format, ...)
{
	size_t n = strlen(v->ineffective), room = sizeof(v->ineffective) - n;
	va_list ap;

	if (n)
		n += (size_t)snprintf(v->ineffective + n, room, ". ");
	if (n >= sizeof(v->ineffective))
		return;
	va_start(ap, format);
	vsnprintf(v->ineffective + n, sizeof(v->ineffective) - n, format, ap);
	va_end(ap);
}

/* Native and Go frames come from the one walk that is always done. */
static bool is_always_walked(size_t tracer)
{
	return tracer == TRACER_NATIVE || tracer == TRACER_GO;
}

static void add_profile(const struct profile_spec *p, const char *path, struct policy_verdict *v)
{
	for (size_t i = 0; i < TRACER_COUNT; i++) {
		if (p->tracers[i] == TOGGLE_ENABLED && !has_walker[i])
			add(v, "%s.tracers.%s: agents of this version do not walk its stacks", path,
			    tracer_names[i]);
		if (p->tracers[i] == TOGGLE_DISABLED && is_always_walked(i))
			add(v, "%s.tracers.%s: cannot be disabled, use mode: Disabled", path,
			    tracer_names[i]);
	}
}

/* Agents keep four fifths of their container's limit: operator/render/agent_config.c. */
static void add_budget(const struct cluster_config *c, struct policy_verdict *v)
{
	const cJSON *limits = cJSON_GetObjectItemCaseSensitive(c->agent.resources, "limits");
	const char *limit =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(limits, "memory"));
	uint64_t bytes = 512ULL << 20;

	if (c->agent.resources && (!limit || parse_size(limit, &bytes) < 0))
		return;
	if ((uint64_t)c->budget.memory > bytes / 5 * 4)
		add(v, "spec.budget.memory: the memory limit of the agents' container leaves %u Mi",
		    (unsigned int)(bytes / 5 * 4 >> 20));
}

void ineffective_of_cluster(const struct cluster_config *cluster, struct policy_verdict *v)
{
	if (cluster->id.ignored)
		add(v, "Ignored: %s", cluster->id.ignored);
	add_profile(&cluster->defaults, "spec.defaults", v);
	add_budget(cluster, v);
	for (size_t i = 0; i < TRACER_COUNT; i++)
		if (cluster->guardrails.tracer_denied[i] && is_always_walked(i))
			add(v, "spec.guardrails.deniedTracers: %s cannot be disabled",
			    tracer_names[i]);
}

void ineffective_of_namespace(const struct namespace_config *c, struct policy_verdict *v)
{
	if (c->id.ignored)
		add(v, "Ignored: %s", c->id.ignored);
	add_profile(&c->profile, "spec.profile", v);
}
