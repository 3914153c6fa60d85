/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that wait, each in a place of its own, and what they know of it: the time that they did
 * not run is the clock's minus what the scheduler says in /proc/self/task/TID/schedstat.
 *
 * usage: waits SECONDS FILE [PLACE]
 *
 * FILE: some MiB, for reads past the page cache. PLACE: the only function to run; wait_quota() and
 * wait_often() run in no other case.
 *
 * Prints {"pid":N}, and begins at the first line of standard input. When all threads are done it
 * prints one JSON object and ends when standard input is closed. The object has an entry for each
 * function: its thread, the ns that the thread did not run, and the ns of that which wait_mixed()
 * spent in wait_mixed_long(), and wait_often() in wait_often_long() (0 for other functions):
 * "wait_epoll":{"tid":N,"off":NS,"long":NS}.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>

#include "wl.h"

enum { FILE_BYTES = 8 << 20, BLOCK = 64 << 10 };

static uint64_t end_ns, mixed_long_ns, often_long_ns;
static const char *file;
static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER, locked = PTHREAD_MUTEX_INITIALIZER;
static int ends[2], there[2], back[2];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void nap(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	nanosleep(&t, NULL);
}

static uint64_t ran_ns(int tid)
{
	unsigned long long ran = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", tid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%llu", &ran) != 1)
		_exit(3);
	fclose(f);
	return ran;
}

/* ---- the places ------------------------------------------------------------------------------ */

NOINLINE void wait_mutex(void)
{
	while (now_ns() < end_ns) {
		pthread_mutex_lock(&contended);
		AFTER_CALL();
		pthread_mutex_unlock(&contended);
	}
}

/* Holds the mutex that wait_mutex() waits for. */
NOINLINE void wait_holding(void)
{
	while (now_ns() < end_ns) {
		pthread_mutex_lock(&contended);
		nap(20000000);
		pthread_mutex_unlock(&contended);
		nap(1000000);
	}
}

/* Waits for a mutex that is never unlocked: one wait, longer than a window. */
NOINLINE void wait_deadlocked(void)
{
	uint64_t left = end_ns - now_ns();
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	left += (uint64_t)t.tv_nsec;
	t.tv_sec += (time_t)(left / 1000000000);
	t.tv_nsec = (long)(left % 1000000000);
	pthread_mutex_timedlock(&locked, &t);
	AFTER_CALL();
}

NOINLINE void wait_epoll(void)
{
	int fd = epoll_create1(0);
	struct epoll_event event;

	while (now_ns() < end_ns)
		epoll_wait(fd, &event, 1, 15);
	close(fd);
}

NOINLINE void wait_sleep(void)
{
	while (now_ns() < end_ns)
		nap(4000000);
}

NOINLINE void wait_short(void)
{
	while (now_ns() < end_ns)
		nap(200000);
}

/* Many short waits and some long ones, in two places. */
NOINLINE void wait_mixed_short(void)
{
	nap(500000);
	AFTER_CALL();
}

/* With a frame of another size: in programs, two places seldom have the same stack pointer. */
NOINLINE void wait_mixed_long(void)
{
	volatile char room[256];

	room[0] = 0;
	nap(80000000);
	room[sizeof(room) - 1] = 0;
	AFTER_CALL();
}

NOINLINE void wait_mixed(void)
{
	while (now_ns() < end_ns) {
		uint64_t began;

		for (int i = 0; i < 40; i++)
			wait_mixed_short();
		began = now_ns();
		wait_mixed_long();
		mixed_long_ns += now_ns() - began;
	}
}

NOINLINE void wait_pipe(void)
{
	char c;

	while (read(ends[0], &c, 1) == 1)
		;
	AFTER_CALL();
}

NOINLINE void wait_writing(void)
{
	while (now_ns() < end_ns) {
		nap(10000000);
		if (write(ends[1], "x", 1) != 1)
			_exit(4);
	}
	close(ends[1]);
}

NOINLINE void wait_disk(void)
{
	int fd = open(file, O_RDONLY | O_DIRECT);
	void *block;

	if (fd < 0 || posix_memalign(&block, 4096, BLOCK))
		_exit(5);
	for (off_t at = 0; now_ns() < end_ns; at = (at + BLOCK) % FILE_BYTES)
		if (pread(fd, block, BLOCK, at) != BLOCK)
			_exit(6);
	close(fd);
}

/* Always computes: it waits when other threads have the CPU, or its cgroup has used up its quota.
 */
NOINLINE void wait_quota(void)
{
	while (now_ns() < end_ns)
		AFTER_CALL();
}

static void pin_to_first_cpu(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(7);
}

/* Answers each byte: 's' at once, 'l' after 10 us. */
static void *answer(void *arg)
{
	char c;

	(void)arg;
	pin_to_first_cpu();
	while (read(there[0], &c, 1) == 1) {
		uint64_t until = c == 'l' ? now_ns() + 10000 : 0;

		while (now_ns() < until)
			;
		if (write(back[1], &c, 1) != 1)
			_exit(8);
	}
	return NULL;
}

static void ask(char c)
{
	if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
		_exit(9);
}

NOINLINE void wait_often_short(void)
{
	ask('s');
	AFTER_CALL();
}

NOINLINE void wait_often_long(void)
{
	ask('l');
	AFTER_CALL();
}

/* Waits in two places, for a thread on the same CPU: some hundred thousand switches a second. */
NOINLINE void wait_often(void)
{
	pthread_t thread;

	if (pipe(there) || pipe(back) || pthread_create(&thread, NULL, answer, NULL))
		_exit(10);
	pin_to_first_cpu();
	while (now_ns() < end_ns) {
		uint64_t began;

		for (int i = 0; i < 5; i++)
			wait_often_short();
		began = now_ns();
		wait_often_long();
		often_long_ns += now_ns() - began;
	}
	close(there[1]);
	pthread_join(thread, NULL);
}

/* ---- threads --------------------------------------------------------------------------------- */

static struct place {
	const char *name;
	void (*wait)(void);
	pthread_t thread;
	int tid;
	uint64_t off_ns;
} places[] = {
    {.name = "wait_mutex", .wait = wait_mutex},
    {.name = "wait_holding", .wait = wait_holding},
    {.name = "wait_deadlocked", .wait = wait_deadlocked},
    {.name = "wait_epoll", .wait = wait_epoll},
    {.name = "wait_sleep", .wait = wait_sleep},
    {.name = "wait_short", .wait = wait_short},
    {.name = "wait_mixed", .wait = wait_mixed},
    {.name = "wait_pipe", .wait = wait_pipe},
    {.name = "wait_writing", .wait = wait_writing},
    {.name = "wait_disk", .wait = wait_disk},
    /* These run alone. */
    {.name = "wait_quota", .wait = wait_quota},
    {.name = "wait_often", .wait = wait_often},
};

static void *run(void *arg)
{
	struct place *p = arg;
	uint64_t began, ran;

	p->tid = (int)syscall(SYS_gettid);
	ran = ran_ns(p->tid);
	began = now_ns();
	p->wait();
	p->off_ns = now_ns() - began;
	p->off_ns -= ran_ns(p->tid) - ran;
	return NULL;
}

int main(int argc, char **argv)
{
	size_t first = 0, n = sizeof(places) / sizeof(places[0]) - 2;

	if (argc < 3 || pipe(ends))
		return 2;
	if (argc > 3) {
		n = sizeof(places) / sizeof(places[0]);
		while (first < n && strcmp(places[first].name, argv[3]))
			first++;
		if (first == n)
			return 2;
		n = first + 1;
	}
	file = argv[2];
	pthread_mutex_lock(&locked);
	printf("{\"pid\":%d}\n", (int)getpid());
	fflush(stdout);
	if (getchar() < 0)
		return 0;
	end_ns = now_ns() + (uint64_t)atoi(argv[1]) * 1000000000ULL;
	for (size_t i = first; i < n; i++)
		if (pthread_create(&places[i].thread, NULL, run, &places[i]))
			return 1;
	for (size_t i = first; i < n; i++)
		pthread_join(places[i].thread, NULL);
	for (size_t i = first; i < n; i++)
		printf("%s\"%s\":{\"tid\":%d,\"off\":%llu,\"long\":%llu}", i > first ? "," : "{",
		       places[i].name, places[i].tid, (unsigned long long)places[i].off_ns,
		       (unsigned long long)(places[i].wait == wait_mixed   ? mixed_long_ns
					    : places[i].wait == wait_often ? often_long_ns
									   : 0));
	printf("}\n");
	fflush(stdout);
	while (getchar() >= 0)
		;
	return 0;
}
