// SPDX-License-Identifier: Apache-2.0
/* Every allocation of the pod store fails once in turn: it says so, and stays whole. */
#include "lib/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "operator/cache/pod_store.h"
#include "tests/support/failalloc.h"
#include "tests/unit/operator/cache/views.h"

enum { PODS = 40 };
static struct pod_view view;

static void make(int i)
{
	static char name[24], uid[40], node[24], id[80];

	(void)snprintf(name, sizeof(name), "web-%d", i);
	(void)snprintf(uid, sizeof(uid), "00000000-0000-0000-0000-%012d", i);
	(void)snprintf(node, sizeof(node), "node-%d", i % 7);
	(void)snprintf(id, sizeof(id), "containerd://%064d", i + 1);
	view_pod(&view, "shop", name, uid, node);
	view_label(&view, "pod", name);
	view_owner(&view.meta, "ReplicaSet", "web", "00000000-0000-0000-0000-000000000099");
	view_container(&view, "app", name, id);
}

static void no_memory_is_survived(void **unused)
{
	long failed = 0;

	(void)unused;
	for (long nth = 0; nth < 1000; nth++) {
		_cleanup_(intern_freep) struct intern *in = NULL;
		_cleanup_(pod_store_freep) struct pod_store *store = NULL;
		struct pod_store_options options = {.max_pods = 1000};
		bool hit = false;
		int r;

		failalloc_at(nth);
		r = intern_new(1 << 20, &in);
		options.intern = in;
		if (!r)
			r = pod_store_new(&options, &store);
		for (int i = 0; i < PODS && !r; i++) {
			make(i);
			r = pod_store_put_view(store, &view, 1);
			if (!r)
				continue;
			assert_int_equal(r, -ENOMEM);
			assert_int_equal(pod_store_count(store), i);
			hit = failalloc_stop();
			r = pod_store_put_view(store, &view, 1);
		}
		hit |= failalloc_stop();
		if (store) {
			assert_int_equal(r, 0);
			assert_int_equal(pod_store_count(store), PODS);
			pod_store_replaced(store, 2);
			assert_int_equal(intern_count(in), 0);
		} else {
			assert_int_equal(r, -ENOMEM);
		}
		if (!hit)
			break;
		failed++;
	}
	assert_true(failed > 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(no_memory_is_survived)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
