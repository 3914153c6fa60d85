/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints its chains, then loads, runs and unloads two plugins in turn. They are alike in size, so
 * that the second tends to get the addresses of the first; with "keep" none is unloaded. usage:
 * dlopen SECONDS DIRECTORY [keep]
 */
#include <dlfcn.h>
#include <time.h>

#include "wl.h"

enum {
	/* Of CPU time. Until the kernel's note of a new plugin is read (up to 50 ms while other
	 * programs start by the dozens) its samples are cut: few beside the rest. */
	PHASE_MS = 2000,
};

static inline long cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

NOINLINE void call_plugin(const char *path, bool keep)
{
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void (*run)(uint64_t);

	if (!plugin) {
		fprintf(stderr, "%s\n", dlerror());
		_exit(1);
	}
	*(void **)&run = dlsym(plugin, "plugin_run");
	for (long end = cpu_ms() + PHASE_MS; cpu_ms() < end;) {
		run(20000000);
		AFTER_CALL();
	}
	if (!keep)
		dlclose(plugin);
}

int main(int argc, char **argv)
{
	const char *dir = argc > 2 ? argv[2] : ".";
	char a[4096], b[4096];
	bool keep = argc > 3;

	snprintf(a, sizeof(a), "%s/wl-plugin-red.so", dir);
	snprintf(b, sizeof(b), "%s/wl-plugin-blue.so", dir);
	wl_deadline(argc, argv);
	wl_describe(
	    "dlopen",
	    "{\"frames\":[\"red_leaf\",\"red_middle\",\"plugin_run\",\"call_plugin\"," WL_ROOT
	    "],\"min_share\":0.2},"
	    "{\"frames\":[\"blue_leaf\",\"blue_middle\",\"plugin_run\",\"call_plugin\"," WL_ROOT
	    "],\"min_share\":0.2},"
	    "{\"frames\":[\"+lib:libc.so.6,ld-linux-x86-64.so.2\",\"call_plugin\"," WL_ROOT
	    "],\"max_share\":0.05}");
	for (;;) {
		call_plugin(a, keep);
		call_plugin(b, keep);
	}
}
