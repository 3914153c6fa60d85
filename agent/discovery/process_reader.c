/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of reading: first the mappings, because the process may be gone in a moment; then its
 * description, so that samples of a process whose files hang are at least attributed to it; then
 * the files that it maps. /proc/PID stays open meanwhile: as long as its process exists, no other
 * process can have the pid.
 */
#include "agent/discovery/process_reader.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/metrics.h"

static bool is_same_start(const struct process_reading *r, uint64_t ticks)
{
	return !r->start_ns || ticks == r->start_ns / KILN_TICK_NS;
}

/* DIRFD: the open /proc/PID, or the negative errno of opening it. */
static void describe(struct process_reading *r, int dirfd)
{
	r->info_result = dirfd < 0 ? dirfd : process_info_read_at(dirfd, r->tgid, &r->info);
	if (r->info_result == 0 && !is_same_start(r, r->info.start_ticks)) {
		process_info_done(&r->info);
		r->info_result = -ESRCH;
		r->is_other = true;
	}
	atomic_store_explicit(&r->described, true, memory_order_release);
}

/* Opens the image of mapping I. It stays NULL when the file cannot be kept. */
static int open_image(struct process_reading *r, size_t i)
{
	const struct map_entry *e = &r->maps.entries[i];
	int error;

	if (e->kind != MAPPING_FILE && e->kind != MAPPING_VDSO)
		return 0;
	if (e->kind == MAPPING_FILE &&
	    discovery_touch(&r->job, makedev(e->dev_major, e->dev_minor)) < 0)
		return -EHOSTDOWN;
	error = image_store_get(r->images, r->proc_dirfd, r->maps_pid, e, r->read_ns / 1000000,
				&r->images_of[i]);
	return error == -ENOMEM ? error : 0;
}

static int open_images(struct process_reading *r)
{
	int e;

	r->images_of = calloc(MAX(r->maps.n, (size_t)1), sizeof(struct stored_image *));
	if (!r->images_of)
		return -ENOMEM;
	/* Files that others map too are found even when the process is gone by now. */
	for (size_t i = 0; i < r->maps.n; i++) {
		e = open_image(r, i);
		if (e < 0)
			return e;
	}
	return 0;
}

/* Does another process have the pid by now? DIRFD: the open /proc/PID; negative: not open. */
static bool has_other(const struct process_reading *r, int dirfd)
{
	uint64_t ticks;

	return (dirfd < 0 || !process_is_there(dirfd)) && r->start_ns &&
	       process_start_ticks(r->proc_dirfd, r->tgid, &ticks) == 0 && !is_same_start(r, ticks);
}

/*
 * Reads the executable mappings of the process or thread PID. Of a young process it uses
 * maps_query(), which is faster than reading the whole text but does not find out whether the
 * process publishes labels; `queried` tells the caller to read the text later.
 */
static int read_maps_of(struct process_reading *r, uint32_t pid)
{
	int e = -ENOTTY;

	if (r->start_ns && clock_ns(CLOCK_BOOTTIME) - r->start_ns < PROCESS_YOUNG_NS)
		e = maps_query(r->proc_dirfd, pid, &r->maps);
	r->queried = e == 0;
	return e == 0 || e == -ESRCH ? e : maps_read(r->proc_dirfd, pid, &r->maps);
}

static bool is_thread(const struct process_reading *r)
{
	char path[40];

	snprintf(path, sizeof(path), "%u/task/%u", r->tgid, r->tid);
	return faccessat(r->proc_dirfd, path, F_OK, 0) == 0;
}

/* A process whose first thread has ended has no mappings under its own pid. */
static int read_mappings(struct process_reading *r)
{
	int e = read_maps_of(r, r->tgid);

	r->maps_pid = r->tgid;
	if (e != -ESRCH || !r->tid || r->tid == r->tgid || !is_thread(r))
		return e;
	e = read_maps_of(r, r->tid);
	r->maps_pid = r->tid;
	/* If the thread is still one of the process, the mappings are the process's. */
	return e < 0 || is_thread(r) ? e : -ESRCH;
}

/* -ESRCH: the parent is gone as well. */
static int read_parent(struct process_reading *r)
{
	uint64_t ticks;
	int e = maps_read(r->proc_dirfd, r->maps_pid, &r->maps);

	r->mapped_ns = monotonic_ns();
	if (!e && (process_start_ticks(r->proc_dirfd, r->maps_pid, &ticks) < 0 ||
		   ticks != r->parent_start_ns / KILN_TICK_NS))
		e = -ESRCH;
	return e;
}

static void read_gone(struct process_reading *r)
{
	r->info_result = -ESRCH;
	atomic_store_explicit(&r->described, true, memory_order_release);
	if (!r->maps.n)
		r->result = read_parent(r);
	if (!r->result)
		r->result = open_images(r);
	if (!r->result)
		metric_add(M_MAPS_READ_NOTED, 1);
}

static void run(struct discovery_job *job)
{
	struct process_reading *r = container_of(job, struct process_reading, job);
	_cleanup_close_ int dirfd = -1;
	int e;

	r->read_ns = monotonic_ns();
	if (r->gone) {
		read_gone(r);
		return;
	}
	e = process_open(r->proc_dirfd, r->tgid, &dirfd);
	if (!r->without_mappings)
		r->result = read_mappings(r);
	r->mapped_ns = monotonic_ns();
	describe(r, e < 0 ? e : dirfd);
	r->described_ns = monotonic_ns();
	/* A process that has ended since its mappings were read is no error. */
	if (r->info_result == -ESRCH && (r->without_mappings || r->is_other))
		r->result = -ESRCH;
	if (r->without_mappings)
		return;
	if (r->result == 0)
		r->result = open_images(r);
	if (r->result == 0 && has_other(r, dirfd))
		r->result = -ESRCH;
	metric_add(r->result == 0	 ? M_MAPS_READ_OK
		   : r->result == -ESRCH ? M_MAPS_READ_GONE
					 : M_MAPS_READ_FAILED,
		   1);
}

void process_reading_init(struct process_reading *r)
{
	r->job.run = run;
}

void process_reading_done(struct process_reading *r, uint64_t now_ms)
{
	for (size_t i = 0; r->images_of && i < r->maps.n; i++)
		if (r->images_of[i])
			image_store_put(r->images, r->images_of[i], now_ms);
	free(r->images_of);
	maps_done(&r->maps);
	process_info_done(&r->info);
}
