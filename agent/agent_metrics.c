/* SPDX-License-Identifier: Apache-2.0 */
/* For the health extension: whether the agent is ready, and the counters of its parts. Loop thread
 * only. */
#include "agent/agent_internal.h"
#include "agent/probes/metrics.h"

bool agent_is_ready(void *arg, char *reason, size_t size)
{
	const struct agent *a = arg;
	char refusal[512];

	if (a->phase == STARTING)
		snprintf(reason, size, "the agent is starting");
	else if (a->phase != RUNNING)
		snprintf(reason, size, "the agent is ending");
	else if (!a->reported)
		snprintf(reason, size, "the first window is not over yet");
	else if (router_refused(a->router, refusal, sizeof(refusal)))
		snprintf(reason, size, "every profile is rejected: %s", refusal);
	else
		return true;
	return false;
}

void agent_refresh_metrics(void *arg)
{
	struct agent *a = arg;
	struct sampler_stats s;
	struct intake_stats in;

	sampler_read_stats(a->sampler, &s);
	intake_read_stats(a->intake, &in);
	metric_set(M_SAMPLES_UNSELECTED, (int64_t)(s.counts[KILN_STAT_SKIPPED] + in.unselected));
	metric_set(M_SAMPLES_THINNED, (int64_t)s.counts[KILN_STAT_THINNED]);
	metric_set(M_CPUS_UNSAMPLED, (int64_t)sampler_cpus_beyond(a->sampler));
	metric_set(M_RING_FULL, (int64_t)s.counts[KILN_STAT_RING_FULL]);
	metric_set(M_DROPPED_RING_FULL, (int64_t)s.counts[KILN_STAT_RING_FULL]);
	metric_set(M_DROPPED_RING_SHARE, (int64_t)s.counts[KILN_STAT_SHED_SAMPLE]);
	metric_set(M_SHED_DUMPS, (int64_t)s.counts[KILN_STAT_SHED_DUMP]);
	metric_set(M_SHED_FRAMES, (int64_t)s.counts[KILN_STAT_SHED_FRAMES]);
	metric_set(M_FRAME_CACHE_HITS, (int64_t)s.counts[KILN_STAT_CACHE_HIT]);
	metric_set(M_FRAME_CACHE_MISSES, (int64_t)s.counts[KILN_STAT_CACHE_MISS]);
	metric_set(M_PROCESSES_FULL, (int64_t)s.counts[KILN_STAT_PROCESS_FULL]);
	metric_set(M_OFF_CPU_WALKS, (int64_t)s.counts[KILN_STAT_WAITS]);
	metric_set(M_OFF_CPU_NO_SLOT, (int64_t)s.counts[KILN_STAT_WAIT_FULL]);
	metric_set(M_OFF_CPU_ENDS_LOST, (int64_t)s.counts[KILN_STAT_WAIT_END_LOST]);
	metric_set(M_OFF_CPU_WAITING, (int64_t)in.waits);
	metric_set(M_LABELS_UNREADABLE, (int64_t)s.counts[KILN_STAT_LABELS_UNREADABLE]);
	metric_set(M_LABELS_BROKEN, (int64_t)s.counts[KILN_STAT_LABELS_BROKEN]);
	metric_set(M_LABELS_CUT, (int64_t)s.counts[KILN_STAT_LABELS_CUT]);
	metric_set(M_LABELS_UNSENT, (int64_t)s.counts[KILN_STAT_LABELS_UNSENT]);
	metric_set(M_LABEL_BYTES, (int64_t)in.label_bytes);
	metric_set(M_BPF_RUNS, (int64_t)s.runs);
	metric_set(M_BPF_RUN_NS, (int64_t)s.run_ns);
	metric_set(M_BPF_MAP_BYTES, (int64_t)s.map_bytes);
	metric_set(M_IMAGES_LOADED, in.tables);
	metric_set(M_UNWIND_TABLE_BYTES, (int64_t)in.table_bytes);
	metric_set(M_PROCESSES, (int64_t)in.processes);
	metric_set(M_STACKS_INTERNED, (int64_t)in.stacks);
	metric_set(M_RUNTIME_NAME_BYTES, (int64_t)in.name_bytes);
	if (a->probes)
		probe_metrics_update(a->probes);
	metric_set(M_QUEUE_SAMPLES, (int64_t)in.waiting);
}
