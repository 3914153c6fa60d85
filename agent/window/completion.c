/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that lack something: their process or its mappings (discovery.h provides them), or a
 * table for the walk (table_compiler.h, code_reader.h). A copy of the sample waits for it
 * (waiting.h); when it is there, the sample is completed, or waits for the next missing thing. If
 * there is no room to wait, the sample is counted with the frames that it has, as incomplete.
 *
 * No sample is dropped because a name or a table is missing; only full tables lose samples, and
 * each loss has its counter.
 */
#include "agent/window/intake_internal.h"

#include "agent/window/warm.h"
#include "lib/metrics.h"

static struct waiting_key key_of_program(uint32_t tgid, uint64_t exec_id)
{
	return (struct waiting_key){.id = exec_id, .kind = WAITING_PROCESS, .number = tgid};
}

/* The key is the slot of the image's content, because another image may cause its table to be made.
 * Until the slot is known, it is the image itself. */
static struct waiting_key key_of_table(const struct stored_image *image, uint32_t slot)
{
	if (slot == UNWIND_SLOT_UNKNOWN)
		return (struct waiting_key){.id = (uintptr_t)image, .kind = WAITING_IMAGE};
	return (struct waiting_key){.kind = WAITING_TABLE, .number = slot};
}

static bool wait_for_program(struct intake *in, const struct kiln_sample *record,
			     struct process *process, struct mapset *mapset)
{
	return waiting_add(&in->waiting, key_of_program(record->tgid, record->exec_id), record,
			   process, mapset);
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* Requests what the walk lacks: the table, or the rule for code that was not read yet. False: it
 * will not come. */
static bool want_rule(struct intake *in, const struct kiln_sample *record,
		      const struct mapset *mapset, const struct finish_result *f)
{
	if (unwind_store_state(in->unwind, f->wanted, monotonic_ms()) == UNWIND_LOADED)
		return code_reader_want(in->code, f->wanted, f->wanted_vaddr, f->wanted_pc, mapset,
					record);
	return table_compiler_want(in->tables, f->wanted);
}

/* Requests what the walk F of RECORD lacks. True: a copy of RECORD waits for it. */
static bool wait_for_rest(struct intake *in, const struct kiln_sample *record,
			  struct process *process, struct mapset *mapset,
			  const struct finish_result *f)
{
	if (in->giving_up)
		return false;
	if (f->end == KILN_END_NO_MAPPING)
		return discovery_ask_more(in->discovery, record, mapset) &&
		       wait_for_program(in, record, process, mapset);
	if (f->end != KILN_END_NO_TABLE || !f->wanted || !want_rule(in, record, mapset, f))
		return false;
	return waiting_add(&in->waiting, key_of_table(f->wanted, f->wanted->slot), record, process,
			   mapset);
}

void intake_complete(struct intake *in, const struct kiln_sample *record, struct process *process,
		     struct mapset *mapset)
{
	const struct kernel_memory *memory = sampler_memory(in->sampler);
	uint32_t depth = in->config->receiver.max_stack_depth;
	struct finish_result *f = &in->finish;
	struct mapset *newer;

	finish_walk(memory, mapset, record, depth, f);
	if (f->end == KILN_END_NO_MAPPING) {
		newer = discovery_mapset(in->discovery, record);
		if (newer && newer != mapset) {
			mapset = newer;
			finish_walk(memory, mapset, record, depth, f);
		}
	}
	if (!wait_for_rest(in, record, process, mapset, f))
		intake_count(in, record, process, mapset, f->end, f->words, f->n);
}

/*
 * Whether RECORD was walked by another mapset than MAPSET, which is the right one, and met code
 * that was exchanged meanwhile. The rules of the old code may even seem to have reached the root,
 * so the frames beyond the first such frame are cut off and the stack is incomplete. True: cut to
 * *RET_N words.
 */
static bool cut_exchanged(struct intake *in, const struct kiln_sample *record,
			  const struct mapset *mapset, uint32_t *ret_n)
{
	const struct mapset *walked = mapset_store_find(in->mapsets, record->mapset);
	uint32_t i;

	if (!walked || walked == mapset)
		return false;
	i = mapset_first_exchanged(walked, mapset, record->words + record->n_kernel,
				   record->n_user);
	/* A walk that stopped at that very frame is continued there, by the right mapset. */
	if (i == record->n_user || (i + 1 == record->n_user && record->dump_len))
		return false;
	*ret_n = i + 1;
	return true;
}

/* Takes RECORD, whose process and mapset (NULL: there is none) are known. */
static void take_known(struct intake *in, const struct kiln_sample *record, struct process *process,
		       struct mapset *mapset)
{
	uint32_t n = record->n_user;

	if (intake_is_unselected(in, record, process))
		return;
	if (mapset && cut_exchanged(in, record, mapset, &n))
		intake_count(in, record, process, mapset, KILN_END_NO_MAPPING,
			     record->words + record->n_kernel, n);
	else if (mapset && record->dump_len)
		intake_complete(in, record, process, mapset);
	else
		intake_count(in, record, process, mapset, (enum kiln_end)record->end,
			     record->words + record->n_kernel, n);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* The main program is the first file that a process maps. */
static const char *main_image_path(const struct mapset *m)
{
	for (uint32_t i = 0; m && i < m->n; i++)
		if (m->ranges[i].image)
			return m->ranges[i].image->path;
	return "";
}

static bool is_filtered(const struct intake *in, const struct process_info *info)
{
	return in->filter && regexec(&in->process_filter, info->executable_name, 0, NULL, 0) &&
	       regexec(&in->process_filter, info->comm, 0, NULL, 0);
}

/*
 * The sample's own cgroup is more reliable than /proc, where the process may be gone or have moved:
 * an exiting process is in the root of each v1 hierarchy there (Linux 6.18, kernel/cgroup/cgroup.c,
 * proc_cgroup_show()). So no container in /proc does not mean that there was none.
 */
static void set_container(struct intake *in, struct process *process, uint64_t cgroup)
{
	const struct container_identity *c = NULL;

	if (in->container_of_cgroup)
		c = in->container_of_cgroup(cgroup, in->container_arg);
	if (c && (c->pod_uid[0] || c->container_id[0]))
		process->info.container = *c;
	process->unplaced = in->container_of_cgroup && !c && !process->info.container.pod_uid[0] &&
			    !process->info.container.container_id[0];
}

/*
 * The process of RECORD. If it is new, it is made from INFO; INFO_ERROR says why INFO is NULL.
 * -EAGAIN: INFO will come later, and a separate entry stands in until then. NULL: no room, which is
 * counted.
 */
static struct process *get_process(struct intake *in, const struct kiln_sample *record,
				   const struct mapset *mapset, const struct process_info *info,
				   int info_error)
{
	struct process_key key = {
	    .start_time = record->start_time,
	    .exec_id = record->exec_id,
	    .cgroup = record->cgroup,
	    .tgid = record->tgid,
	};
	struct process *process = process_table_find(in->processes, &key, in->window->number);

	if (!process && !info && info_error == -EAGAIN) {
		key.stand_in = 1;
		process = process_table_find(in->processes, &key, in->window->number);
	}
	if (process)
		return process;
	if (process_table_add(in->processes, &key, info, info_error, record->comm,
			      main_image_path(mapset), in->window->number, &process) < 0) {
		metric_add(M_DROPPED_NO_MEMORY, 1);
		return NULL;
	}
	process->kernel_thread = record->flags & KILN_SAMPLE_KTHREAD;
	set_container(in, process, record->cgroup);
	process->ignored = is_filtered(in, &process->info);
	return process;
}

/* Kernel threads have no files and no memory of their own: their entries in /proc can be read at
 * once. */
static struct process *get_kernel_thread(struct intake *in, const struct kiln_sample *record)
{
	_cleanup_(process_info_done) struct process_info info = {};
	int r = process_info_read(in->proc_dirfd, record->tgid, &info);

	/* The thread has ended, and another one or a process has got its pid. */
	if (r == 0 && info.start_ticks != record->start_time / KILN_TICK_NS)
		r = -ESRCH;
	return get_process(in, record, NULL, r < 0 ? NULL : &info, r);
}

void intake_discover(struct intake *in, const struct kiln_sample *record, struct process *process,
		     struct mapset *mapset)
{
	struct mapset *now = NULL;

	if (record->flags & KILN_SAMPLE_KTHREAD) {
		process = get_kernel_thread(in, record);
		if (process)
			take_known(in, record, process, NULL);
		return;
	}
	/* An earlier sample of the same process may have obtained the right mapset since. */
	now = mapset && discovery_holds(in->discovery, record, mapset)
		  ? mapset
		  : discovery_mapset(in->discovery, record);
	if (process && now) {
		take_known(in, record, process, now);
		return;
	}
	if (!in->giving_up && discovery_ask(in->discovery, record, now != NULL) == 0 &&
	    wait_for_program(in, record, process, mapset))
		return;
	if (!process)
		process = get_process(in, record, mapset, NULL, -EAGAIN);
	if (process)
		take_known(in, record, process, now ? now : mapset);
}

/* ---- answers --------------------------------------------------------------------------------- */

/*
 * Has the tables of some files made before a sample needs them: files of runtimes at the agent's
 * start; and all files of a process that publishes labels, because any of them may have the
 * variable that holds the labels.
 */
static void warm_tables(struct intake *in, const struct mapset *m)
{
	uint32_t left = WARM_FILES_MAX;

	for (uint32_t i = 0; i < m->n && left; i++) {
		struct stored_image *image = m->ranges[i].image;

		if (!image || !image->image)
			continue;
		if (m->has_context ||
		    (in->warming && warm_is_runtime(image->path, runtime_table))) {
			(void)table_compiler_want(in->tables, image);
			left--;
		}
	}
}

void intake_on_answer(const struct discovery_answer *answer, void *arg)
{
	struct intake *in = arg;
	struct waiting *w, *next,
	    *first = waiting_take(&in->waiting, key_of_program(answer->tgid, answer->exec_id));

	if (answer->mapset)
		warm_tables(in, answer->mapset);
	for (w = first; w; w = next) {
		struct mapset *mapset = answer->mapset;
		struct process *process = w->process;

		next = w->next;
		if (!mapset)
			mapset = discovery_mapset(in->discovery, &w->record);
		if (!mapset)
			mapset = w->mapset;
		if (!process)
			process =
			    get_process(in, &w->record, mapset, answer->info, answer->info_error);
		if (process)
			take_known(in, &w->record, process, mapset);
		waiting_free(w);
	}
}

static void complete_all(struct intake *in, struct waiting *first)
{
	struct waiting *w, *next;

	for (w = first; w; w = next) {
		next = w->next;
		if (w->process && w->mapset)
			take_known(in, &w->record, w->process, w->mapset);
		else
			intake_discover(in, &w->record, w->process, w->mapset);
		waiting_free(w);
	}
}

void intake_on_table(const struct stored_image *image, uint32_t slot, void *arg)
{
	struct intake *in = arg;

	complete_all(in, waiting_take(&in->waiting, key_of_table(image, UNWIND_SLOT_UNKNOWN)));
	complete_all(in, waiting_take(&in->waiting, key_of_table(image, slot)));
	code_reader_start(in->code);
}

void intake_give_up(struct intake *in, struct window *w)
{
	in->window = w;
	in->giving_up = true;
	table_compiler_stop(in->tables);
	code_reader_stop(in->code);
	complete_all(in, waiting_take_all(&in->waiting));
}
