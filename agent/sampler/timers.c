/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU clock events are used on every machine, although some have cycle counters: samples of those
 * would not come at the period that profiles state.
 *
 * A change of the rate starts a timer anew (the kernel's perf_event_period()): the time since its
 * last hit would be lost, half a period on average. So that time is handed to the timer's next hit
 * (struct kiln_cpu: carry). It is the event's count, which is the time for which the event was
 * enabled, modulo the period: hits come at whole periods, also those that find the CPU idle.
 *
 * All timers are stopped while the rate changes. Otherwise a hit of the old period could be given
 * the new period as its weight. That would happen often: the CPU budget changes rates at multiples
 * of 250 ms (cpu_budget.c), which is when hits at 1, 2 and 4 Hz are due.
 */
#include "agent/sampler/timers.h"

#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "agent/sampler/cpus.h"
#include "lib/clock.h"

#define NS_PER_SECOND 1000000000ULL
#define NS_PER_US     1000
/* A hit that comes this much after its period still takes what was carried over: interrupts were
 * off for a while, or the hypervisor ran another guest. */
#define LATE_NS	      20000000
/* A timer whose period is DUE_PERIOD_NS or more is not stopped within DUE_NS of a hit. */
#define DUE_NS	      100000
#define DUE_PERIOD_NS 10000000

struct timer {
	struct bpf_link *link; /* owns fd; NULL: no timer */
	int fd;
	bool runs;	     /* not at rate 0 */
	uint64_t counted;    /* the event's count when it was started last: ns */
	uint64_t left_ns;    /* when it was stopped: the time since its last hit */
	uint64_t stopped_ns; /* CLOCK_MONOTONIC */
	uint64_t enabled;    /* see cpus_event_is_alive() */
};

struct timers {
	struct timers_options options;
	uint32_t hz;
	struct timer *timers; /* n_cpus */
	bool *online;	      /* scratch, n_cpus */
	size_t beyond;	      /* see timers_beyond() */
};

static int open_event(uint32_t hz, pid_t tid, int cpu)
{
	struct perf_event_attr attr = {
	    .size = sizeof(attr),
	    .type = PERF_TYPE_SOFTWARE,
	    .config = PERF_COUNT_SW_CPU_CLOCK,
	    .sample_period = kiln_period(hz),
	    .read_format = CPUS_READ_FORMAT,
	    .exclude_idle = 1,
	    .disabled = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* CPU -1: the target thread's timer. Returns the number of timers started. */
static int start_timer(struct timers *t, int cpu, struct error *err)
{
	struct timer *timer = &t->timers[MAX(cpu, 0)];
	int fd = open_event(t->hz, cpu < 0 ? (pid_t)t->options.target_tid : -1, cpu), r;

	if (fd < 0 && (errno == ENODEV || errno == ENXIO))
		return 0; /* a CPU that is offline or not there */
	if (fd < 0)
		return error_set(
		    err, errno == EACCES ? -EPERM : -errno, "perf_event_open on CPU %d: %m%s", cpu,
		    errno == EACCES || errno == EPERM ? " (CAP_PERFMON is needed)" : "");
	timer->link = bpf_program__attach_perf_event(t->options.program, fd);
	if (!timer->link) {
		r = -errno;
		close(fd);
		return error_set(err, r, "cannot attach to the timer of CPU %d: %s", cpu,
				 strerror(-r));
	}
	timer->fd = fd;
	timer->runs = t->hz != 0;
	if (!t->hz)
		(void)ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	return 1;
}

static void stop_timer(struct timer *timer)
{
	if (timer->link)
		bpf_link__destroy(timer->link);
	*timer = (struct timer){};
}

int timers_new(const struct timers_options *options, struct timers **ret, struct error *err)
{
	_cleanup_(timers_freep) struct timers *t = calloc(1, sizeof(*t));
	int started = 0, r;

	if (t) {
		t->options = *options;
		t->hz = options->hz;
		t->timers = calloc((size_t)options->n_cpus, sizeof(*t->timers));
		t->online = calloc((size_t)options->n_cpus, sizeof(*t->online));
	}
	if (!t || !t->timers || !t->online)
		return error_set(err, -ENOMEM, "out of memory");
	for (int cpu = options->target_tid ? -1 : 0;
	     cpu < (options->target_tid ? 0 : t->options.n_cpus); cpu++) {
		r = start_timer(t, cpu, err);
		if (r < 0)
			return r;
		started += r;
	}
	if (!started)
		return error_set(err, -ENOTSUP, "no CPU has a usable timer event");
	*ret = TAKE_PTR(t);
	return 0;
}

struct timers *timers_free(struct timers *t)
{
	if (!t)
		return NULL;
	for (int cpu = 0; t->timers && cpu < t->options.n_cpus; cpu++)
		stop_timer(&t->timers[cpu]);
	free(t->timers);
	free(t->online);
	free(t);
	return NULL;
}

/* The time for which the event was enabled so far: ns. False: it cannot be read. */
static bool read_count(const struct timer *timer, uint64_t *ret)
{
	uint64_t values[2]; /* count, time enabled */

	if (read(timer->fd, values, sizeof(values)) != sizeof(values))
		return false;
	*ret = values[0];
	return true;
}

/*
 * Waits until both the last and the next hit of TIMER are more than DUE_NS away. If a timer is
 * stopped at the moment of a hit, its count does not tell whether it has hit: a whole period would
 * be lost or counted twice. Short periods are not worth the wait.
 */
static void wait_for_due_hit(const struct timer *timer, uint64_t period)
{
	uint64_t count, since;

	for (int i = 0; i < 4 && period >= DUE_PERIOD_NS && read_count(timer, &count); i++) {
		since = (count - timer->counted) % period;
		if (since > DUE_NS && period - since > DUE_NS)
			return;
		usleep(2 * DUE_NS / NS_PER_US);
	}
}

/* Stops TIMER, and notes when that was and how much of its period had passed. */
static void pause_timer(const struct timers *t, struct timer *timer)
{
	uint64_t before = timer->counted, period = kiln_period(t->hz);
	bool carries = timer->runs && !t->options.target_tid;

	if (carries)
		wait_for_due_hit(timer, period);
	(void)ioctl(timer->fd, PERF_EVENT_IOC_DISABLE, 0);
	timer->stopped_ns = monotonic_ns();
	timer->left_ns = 0;
	if (read_count(timer, &timer->counted) && carries)
		timer->left_ns = (timer->counted - before) % period;
}

/* Adds the time since TIMER's last hit to the next hit of its CPU, C. */
static void carry_over(const struct timer *timer, struct kiln_cpu *c, uint64_t period)
{
	uint64_t now = monotonic_ns(), left = timer->left_ns + now - timer->stopped_ns;

	/* The carry of an earlier change, if no hit has taken it yet. */
	if (now < c->carry_until)
		left += c->carry;
	c->carry_until = now + period + MAX(period / 2, (uint64_t)LATE_NS);
	__atomic_store_n(&c->carry, left, __ATOMIC_RELEASE);
}

int timers_set_rate(struct timers *t, uint32_t hz)
{
	uint64_t period = kiln_period(hz);
	int r = 0;

	if (hz == t->hz)
		return 0; /* a restart would only delay the next hits */
	for (int cpu = 0; cpu < t->options.n_cpus; cpu++) {
		struct timer *timer = &t->timers[cpu];

		if (timer->link)
			pause_timer(t, timer);
	}
	if (hz)
		*t->options.timer_ns = period;
	t->hz = hz;
	for (int cpu = 0; cpu < t->options.n_cpus; cpu++) {
		struct timer *timer = &t->timers[cpu];

		if (!timer->link)
			continue;
		if (hz) {
			/* A thread's timer runs only while the thread does: the time since its
			 * last hit cannot be told from the clock. */
			if (timer->runs && !t->options.target_tid)
				carry_over(timer, &t->options.cpus[cpu], period);
			r |= ioctl(timer->fd, PERF_EVENT_IOC_PERIOD, &period);
			r |= ioctl(timer->fd, PERF_EVENT_IOC_ENABLE, 0);
		}
		timer->runs = hz != 0;
	}
	return r ? -EIO : 0;
}

int timers_refresh(struct timers *t, struct error *err)
{
	int r, started = 0, failed = 0;

	if (t->options.target_tid)
		return 0;
	r = cpus_read(t->options.online ? t->options.online : CPUS_ONLINE, t->online,
		      (size_t)t->options.n_cpus, &t->beyond);
	if (r < 0)
		return error_set(err, r, "cannot read the list of CPUs: %s", strerror(-r));
	for (int cpu = 0; cpu < t->options.n_cpus; cpu++) {
		struct timer *timer = &t->timers[cpu];

		if (timer->link && (!t->online[cpu] ||
				    (t->hz && !cpus_event_is_alive(timer->fd, &timer->enabled))))
			stop_timer(timer);
		if (timer->link || !t->online[cpu])
			continue;
		r = start_timer(t, cpu, failed ? NULL : err);
		if (r < 0)
			failed = failed ? failed : r;
		else
			started += r;
	}
	return failed ? failed : started;
}

size_t timers_beyond(const struct timers *t)
{
	return t->beyond;
}
