/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list is made once and never changes. A runtime whose name is in kept_names has the id given
 * there.
 */
#include "agent/runtime/tracers.h"

#include <pthread.h>

/*
 * Names of the reference profiler and of the API (crds/) that have an id reserved, because a
 * program need not have these runtimes.
 */
static const struct tracer kept_names[] = {
    {"ruby", "ruby", 3, false},	    {"php", "php", 4, false},
    {"perl", "perl", 5, false},	    {"hotspot", "jvm", 6, false},
    {"dotnet", "dotnet", 7, false}, {"beam", "beam", 8, false},
    {"luajit", "luajit", 9, false}, {},
};

static int check_row(const struct interpreter_ops *row, struct error *err)
{
	if (!row->id || row->id >= KILN_LABELS_OTEL)
		return error_set(err, -EINVAL, "runtime %s: its id is %u, want 1..%u", row->name,
				 row->id, KILN_LABELS_OTEL - 1);
	for (const struct tracer *k = kept_names; k->name; k++)
		if ((k->id == row->id) != streq(k->name, row->name))
			return error_set(err, -EINVAL,
					 "runtime %s: its id is %u, but %u is kept for %s",
					 row->name, row->id, k->id, k->name);
	return 0;
}

int runtime_table_check(const struct interpreter_ops *const *table, struct error *err)
{
	for (size_t i = 0; table[i]; i++) {
		int r = check_row(table[i], err);

		if (r < 0)
			return r;
		for (size_t j = 0; j < i; j++) {
			if (table[j]->id == table[i]->id)
				return error_set(err, -EINVAL,
						 "runtimes %s and %s: both have the id %u",
						 table[j]->name, table[i]->name, table[i]->id);
			if (streq(table[j]->name, table[i]->name))
				return error_set(err, -EINVAL, "two runtimes are called %s",
						 table[i]->name);
		}
	}
	return 0;
}

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
