/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report describes the state at the moment when it is sent; nothing is stored for it. A tracer
 * that this version does not have is reported as unavailable even when it is asked for: otherwise
 * people would wait for frames that never come. A runtime's tracer is loaded when it is asked for;
 * if the node has only unsupported versions of the runtime, the reason names one.
 */
#include "agent/report.h"

#include "agent/probes/probes.h"
#include "lib/metrics.h"

static bool add_runtime(const struct runtimes *rt, uint32_t id, struct meta_report *ret, size_t at)
{
	struct runtime_status status;

	if (!rt || !runtimes_status(rt, id, &status) || !status.enabled)
		return false;
	ret->tracers[at].state = META_TRACER_LOADED;
	ret->tracers[at].n_versions = MIN(status.n_versions, (size_t)META_VERSIONS_MAX);
	for (size_t i = 0; i < ret->tracers[at].n_versions; i++)
		ret->tracers[at].versions[i] = status.versions[i];
	if (!status.attached_ever && status.unsupported[0])
		ret->tracers[at].reason = status.unsupported;
	return true;
}

static void add_tracers(const struct config *config, const struct runtimes *rt,
			struct meta_report *ret)
{
	for (const struct tracer *t = config->known_tracers;
	     t->name && ret->n_tracers < META_TRACERS_MAX; t++) {
		size_t at = ret->n_tracers++;

		ret->tracers[at].name = t->api_name;
		/* Native, kernel and Go frames come from the same walk, which is always done. */
		if (!t->id) {
			ret->tracers[at].state = META_TRACER_LOADED;
		} else if (add_runtime(rt, t->id, ret, at)) {
			continue;
		} else if (!(config->receiver.tracers & 1U << t->id)) {
			ret->tracers[at].state = META_TRACER_DISABLED;
			ret->tracers[at].reason = "not asked for";
		} else {
			ret->tracers[at].state = META_TRACER_UNAVAILABLE;
			ret->tracers[at].reason = "this version of the agent has none";
		}
	}
}

struct exporter_filling {
	struct meta_report *report;
	struct report_texts *texts;
};

static void add_exporter(const char *id, bool healthy, const char *error, void *arg)
{
	struct exporter_filling *f = arg;
	size_t at = f->report->n_exporters;

	if (at == META_EXPORTERS_MAX)
		return;
	snprintf(f->texts->names[at], REPORT_TEXT_MAX, "%s", id);
	snprintf(f->texts->errors[at], REPORT_TEXT_MAX, "%s", error);
	f->report->exporters[at].destination = f->texts->names[at];
	f->report->exporters[at].error = f->texts->errors[at];
	f->report->exporters[at].healthy = healthy;
	f->report->n_exporters++;
}

static void add_policy(uint64_t id, uint32_t containers, void *arg)
{
	struct meta_report *r = arg;

	if (r->n_policies == META_POLICIES_MAX)
		return;
	r->policies[r->n_policies].id = id;
	r->policies[r->n_policies++].containers = containers;
}

static void add_budget(const struct governor *g, uint32_t cpu, struct meta_report *ret)
{
	size_t at;

	ret->budget.cpu = cpu;
	if (!cpu)
		return;
	ret->budget.policies = (uint32_t)g->n;
	ret->budget.detail = g->detail;
	ret->budget.exhausted = g->exhausted;
	for (size_t i = 0; i < g->n; i++) {
		const struct governor_policy *p = &g->policies[i];

		if (p->hz == p->asked_hz)
			continue;
		at = ret->budget.n_cut++;
		if (at >= META_CUT_MAX)
			continue;
		ret->budget.cut[at].id = p->id;
		ret->budget.cut[at].hz = p->asked_hz;
		ret->budget.cut[at].hz_now = p->hz;
		ret->budget.cut[at].since_s = p->since_s;
	}
}

static void add_counters(struct sampler *sampler, struct meta_report *ret)
{
	/* Losses on the whole way from the kernel to a receiver; losses in the ring are in the
	 * kernel's counters. */
	static const enum metric_id drops[] = {
	    M_DROPPED_MALFORMED,      M_DROPPED_WINDOW_FULL,   M_DROPPED_NO_MEMORY,
	    M_EXPORT_SAMPLES_DROPPED, M_OTLP_OVERSIZE_SAMPLES, M_TEXT_DROPPED,
	    M_PPROF_FILE_DROPPED,     M_FOLDED_FILE_DROPPED,   M_SAMPLES_NO_DESTINATION};
	struct sampler_stats kernel;

	sampler_read_stats(sampler, &kernel);
	ret->dropped = kernel.counts[KILN_STAT_RING_FULL] + kernel.counts[KILN_STAT_SHED_SAMPLE];
	for (size_t i = 0; i < ARRAY_SIZE(drops); i++)
		ret->dropped += (uint64_t)metric_get(drops[i]);
	ret->samples = (uint64_t)metric_get(M_SAMPLES);
	ret->truncated = (uint64_t)metric_get(M_SAMPLES_INCOMPLETE);
	ret->exported = (uint64_t)metric_get(M_EXPORT_SAMPLES_SENT);
}

static void add_probes(const struct probes *probes, struct meta_report *ret)
{
	for (size_t i = 0; probes && i < probes_count(probes) && i < META_PROBES_MAX; i++) {
		struct probe_status s;

		probes_status(probes, i, &s);
		ret->probes[i].name = s.name;
		ret->probes[i].reason = s.reason;
		ret->n_probes = i + 1;
	}
}

void report_fill(const struct report_sources *from, struct report_texts *texts,
		 struct meta_report *ret)
{
	struct exporter_filling filling = {ret, texts};

	add_counters(from->sampler, ret);
	add_tracers(from->config, from->runtimes, ret);
	router_each(from->router, add_exporter, &filling);
	add_probes(from->probes, ret);
	if (from->policies)
		policies_applied(from->policies, add_policy, ret);
	if (from->governor)
		add_budget(from->governor, from->cpu_budget, ret);
}

uint64_t report_word(const struct meta_report *r)
{
	uint64_t h = r->n_exporters;

	for (size_t i = 0; i < r->n_exporters; i++) {
		h = hash_bytes(r->exporters[i].destination, strlen(r->exporters[i].destination), h);
		h ^= r->exporters[i].healthy;
	}
	for (size_t i = 0; i < r->n_probes; i++)
		h = mix64(h ^ !r->probes[i].reason);
	for (size_t i = 0; i < r->n_policies; i++)
		h = mix64(h ^ r->policies[i].id);
	/* Hashes which policies are cut and which are left out, but not by how much: that changes
	 * often. */
	for (size_t i = 0; i < MIN(r->budget.n_cut, (uint32_t)META_CUT_MAX); i++)
		h = mix64(h ^ r->budget.cut[i].id ^ !r->budget.cut[i].hz_now);
	return mix64(h ^ r->budget.n_cut ^ (uint64_t)r->budget.exhausted << 32);
}
