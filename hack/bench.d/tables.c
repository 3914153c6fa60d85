// SPDX-License-Identifier: Apache-2.0
/*
 * What unwind tables cost: compiles the table of every file named on the command line five times
 * and prints code size, rows, rules, table bytes, bytes per row, the median CPU time, and the
 * heap's peak (over what was there before) during one of the runs.
 *
 *   kiln_bench_tables /usr/lib/x86_64-linux-gnu/libc.so.6 /usr/bin/node ...
 */
#include <elf.h>
#include <fcntl.h>
#include <malloc.h>
#include <time.h>

#include "agent/elf/unwind.h"

enum { RUNS = 5 };

/* Measures the heap's peak: replaces the allocator by --wrap. Single-threaded. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static size_t heap_now, heap_peak;

static void *count(void *p)
{
	heap_now += p ? malloc_usable_size(p) : 0;
	heap_peak = MAX(heap_peak, heap_now);
	return p;
}

void *__wrap_malloc(size_t n)
{
	return count(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
	return count(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
	size_t before = p ? malloc_usable_size(p) : 0;
	void *q = __real_realloc(p, n);

	if (q)
		heap_now -= before;
	return count(q);
}

void __wrap_free(void *p)
{
	heap_now -= p ? malloc_usable_size(p) : 0;
	__real_free(p);
}

/* CPU time of this thread, so that other programs on this machine do not count. */
static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static uint64_t code_size(const struct image *image)
{
	uint64_t n = 0;

	for (size_t i = 0; i < image->n_segments; i++)
		if (image->segments[i].flags & PF_X)
			n += image->segments[i].filesz;
	return n;
}

static int measure(const struct image *image, const char *name, struct error *err)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	double ms[RUNS];
	size_t before = heap_now, bytes;
	int r;

	heap_peak = heap_now;
	for (int i = 0; i < RUNS; i++) {
		double start = now_ms();

		t = unwind_table_free(t);
		r = unwind_compile(image, &t, err);
		if (r < 0)
			return r;
		ms[i] = now_ms() - start;
	}
	qsort(ms, RUNS, sizeof(ms[0]), by_value);
	bytes = unwind_table_bytes(t);
	printf("%-28s %8llu %8u %6u %9zu %6.2f %8.2f %9zu %6u %6u\n", name,
	       (unsigned long long)(code_size(image) >> 10), t->n_rows, t->n_rules, bytes,
	       (double)bytes / t->n_rows, ms[RUNS / 2], (heap_peak - before) >> 10, t->unsupported,
	       t->malformed);
	return 0;
}

static int bench(const char *path, struct error *err)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	const char *slash = strrchr(path, '/');
	int r;

	if (fd < 0)
		return error_set(err, -errno, "%s", strerror(errno));
	r = image_open(TAKE_FD(fd), path, &image, err);
	if (r < 0)
		return r;
	return measure(image, slash ? slash + 1 : path, err);
}

int main(int argc, char **argv)
{
	int failed = 0;

	printf("%-28s %8s %8s %6s %9s %6s %8s %9s %6s %6s\n", "file", "text KiB", "rows", "rules",
	       "bytes", "B/row", "ms", "heap KiB", "unsup", "malf");
	for (int i = 1; i < argc; i++) {
		struct error err = {0};

		if (bench(argv[i], &err) < 0) {
			fprintf(stderr, "%s: %s\n", argv[i], err.message);
			failed++;
		}
	}
	return failed ? 1 : 0;
}
