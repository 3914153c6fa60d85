/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of a sample that is known: the ring's record, its process, its mapset, whether that
 * still holds, its stack, its count (docs/architecture.md lists the functions). A sample that is
 * not known or not complete goes to intake_discover() or intake_complete().
 */
#include "agent/window/intake_internal.h"

#include "lib/metrics.h"

static void count_end(enum kiln_end end)
{
	/* One metric per reason, in the order of enum kiln_end. */
	metric_add((enum metric_id)(M_UNWIND_END_NONE + (int)end), 1);
	if (end == KILN_END_DEPTH)
		metric_add(M_STACKS_TRUNCATED, 1);
	if (end != KILN_END_NONE && end != KILN_END_ROOT)
		metric_add(M_SAMPLES_INCOMPLETE, 1);
}

/* The thread's name in its runtime; NULL: none. */
static const char *thread_name_of(struct intake *in, const struct kiln_sample *record,
				  const struct process *process, const struct mapset *mapset)
{
	const struct runtime_thread thread = {
	    .tgid = record->tgid,
	    .tid = record->tid,
	    .nested = process->info.ns_pid != record->tgid,
	    .comm = record->comm,
	    .process_comm = process->info.comm,
	};

	return runtimes_thread_name(in->runtimes, mapset, &thread, in->window->number);
}

static void count_loss(int r)
{
	if (r < 0)
		metric_add(r == -ENOMEM	   ? M_DROPPED_NO_MEMORY
			   : r == -EBADMSG ? M_DROPPED_MALFORMED
					   : M_DROPPED_WINDOW_FULL,
			   1);
}

void intake_end_wait(const struct kiln_wait_end *end, void *arg)
{
	struct intake *in = arg;

	count_loss(waits_end(in->waits, end, in->window));
}

static const struct sample_rules *rules_of(const struct intake *in,
					   const struct kiln_sample *record)
{
	return in->rules ? &in->rules[record->policy] : &in->own_rules;
}

/* The sample's labels, but only those that its policy lets leave the node. */
static struct label_set *find_labels(struct intake *in, const struct kiln_sample *record)
{
	return label_sets_find(in->labels, record->mapset, record->label,
			       rules_of(in, record)->labels, monotonic_ns());
}

void intake_count(struct intake *in, const struct kiln_sample *record, struct process *process,
		  struct mapset *mapset, enum kiln_end end, const uint64_t *user, uint32_t n_user)
{
	struct window_sample s = {
	    .bare = stack_table_bare(in->stacks),
	    .process = process,
	    .tid = record->tid,
	    .policy = record->policy,
	    .origin = (enum kiln_origin)record->origin,
	    .detail = record->detail,
	    .comm = record->comm,
	    .value = record->value,
	    .period = record->period,
	    /* Only CPU samples have a timestamp: it belongs to one counted event, not to a measured
	     * value. */
	    .timed = record->origin == KILN_ORIGIN_CPU && rules_of(in, record)->timestamps,
	    .time_unix_ns = wall_clock_unix_ns(&in->wall_clock, record->time),
	};
	int r;

	count_end(end);
	/* The sample may have waited since an earlier window. */
	process->last_window = in->window->number;
	r = stack_table_get(in->stacks, process_owner(process), mapset, end, record->words,
			    record->n_kernel, user, (uint16_t)n_user, in->window->number, &s.stack);
	if (!r && s.stack->runtimes[0].id)
		runtime_frames_see(in->runtime_frames, s.stack, mapset, record->tgid,
				   in->window->number, monotonic_ns());
	if (record->label)
		s.labels = find_labels(in, record);
	if (mapset && mapset->names_threads)
		s.thread_name = thread_name_of(in, record, process, mapset);
	if (!r)
		r = record->origin == KILN_ORIGIN_OFF_CPU
			? waits_begin(in->waits, &s, record->time, in->window)
			: window_add(in->window, &s);
	count_loss(r);
}

bool intake_is_unselected(struct intake *in, const struct kiln_sample *record,
			  const struct process *process)
{
	if (!process->ignored)
		return false;
	/* Only if the process was read from /proc: otherwise the filter was applied to a thread's
	 * or an image's name, and the process's own name may become known later. */
	if (process->known)
		(void)sampler_ignore_process(in->sampler, record->tgid, record->exec_id);
	in->unselected++;
	return true;
}

static bool is_well_formed(const struct kiln_sample *record)
{
	return record->end < KILN_END_COUNT && record->origin < KILN_ORIGIN_COUNT &&
	       record->policy < KILN_MAX_POLICIES && record->n_kernel <= KILN_MAX_KERNEL_FRAMES &&
	       record->n_user <= KILN_MAX_USER_WORDS;
}

void intake_consume(const struct kiln_sample *record, void *arg)
{
	struct intake *in = arg;
	const struct process_key key = {
	    .start_time = record->start_time,
	    .exec_id = record->exec_id,
	    .cgroup = record->cgroup,
	    .tgid = record->tgid,
	};
	struct mapset *mapset = NULL;
	struct process *process;

	if (!is_well_formed(record)) {
		metric_add(M_DROPPED_MALFORMED, 1);
		return;
	}
	metric_add(M_SAMPLES, 1);
	process = process_table_find(in->processes, &key, in->window->number);
	if (record->mapset)
		mapset = mapset_store_find(in->mapsets, record->mapset);
	/* The process was forked before its mapset was known to have labels. */
	if (mapset && mapset->has_labels && !(record->flags & KILN_SAMPLE_LABELS))
		mapset_store_mark(in->mapsets, mapset, record->tgid);
	if (!process || (!mapset && !(record->flags & KILN_SAMPLE_KTHREAD)) ||
	    (mapset && !discovery_holds(in->discovery, record, mapset))) {
		intake_discover(in, record, process, mapset);
	} else if (intake_is_unselected(in, record, process)) {
		return;
	} else if (record->dump_len && mapset) {
		intake_complete(in, record, process, mapset);
	} else {
		intake_count(in, record, process, mapset, (enum kiln_end)record->end,
			     record->words + record->n_kernel, record->n_user);
	}
}
