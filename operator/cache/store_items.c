// SPDX-License-Identifier: Apache-2.0
/*
 * Called by struct informer: decodes an object and hands it to its store. Separate from the stores,
 * which take decoded views and can be tested and measured without any encoding. Loop thread only.
 */
#include "operator/cache/meta_store.h"
#include "operator/cache/pod_store_internal.h"

int pod_store_put(void *arg, const struct kube_item *item, uint32_t generation)
{
	struct pod_store *store = arg;
	int r = kube_decode_pod(item, &store->view);

	return r ? r : pod_store_put_view(store, &store->view, generation);
}

int pod_store_remove(void *arg, const struct kube_item *item)
{
	struct pod_store *store = arg;
	int r = kube_decode_meta(item, &store->view.meta);

	return r ? r : pod_store_remove_view(store, &store->view.meta);
}
