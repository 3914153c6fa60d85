/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One dummy event a CPU, with a ring of its own. The record layouts are those of the kernel's
 * include/uapi/linux/perf_event.h. A record may wrap around the ring's end: its bytes are put
 * together in a buffer and read by a cursor.
 */
#include "agent/sampler/sideband.h"

#include <linux/perf_event.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "lib/cursor.h"
#include "lib/metrics.h"

enum {
	RING_PAGES = 16,	  /* power of two; 64 KiB hold about 500 mappings */
	WAKEUPS_PER_SECOND = 100, /* beyond that a timer has to do, which is as often at most */
	BUSY_MS = 10,
	RECORD_MAX = 8192,
};

struct ring {
	struct sideband *sideband;
	uv_poll_t poll;
	bool has_poll, polling;
	int fd;
	struct perf_event_mmap_page *page;
};

struct sideband {
	struct sideband_callbacks callbacks;
	struct ring *rings;
	size_t n, open_handles;
	uint64_t second;
	unsigned int wakeups;
	uv_loop_t *loop;
	uv_timer_t busy; /* reads the rings while they do not wake us */
	bool has_timer;
	uint8_t record[RECORD_MAX];
};

static size_t ring_bytes(void)
{
	return (size_t)RING_PAGES * (size_t)sysconf(_SC_PAGESIZE);
}

static void read_record(struct sideband *s, size_t size)
{
	struct cursor c = cursor_of(s->record, size);
	uint32_t type = cursor_u32(&c);
	struct sideband_mapping m;

	cursor_skip(&c, 4); /* misc, size */
	if (type == PERF_RECORD_LOST) {
		metric_add(M_SIDEBAND_LOST, 1);
		s->callbacks.lost(s->callbacks.arg);
		return;
	}
	if (type != PERF_RECORD_MMAP2)
		return;
	m.tgid = cursor_u32(&c);
	cursor_skip(&c, 4); /* tid */
	m.start = cursor_u64(&c);
	m.length = cursor_u64(&c);
	m.offset = cursor_u64(&c);
	m.dev_major = cursor_u32(&c);
	m.dev_minor = cursor_u32(&c);
	m.inode = cursor_u64(&c);
	/* sample_id comes last: nothing but the time, as that is all we ask for. */
	cursor_seek(&c, size - MIN(size, sizeof(m.time)));
	m.time = cursor_u64(&c);
	if (!c.bad)
		s->callbacks.mapped(&m, s->callbacks.arg);
}

static void drain_ring(struct sideband *s, struct ring *r)
{
	const uint8_t *data = (const uint8_t *)r->page + sysconf(_SC_PAGESIZE);
	uint64_t head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE),
		 tail = r->page->data_tail;
	size_t mask = ring_bytes() - 1;

	while (tail < head) {
		uint16_t size;

		/* Records are 8-byte aligned, so a header never wraps. */
		memcpy(&size, data + ((tail + 6) & mask), sizeof(size));
		if (size < 8 || size > head - tail)
			break; /* cannot be: give the rest up */
		for (size_t i = 0; i < MIN(size, (size_t)RECORD_MAX); i += 8)
			memcpy(s->record + i, data + ((tail + i) & mask), 8);
		read_record(s, MIN(size, (size_t)RECORD_MAX));
		tail += size;
	}
	__atomic_store_n(&r->page->data_tail, head, __ATOMIC_RELEASE);
}

static void set_busy(struct sideband *s, bool busy);

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct ring *r = container_of(poll, struct ring, poll);
	struct sideband *s = r->sideband;
	uint64_t second = uv_now(s->loop) / 1000;

	drain_ring(s, r);
	if (second != s->second) {
		s->second = second;
		s->wakeups = 0;
	}
	if (++s->wakeups > WAKEUPS_PER_SECOND)
		set_busy(s, true);
}

static void set_polling(struct ring *r, bool on)
{
	if (r->polling == on || !r->has_poll)
		return;
	if (on)
		on = uv_poll_start(&r->poll, UV_READABLE, on_readable) == 0;
	else
		uv_poll_stop(&r->poll);
	r->polling = on;
}

static void on_busy(uv_timer_t *timer)
{
	struct sideband *s = container_of(timer, struct sideband, busy);

	sideband_drain(s);
	if (uv_now(s->loop) / 1000 != s->second)
		set_busy(s, false);
}

static void set_busy(struct sideband *s, bool busy)
{
	for (size_t i = 0; i < s->n; i++)
		set_polling(&s->rings[i], !busy);
	if (busy)
		(void)uv_timer_start(&s->busy, on_busy, BUSY_MS, BUSY_MS);
	else
		(void)uv_timer_stop(&s->busy);
}

void sideband_drain(struct sideband *s)
{
	for (size_t i = 0; i < s->n; i++)
		drain_ring(s, &s->rings[i]);
}

static int open_ring(struct sideband *s, int cpu, struct error *err)
{
	struct perf_event_attr attr = {
	    .size = sizeof(attr),
	    .type = PERF_TYPE_SOFTWARE,
	    .config = PERF_COUNT_SW_DUMMY,
	    .mmap = 1,
	    .mmap2 = 1,
	    .watermark = 1,
	    .sample_id_all = 1,
	    .sample_type = PERF_SAMPLE_TIME,
	    .use_clockid = 1,
	    .clockid = CLOCK_MONOTONIC,
	    .wakeup_watermark = 1,
	};
	size_t size = (size_t)sysconf(_SC_PAGESIZE) + ring_bytes();
	struct ring *r = &s->rings[s->n];
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 && (errno == ENODEV || errno == ENXIO))
		return 0; /* offline */
	if (fd < 0)
		return error_set(err, -errno, "perf_event_open for mappings on CPU %d: %m", cpu);
	r->page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (r->page == MAP_FAILED) {
		close(fd);
		return error_set(err, -errno, "ring buffer for mappings on CPU %d: %m", cpu);
	}
	r->fd = fd;
	r->sideband = s;
	s->n++;
	if (uv_poll_init(s->loop, &r->poll, fd) < 0)
		return error_set(err, -EIO, "cannot watch the mappings of CPU %d", cpu);
	r->has_poll = true;
	s->open_handles++;
	set_polling(r, true);
	return 0;
}

int sideband_new(uv_loop_t *loop, const struct sideband_callbacks *callbacks, struct sideband **ret,
		 struct error *err)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct sideband *s = calloc(1, sizeof(*s));
	int r = 0;

	if (s)
		s->rings = calloc((size_t)MAX(cpus, 1L), sizeof(*s->rings));
	if (!s || !s->rings) {
		free(s);
		return error_set(err, -ENOMEM, "out of memory");
	}
	s->loop = loop;
	s->callbacks = *callbacks;
	r = uv_timer_init(loop, &s->busy);
	s->has_timer = !r;
	s->open_handles += s->has_timer;
	for (int cpu = 0; cpu < cpus && !r; cpu++)
		r = open_ring(s, cpu, err);
	if (r < 0) {
		sideband_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static void release(struct sideband *s)
{
	free(s->rings);
	free(s);
}

static void handle_closed(struct sideband *s)
{
	if (--s->open_handles == 0)
		release(s);
}

static void on_ring_closed(uv_handle_t *handle)
{
	handle_closed(container_of((uv_poll_t *)handle, struct ring, poll)->sideband);
}

static void on_timer_closed(uv_handle_t *handle)
{
	handle_closed(container_of((uv_timer_t *)handle, struct sideband, busy));
}

struct sideband *sideband_free(struct sideband *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->n; i++) {
		if (s->rings[i].has_poll)
			uv_close((uv_handle_t *)&s->rings[i].poll, on_ring_closed);
		munmap(s->rings[i].page, (size_t)sysconf(_SC_PAGESIZE) + ring_bytes());
		close(s->rings[i].fd);
	}
	if (s->has_timer)
		uv_close((uv_handle_t *)&s->busy, on_timer_closed);
	if (!s->open_handles)
		release(s);
	return NULL;
}
