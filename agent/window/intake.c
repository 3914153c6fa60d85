/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record is complete when it comes, or it carries the stack's bytes ("dump"). Those are completed
 * here: at once when mappings and tables are there by now, else the record is copied and waits
 * (waiting.h) until the table that it lacks is compiled (in the thread pool). Where there is no
 * room to wait a sample is taken with the frames that it has and counted as incomplete.
 *
 * No sample is ever thrown away for lack of a name or a table; only full tables lose samples, and
 * each loss has its counter.
 */
#include "agent/window/intake.h"

#include <fcntl.h>
#include <regex.h>
#include <time.h>

#include "agent/sampler/finisher.h"
#include "agent/sampler/recheck.h"
#include "agent/sampler/sideband.h"
#include "agent/window/code_reader.h"
#include "agent/window/runtime_frames.h"
#include "agent/window/table_compiler.h"
#include "agent/window/waiting.h"
#include "agent/window/wall_clock.h"
#include "agent/window/warm.h"
#include "lib/log.h"
#include "lib/metrics.h"

enum {
	/* What was not seen again, but may be: a process costs a few reads of /proc to describe it
	 * again, a stack nothing, and there are many more of them. */
	PROCESSES_KEEP_MS = 60000,
	STACKS_KEEP_MS = 20000,
	IMAGES_MAX = 16384,	/* files at once: 500 containers of 20 libraries are 10,000 */
	IMAGES_KEEP_MS = 30000, /* open files that no process maps */
	REREAD_MIN_MS = 20,	/* between two readings of one process's maps, at first */
	REREAD_MAX_MS = 10000,
};

struct intake {
	const struct config *config;
	struct sampler *sampler;
	int proc_dirfd;
	struct image_store *images;
	struct unwind_store *unwind;
	struct mapset_store *mapsets;
	struct runtimes *runtimes;
	struct runtime_frames *runtime_frames;
	struct sideband *sideband;
	struct recheck *recheck;
	struct process_table *processes;
	struct stack_table *stacks;
	struct window *window; /* where samples go now */
	struct waiting_list waiting;
	struct code_reader *code;
	struct table_compiler *tables;
	enum memory_pressure pressure;
	bool filter;
	regex_t process_filter;
	struct wall_clock wall_clock;
	struct finish_result finish;
	const struct container_identity *(*container_of_cgroup)(uint64_t cgroup, void *arg);
	void *container_arg;
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static uint64_t now_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

static void on_image_drop(struct stored_image *image, void *arg)
{
	struct intake *in = arg;

	unwind_store_remove(in->unwind, image, now_ms());
}

static bool on_mapped(const struct sideband_mapping *m, void *arg)
{
	struct intake *in = arg;

	return mapset_store_mapped(in->mapsets, m);
}

static void on_mappings_lost(uint64_t since_ns, void *arg)
{
	struct intake *in = arg;

	recheck_lost(in->recheck, since_ns, clock_ns(CLOCK_MONOTONIC));
}

static void retry_waiting(struct intake *in);

static void tables_changed(void *arg)
{
	retry_waiting(arg);
}

static void renumber_mappings(void *arg)
{
	struct intake *in = arg;

	mapset_store_renumber(in->mapsets);
}

static int start_runtimes(struct intake *in)
{
	struct runtimes_options options = {
	    .table = runtime_table,
	    .tracers = in->config->receiver.tracers,
	    .memory = sampler_memory(in->sampler),
	    .mapsets = in->mapsets,
	    .source = {.proc_dirfd = in->proc_dirfd},
	};
	int r = runtimes_new(&options, &in->runtimes);

	return r < 0 ? r : runtime_frames_new(in->runtimes, &in->runtime_frames);
}

static int start_readers(struct intake *in, uv_loop_t *loop)
{
	struct table_compiler_options options = {
	    .loop = loop,
	    .images = in->images,
	    .unwind = in->unwind,
	    .runtimes = in->runtimes,
	    .tracers = in->config->receiver.tracers,
	    .renumber = renumber_mappings,
	    .changed = tables_changed,
	    .arg = in,
	};
	int r = table_compiler_new(&options, &in->tables);

	return r < 0 ? r
		     : code_reader_new(loop, sampler_memory(in->sampler), in->images, in->unwind,
				       tables_changed, in, &in->code);
}

int intake_new(const struct config *config, struct sampler *sampler, uv_loop_t *loop,
	       struct intake **ret, struct error *err)
{
	_cleanup_(intake_freep) struct intake *in = calloc(1, sizeof(*in));
	struct sideband_callbacks callbacks = {on_mapped, on_mappings_lost, in};
	int r = -ENOMEM;

	if (!in)
		return error_set(err, -ENOMEM, "out of memory");
	in->config = config;
	in->sampler = sampler;
	in->wall_clock.now_ns = clock_ns;
	wall_clock_read(&in->wall_clock);
	in->proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (in->proc_dirfd < 0)
		return error_set(err, -errno, "cannot open /proc: %m");
	if (config->receiver.process_filter) {
		if (regcomp(&in->process_filter, config->receiver.process_filter,
			    REG_EXTENDED | REG_NOSUB))
			return error_set(err, -EINVAL, "process_filter: not a regular expression");
		in->filter = true;
	}
	r = unwind_store_new(sampler_memory(sampler), &in->unwind);
	if (!r)
		r = image_store_new(IMAGES_MAX, on_image_drop, in, &in->images);
	if (!r)
		r = mapset_store_new(sampler_memory(sampler), in->images, in->unwind, &in->mapsets);
	if (!r)
		r = recheck_new(&in->recheck);
	if (!r)
		r = start_runtimes(in);
	if (!r)
		r = start_readers(in, loop);
	if (!r)
		r = process_table_new(&in->processes);
	if (!r)
		r = stack_table_new(&in->stacks);
	if (r < 0)
		return error_set(err, r, "cannot set up the stores: %s", strerror(-r));
	r = sideband_new(loop, &callbacks, &in->sideband, err);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(in);
	return 0;
}

void intake_stop(struct intake *in)
{
	if (in)
		in->sideband = sideband_free(in->sideband);
}

struct intake *intake_free(struct intake *in)
{
	if (!in)
		return NULL;
	intake_stop(in);
	while (in->waiting.first)
		waiting_free(waiting_take(&in->waiting));
	stack_table_free(in->stacks);
	process_table_free(in->processes);
	runtime_frames_free(in->runtime_frames);
	code_reader_free(in->code);
	table_compiler_free(in->tables);
	runtimes_free(in->runtimes);
	recheck_free(in->recheck);
	mapset_store_free(in->mapsets);
	image_store_free(in->images);
	unwind_store_free(in->unwind);
	if (in->filter)
		regfree(&in->process_filter);
	if (in->proc_dirfd >= 0)
		close(in->proc_dirfd);
	free(in);
	return NULL;
}

/* ---- counting -------------------------------------------------------------------------------- */

static void count_end(enum kiln_end end)
{
	/* One row a reason, in the order of enum kiln_end. */
	metric_add((enum metric_id)(M_UNWIND_END_NONE + (int)end), 1);
	if (end == KILN_END_DEPTH)
		metric_add(M_STACKS_TRUNCATED, 1);
	if (end != KILN_END_NONE && end != KILN_END_ROOT)
		metric_add(M_SAMPLES_INCOMPLETE, 1);
}

/* Whom the table's room is charged to: the process where cgroups are not asked for. */
static uint64_t owner_of(const struct kiln_sample *record)
{
	return record->cgroup ? record->cgroup : 1ULL << 63 | record->tgid;
}

/* Puts one finished sample into the window. */
static void account(struct intake *in, const struct kiln_sample *record, struct process *process,
		    struct mapset *mapset, enum kiln_end end, const uint64_t *user, uint32_t n_user)
{
	struct window_sample s = {
	    .process = process,
	    .tid = record->tid,
	    .policy = record->policy,
	    .origin = (enum kiln_origin)record->origin,
	    .comm = record->comm,
	    .value = record->value,
	    .period = record->period,
	    .label = record->label,
	    .time_unix_ns = wall_clock_unix_ns(&in->wall_clock, record->time),
	};
	int r;

	count_end(end);
	/* It may have waited since the window of its record. */
	process->last_window = in->window->number;
	r = stack_table_get(in->stacks, owner_of(record), mapset, end, record->words,
			    record->n_kernel, user, (uint16_t)n_user, in->window->number, &s.stack);
	if (!r && s.stack->runtimes[0].id)
		runtime_frames_see(in->runtime_frames, s.stack, mapset, record->tgid,
				   in->window->number, clock_ns(CLOCK_MONOTONIC));
	if (!r)
		r = window_add(in->window, &s);
	if (r < 0)
		metric_add(r == -ENOMEM	   ? M_DROPPED_NO_MEMORY
			   : r == -EBADMSG ? M_DROPPED_MALFORMED
					   : M_DROPPED_WINDOW_FULL,
			   1);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void finish_sample(struct intake *in, const struct kiln_sample *record,
			  struct process *process, struct mapset *mapset, bool may_wait);

/* Tries every sample that waits; those that need another table wait on. */
static void retry_waiting(struct intake *in)
{
	struct waiting_list list = in->waiting;
	struct waiting *wait;

	in->waiting = (struct waiting_list){};
	while ((wait = waiting_take(&list))) {
		finish_sample(in, &wait->record, wait->process, wait->mapset, true);
		waiting_free(wait);
	}
	code_reader_start(in->code);
}

/* The kernel does not know the process yet, so its mapset goes again if no sample comes. */
static void warm_process(uint32_t pid, void *arg)
{
	struct intake *in = arg;
	struct mapset *m;

	runtimes_asked(in->runtimes, in->config->receiver.tracers);
	if (mapset_store_read(in->mapsets, in->proc_dirfd, pid, 0, 0, clock_ns(CLOCK_MONOTONIC),
			      &m) < 0)
		return;
	for (uint32_t i = 0; i < m->n; i++) {
		struct stored_image *image = m->ranges[i].image;

		if (image && image->image && warm_is_runtime(image->path, runtime_table))
			(void)table_compiler_want(in->tables, image);
	}
}

void intake_warm(struct intake *in)
{
	const struct receiver_config *c = &in->config->receiver;

	if (!runtimes_any(in->runtimes))
		return;
	warm_scan(in->proc_dirfd, c->pids, c->n_pids, runtime_table, warm_process, in);
}

/* ---- completing ------------------------------------------------------------------------------ */

/* The mappings of the program of RECORD, with the runtimes that its policy asks for. */
static int read_mappings(struct intake *in, const struct kiln_sample *record, uint64_t now_ns,
			 struct mapset **ret)
{
	runtimes_asked(in->runtimes, record->runtimes);
	return mapset_store_read(in->mapsets, in->proc_dirfd, record->tgid, record->start_time,
				 record->exec_id, now_ns, ret);
}

/*
 * Reads the maps of the process again when that may tell more than MAPSET. New code is announced by
 * the kernel (sideband.h), so this seldom helps: each time the next one is further away.
 */
static struct mapset *reread_maps(struct intake *in, const struct kiln_sample *record,
				  const struct mapset *mapset)
{
	struct mapset *fresh;
	uint64_t now = clock_ns(CLOCK_MONOTONIC), wait;

	if (mapset->read_ns > record->time || now < mapset->reread_ns)
		return NULL;
	if (read_mappings(in, record, now, &fresh) < 0)
		return NULL;
	wait = MAX(mapset->reread_wait_ns * 2, REREAD_MIN_MS * 1000000ULL);
	fresh->reread_wait_ns = MIN(wait, REREAD_MAX_MS * 1000000ULL);
	fresh->reread_ns = now + fresh->reread_wait_ns;
	return fresh;
}

/* What the walk lacks will be there: the table, or the rule for code that was not read yet. */
static bool want_rule(struct intake *in, const struct kiln_sample *record,
		      const struct mapset *mapset, const struct finish_result *f)
{
	if (unwind_store_state(in->unwind, f->wanted, now_ms()) == UNWIND_LOADED)
		return code_reader_want(in->code, f->wanted, f->wanted_vaddr, f->wanted_pc, mapset,
					record);
	return table_compiler_want(in->tables, f->wanted);
}

static void finish_sample(struct intake *in, const struct kiln_sample *record,
			  struct process *process, struct mapset *mapset, bool may_wait)
{
	struct finish_result *f = &in->finish;
	struct mapset *fresh;

	finish_walk(sampler_memory(in->sampler), mapset, record,
		    in->config->receiver.max_stack_depth, f);
	if (f->end == KILN_END_NO_MAPPING && (fresh = reread_maps(in, record, mapset))) {
		mapset = fresh;
		finish_walk(sampler_memory(in->sampler), mapset, record,
			    in->config->receiver.max_stack_depth, f);
	}
	if (f->end == KILN_END_NO_TABLE && f->wanted && may_wait &&
	    want_rule(in, record, mapset, f) && waiting_add(&in->waiting, record, process, mapset))
		return;
	account(in, record, process, mapset, f->end, f->words, f->n);
}

/* ---- records --------------------------------------------------------------------------------- */

/* The mapset that the kernel walks the program of RECORD by now; NULL: none. */
static struct mapset *mapset_in_force(struct intake *in, const struct kiln_sample *record)
{
	const struct kernel_memory *memory = sampler_memory(in->sampler);
	struct kiln_process entry;

	if (memory->get_process(memory->arg, record->tgid, &entry) < 0 || !entry.mapset ||
	    entry.exec_id != record->exec_id)
		return NULL;
	return mapset_store_find(in->mapsets, entry.mapset);
}

/* The mapset of a process that the kernel did not know when it took the sample. */
static struct mapset *learn_mappings(struct intake *in, const struct kiln_sample *record)
{
	/* An earlier record of the same process may have brought them by now. */
	struct mapset *m = mapset_in_force(in, record);

	if (m)
		return m;
	if (read_mappings(in, record, clock_ns(CLOCK_MONOTONIC), &m) < 0)
		return NULL;
	return m;
}

/* Notes of its mappings may have been lost since they were read. */
static void recheck_mappings(struct intake *in, const struct kiln_sample *record)
{
	const struct mapset *m = mapset_store_find(in->mapsets, record->mapset);
	uint64_t now = clock_ns(CLOCK_MONOTONIC), since;

	if (!m || !recheck_due(in->recheck, record->tgid, m->read_ns, now, &since))
		return;
	runtimes_asked(in->runtimes, record->runtimes);
	/* A process that is gone keeps what it had. */
	(void)mapset_store_check(in->mapsets, in->proc_dirfd, record->tgid, m, since, now);
}

/*
 * The mapset that the kernel walked by, or, when the process had exchanged a library by then and we
 * had not told the kernel yet, the one that holds since. When it only has more code, that is for
 * the samples to come, and for a walk that left what was known.
 */
static struct mapset *current_mapset(struct intake *in, const struct kiln_sample *record)
{
	struct mapset *fresh = NULL;

	recheck_mappings(in, record);
	if (mapset_store_is_stale(in->mapsets, record->tgid, record->mapset) &&
	    read_mappings(in, record, clock_ns(CLOCK_MONOTONIC), &fresh) < 0)
		return mapset_store_find(in->mapsets, record->mapset);
	fresh = NULL;
	if (mapset_store_was_outdated(in->mapsets, record->tgid, record->mapset, record->time))
		fresh = learn_mappings(in, record);
	else if (record->end == KILN_END_NO_MAPPING)
		fresh = mapset_in_force(in, record);
	return fresh ? fresh : mapset_store_find(in->mapsets, record->mapset);
}

/*
 * The frames of RECORD, of which MAPSET may be another mapset than it was walked by: a walk through
 * code by the rules of the code that was there before may even seem to have reached the root. What
 * lies above such a frame is cut off, and the stack is incomplete. True: cut.
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
	/* A walk that stands on that very frame is taken up there, by what holds now. */
	if (i == record->n_user || (i + 1 == record->n_user && record->dump_len))
		return false;
	*ret_n = i + 1;
	return true;
}

/* The main program is the first file that a process maps. */
static const char *main_image_path(const struct mapset *m)
{
	for (uint32_t i = 0; m && i < m->n; i++)
		if (m->ranges[i].image)
			return m->ranges[i].image->path;
	return "";
}

/* The sample's own cgroup tells better than /proc, where the process may be gone or elsewhere. */
static void set_container(struct intake *in, struct process *process, uint64_t cgroup)
{
	const struct container_identity *c = in->container_of_cgroup(cgroup, in->container_arg);

	if (c)
		process->info.container = *c;
}

static void consume_record(const struct kiln_sample *record, void *arg)
{
	struct intake *in = arg;
	struct process_key key;
	struct mapset *mapset = NULL;
	struct process *process;
	bool kernel_thread = record->flags & KILN_SAMPLE_KTHREAD, is_new;
	uint32_t n_user = record->n_user;

	if (record->end >= KILN_END_COUNT || record->origin >= KILN_ORIGIN_COUNT ||
	    record->n_kernel > KILN_MAX_KERNEL_FRAMES || record->n_user > KILN_MAX_USER_WORDS) {
		metric_add(M_DROPPED_MALFORMED, 1);
		return;
	}
	metric_add(M_SAMPLES, 1);
	if (record->mapset)
		mapset = current_mapset(in, record);
	else if (!kernel_thread)
		mapset = learn_mappings(in, record);
	memset(&key, 0, sizeof(key));
	key.tgid = record->tgid;
	key.start_time = record->start_time;
	key.exec_id = record->exec_id;
	key.cgroup = record->cgroup;
	if (process_table_get(in->processes, in->proc_dirfd, &key, record->comm,
			      main_image_path(mapset), kernel_thread, in->window->number, &process,
			      &is_new) < 0) {
		metric_add(M_DROPPED_NO_MEMORY, 1);
		return;
	}
	if (is_new && in->container_of_cgroup)
		set_container(in, process, record->cgroup);
	if (is_new && in->filter &&
	    regexec(&in->process_filter, process->info.executable_name, 0, NULL, 0) &&
	    regexec(&in->process_filter, process->info.comm, 0, NULL, 0))
		process->ignored = true;
	if (process->ignored) {
		(void)sampler_ignore_process(in->sampler, record->tgid);
		metric_add(M_SAMPLES_UNSELECTED, 1);
		return;
	}
	if (mapset && cut_exchanged(in, record, mapset, &n_user))
		account(in, record, process, mapset, KILN_END_NO_MAPPING,
			record->words + record->n_kernel, n_user);
	else if (record->dump_len && mapset)
		finish_sample(in, record, process, mapset, true);
	else
		account(in, record, process, mapset, (enum kiln_end)record->end,
			record->words + record->n_kernel, n_user);
}

void intake_set_containers(struct intake *in,
			   const struct container_identity *(*who)(uint64_t cgroup, void *arg),
			   void *arg)
{
	in->container_of_cgroup = who;
	in->container_arg = arg;
}

void intake_use_window(struct intake *in, struct window *w)
{
	if (in->window && in->window != w)
		runtime_frames_finish(in->runtime_frames, in->window->number);
	in->window = w;
}

bool intake_drain(struct intake *in, struct window *w)
{
	bool more;

	intake_use_window(in, w);
	wall_clock_read(&in->wall_clock);
	/* First what changed, then the samples: none is read by mappings of the past. */
	if (in->sideband)
		sideband_drain(in->sideband);
	table_compiler_tick(in->tables);
	runtime_frames_begin(in->runtime_frames, w->number);
	more = sampler_drain(in->sampler, consume_record, in);
	code_reader_start(in->code);
	return more;
}

int intake_refresh_cpus(struct intake *in, struct error *err)
{
	return in->sideband ? sideband_refresh(in->sideband, NULL, err) : 0;
}

bool intake_busy(const struct intake *in)
{
	return table_compiler_busy(in->tables) || in->waiting.first || code_reader_busy(in->code);
}

void intake_give_up(struct intake *in, struct window *w)
{
	struct waiting *wait;

	in->window = w;
	table_compiler_stop(in->tables);
	code_reader_stop(in->code);
	while ((wait = waiting_take(&in->waiting))) {
		finish_sample(in, &wait->record, wait->process, wait->mapset, false);
		waiting_free(wait);
	}
}

/* ---- forgetting ------------------------------------------------------------------------------ */

/* Tables of stacks that were seen stay; with room to spare nobody needs to know which those are. */
static void touch_tables(struct intake *in, const struct window *w)
{
	const struct kernel_memory *memory = sampler_memory(in->sampler);
	uint64_t now = now_ms();

	if (!in->pressure && !sampler_slabs_are_tight(in->sampler) &&
	    unwind_store_bytes(in->unwind) < (size_t)memory->slab_slots * KILN_SLOT_BYTES / 2)
		return;
	for (const struct count *c = w->list; c; c = c->next) {
		const struct stack *s = c->key.stack;

		const uint64_t *words = s->key.words + s->key.n_kernel;

		for (uint32_t i = 0; s->mapset && i < s->key.n_user;
		     i += kiln_frame_words(words[i])) {
			const struct mapset_range *range =
			    KILN_FRAME_KIND(words[i]) == KILN_FRAME_NATIVE
				? mapset_find(s->mapset, words[i] & KILN_FRAME_PC_MASK)
				: NULL;

			if (range && range->image)
				unwind_store_touch(in->unwind, range->image, now);
		}
	}
}

/* The window before NUMBER up to which is forgotten what is kept for KEEP_MS. */
static uint32_t forget_before(const struct intake *in, uint32_t number, uint64_t keep_ms)
{
	uint64_t interval = MAX(in->config->receiver.reporter_interval_ms, 1);

	return number - (in->pressure ? 1 : (uint32_t)(keep_ms / interval) + 2);
}

void intake_sweep(struct intake *in, const struct window *w)
{
	uint32_t processes = forget_before(in, w->number, PROCESSES_KEEP_MS);
	uint64_t now = now_ms();
	_cleanup_free_ uint32_t *named = NULL;
	size_t n = 0;

	touch_tables(in, w);
	if (in->pressure)
		unwind_store_evict_unused(in->unwind, now);
	/* What W refers to stays until the next sweep. */
	stack_table_sweep(in->stacks, forget_before(in, w->number, STACKS_KEEP_MS), w->number);
	runtime_frames_sweep(in->runtime_frames, processes);
	waiting_touch(&in->waiting, in->window->number);
	process_table_sweep(in->processes, in->proc_dirfd, processes, w->number);
	if (!sampler_named_mapsets(in->sampler, in->proc_dirfd, &named, &n))
		mapset_store_sweep(in->mapsets, named, n, now);
	image_store_sweep(in->images, now, in->pressure ? 1000 : IMAGES_KEEP_MS);
	mapset_store_trim(in->mapsets, now);
	unwind_store_trim(in->unwind, now);
}

struct runtimes *intake_runtimes(const struct intake *in)
{
	return in->runtimes;
}

void intake_set_pressure(struct intake *in, enum memory_pressure pressure)
{
	in->pressure = pressure;
	stack_table_set_full(in->stacks, pressure == PRESSURE_HARD);
}

void intake_read_stats(const struct intake *in, struct intake_stats *ret)
{
	*ret = (struct intake_stats){
	    .processes = process_table_profiled(in->processes),
	    .stacks = stack_table_count(in->stacks),
	    .stack_bytes = stack_table_bytes(in->stacks),
	    .mapsets = mapset_store_count(in->mapsets),
	    .images = image_store_count(in->images),
	    .waiting = in->waiting.n,
	    .tables = unwind_store_loaded(in->unwind),
	    .table_bytes = unwind_store_bytes(in->unwind),
	    .name_bytes = runtime_names_bytes(runtimes_names(in->runtimes)),
	};
}
