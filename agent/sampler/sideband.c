/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One dummy event for each CPU that is online, with a ring of its own. The event ends when its CPU
 * goes offline (cpus.h); when the CPU comes back it gets another one, and the notes of the time
 * without an event count as lost. The record layouts are those of the kernel's
 * include/uapi/linux/perf_event.h. A record may wrap around the ring's end: its bytes are put
 * together in a buffer and read by a cursor.
 */
#include "agent/sampler/sideband.h"

#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "agent/process/maps.h"
#include "agent/sampler/cpus.h"
#include "lib/cursor.h"
#include "lib/metrics.h"

enum {
	RING_PAGES = 16, /* power of two; 64 KiB hold about 500 mappings */
	RING_PAGES_MAX = 256,
	ALL_PAGES_MAX = 1024,	 /* of rings that have grown, together */
	LOST_AGAIN_MS = 10000,	 /* a ring that loses again within that time grows */
	WAKEUPS_PER_SECOND = 10, /* beyond that a timer reads the rings */
	BUSY_MS = 10,		 /* between two readings then, while notes matter */
	/* While all notes are of processes that nobody has sampled yet. A program that starts
	 * writes a dozen notes in a few ms, and each would be a wakeup. */
	BUILD_MS = 100,
	RECORD_MAX = 8192,
	CLOCKS_DIFFER_NS = 10000000, /* largest difference of perf's clock from CLOCK_MONOTONIC */
};

struct ring {
	struct sideband *sideband;
	uv_poll_t *poll; /* freed when the loop has closed it */
	bool polling;
	int fd; /* -1: the CPU is offline */
	uint64_t opened_ns;
	uint64_t enabled;		   /* the event's enabled time: see cpus_event_is_alive() */
	uint64_t ended_ns;		   /* fd -1: since when the CPU has no event */
	size_t pages;			   /* of data */
	struct perf_event_mmap_page *page; /* NULL: there was no memory for a ring */
	bool lost;			   /* in this reading */
	uint64_t lost_ms;		   /* the last loss before this reading; 0: never */
	/* If the ring was full: when it was read before that; 0: it was not full. */
	uint64_t full_ns;
};

struct sideband {
	struct sideband_callbacks callbacks;
	struct ring *rings; /* by CPU */
	size_t n, open_handles;
	bool *online; /* scratch, n */
	uint64_t second;
	unsigned int wakeups;
	size_t grown_pages;
	bool lost; /* in this reading */
	uint64_t lost_since_ns;
	uint64_t read_ns; /* the last time that all rings were empty */
	bool noted;	  /* there were notes in this reading */
	/* One of them was of a known process, or a ring was a quarter full. */
	bool matters;
	uint32_t unknown; /* the process of the last note, if it is not known; in this reading */
	uv_loop_t *loop;
	uv_timer_t busy; /* reads the rings while they do not wake us */
	bool has_timer;
	uint8_t record[RECORD_MAX];
};

static size_t ring_bytes(const struct ring *r)
{
	return r->pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void *map_ring(int fd, size_t pages)
{
	size_t size = (pages + 1) * (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void unmap_ring(struct ring *r)
{
	if (r->page)
		munmap(r->page, (size_t)sysconf(_SC_PAGESIZE) + ring_bytes(r));
	r->page = NULL;
}

/* The kernel makes a new ring when the old one is not mapped any more; notes that would have come
 * between the two are lost as well. */
static void grow_ring(struct sideband *s, struct ring *r)
{
	if (r->pages >= RING_PAGES_MAX || s->grown_pages + r->pages > ALL_PAGES_MAX)
		return;
	unmap_ring(r);
	r->page = map_ring(r->fd, r->pages * 2);
	if (!r->page) {
		r->page = map_ring(r->fd, r->pages);
		return;
	}
	s->grown_pages += r->pages;
	r->pages *= 2;
	metric_add(M_SIDEBAND_GROWN, 1);
}

static void note_loss(struct sideband *s, uint64_t since_ns)
{
	s->lost_since_ns = s->lost ? MIN(s->lost_since_ns, since_ns) : since_ns;
	s->lost = true;
}

static void count_loss(struct sideband *s, struct ring *r)
{
	uint64_t now = uv_now(s->loop);

	r->lost = false;
	/* The kernel notes a loss with the next mapping, which may be much later. */
	note_loss(s, r->full_ns ? r->full_ns : s->read_ns);
	r->full_ns = 0;
	metric_add(M_SIDEBAND_LOST, 1);
	if (r->lost_ms && now - r->lost_ms < LOST_AGAIN_MS)
		grow_ring(s, r);
	r->lost_ms = MAX(now, 1U);
}

/* The last 8 bytes of a record: its time. They are the sample_id, which has nothing else because
 * sample_type asks for the time only. */
static uint64_t last_u64(struct cursor *c, size_t size)
{
	cursor_seek(c, size - MIN(size, sizeof(uint64_t)));
	return cursor_u64(c);
}

static void read_record(struct sideband *s, struct ring *r, size_t size)
{
	struct cursor c = cursor_of(s->record, size);
	uint32_t type = cursor_u32(&c), misc = cursor_u16(&c);
	struct sideband_mapping m;
	const char *path;

	cursor_skip(&c, 2); /* size */
	if (type == PERF_RECORD_LOST) {
		r->lost = true;
		return;
	}
	if (type != PERF_RECORD_MMAP2 && type != PERF_RECORD_COMM)
		return;
	m.tgid = cursor_u32(&c);
	cursor_skip(&c, 4); /* tid */
	if (type == PERF_RECORD_COMM) {
		m.time = last_u64(&c, size);
		if (!c.bad && (misc & PERF_RECORD_MISC_COMM_EXEC))
			s->callbacks.executed(m.tgid, m.time, s->callbacks.arg);
		return;
	}
	m.start = cursor_u64(&c);
	m.length = cursor_u64(&c);
	m.offset = cursor_u64(&c);
	m.dev_major = cursor_u32(&c);
	m.dev_minor = cursor_u32(&c);
	m.inode = cursor_u64(&c);
	cursor_skip(&c, 16); /* generation, protection, flags */
	path = cursor_str(&c);
	if (path && maps_is_memory(path))
		m.inode = 0;
	m.time = last_u64(&c, size);
	if (c.bad)
		return;
	if (s->callbacks.noted && path && (m.inode || streq(path, "[vdso]")))
		s->callbacks.noted(&m, path, s->callbacks.arg);
	/* A program that starts maps a dozen files in a row. */
	if (m.tgid == s->unknown)
		return;
	if (s->callbacks.mapped(&m, s->callbacks.arg))
		s->matters = true;
	else
		s->unknown = m.tgid;
}

static void drain_ring(struct sideband *s, struct ring *r)
{
	uint64_t head, tail;
	const uint8_t *data;
	size_t bytes, mask;
	bool full;

	if (!r->page)
		return;
	s->unknown = 0;
	head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
	tail = r->page->data_tail;
	if (head == tail)
		return;
	s->noted = true;
	data = (const uint8_t *)r->page + sysconf(_SC_PAGESIZE);
	bytes = ring_bytes(r);
	mask = bytes - 1;
	full = head - tail > bytes - RECORD_MAX;
	s->matters |= head - tail > bytes / 4;
	while (tail < head) {
		uint16_t size;

		/* Records are 8-byte aligned, so a header never wraps. */
		memcpy(&size, data + ((tail + 6) & mask), sizeof(size));
		if (size < 8 || size > head - tail)
			break; /* malformed: skip the rest */
		for (size_t i = 0; i < MIN(size, (size_t)RECORD_MAX); i += 8)
			memcpy(s->record + i, data + ((tail + i) & mask), 8);
		read_record(s, r, MIN(size, (size_t)RECORD_MAX));
		tail += size;
	}
	__atomic_store_n(&r->page->data_tail, head, __ATOMIC_RELEASE);
	if (r->lost)
		count_loss(s, r);
	if (full && !r->full_ns)
		r->full_ns = s->read_ns;
}

/* Reports the losses of a reading once, however many records of them there were. */
static void tell_lost(struct sideband *s)
{
	if (s->lost)
		s->callbacks.lost(s->lost_since_ns, s->callbacks.arg);
	s->lost = false;
}

static void set_busy(struct sideband *s, bool busy);

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct ring *r = poll->data;
	struct sideband *s = r->sideband;
	uint64_t second = uv_now(s->loop) / 1000;

	s->matters = false;
	drain_ring(s, r);
	tell_lost(s);
	if (second != s->second) {
		s->second = second;
		s->wakeups = 0;
	}
	if (!s->matters || ++s->wakeups > WAKEUPS_PER_SECOND)
		set_busy(s, true);
}

static void set_polling(struct ring *r, bool on)
{
	if (r->polling == on || !r->poll)
		return;
	if (on)
		on = uv_poll_start(r->poll, UV_READABLE, on_readable) == 0;
	else
		uv_poll_stop(r->poll);
	r->polling = on;
}

static void on_busy(uv_timer_t *timer)
{
	struct sideband *s = container_of(timer, struct sideband, busy);

	s->noted = s->matters = false;
	sideband_drain(s);
	if (s->noted)
		uv_timer_set_repeat(timer, s->matters ? BUSY_MS : BUILD_MS);
	else
		set_busy(s, false);
}

static void set_busy(struct sideband *s, bool busy)
{
	for (size_t i = 0; i < s->n; i++)
		set_polling(&s->rings[i], !busy);
	if (busy)
		(void)uv_timer_start(&s->busy, on_busy, s->matters ? BUSY_MS : BUILD_MS, BUSY_MS);
	else
		(void)uv_timer_stop(&s->busy);
}

void sideband_drain(struct sideband *s)
{
	uint64_t now = uv_hrtime();

	for (size_t i = 0; i < s->n; i++)
		drain_ring(s, &s->rings[i]);
	tell_lost(s);
	s->read_ns = now;
}

static int open_event(int cpu)
{
	struct perf_event_attr attr = {
	    .size = sizeof(attr),
	    .type = PERF_TYPE_SOFTWARE,
	    .config = PERF_COUNT_SW_DUMMY,
	    .read_format = CPUS_READ_FORMAT,
	    .mmap = 1,
	    .mmap2 = 1,
	    .comm = 1,
	    .comm_exec = 1,
	    .watermark = 1,
	    .sample_id_all = 1,
	    .sample_type = PERF_SAMPLE_TIME,
	    .use_clockid = 1,
	    .clockid = CLOCK_MONOTONIC,
	    .wakeup_watermark = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static void release(struct sideband *s)
{
	free(s->rings);
	free(s->online);
	free(s);
}

static void handle_closed(struct sideband *s)
{
	if (--s->open_handles == 0)
		release(s);
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct ring *r = handle->data;

	handle_closed(r->sideband);
	free(handle);
}

static void on_timer_closed(uv_handle_t *handle)
{
	handle_closed(container_of((uv_timer_t *)handle, struct sideband, busy));
}

static void close_ring(struct ring *r)
{
	if (r->poll)
		uv_close((uv_handle_t *)TAKE_PTR(r->poll), on_poll_closed);
	unmap_ring(r);
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	r->polling = false;
}

static int watch_ring(struct sideband *s, struct ring *r)
{
	_cleanup_free_ uv_poll_t *poll = calloc(1, sizeof(*poll));

	if (!poll || uv_poll_init(s->loop, poll, r->fd) < 0)
		return -ENOMEM;
	poll->data = r;
	r->poll = TAKE_PTR(poll);
	s->open_handles++;
	set_polling(r, true);
	return 0;
}

/* Returns 1 if CPU has a ring now, 0 if it is offline, -errno. */
static int open_ring(struct sideband *s, int cpu, struct error *err)
{
	struct ring *r = &s->rings[cpu];
	int fd = open_event(cpu);

	if (fd < 0 && (errno == ENODEV || errno == ENXIO))
		return 0;
	if (fd < 0)
		return error_set(err, -errno, "perf_event_open for mappings on CPU %d: %m", cpu);
	*r = (struct ring){.sideband = s, .fd = fd, .pages = RING_PAGES, .opened_ns = uv_hrtime()};
	r->page = map_ring(fd, r->pages);
	if (!r->page || watch_ring(s, r) < 0) {
		close_ring(r);
		return error_set(err, -ENOMEM, "ring buffer for mappings on CPU %d", cpu);
	}
	return 1;
}

/* The event's enabled time has stopped when its CPU went offline. */
static void end_ring(struct sideband *s, struct ring *r)
{
	drain_ring(s, r);
	close_ring(r);
	r->ended_ns = r->opened_ns + r->enabled - MIN(r->enabled, CLOCKS_DIFFER_NS);
}

int sideband_refresh(struct sideband *s, const char *online, struct error *err)
{
	int r = cpus_read(online ? online : CPUS_ONLINE, s->online, s->n, NULL), failed = 0;
	uint64_t since;

	if (r < 0)
		return error_set(err, r, "cannot read the list of CPUs: %s", strerror(-r));
	for (size_t cpu = 0; cpu < s->n; cpu++) {
		struct ring *ring = &s->rings[cpu];

		if (ring->fd >= 0 &&
		    (!cpus_event_is_alive(ring->fd, &ring->enabled) || !s->online[cpu]))
			end_ring(s, ring);
		if (ring->fd >= 0 || !s->online[cpu])
			continue;
		since = ring->ended_ns;
		r = open_ring(s, (int)cpu, failed ? NULL : err);
		if (r > 0)
			note_loss(s, since);
		else if (r < 0)
			failed = r;
	}
	tell_lost(s);
	return failed;
}

int sideband_new(uv_loop_t *loop, const struct sideband_callbacks *callbacks, struct sideband **ret,
		 struct error *err)
{
	/* All possible CPUs, also those that the sampler has no room for (cpus_room()): a process
	 * that maps code on such a CPU may be sampled on another. A CPU that is not there costs
	 * only its struct ring. */
	int cpus = MAX(libbpf_num_possible_cpus(), 1);
	struct sideband *s = calloc(1, sizeof(*s));
	int r = 0;

	if (s) {
		s->rings = calloc((size_t)cpus, sizeof(*s->rings));
		s->online = calloc((size_t)cpus, sizeof(*s->online));
	}
	if (!s || !s->rings || !s->online) {
		if (s)
			release(s);
		return error_set(err, -ENOMEM, "out of memory");
	}
	s->n = (size_t)cpus;
	for (size_t i = 0; i < s->n; i++)
		s->rings[i] = (struct ring){.fd = -1, .ended_ns = uv_hrtime()};
	s->loop = loop;
	s->callbacks = *callbacks;
	r = uv_timer_init(loop, &s->busy);
	s->has_timer = !r;
	s->open_handles += s->has_timer;
	for (int cpu = 0; cpu < cpus && r >= 0; cpu++)
		r = open_ring(s, cpu, err);
	if (r < 0) {
		sideband_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct sideband *sideband_free(struct sideband *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->n; i++)
		close_ring(&s->rings[i]);
	if (s->has_timer)
		uv_close((uv_handle_t *)&s->busy, on_timer_closed);
	if (!s->open_handles)
		release(s);
	return NULL;
}
