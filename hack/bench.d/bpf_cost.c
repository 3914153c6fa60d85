// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of one sample in the kernel: loads the sampler with a timer for one thread alone, so
 * that each run of the BPF program is a hit, gives it the process's mappings and tables, and reads
 * the kernel's own statistics of the program (run_time_ns / run_cnt) at the beginning and the end
 * of a window. Prints one line of JSON.
 *
 * The mean is over all runs of the window. It includes milliseconds in which a virtual machine lost
 * its CPU during a run, and the misses after other programs replaced the caches' contents. So the
 * median and the lowest tenth of the means of short slices are printed too.
 *
 *   kiln-bench-bpf --pid PID [--hz 99] [--seconds 10] [--cpu N]
 */
#include <getopt.h>
#include <sched.h>
#include <time.h>

#include "tests/bpf/profiled.h"

enum {
	WARM_UP_MS = 1500,
	SLICE_RUNS = 50, /* about */
	SLICES_MAX = 20000,
	DRAIN_MS = 50,
};

struct arguments {
	uint32_t pid, hz;
	int seconds, cpu;
};

struct bench {
	struct profiled *profiled;
	bool counting;
	uint64_t records, complete, frames, bytes;
	uint64_t by_frames[KILN_MAX_USER_FRAMES + 1];
	double slices[SLICES_MAX]; /* mean ns of each */
	size_t n_slices;
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void take(const struct kiln_sample *record, void *arg)
{
	struct bench *b = arg;
	struct mapset *m = NULL;

	if (!record->mapset && !(record->flags & KILN_SAMPLE_KTHREAD) &&
	    !profiled_learn(b->profiled, record, &m))
		(void)profiled_load_all(b->profiled, m);
	if (!b->counting)
		return;
	b->records++;
	b->complete += record->end == KILN_END_ROOT;
	b->frames += record->n_user;
	b->bytes += record->size;
	b->by_frames[MIN(record->n_user, KILN_MAX_USER_FRAMES)]++;
}

static void run_for(struct bench *b, uint64_t ms)
{
	const struct timespec nap = {.tv_nsec = DRAIN_MS * 1000000L};
	uint64_t until = profiled_now_ns() + ms * 1000000;

	while (profiled_now_ns() < until) {
		nanosleep(&nap, NULL);
		(void)sampler_drain(b->profiled->sampler, take, b);
	}
}

static void print_result(const struct arguments *a, struct bench *b,
			 const struct sampler_stats *from, const struct sampler_stats *to)
{
	uint64_t runs = to->runs - from->runs, ns = to->run_ns - from->run_ns,
		 hits = to->counts[KILN_STAT_CACHE_HIT] - from->counts[KILN_STAT_CACHE_HIT],
		 misses = to->counts[KILN_STAT_CACHE_MISS] - from->counts[KILN_STAT_CACHE_MISS];
	double n = (double)MAX(b->records, 1);
	const char *comma = "";

	qsort(b->slices, b->n_slices, sizeof(b->slices[0]), by_value);
	printf("{\"hz\": %u, \"frames_mean\": %.1f, \"runs\": %llu, \"avg_ns\": %.0f, "
	       "\"median_ns\": %.0f, \"low_ns\": %.0f, \"complete_share\": %.5f, "
	       "\"cache_hit_share\": %.5f, "
	       "\"record_bytes\": %.0f, \"frames\": {",
	       a->hz, (double)b->frames / n, (unsigned long long)runs,
	       (double)ns / (double)MAX(runs, 1), b->slices[b->n_slices / 2],
	       b->slices[b->n_slices / 10], (double)b->complete / n,
	       (double)hits / (double)MAX(hits + misses, 1), (double)b->bytes / n);
	for (size_t i = 0; i <= KILN_MAX_USER_FRAMES; i++) {
		if (!b->by_frames[i])
			continue;
		printf("%s\"%zu\": %llu", comma, i, (unsigned long long)b->by_frames[i]);
		comma = ", ";
	}
	printf("}}\n");
}

static int bench(const struct arguments *a, struct error *err)
{
	const struct sampler_options options = {
	    .hz = a->hz, .cgroup_mode = CGROUP_HYBRID, .target_tid = a->pid};
	_cleanup_(profiled_freep) struct profiled *p = NULL;
	_cleanup_free_ struct bench *b = calloc(1, sizeof(*b));
	struct sampler_stats from, before, now;
	uint64_t slice_ms, until;
	int r;

	if (!b)
		return error_set(err, -ENOMEM, "out of memory");
	r = profiled_new(&options, &p, err);
	if (r < 0)
		return r;
	b->profiled = p;
	r = sampler_start(p->sampler, err);
	if (r < 0)
		return r;
	run_for(b, WARM_UP_MS);
	sampler_read_stats(p->sampler, &from);
	if (!from.runs)
		return error_set(err, -ESRCH,
				 "thread %u did not run, or the kernel does not count run times",
				 a->pid);
	before = from;
	b->counting = true;
	slice_ms = MAX(SLICE_RUNS * 1000 / a->hz, DRAIN_MS);
	until = profiled_now_ns() + (uint64_t)a->seconds * 1000000000;
	while (profiled_now_ns() < until) {
		run_for(b, slice_ms);
		sampler_read_stats(p->sampler, &now);
		if (now.runs > before.runs && b->n_slices < SLICES_MAX)
			b->slices[b->n_slices++] =
			    (double)(now.run_ns - before.run_ns) / (double)(now.runs - before.runs);
		before = now;
	}
	print_result(a, b, &from, &before);
	return 0;
}

static int usage(const char *name)
{
	fprintf(stderr, "usage: %s --pid PID [--hz N] [--seconds N] [--cpu N]\n", name);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"pid", required_argument, NULL, 'p'},
						{"hz", required_argument, NULL, 'f'},
						{"seconds", required_argument, NULL, 's'},
						{"cpu", required_argument, NULL, 'c'},
						{}};
	struct arguments a = {.hz = 99, .seconds = 10, .cpu = -1};
	struct error err = {};
	cpu_set_t one;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 'p')
			a.pid = (uint32_t)atoi(optarg);
		else if (c == 'f')
			a.hz = (uint32_t)atoi(optarg);
		else if (c == 's')
			a.seconds = atoi(optarg);
		else if (c == 'c')
			a.cpu = atoi(optarg);
		else
			return usage(argv[0]);
	}
	if (!a.pid || a.hz < 1 || a.hz > 4999 || a.seconds < 1)
		return usage(argv[0]);
	/* Pin the thread to one CPU: on another CPU it would start with cold caches. */
	CPU_ZERO(&one);
	if (a.cpu >= 0)
		CPU_SET(a.cpu, &one);
	if (a.cpu >= 0 && sched_setaffinity((pid_t)a.pid, sizeof(one), &one) < 0) {
		fprintf(stderr, "cannot pin %u to CPU %d: %m\n", a.pid, a.cpu);
		return 1;
	}
	if (bench(&a, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	return 0;
}
