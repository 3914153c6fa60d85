/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configs in the order in which they win, chained by the hash of one required label ("app=api").
 * Chains go up, so that the first that matches ends the search of its chain, and a chain is left
 * as soon as it passes the best so far. Owned by policy_set, on its thread.
 */
#include "operator/policy/policy_index.h"

enum { INDEX_SMALL = 8 };
#define INDEX_NONE UINT32_MAX

int policy_index_reserve(struct policy_index *index, size_t n)
{
	struct policy_index_item *items;
	uint32_t *chains;
	size_t cap = index->cap ? index->cap : INDEX_SMALL;

	if (n <= index->cap)
		return 0;
	if (n > POLICY_CONFIGS_MAX)
		return -E2BIG;
	while (cap < n)
		cap *= 2;
	items = realloc(index->items, cap * sizeof(*items));
	if (!items)
		return -ENOMEM;
	index->items = items;
	chains = realloc(index->chains, cap * sizeof(*chains));
	if (!chains)
		return -ENOMEM;
	index->chains = chains;
	index->cap = (uint32_t)cap;
	policy_index_sort(index);
	return 0;
}

void policy_index_done(struct policy_index *index)
{
	free(index->items);
	free(index->chains);
	*index = (struct policy_index){.items = NULL};
}

void policy_index_clear(struct policy_index *index)
{
	index->n = 0;
	index->loose = INDEX_NONE;
}

void policy_index_add(struct policy_index *index, const struct namespace_config *config,
		      void *entry)
{
	if (index->n < index->cap)
		index->items[index->n++] =
		    (struct policy_index_item){.config = config, .entry = entry};
}

static int compare_items(const void *a, const void *b)
{
	const struct namespace_config *x = ((const struct policy_index_item *)a)->config,
				      *y = ((const struct policy_index_item *)b)->config;

	if (x->priority != y->priority)
		return x->priority > y->priority ? -1 : 1;
	if (x->id.created != y->id.created)
		return x->id.created < y->id.created ? -1 : 1;
	return strcmp(x->id.name, y->id.name);
}

static uint32_t *chain_of(const struct policy_index *index, const char *key, const char *value)
{
	uint64_t h = hash_bytes(value, strlen(value), hash_bytes(key, strlen(key), 0));

	return &index->chains[h & (index->cap - 1)];
}

void policy_index_sort(struct policy_index *index)
{
	if (index->n > 1)
		qsort(index->items, index->n, sizeof(*index->items), compare_items);
	index->loose = INDEX_NONE;
	for (uint32_t i = 0; i < index->cap; i++)
		index->chains[i] = INDEX_NONE;
	for (uint32_t i = index->n; i-- > 0;) {
		const struct selector *s = &index->items[i].config->pods;
		uint32_t *chain = &index->loose;

		for (size_t j = 0; j < s->n && chain == &index->loose; j++)
			if (s->requirements[j].op == SELECTOR_IN &&
			    s->requirements[j].n_values == 1)
				chain = chain_of(index, s->requirements[j].key,
						 s->requirements[j].values[0]);
		index->items[i].next = *chain;
		*chain = i;
	}
}

/* The first match in the chain that starts at I, if it comes before BEST; else BEST. */
static uint32_t first_match(const struct policy_index *index, uint32_t i, uint32_t best,
			    const struct label *labels, size_t n)
{
	for (; i < best; i = index->items[i].next)
		if (selector_matches(&index->items[i].config->pods, labels, n))
			return i;
	return best;
}

void *policy_index_find(const struct policy_index *index, const struct label *labels, size_t n)
{
	uint32_t best = INDEX_NONE;

	if (index->n <= INDEX_SMALL) {
		for (uint32_t i = 0; i < index->n && best == INDEX_NONE; i++)
			if (selector_matches(&index->items[i].config->pods, labels, n))
				best = i;
	} else {
		for (size_t i = 0; i < n; i++)
			best = first_match(index, *chain_of(index, labels[i].key, labels[i].value),
					   best, labels, n);
		best = first_match(index, index->loose, best, labels, n);
	}
	return best == INDEX_NONE ? NULL : index->items[best].entry;
}
