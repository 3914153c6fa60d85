/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF object shares the maps of the main object, including the map of the variables: all that
 * both have are in bpf/knobs.h, so they have the same offsets, and a difference in size is refused.
 * The map `walkers` and the slots of threads are its own. Once loaded, the object stays; only the
 * link is made and destroyed.
 */
#include "agent/sampler/off_cpu.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/mman.h>
#include <time.h>

#include "lib/clock.h"
#include "offcpu.skel.h"
#include "profiler.skel.h"

struct off_cpu {
	struct offcpu *skel;
	struct bpf_link *link;	   /* NULL: not attached */
	struct bpf_link *sleepers; /* NULL: not asked for yet */
	struct walkers *walkers;
	struct kiln_thread *threads; /* KILN_MAX_THREADS, shared with the kernel */
	const uint32_t *epoch;	     /* policy_epoch of the main object */
	struct list {
		uint64_t ns; /* when it was opened, CLOCK_MONOTONIC; 0: none */
		uint32_t epoch;
	} listing, listed; /* the last list that was opened; that was read to its end */
	uint32_t skipped;  /* lists, since `listed` */
	struct told {
		/* What was reported, ns; `base` of the slot, which tells its threads apart. */
		uint64_t ns, base;
		uint32_t tid, pad;
	} * told; /* of each slot's thread */
	/* Ids of threads, of each slot; 0: none. */
	struct sleeper {
		uint32_t tid;	   /* it waited without a sample when the list was asked for */
		uint32_t left_out; /* it was expected, and a complete list did not have it: its
				    * process is not sampled */
	} * expected;
};

enum { THREADS_BYTES = KILN_MAX_THREADS * sizeof(struct kiln_thread) };

static int load(struct off_cpu *o, struct profiler *main)
{
	struct bpf_map *own = o->skel->maps.walkers, *map;
	int r;

	o->skel->rodata->page_size = main->rodata->page_size;
	o->skel->rodata->max_depth = main->rodata->max_depth;
	o->skel->rodata->ring_shift = main->rodata->ring_shift;
	o->skel->rodata->ring_unasked = main->rodata->ring_unasked;
	r = bpf_map__set_max_entries(o->skel->maps.switch_clocks,
				     bpf_map__max_entries(main->maps.cpus));
	if (r < 0)
		return r;
	if (bpf_map__value_size(o->skel->maps.bss) != bpf_map__value_size(main->maps.bss))
		return -EINVAL;
	r = bpf_map__reuse_fd(o->skel->maps.bss, bpf_map__fd(main->maps.bss));
	bpf_object__for_each_map(map, o->skel->obj)
	{
		const struct bpf_map *same =
		    map == own ? NULL : bpf_object__find_map_by_name(main->obj, bpf_map__name(map));

		if (same && r >= 0)
			r = bpf_map__reuse_fd(map, bpf_map__fd(same));
	}
	return r < 0 ? r : offcpu__load(o->skel);
}

int off_cpu_new(struct profiler *main, struct walkers *walkers, struct off_cpu **ret,
		struct error *err)
{
	const struct walker_kind kind = {.type = BPF_PROG_TYPE_TRACING, .attach = "sched_switch"};
	_cleanup_(off_cpu_freep) struct off_cpu *o = calloc(1, sizeof(*o));
	void *threads;
	int r;

	if (!o)
		return error_set(err, -ENOMEM, "out of memory");
	o->told = calloc(KILN_MAX_THREADS, sizeof(*o->told));
	o->expected = calloc(KILN_MAX_THREADS, sizeof(*o->expected));
	if (!o->told || !o->expected)
		return error_set(err, -ENOMEM, "out of memory");
	o->skel = offcpu__open();
	if (!o->skel)
		return error_set(err, -errno, "cannot read the program for switches: %m");
	r = load(o, main);
	if (r < 0)
		return error_set(err, r, "the kernel does not accept the program for switches: %s",
				 strerror(-r));
	threads = mmap(NULL, THREADS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		       bpf_map__fd(o->skel->maps.threads), 0);
	if (threads == MAP_FAILED)
		return error_set(err, -errno, "cannot map the slots of threads: %m");
	o->threads = threads;
	o->epoch = &main->bss->knobs.policy_epoch;
	r = walkers_new(o->skel->obj, &kind, &o->walkers);
	if (r < 0)
		return error_set(err, r, "cannot set up the walkers for switches: %s",
				 strerror(-r));
	walkers_copy(o->walkers, walkers);
	*ret = TAKE_PTR(o);
	return 0;
}

struct off_cpu *off_cpu_free(struct off_cpu *o)
{
	if (!o)
		return NULL;
	off_cpu_detach(o);
	bpf_link__destroy(o->sleepers);
	walkers_free(o->walkers);
	if (o->threads)
		munmap(o->threads, THREADS_BYTES);
	offcpu__destroy(o->skel);
	free(o->expected);
	free(o->told);
	free(o);
	return NULL;
}

int off_cpu_attach(struct off_cpu *o, struct error *err)
{
	if (o->link)
		return 0;
	/* The slots are from the time before the program was detached. */
	off_cpu_forget(o);
	o->link = bpf_program__attach(o->skel->progs.on_switch);
	return o->link ? 0 : error_set(err, -errno, "cannot attach to sched_switch: %m");
}

void off_cpu_forget(struct off_cpu *o)
{
	if (!o)
		return;
	memset(o->threads, 0, THREADS_BYTES);
	memset(o->told, 0, KILN_MAX_THREADS * sizeof(*o->told));
	o->listing = o->listed = (struct list){0};
}

void off_cpu_detach(struct off_cpu *o)
{
	if (!o || !o->link)
		return;
	bpf_link__destroy(o->link);
	o->link = NULL;
}

bool off_cpu_is_on(const struct off_cpu *o)
{
	return o && o->link;
}

struct walkers *off_cpu_walkers(struct off_cpu *o)
{
	return o->walkers;
}

/* The slot of TID; NULL: it has none. */
static const struct kiln_thread *find(const struct off_cpu *o, uint32_t tid)
{
	uint32_t first = tid & (KILN_MAX_THREADS - 1);

	for (uint32_t way = 0; way < 2; way++) {
		const struct kiln_thread *t = &o->threads[first ^ way];

		if (__atomic_load_n(&t->tid, __ATOMIC_RELAXED) == tid)
			return t;
	}
	return NULL;
}

bool off_cpu_waits(const struct off_cpu *o, uint32_t tid, uint64_t began)
{
	const struct kiln_thread *t = find(o, tid);

	return t && __atomic_load_n(&t->out, __ATOMIC_RELAXED) == began;
}

bool off_cpu_due(struct off_cpu *o, uint32_t tid, uint64_t now, int64_t *ret_ns, bool *ret_ended)
{
	const struct kiln_thread *t = find(o, tid);
	struct told *told;
	uint64_t out, waited, base;
	uint32_t sampled;

	if (!t)
		return false;
	told = &o->told[t - o->threads];
	/* In this order: a wait that ends in between is missed once, and not counted twice. */
	waited = __atomic_load_n(&t->waited, __ATOMIC_ACQUIRE);
	out = __atomic_load_n(&t->out, __ATOMIC_RELAXED);
	sampled = __atomic_load_n(&t->sampled, __ATOMIC_RELAXED);
	base = __atomic_load_n(&t->base, __ATOMIC_RELAXED);
	/* The slot belonged to another thread meanwhile, and its count began anew. */
	if (told->tid != tid || told->base != base)
		*told = (struct told){.tid = tid, .base = base};
	waited -= base;
	if (out && sampled && now > out)
		waited += now - out;
	*ret_ns = (int64_t)(waited - told->ns);
	*ret_ended = !__atomic_load_n(&t->epoch, __ATOMIC_RELAXED);
	return true;
}

void off_cpu_told(struct off_cpu *o, uint32_t tid, uint64_t ns)
{
	const struct kiln_thread *t = find(o, tid);

	if (t && o->told[t - o->threads].tid == tid)
		o->told[t - o->threads].ns += ns;
}

/* Has T waited for so long without a sample that a list at NOW has it? */
static bool is_sleeper(const struct kiln_thread *t, uint64_t now)
{
	uint64_t out = __atomic_load_n(&t->out, __ATOMIC_RELAXED);

	return out && out + KILN_SLEEP_SHOWN <= now &&
	       !__atomic_load_n(&t->sampled, __ATOMIC_RELAXED);
}

static bool must_list(const struct off_cpu *o)
{
	return !o->listed.ns || o->listed.epoch != __atomic_load_n(o->epoch, __ATOMIC_ACQUIRE) ||
	       o->skipped >= OFF_CPU_LISTS_SKIPPED_MAX;
}

bool off_cpu_may_have_sleepers(struct off_cpu *o)
{
	bool any = must_list(o);
	uint64_t now = monotonic_ns();

	if (any)
		memset(o->expected, 0, KILN_MAX_THREADS * sizeof(*o->expected));
	for (size_t i = 0; i < KILN_MAX_THREADS; i++) {
		uint32_t tid = __atomic_load_n(&o->threads[i].tid, __ATOMIC_RELAXED);

		if (!is_sleeper(&o->threads[i], now) || o->expected[i].left_out == tid)
			tid = 0;
		o->expected[i].tid = tid;
		any |= tid != 0;
	}
	o->skipped += !any;
	return any;
}

void off_cpu_listed(struct off_cpu *o)
{
	o->listed = o->listing;
	o->skipped = 0;
	for (size_t i = 0; i < KILN_MAX_THREADS; i++)
		if (o->expected[i].tid)
			o->expected[i].left_out = o->expected[i].tid;
}

int off_cpu_open_sleepers(struct off_cpu *o)
{
	int fd;

	o->listing = (struct list){monotonic_ns(), __atomic_load_n(o->epoch, __ATOMIC_ACQUIRE)};
	if (!o->sleepers)
		o->sleepers = bpf_program__attach_iter(o->skel->progs.sleepers, NULL);
	if (!o->sleepers)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(o->sleepers));
	return fd < 0 ? -errno : fd;
}

bool off_cpu_shown(struct off_cpu *o, uint32_t tid, uint64_t began)
{
	struct kiln_thread *t = (struct kiln_thread *)find(o, tid);
	uint32_t unseen = 0;

	if (t)
		o->expected[t - o->threads].tid = 0;
	/* If another wait of the thread begins between the two steps, the mark is put on that wait.
	 * The kernel then sends its end, which is ignored because the wait has no sample. */
	return t && __atomic_load_n(&t->out, __ATOMIC_RELAXED) == began &&
	       __atomic_compare_exchange_n(&t->sampled, &unseen, ~0U, false, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}

uint64_t off_cpu_run_ns(const struct off_cpu *o)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(bpf_program__fd(o->skel->progs.on_switch), &info, &len))
		return 0;
	return info.run_time_ns;
}

uint64_t off_cpu_map_bytes(const struct off_cpu *o)
{
	return THREADS_BYTES;
}
