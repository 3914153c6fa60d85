// SPDX-License-Identifier: Apache-2.0
/*
 * Loads Python, runs a script, ends the interpreter and unloads it; then works without it, and does
 * all of it once more with functions of the same shape and other names.
 * usage: python-unload LIBPYTHON SECONDS
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds;
static volatile unsigned long sink;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool is_mapped(const char *path)
{
	char line[4096], real[4096];
	FILE *f = realpath(path, real) ? fopen("/proc/self/maps", "re") : NULL;
	bool found = false;

	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, real) != NULL;
	if (f)
		fclose(f);
	return found;
}

static void python(const char *path, int round)
{
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void (*initialize)(int);
	int (*run)(const char *), (*finalize)(void), *no_site;
	char code[1024];

	if (!so) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&initialize = dlsym(so, "Py_InitializeEx");
	*(void **)&run = dlsym(so, "PyRun_SimpleString");
	*(void **)&finalize = dlsym(so, "Py_FinalizeEx");
	no_site = dlsym(so, "Py_NoSiteFlag");
	if (!initialize || !run || !finalize || !no_site)
		exit(1);
	/* Nothing that would keep it loaded. */
	*no_site = 1;
	initialize(0);
	snprintf(code, sizeof(code),
		 "import time\n"
		 "def leaf_%d(end):\n"
		 "    while time.monotonic() < end:\n"
		 "        for i in range(5000): i * i\n"
		 "def caller_%d(end):\n"
		 "    leaf_%d(end)\n"
		 "caller_%d(time.monotonic() + %g)\n",
		 round, round, round, round, seconds);
	if (run(code) || finalize() || dlclose(so))
		exit(1);
}

void first(const char *path);
__attribute__((noinline)) void first(const char *path)
{
	python(path, 1);
	sink++;
}

void second(const char *path);
__attribute__((noinline)) void second(const char *path)
{
	python(path, 2);
	sink++;
}

void without(void);
__attribute__((noinline)) void without(void)
{
	double end = now() + seconds;

	while (now() < end)
		for (int i = 0; i < 10000; i++)
			sink++;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	seconds = atof(argv[2]);
	printf("{\"pid\": %d}\n", (int)getpid());
	fflush(stdout);
	for (;;) {
		first(argv[1]);
		printf("{\"unloaded\": %s}\n", is_mapped(argv[1]) ? "false" : "true");
		fflush(stdout);
		without();
		second(argv[1]);
		without();
	}
}
