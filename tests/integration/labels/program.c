/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads with contexts. usage: program MODE [THREADS]
 *
 *   steady   each thread N works in work_A() under tenant A and in work_B() under tenant B, turn
 *            about, in a context of its own
 *   racing   each thread changes its context all the time, with ids that check each other
 *   garbage  contexts that are none: wild pointers, impossible sizes
 *   waiting  as steady, but it sleeps where that works
 *   none     no context of a thread, but that of the process
 *   unpublished   no context at all
 */
#include "context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const keys[] = {"tenant", "http.route", "secret"};
static volatile uint64_t sink;
static useconds_t rest_us;

__attribute__((noinline, noclone)) void spin(uint64_t n)
{
	for (uint64_t i = 0; i < n && !rest_us; i++)
		sink = i;
	if (rest_us)
		usleep(rest_us);
}

__attribute__((noinline, noclone)) void work_A(void)
{
	spin(2000000);
	__asm__ volatile("");
}

__attribute__((noinline, noclone)) void work_B(void)
{
	spin(2000000);
	__asm__ volatile("");
}

/* More than the agent reads of a record at once. */
static const char long_route[] =
    "/pay/{id}/by/{card}/of/{bank}/in/{country}/and/then/back/to/{shop}/with/{receipt}/or/{error}/"
    "at/{time}/once";

static void fill(struct thread_context *c, uint64_t id, const char *tenant, const char *route)
{
	thread_context_set_ids(c, id);
	c->trace_flags = 1;
	thread_context_add(c, 0, tenant);
	thread_context_add(c, 1, route);
	thread_context_add(c, 2, "hunter2");
	c->valid = 1;
}

/* Copies C so that its last byte is the last one of a page. The page behind it is not mapped. */
static struct thread_context *at_the_edge(const struct thread_context *c)
{
	size_t size = offsetof(struct thread_context, attributes) + c->attributes_size;
	uint8_t *pages =
	    mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(pages + 4096, 4096);
	return memcpy(pages + 4096 - size, c, size);
}

static void *steady(void *arg)
{
	uint64_t n = (uint64_t)(uintptr_t)arg;
	struct thread_context a = {0}, b = {0}, *edge;

	fill(&a, 2 * n, "A", long_route);
	fill(&b, 2 * n + 1, "B", "/pay/{id}");
	edge = at_the_edge(&b);
	for (;;) {
		thread_context_attach(&a);
		work_A();
		thread_context_attach(NULL);
		thread_context_attach(edge);
		work_B();
		thread_context_attach(NULL);
	}
	return arg;
}

static void *waiting(void *arg)
{
	rest_us = 2000;
	return steady(arg);
}

static _Atomic uint64_t changes;

/* In place, by the valid flag, and by exchange of the pointer, turn about. */
static void *racing(void *arg)
{
	struct thread_context c[2] = {0};
	volatile uint8_t *valid;
	uint64_t id = (uint64_t)(uintptr_t)arg << 48;

	for (int i = 0;; i = !i) {
		for (int k = 0; k < 1000; k++, id++) {
			valid = &c[i].valid;
			if (k & 1) {
				thread_context_attach(NULL);
				thread_context_set_ids(&c[i], id);
				c[i].attributes_size = 0;
				thread_context_add(&c[i], 0, id & 2 ? "even" : "a longer one");
				c[i].valid = 1;
				thread_context_attach(&c[i]);
			} else {
				*valid = 0;
				atomic_signal_fence(memory_order_seq_cst);
				thread_context_set_ids(&c[i], id);
				atomic_signal_fence(memory_order_seq_cst);
				*valid = 1;
			}
			atomic_signal_fence(memory_order_seq_cst);
			spin(200);
		}
		atomic_fetch_add_explicit(&changes, 1000, memory_order_relaxed);
	}
	return arg;
}

static void *garbage(void *arg)
{
	static struct thread_context half;
	static struct {
		struct thread_context c;
		uint8_t more[1024];
	} full;
	uint8_t *edge =
	    mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct thread_context *end = (struct thread_context *)(edge + 4096 - 28);

	munmap(edge + 4096, 4096);
	end->valid = half.valid = full.c.valid = 1;
	end->attributes_size = 600;
	thread_context_set_ids(end, 7);
	half.trace_id[3] = 1; /* without a span */
	thread_context_set_ids(&full.c, 8);
	full.c.attributes_size = 65535;
	memset(full.c.attributes, 255, sizeof(full) - offsetof(struct thread_context, attributes));
	for (;;) {
		struct thread_context *const wild[] = {
		    (void *)1, (void *)~0xfUL, (void *)0xffffffff81000000UL, end, &half, &full.c};

		for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
			thread_context_attach(wild[i]);
			work_A();
		}
	}
	return arg;
}

static void *none(void *arg)
{
	for (;;) {
		work_A();
		work_B();
	}
	return arg;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void *(*run)(void *arg);
	} modes[] = {{"steady", steady},   {"waiting", waiting}, {"racing", racing},
		     {"garbage", garbage}, {"none", none},	 {"unpublished", none}};
	int n = argc > 2 ? atoi(argv[2]) : 2;
	char line[16];

	if (argc > 1 && strcmp(argv[1], "unpublished") != 0 && process_context_publish(keys, 2) < 0)
		return 1;
	for (size_t m = 0; argc > 1 && m < sizeof(modes) / sizeof(modes[0]); m++)
		for (int i = 0; i < n && strcmp(argv[1], modes[m].name) == 0; i++) {
			pthread_t thread;

			if (pthread_create(&thread, NULL, modes[m].run, (void *)(intptr_t)(i + 1)))
				return 1;
		}
	puts("ready");
	fflush(stdout);
	/* A line: the third key gets its name. The end of input: how often contexts changed. */
	while (fgets(line, sizeof(line), stdin))
		if (process_context_publish(keys, 3) < 0)
			return 1;
	printf("%llu\n", (unsigned long long)changes);
	return 0;
}
