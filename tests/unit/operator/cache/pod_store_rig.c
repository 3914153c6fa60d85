/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/operator/cache/pod_store_rig.h"

struct intern *in;
struct pod_store *store;
struct pod_view view;
struct pod_info info;
uint64_t told;
static const char *const keys[] = {"a.first/", "team/", "note", NULL};

static void on_change(void *arg, const struct pod *pod, const struct pod *old)
{
	(void)arg;
	(void)pod;
	(void)old;
	told++;
}

void start(size_t max_bytes, size_t max_pods)
{
	struct pod_store_options options = {
	    .max_pods = max_pods, .annotations = keys, .changed = on_change};

	assert_int_equal(intern_new(max_bytes, &in), 0);
	options.intern = in;
	assert_int_equal(pod_store_new(&options, &store), 0);
	told = 0;
}

void restart(size_t max_bytes, size_t max_pods)
{
	store = pod_store_free(store);
	in = intern_free(in);
	start(max_bytes, max_pods);
}

int setup(void **unused)
{
	(void)unused;
	start(16 << 20, 1000);
	return 0;
}

int teardown(void **unused)
{
	(void)unused;
	store = pod_store_free(store);
	assert_int_equal(intern_count(in), 0);
	in = intern_free(in);
	return 0;
}

void put(void)
{
	assert_int_equal(pod_store_put_view(store, &view, 1), 0);
}

const struct pod_info *get(const char *ns, const char *name)
{
	const struct pod *pod = pod_store_find(store, ns, name);

	assert_non_null(pod);
	pod_unpack(store, pod, &info);
	return &info;
}

struct pod_store_stats stats(void)
{
	struct pod_store_stats s;

	pod_store_read_stats(store, &s);
	return s;
}

void id_of(uint8_t first, uint8_t ret[32])
{
	memset(ret, 0, 32);
	ret[0] = first;
}
