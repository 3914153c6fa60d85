/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list is made once and never changes. A runtime that gets a folder takes the place of the name
 * that was kept for it, if its id is the same.
 */
#include "agent/runtime/tracers.h"

#include <pthread.h>

#include "agent/runtime/runtime.h"

/* Names of the reference profiler and of the API (crds/) for which there is no runtime yet. */
static const struct tracer kept_names[] = {
    {"ruby", "ruby", 3, false},	    {"php", "php", 4, false},
    {"perl", "perl", 5, false},	    {"hotspot", "jvm", 6, false},
    {"dotnet", "dotnet", 7, false}, {"beam", "beam", 8, false},
    {"luajit", "luajit", 9, false}, {},
};

static struct tracer list[3 + KILN_RUNTIME_MAX + 1];
static pthread_once_t list_once = PTHREAD_ONCE_INIT;

static bool find(uint32_t id, struct tracer *ret)
{
	for (size_t i = 0; runtime_table[i]; i++) {
		const struct interpreter_ops *ops = runtime_table[i];

		if (ops->id == id) {
			*ret = (struct tracer){ops->name, ops->api_name ? ops->api_name : ops->name,
					       id, true};
			return true;
		}
	}
	for (const struct tracer *t = kept_names; t->name; t++)
		if (t->id == id) {
			*ret = *t;
			return true;
		}
	return false;
}

static void make_list(void)
{
	size_t n = 0;

	list[n++] = (struct tracer){"native", "native", 0, true};
	list[n++] = (struct tracer){"kernel", "kernel", 0, true};
	list[n++] = (struct tracer){"go", "go", 0, true};
	for (uint32_t id = 1; id < KILN_RUNTIME_MAX; id++)
		n += find(id, &list[n]);
}

const struct tracer *runtime_tracers(void)
{
	pthread_once(&list_once, make_list);
	return list;
}
