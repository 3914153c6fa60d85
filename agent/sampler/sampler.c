/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing is probed beforehand: a feature that the kernel lacks shows as a load or attach error,
 * which is turned into the name of that feature here. Nothing here needs CAP_SYS_RESOURCE: since
 * Linux 5.11 BPF memory is charged to the cgroup, not to RLIMIT_MEMLOCK, which libbpf raises on
 * older kernels.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/mman.h>

#include "agent/sampler/cpus.h"
#include "agent/sampler/map_sizes.h"
#include "agent/sampler/off_cpu.h"
#include "agent/sampler/sampler_internal.h"
#include "agent/sampler/timers.h"
#include "agent/sampler/walkers.h"
#include "lib/clock.h"
#include "lib/log.h"

#define NS_PER_SECOND 1000000000ULL

enum {
	VERIFIER_LINES = 60, /* of its log's end, where the reason is */
	OFF_CPU_SHIFT_MAX = 16,
};

static int libbpf_print(enum libbpf_print_level level, const char *format, va_list args)
{
	_cleanup_free_ char *text = NULL;
	char *line, *from;

	if (level > LIBBPF_INFO && log_get_level() > LOG_DEBUG)
		return 0;
	/* One message holds the verifier's whole log. */
	if (vasprintf(&text, format, args) < 0)
		return 0;
	from = text + strlen(text);
	for (int i = 0; i <= VERIFIER_LINES && from > text; i++)
		while (from > text && *--from != '\n')
			;
	while ((line = strsep(&from, "\n")))
		if (*line)
			log_debug("libbpf", "%s", line);
	return 0;
}

static int set_runtime(void *arg, const struct kiln_runtime_key *key,
		       const struct kiln_runtime *runtime)
{
	struct sampler *s = arg;
	int r = bpf_map_update_elem(bpf_map__fd(s->skel->maps.runtimes), key, runtime, BPF_ANY);

	__atomic_fetch_add(&s->skel->bss->knobs.runtimes_epoch, 1, __ATOMIC_RELEASE);
	return r;
}

static void delete_runtime(void *arg, const struct kiln_runtime_key *key)
{
	struct sampler *s = arg;

	(void)bpf_map_delete_elem(bpf_map__fd(s->skel->maps.runtimes), key);
	__atomic_fetch_add(&s->skel->bss->knobs.runtimes_epoch, 1, __ATOMIC_RELEASE);
}

static void need_walker(void *arg, uint32_t id, const struct walker_object *walker)
{
	struct sampler *s = arg;

	walkers_need(s->walkers, id, walker);
	if (s->off_cpu)
		walkers_need(off_cpu_walkers(s->off_cpu), id, walker);
	for (size_t i = 0; i < ARRAY_SIZE(s->followers); i++)
		if (s->followers[i])
			walkers_need(s->followers[i], id, walker);
}

static const char *walker_failure(void *arg, uint32_t id)
{
	struct sampler *s = arg;

	return walkers_failure(s->walkers, id);
}

int sampler_load_walker(struct sampler *s, uint32_t id, const struct walker_object *walker,
			struct error *err)
{
	return walkers_load(s->walkers, id, walker, err);
}

bool sampler_loads_walkers(struct sampler *s)
{
	bool busy =
	    walkers_busy(s->walkers) || (s->off_cpu && walkers_busy(off_cpu_walkers(s->off_cpu)));

	for (size_t i = 0; i < ARRAY_SIZE(s->followers); i++)
		busy = busy || (s->followers[i] && walkers_busy(s->followers[i]));
	return busy;
}

const struct bpf_object *sampler_object(const struct sampler *s)
{
	return s->skel->obj;
}

int sampler_cpus(const struct sampler *s)
{
	return s->n_cpus;
}

void sampler_follow(struct sampler *s, struct walkers *walkers)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->followers); i++) {
		if (s->followers[i])
			continue;
		s->followers[i] = walkers;
		walkers_copy(walkers, s->walkers);
		return;
	}
}

void sampler_unfollow(struct sampler *s, const struct walkers *walkers)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->followers); i++)
		if (s->followers[i] == walkers)
			s->followers[i] = NULL;
}

/* The kernel rounds the mapping of an array map up to whole pages. */
static void *map_array(const struct bpf_map *map, size_t *ret_len)
{
	size_t len = ALIGN_UP((size_t)bpf_map__value_size(map) * bpf_map__max_entries(map), 4096);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	*ret_len = len;
	return p == MAP_FAILED ? NULL : p;
}

static int map_memory(struct sampler *s, const struct sampler_options *o, struct error *err)
{
	const struct slab_shape unwind = map_sizes_unwind(o), mappings = map_sizes_mappings(o);
	size_t len;
	int r;

	r = slab_new(bpf_map__fd(s->skel->maps.unwind_slab), &unwind, &s->slabs,
		     &s->memory.slab_shards);
	if (!r)
		r = slab_new(bpf_map__fd(s->skel->maps.mapping_slab), &mappings, &s->slabs,
			     &s->memory.mapping_shards);
	if (r < 0)
		return error_set(err, r, "cannot reserve addresses: %s", strerror(-r));
	/* Done now, so that the first process that is met need not wait for a grace period. */
	r = slab_back(s->memory.mapping_shards, 0, 1);
	if (r < 0)
		return error_set(err, r, "no memory for mappings: %s", strerror(-r));
	s->memory.slab = slab_memory(s->memory.slab_shards);
	s->memory.slab_slots = slab_units(s->memory.slab_shards);
	s->memory.mappings = slab_memory(s->memory.mapping_shards);
	s->memory.n_mappings = slab_units(s->memory.mapping_shards);
	s->memory.tables = map_array(s->skel->maps.tables, &len);
	s->cpus = map_array(s->skel->maps.cpus, &len);
	s->memory.cache_epoch = &s->skel->bss->knobs.cache_epoch;
	s->memory.set_process = sampler_set_process;
	s->memory.get_process = sampler_get_process;
	s->memory.set_runtime = set_runtime;
	s->memory.delete_runtime = delete_runtime;
	s->memory.need_walker = need_walker;
	s->memory.walker_failure = walker_failure;
	s->memory.arg = s;
	if (!s->memory.tables || !s->cpus)
		return error_set(err, -errno, "cannot map BPF arrays: %m");
	return 0;
}

static void unmap_memory(struct sampler *s)
{
	if (s->cpus)
		munmap(s->cpus, ALIGN_UP((size_t)s->n_cpus * sizeof(*s->cpus), 4096));
	if (s->memory.tables)
		munmap(s->memory.tables,
		       ALIGN_UP(KILN_MAX_IMAGES * sizeof(struct kiln_table), 4096));
	slab_free(s->memory.slab_shards);
	slab_free(s->memory.mapping_shards);
}

static int configure(struct sampler *s, const struct sampler_options *o)
{
	struct profiler *skel = s->skel;

	skel->bss->knobs.timer_ns = kiln_period(o->hz);
	skel->bss->knobs.policy_epoch = 1;
	skel->bss->knobs.pid_namespace = o->pid_namespace;
	skel->rodata->page_size = (uint32_t)sysconf(_SC_PAGESIZE);
	skel->rodata->max_depth = o->max_depth ? o->max_depth : KILN_MAX_USER_FRAMES;
	skel->bss->knobs.cgroup_v1 = o->cgroup_mode != CGROUP_V2;
	skel->bss->knobs.filter_pids = o->n_pids > 0;
	return map_sizes_set(skel, o, (uint32_t)s->n_cpus);
}

static int fill_filter(struct sampler *s, const struct sampler_options *o)
{
	uint8_t yes = 1;

	for (size_t i = 0; i < o->n_pids; i++)
		if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.pid_filter), &o->pids[i], &yes,
					BPF_ANY) < 0)
			return -errno;
	return 0;
}

static int on_record(void *arg, void *data, size_t size)
{
	const struct kiln_sample *record = data;
	const struct kiln_labels *labels = data;
	const struct kiln_text *text = data;
	const struct kiln_wait_end *end = data;
	struct sampler *s = arg;

	if (size >= sizeof(*record) && record->type == KILN_RECORD_SAMPLE && record->size <= size)
		s->consume(record, s->consume_arg);
	else if (size >= sizeof(*text) && text->type == KILN_RECORD_TEXT && s->take_text)
		s->take_text(text, s->text_arg);
	else if (size >= sizeof(*end) && end->type == KILN_RECORD_WAIT_END && s->take_wait_end)
		s->take_wait_end(end, s->wait_end_arg);
	else if (size >= sizeof(*labels) && labels->type == KILN_RECORD_LABELS &&
		 labels->size <= size && s->take_labels)
		s->take_labels(labels, labels->size, s->labels_arg);
	/* A negative result ends the drain after this record. */
	return monotonic_ns() < s->drain_until_ns ? 0 : -ECANCELED;
}

static int load_error(struct error *err, int r)
{
	if (r == -EPERM) /* -EACCES is the verifier's: see below */
		return error_set(
		    err, -EPERM,
		    "the kernel refused to load the BPF programs: CAP_BPF and CAP_PERFMON "
		    "are needed (run as root, or give the capabilities)");
	if (r == -ENOMEM)
		return error_set(err, -ENOMEM, "not enough memory for the BPF maps");
	return error_set(
	    err, -ENOTSUP,
	    "the kernel does not accept the BPF programs (%s): Linux 5.10 or newer with BTF "
	    "(CONFIG_DEBUG_INFO_BTF) is needed; --verbose shows the verifier's reason",
	    strerror(-r));
}

int sampler_new(const struct sampler_options *options, struct sampler **ret, struct error *err)
{
	_cleanup_(sampler_freep) struct sampler *s = calloc(1, sizeof(*s));
	struct kiln_policy policy = {
	    .mode = KILN_POLICY_ENABLED,
	    .hz = options->hz,
	    .runtimes = ~0U,
	    .off_cpu = options->off_cpu,
	};
	int r;

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	s->hz = s->own_hz = options->hz;
	s->own_off_cpu = options->off_cpu;
	s->target_tid = options->target_tid;
	s->online = options->online;
	s->wants_off_cpu = options->off_cpu != 0;
	s->stats_fd = -1;
	s->slabs.limit = SIZE_MAX;
	r = libbpf_num_possible_cpus();
	if (r < 1)
		return error_set(err, -ENOSYS, "cannot tell the number of CPUs");
	s->n_cpus =
	    (int)(options->max_cpus ? options->max_cpus : cpus_expected(CPUS_PRESENT, (size_t)r));
	libbpf_set_print(libbpf_print);
	s->skel = profiler__open();
	if (!s->skel)
		return load_error(err, -errno);
	r = configure(s, options);
	if (r < 0)
		return error_set(err, r, "cannot size the BPF maps");
	r = profiler__load(s->skel);
	if (r < 0)
		return load_error(err, r);
	r = map_memory(s, options, err);
	if (r < 0)
		return r;
	r = fill_filter(s, options);
	if (!r)
		r = walkers_new(s->skel->obj, &(struct walker_kind){}, &s->walkers);
	if (!r)
		r = sampler_set_policy(s, 0, &policy);
	if (r < 0)
		return error_set(err, r, "cannot fill the BPF maps: %s", strerror(-r));
	s->ring = ring_buffer__new(bpf_map__fd(s->skel->maps.ring), on_record, s, NULL);
	if (!s->ring)
		return error_set(err, -errno, "cannot map the ring buffer: %m");
	/* The programs' run time, for /metrics. Failure is no error: some kernels want
	 * CAP_SYS_ADMIN for it. */
	s->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	s->can_spare = s->stats_fd >= 0;
	run_time_turn(&s->run_time, monotonic_ns(), true);
	*ret = TAKE_PTR(s);
	return 0;
}

struct sampler *sampler_free(struct sampler *s)
{
	if (!s)
		return NULL;
	sampler_stop(s);
	off_cpu_free(s->off_cpu);
	walkers_free(s->walkers);
	ring_buffer__free(s->ring);
	unmap_memory(s);
	profiler__destroy(s->skel);
	if (s->stats_fd >= 0)
		close(s->stats_fd);
	free(s);
	return NULL;
}

int sampler_start(struct sampler *s, struct error *err)
{
	const struct timers_options options = {
	    .program = s->skel->progs.sample,
	    .cpus = s->cpus,
	    .timer_ns = &s->skel->bss->knobs.timer_ns,
	    .n_cpus = s->n_cpus,
	    .hz = s->hz,
	    .target_tid = s->target_tid,
	    .online = s->online,
	};
	int r;

	s->skel->links.on_fork = bpf_program__attach(s->skel->progs.on_fork);
	s->skel->links.on_exit = bpf_program__attach(s->skel->progs.on_exit);
	if (!s->skel->links.on_fork || !s->skel->links.on_exit)
		return error_set(err, -ENOTSUP,
				 "cannot attach to sched_process_fork and sched_process_exit: %m "
				 "(BTF tracepoints are needed)");
	r = timers_new(&options, &s->timers, err);
	if (r >= 0 && s->wants_off_cpu)
		r = sampler_set_off_cpu(s, true, err);
	return r;
}

int sampler_set_off_cpu(struct sampler *s, bool on, struct error *err)
{
	int r = 0;

	if (!on) {
		off_cpu_detach(s->off_cpu);
		off_cpu_forget(s->off_cpu);
		return 0;
	}
	if (!s->off_cpu)
		r = off_cpu_new(s->skel, s->walkers, &s->off_cpu, err);
	return r < 0 ? r : off_cpu_attach(s->off_cpu, err);
}

void sampler_on_wait_end(struct sampler *s,
			 void (*take)(const struct kiln_wait_end *end, void *arg), void *arg)
{
	s->take_wait_end = take;
	s->wait_end_arg = arg;
}

bool sampler_thread_waits(const struct sampler *s, uint32_t tid, uint64_t began)
{
	return s->off_cpu && off_cpu_waits(s->off_cpu, tid, began);
}

bool sampler_wait_due(struct sampler *s, uint32_t tid, uint64_t now, int64_t *ret_ns,
		      bool *ret_ended)
{
	return s->off_cpu && off_cpu_due(s->off_cpu, tid, now, ret_ns, ret_ended);
}

void sampler_wait_told(struct sampler *s, uint32_t tid, uint64_t ns)
{
	if (s->off_cpu)
		off_cpu_told(s->off_cpu, tid, ns);
}

bool sampler_may_have_sleepers(struct sampler *s)
{
	return off_cpu_is_on(s->off_cpu) && off_cpu_may_have_sleepers(s->off_cpu);
}

void sampler_sleepers_listed(struct sampler *s)
{
	if (s->off_cpu)
		off_cpu_listed(s->off_cpu);
}

int sampler_open_sleepers(struct sampler *s)
{
	return off_cpu_is_on(s->off_cpu) ? off_cpu_open_sleepers(s->off_cpu) : -ENOENT;
}

bool sampler_sleeper_shown(struct sampler *s, uint32_t tid, uint64_t began)
{
	return s->off_cpu && off_cpu_shown(s->off_cpu, tid, began);
}

void sampler_limit_off_cpu(struct sampler *s, uint64_t now)
{
	uint64_t walks = 0, passed = now - s->limited_ns;
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t *shift = &s->skel->bss->knobs.off_cpu_shift;

	if (!s->off_cpu)
		return;
	for (int cpu = 0; cpu < s->n_cpus; cpu++)
		walks += s->cpus[cpu].stats.n[KILN_STAT_WAITS];
	if (s->limited_ns && passed) {
		uint64_t each =
		    (walks - s->walks) * NS_PER_SECOND / passed / (uint64_t)MAX(online, 1L);

		if (each > SAMPLER_WALKS_MAX && *shift < OFF_CPU_SHIFT_MAX)
			++*shift;
		else if (each < SAMPLER_WALKS_MAX / 4 && *shift)
			--*shift;
	}
	s->limited_ns = now;
	s->walks = walks;
}

int sampler_set_rate(struct sampler *s, uint32_t hz)
{
	s->hz = hz;
	if (s->timers)
		return timers_set_rate(s->timers, hz);
	if (hz)
		s->skel->bss->knobs.timer_ns = kiln_period(hz);
	return 0;
}

int sampler_refresh_cpus(struct sampler *s, struct error *err)
{
	return s->timers ? timers_refresh(s->timers, err) : 0;
}

size_t sampler_cpus_beyond(const struct sampler *s)
{
	return s->timers ? timers_beyond(s->timers) : 0;
}

void sampler_stop(struct sampler *s)
{
	s->timers = timers_free(s->timers);
	off_cpu_detach(s->off_cpu);
}

const struct kernel_memory *sampler_memory(struct sampler *s)
{
	return &s->memory;
}

int sampler_ring_fd(const struct sampler *s)
{
	return ring_buffer__epoll_fd(s->ring);
}

void sampler_on_text(struct sampler *s, void (*take)(const struct kiln_text *text, void *arg),
		     void *arg)
{
	s->take_text = take;
	s->text_arg = arg;
}

void sampler_on_labels(struct sampler *s,
		       void (*take)(const struct kiln_labels *labels, size_t size, void *arg),
		       void *arg)
{
	s->take_labels = take;
	s->labels_arg = arg;
}

/*
 * Reads the kernel's counters at NOW: the time of all programs, and the runs of the one that
 * samples.
 */
static void look_at_run_time(struct sampler *s, uint64_t now)
{
	struct run_count counted = {};
	struct bpf_program *program;

	bpf_object__for_each_program(program, s->skel->obj)
	{
		struct bpf_prog_info info = {};
		uint32_t len = sizeof(info);
		int fd = bpf_program__fd(program);

		if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &len))
			continue;
		counted.ns += info.run_time_ns;
		if (program == s->skel->progs.sample)
			counted.runs = info.run_cnt;
	}
	if (s->off_cpu)
		counted.ns += off_cpu_run_ns(s->off_cpu);
	run_time_look(&s->run_time, now, &counted);
}

/* Enables or disables the kernel's statistics when it is time for that (run_time_wants()). */
static void turn_statistics(struct sampler *s, uint64_t now)
{
	bool on = run_time_wants(&s->run_time, now, s->can_spare && off_cpu_is_on(s->off_cpu));

	if (on == s->run_time.on)
		return;
	if (on)
		s->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	look_at_run_time(s, now);
	if (!on) {
		close(s->stats_fd);
		s->stats_fd = -1;
	}
	run_time_turn(&s->run_time, now, on);
}

bool sampler_drain(struct sampler *s, void (*consume)(const struct kiln_sample *record, void *arg),
		   void *arg)
{
	uint64_t now = monotonic_ns();

	s->consume = consume;
	s->consume_arg = arg;
	turn_statistics(s, now);
	s->drain_until_ns = now + SAMPLER_DRAIN_MS * 1000000ULL;
	return ring_buffer__consume(s->ring) == -ECANCELED;
}

void sampler_limit_slabs(struct sampler *s, size_t bytes)
{
	s->slabs.limit = bytes;
}

bool sampler_slabs_are_tight(const struct sampler *s)
{
	return s->slabs.used >= s->slabs.limit / 2;
}

/* "memlock:" of a map's fdinfo: the memory that it takes. */
static uint64_t map_memory_bytes(int fd)
{
	char path[64], line[128];
	unsigned long long bytes = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "memlock: %llu", &bytes) == 1)
			break;
	if (f)
		fclose(f);
	return bytes;
}

/* Reads a file of /proc for each of some thirty maps, whose sizes hardly change; so not more often
 * than once in SAMPLER_MAPS_AGE_S. */
static uint64_t maps_bytes(struct sampler *s)
{
	uint64_t now = monotonic_ns();
	struct bpf_map *map;

	if (s->maps_read_ns && now - s->maps_read_ns < SAMPLER_MAPS_AGE_S * 1000000000ULL)
		return s->maps_bytes;
	s->maps_read_ns = now;
	s->maps_bytes = 0;
	bpf_object__for_each_map(map, s->skel->obj) s->maps_bytes +=
	    map_memory_bytes(bpf_map__fd(map));
	return s->maps_bytes;
}

uint64_t sampler_map_bytes(struct sampler *s, uint64_t *ret_slabs)
{
	uint64_t slabs = s->slabs.used;

	if (ret_slabs)
		*ret_slabs = slabs;
	return maps_bytes(s) + slabs + (s->off_cpu ? off_cpu_map_bytes(s->off_cpu) : 0);
}

uint64_t sampler_run_ns(struct sampler *s)
{
	look_at_run_time(s, monotonic_ns());
	return s->run_time.total.ns;
}

void sampler_read_stats(struct sampler *s, struct sampler_stats *ret)
{
	*ret = (struct sampler_stats){.processes = s->processes};
	for (int cpu = 0; cpu < s->n_cpus; cpu++)
		for (uint32_t i = 0; i < KILN_STAT_COUNT; i++)
			ret->counts[i] += s->cpus[cpu].stats.n[i];
	ret->run_ns = sampler_run_ns(s);
	ret->runs = s->run_time.total.runs;
	ret->map_bytes = sampler_map_bytes(s, NULL);
}
