// SPDX-License-Identifier: Apache-2.0
/*
 * Loads Python late: works alone for a second, then takes LIBPYTHON and runs SCRIPT with the other
 * arguments. usage: python-embed LIBPYTHON SCRIPT [ARGUMENT...]
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	static char code[8192];
	double end = now() + 1;
	void (*initialize)(int);
	int (*run)(const char *);
	size_t n;
	void *so;

	if (argc < 3)
		return 2;
	while (now() < end)
		;
	so = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (!so) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&initialize = dlsym(so, "Py_InitializeEx");
	*(void **)&run = dlsym(so, "PyRun_SimpleString");
	if (!initialize || !run)
		return 1;
	initialize(0);
	n = (size_t)snprintf(code, sizeof(code), "import sys; sys.argv = [");
	for (int i = 2; i < argc && n < sizeof(code) - 1024; i++)
		n += (size_t)snprintf(code + n, 512, "'%s', ", argv[i]);
	snprintf(code + n, sizeof(code) - n,
		 "]\nexec(compile(open(sys.argv[0], encoding='utf-8').read(), sys.argv[0], 'exec'),"
		 " {'__name__': '__main__', '__file__': sys.argv[0]})");
	return run(code);
}
