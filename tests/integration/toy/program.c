/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one program of the toy language for ever: outer calls middle, which calls bridge(), which is
 * native; that calls bundled, which was compiled ahead of time and calls run_inner(), which is
 * native; that runs inner, which calls leaf, which calls work(), which is native again.
 *
 *   usage: toy-program [LIBPYTHON]   work() is done by Python then
 *
 * Prints a line when it begins.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/toy/walker_data.h"

enum { CALLS_MAX = 16, STEPS_MAX = 3, WORK_MS = 20, PAGE = 4096 };

enum operation { RETURN, CALL, NATIVE };

struct step {
	enum operation operation;
	uint32_t line;
	const struct toy_source *callee;
	void (*native)(void);
};

struct toy_source {
	struct toy_function function;
	struct step steps[STEPS_MAX];
};

/* A call's record, and where it is. */
struct record {
	struct toy_call call;
	const struct step *next;
};

static struct record records[CALLS_MAX];
static uint32_t depth;
static struct toy_call *top __attribute__((section("toy_top"), used));

static inline __attribute__((always_inline)) void push(const struct toy_source *source,
						       bool entered)
{
	struct record *r;

	if (depth == CALLS_MAX)
		abort();
	r = &records[depth++];
	*r = (struct record){.call = {.caller = (uintptr_t)top,
				      .function = (uintptr_t)&source->function,
				      .entered = entered},
			     .next = source->steps};
	top = &r->call;
}

/* The interpreter's loop: calls of the language are no calls of its own. */
static __attribute__((section("toy_code"), noinline)) void toy_run(const struct toy_source *source)
{
	push(source, true);
	for (;;) {
		struct record *r = &records[depth - 1];
		const struct step *s = r->next++;

		r->call.line = s->line;
		if (s->operation == CALL) {
			push(s->callee, false);
		} else if (s->operation == NATIVE) {
			s->native();
		} else {
			bool entered = r->call.entered;

			top = (struct toy_call *)(uintptr_t)r->call.caller;
			depth--;
			if (entered)
				return;
		}
	}
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int (*run_python)(const char *);

static __attribute__((noinline)) void spin(uint64_t until)
{
	while (now_ns() < until)
		for (volatile int i = 0; i < 10000; i++)
			;
}

static void work(void)
{
	if (run_python)
		run_python("burn()");
	else
		spin(now_ns() + WORK_MS * 1000000);
	__asm__ volatile(""); /* keeps the last call from becoming a tail call */
}

static const struct toy_source leaf = {{"leaf"}, {{NATIVE, 9, NULL, work}, {.operation = RETURN}}};
static const struct toy_source inner = {{"inner"}, {{CALL, 5, &leaf, NULL}, {.operation = RETURN}}};

static void run_inner(void)
{
	toy_run(&inner);
	__asm__ volatile("");
}

static const struct toy_function bundled = {"bundled"};
static struct toy_bundle bundle __attribute__((section("toy_bundle"), used));

static void bridge(void)
{
	((void (*)(void (*)(void)))(uintptr_t)bundle.start)(run_inner);
	__asm__ volatile("");
}

static const struct toy_source middle = {{"middle"},
					 {{NATIVE, 7, NULL, bridge}, {.operation = RETURN}}};
static const struct toy_source outer = {{"outer"},
					{{CALL, 3, &middle, NULL}, {.operation = RETURN}}};

static int start_python(const char *path)
{
	void *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	void (*initialize)(int);

	if (!so) {
		fprintf(stderr, "%s\n", dlerror());
		return -1;
	}
	*(void **)&initialize = dlsym(so, "Py_InitializeEx");
	*(void **)&run_python = dlsym(so, "PyRun_SimpleString");
	if (!initialize || !run_python)
		return -1;
	initialize(0);
	return run_python("import time\n"
			  "def burn():\n"
			  "    end = time.monotonic() + 0.05\n"
			  "    while time.monotonic() < end:\n"
			  "        sum(range(2000))\n");
}

/* Maps code that calls its argument from a copy of this program's file, behind the segments. */
static int map_bundle(void)
{
	/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
	static const unsigned char code[PAGE] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
	char path[] = "/tmp/toy-bundle-XXXXXX";
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = mkstemp(path);
	struct stat st;
	void *at = MAP_FAILED;
	off_t end;

	if (from >= 0 && to >= 0 && fstat(from, &st) == 0 &&
	    sendfile(to, from, NULL, (size_t)st.st_size) == st.st_size) {
		end = (st.st_size + PAGE - 1) / PAGE * PAGE;
		if (pwrite(to, code, sizeof(code), end) == sizeof(code))
			at = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, to, end);
	}
	if (to >= 0) {
		unlink(path);
		close(to);
	}
	if (from >= 0)
		close(from);
	if (at == MAP_FAILED)
		return -1;
	bundle = (struct toy_bundle){.start = (uintptr_t)at,
				     .end = (uintptr_t)at + PAGE,
				     .function = (uintptr_t)&bundled,
				     .line = 11};
	return 0;
}

int main(int argc, char **argv)
{
	if (map_bundle() || (argc > 1 && start_python(argv[1])))
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;)
		toy_run(&outer);
}
