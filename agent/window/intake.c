/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The beginning and the end of an intake, and what drives it: the loop's timers and the kernel's
 * notes. Samples are taken in records.c and completion.c; forgetting.c is the sweep.
 */
#include <fcntl.h>

#include "agent/window/intake_internal.h"
#include "agent/labels/rows.h"
#include "agent/window/warm.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/metrics.h"

enum { IMAGES_MAX = 16384 /* files at once: 500 containers of 20 libraries are 10,000 */ };

static void on_image_drop(struct stored_image *image, void *arg)
{
	struct intake *in = arg;

	unwind_store_remove(in->unwind, image, monotonic_ms());
}

static bool on_mapped(const struct sideband_mapping *m, void *arg)
{
	struct intake *in = arg;

	return discovery_mapped(in->discovery, m);
}

static void on_noted(const struct sideband_mapping *m, const char *path, void *arg)
{
	struct intake *in = arg;

	map_notes_mapped(in->notes, m, path);
}

static void on_executed(uint32_t tgid, uint64_t time, void *arg)
{
	struct intake *in = arg;

	map_notes_executed(in->notes, tgid, time);
	discovery_executed(in->discovery, tgid, time);
}

static void on_mappings_lost(uint64_t since_ns, void *arg)
{
	struct intake *in = arg;

	map_notes_lost(in->notes, monotonic_ns());
	discovery_lost(in->discovery, since_ns);
}

/* Handles changes before samples and answers, so that none of these is read with outdated
 * mappings. */
static void drain_sideband(void *arg)
{
	struct intake *in = arg;

	if (in->sideband)
		sideband_drain(in->sideband);
}

static void take_text(const struct kiln_text *text, void *arg)
{
	struct intake *in = arg;

	runtimes_take_text(in->runtimes, mapset_store_find(in->mapsets, text->mapset), text,
			   in->window->number);
}

static void take_labels(const struct kiln_labels *labels, size_t size, void *arg)
{
	struct intake *in = arg;

	label_sets_take(in->labels, labels, size, monotonic_ns());
}

static void renew_mapset(struct mapset *m, void *arg)
{
	struct intake *in = arg;

	discovery_renew(in->discovery, m);
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
	    .publishers = label_table,
	    .tracers = in->config->receiver.tracers,
	    .memory = sampler_memory(in->sampler),
	    .mapsets = in->mapsets,
	    .unwind = in->unwind,
	    .source = {.proc_dirfd = in->proc_dirfd},
	    .renew = renew_mapset,
	    .arg = in,
	};
	int r = runtimes_new(&options, &in->runtimes);

	sampler_on_text(in->sampler, take_text, in);
	sampler_on_wait_end(in->sampler, intake_end_wait, in);
	sampler_on_labels(in->sampler, take_labels, in);
	if (!r)
		r = label_sets_new(&options.source, &in->labels);
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
	    .changed = intake_on_table,
	    .arg = in,
	};
	int r = table_compiler_new(&options, &in->tables);

	return r < 0 ? r
		     : code_reader_new(loop, sampler_memory(in->sampler), in->images, in->unwind,
				       intake_on_table, in, &in->code);
}

static int start_discovery(struct intake *in, uv_loop_t *loop)
{
	struct discovery_of of = {
	    .loop = loop,
	    .memory = sampler_memory(in->sampler),
	    .proc_dirfd = in->proc_dirfd,
	    .images = in->images,
	    .mapsets = in->mapsets,
	    .runtimes = in->runtimes,
	    .notes = in->notes,
	    .callbacks = {drain_sideband, intake_on_answer, in},
	};

	return discovery_new(&of, &in->discovery);
}

int intake_new(const struct config *config, struct sampler *sampler, uv_loop_t *loop,
	       struct intake **ret, struct error *err)
{
	_cleanup_(intake_freep) struct intake *in = calloc(1, sizeof(*in));
	struct sideband_callbacks callbacks = {on_mapped, on_noted, on_executed, on_mappings_lost,
					       in};
	int r = -ENOMEM;

	if (!in)
		return error_set(err, -ENOMEM, "out of memory");
	in->config = config;
	in->sampler = sampler;
	in->warming = true;
	in->wall_clock.now_ns = clock_ns;
	wall_clock_read(&in->wall_clock);
	in->proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (in->proc_dirfd < 0)
		return error_set(err, -errno, "cannot open /proc: %m");
	in->own_labels = label_allow_new((const char *const *)config->receiver.labels.items,
					 config->receiver.labels.n);
	if (!in->own_labels)
		return error_set(err, -ENOMEM, "out of memory");
	in->own_rules = (struct sample_rules){in->own_labels, config->receiver.timestamps};
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
		r = start_runtimes(in);
	if (!r)
		r = start_readers(in, loop);
	if (!r)
		r = map_notes_new(&in->notes);
	if (!r)
		r = start_discovery(in, loop);
	if (!r)
		r = waits_new(&in->waits);
	if (!r)
		r = sleepers_new(loop, sampler, in->proc_dirfd, intake_consume, in, &in->sleepers);
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
	if (!in)
		return;
	in->sideband = sideband_free(in->sideband);
	in->hung_threads += discovery_stop(in->discovery);
}

static void drop_waiting(struct intake *in)
{
	struct waiting *w, *next;

	for (w = waiting_take_all(&in->waiting); w; w = next) {
		next = w->next;
		waiting_free(w);
	}
}

struct intake *intake_free(struct intake *in)
{
	if (!in)
		return NULL;
	intake_stop(in);
	drop_waiting(in);
	sleepers_free(in->sleepers);
	waits_free(in->waits);
	stack_table_free(in->stacks);
	process_table_free(in->processes);
	runtime_frames_free(in->runtime_frames);
	code_reader_free(in->code);
	table_compiler_free(in->tables);
	runtimes_free(in->runtimes);
	label_sets_free(in->labels);
	label_allow_free(in->own_labels);
	mapset_store_free(in->mapsets);
	discovery_free(in->discovery);
	map_notes_free(in->notes);
	/* Threads that hang still use these when they come back. */
	if (!in->hung_threads) {
		image_store_free(in->images);
		if (in->proc_dirfd >= 0)
			close(in->proc_dirfd);
	}
	unwind_store_free(in->unwind);
	if (in->filter)
		regfree(&in->process_filter);
	free(in);
	return NULL;
}

/* ---- driving --------------------------------------------------------------------------------- */

static void warm_process(uint32_t pid, void *arg)
{
	struct intake *in = arg;

	discovery_warm(in->discovery, pid);
}

void intake_warm(struct intake *in)
{
	const struct receiver_config *c = &in->config->receiver;

	if (!runtimes_any(in->runtimes))
		return;
	warm_scan(in->proc_dirfd, c->pids, c->n_pids, runtime_table, warm_process, in);
}

void intake_set_containers(struct intake *in,
			   const struct container_identity *(*who)(uint64_t cgroup, void *arg),
			   void *arg)
{
	in->container_of_cgroup = who;
	in->container_arg = arg;
}

static bool still_waits(void *arg, uint32_t tid, uint64_t began)
{
	return sampler_thread_waits(arg, tid, began);
}

static bool wait_due(void *arg, uint32_t tid, uint64_t now, int64_t *ret_ns, bool *ret_ended)
{
	return sampler_wait_due(arg, tid, now, ret_ns, ret_ended);
}

static void wait_told(void *arg, uint32_t tid, uint64_t ns)
{
	sampler_wait_told(arg, tid, ns);
}

/* The current window ends: counts what threads have waited so far. */
static void credit_waits(struct intake *in)
{
	const struct waits_truth truth = {wait_due, wait_told, in->sampler};

	if (waits_credit(in->waits, in->drained_ns, in->window, still_waits, in->sampler) < 0)
		metric_add(M_DROPPED_WINDOW_FULL, 1);
	waits_calibrate(in->window, in->drained_ns, &truth);
	sampler_limit_off_cpu(in->sampler, in->drained_ns);
}

struct sample_rules intake_own_rules(const struct intake *in)
{
	return in->own_rules;
}

void intake_set_rules(struct intake *in, const struct sample_rules *rules)
{
	in->rules = rules;
}

void intake_use_window(struct intake *in, struct window *w)
{
	if (in->window && in->window != w) {
		credit_waits(in);
		runtime_frames_finish(in->runtime_frames, in->window->number);
	}
	if (in->window != w)
		sleepers_look(in->sleepers);
	in->window = w;
}

bool intake_drain(struct intake *in, struct window *w)
{
	uint64_t now;
	bool more;

	in->warming = false;
	intake_use_window(in, w);
	wall_clock_read(&in->wall_clock);
	drain_sideband(in);
	table_compiler_tick(in->tables);
	runtime_frames_begin(in->runtime_frames, w->number);
	now = monotonic_ns();
	more = sampler_drain(in->sampler, intake_consume, in);
	if (!more)
		in->drained_ns = now;
	code_reader_start(in->code);
	return more;
}

bool intake_met_names(const struct intake *in)
{
	return runtime_frames_met_new(in->runtime_frames);
}

bool intake_left_names(const struct intake *in)
{
	return runtime_frames_left_names(in->runtime_frames);
}

bool intake_lost_names(const struct intake *in)
{
	return runtime_frames_lost_names(in->runtime_frames);
}

int intake_refresh_cpus(struct intake *in, struct error *err)
{
	return in->sideband ? sideband_refresh(in->sideband, NULL, err) : 0;
}

bool intake_busy(const struct intake *in)
{
	return table_compiler_busy(in->tables) || in->waiting.n || discovery_busy(in->discovery) ||
	       code_reader_busy(in->code) || sleepers_busy(in->sleepers);
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
	    .waits = waits_count(in->waits),
	    .tables = unwind_store_loaded(in->unwind),
	    .table_bytes = unwind_store_bytes(in->unwind),
	    .name_bytes = runtimes_name_bytes(in->runtimes),
	    .label_bytes = label_sets_bytes(in->labels),
	    .unselected = in->unselected,
	};
}
