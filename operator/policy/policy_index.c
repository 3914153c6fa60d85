/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configs in order of precedence. Each label that an In requirement can match ("app=api") has a
 * chain. A config is in the chains of one of its In requirements: the one whose labels the fewest
 * configs require. For a pod, the chains of its own labels are searched. Chains are in order of
 * precedence too: the first match ends the search of its chain, and so does a config that comes
 * after the best match so far. Hash collisions only lengthen chains. Owned by policy_set, on its
 * thread.
 */
#include "operator/policy/policy_index.h"

enum { INDEX_SMALL = 8 };
#define INDEX_NONE UINT32_MAX

int policy_index_reserve(struct policy_index *index, size_t n)
{
	size_t cap = index->cap;
	void *items = index->items;
	int r = grow_array(&items, &cap, n, sizeof(*index->items), POLICY_CONFIGS_MAX);

	index->items = items;
	index->cap = (uint32_t)cap;
	return r;
}

void policy_index_done(struct policy_index *index)
{
	free(index->items);
	free(index->links);
	free(index->chains);
	*index = (struct policy_index){.items = NULL};
}

void policy_index_clear(struct policy_index *index)
{
	free(index->links);
	free(index->chains);
	index->links = NULL;
	index->chains = NULL;
	index->chained = false;
	index->n = index->n_links = index->n_chains = 0;
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

static uint32_t chain_of(const struct policy_index *index, const char *key, const char *value)
{
	uint64_t h = hash_bytes(value, strlen(value), hash_bytes(key, strlen(key), 0));

	return (uint32_t)(h & (index->n_chains - 1));
}

/* The number of configs in the chains of Q; UINT64_MAX when Q is not an In requirement. */
static uint64_t crowd(const struct policy_index *index, const uint32_t *counts,
		      const struct selector_requirement *q)
{
	uint64_t sum = 0;

	if (q->op != SELECTOR_IN)
		return UINT64_MAX;
	for (size_t i = 0; i < q->n_values; i++)
		sum += counts[chain_of(index, q->key, q->values[i])];
	return sum;
}

static const struct selector_requirement *
least_crowded(const struct policy_index *index, const uint32_t *counts, const struct selector *s)
{
	const struct selector_requirement *best = NULL;
	uint64_t best_crowd = UINT64_MAX;

	for (size_t i = 0; i < s->n; i++) {
		uint64_t n = crowd(index, counts, &s->requirements[i]);

		if (n < best_crowd) {
			best_crowd = n;
			best = &s->requirements[i];
		}
	}
	return best;
}

static void add_link(struct policy_index *index, uint32_t *chain, uint32_t item)
{
	index->links[index->n_links] = (struct policy_index_link){.item = item, .next = *chain};
	*chain = index->n_links++;
}

/* Puts each item at the front of its chains, the last item first: so chains are in order. */
static void link_items(struct policy_index *index, const uint32_t *counts)
{
	index->loose = INDEX_NONE;
	for (uint32_t i = 0; i < index->n_chains; i++)
		index->chains[i] = INDEX_NONE;
	for (uint32_t i = index->n; i-- > 0;) {
		const struct selector_requirement *q =
		    least_crowded(index, counts, &index->items[i].config->pods);

		if (!q)
			add_link(index, &index->loose, i);
		for (size_t j = 0; q && j < q->n_values; j++)
			add_link(index, &index->chains[chain_of(index, q->key, q->values[j])], i);
	}
}

static void make_chains(struct policy_index *index)
{
	_cleanup_free_ uint32_t *counts = NULL;
	void *fitting;

	index->n_chains = 16;
	while (index->n_chains < 2 * index->n)
		index->n_chains *= 2;
	counts = calloc(index->n_chains, sizeof(*counts));
	index->chains = calloc(index->n_chains, sizeof(*index->chains));
	/* One requirement of each config, which has at most CONFIG_SELECTOR_MAX values. */
	index->links = calloc((size_t)index->n * CONFIG_SELECTOR_MAX, sizeof(*index->links));
	if (!counts || !index->chains || !index->links)
		return;
	for (uint32_t i = 0; i < index->n; i++) {
		const struct selector *s = &index->items[i].config->pods;

		for (size_t j = 0; j < s->n; j++)
			for (size_t k = 0; s->requirements[j].op == SELECTOR_IN &&
					   k < s->requirements[j].n_values;
			     k++)
				counts[chain_of(index, s->requirements[j].key,
						s->requirements[j].values[k])]++;
	}
	link_items(index, counts);
	fitting = realloc(index->links, index->n_links * sizeof(*index->links));
	if (fitting)
		index->links = fitting;
	index->chained = true;
}

void policy_index_sort(struct policy_index *index)
{
	if (index->n > 1)
		qsort(index->items, index->n, sizeof(*index->items), compare_items);
	if (index->n > INDEX_SMALL)
		make_chains(index);
}

/* The first match in the chain that starts at LINK, if it comes before BEST; else BEST. */
static uint32_t first_match(const struct policy_index *index, uint32_t link, uint32_t best,
			    const struct label *labels, size_t n)
{
	for (; link != INDEX_NONE && index->links[link].item < best;
	     link = index->links[link].next) {
		uint32_t i = index->links[link].item;

		if (selector_matches(&index->items[i].config->pods, labels, n))
			return i;
	}
	return best;
}

void *policy_index_find(const struct policy_index *index, const struct label *labels, size_t n)
{
	uint32_t best = INDEX_NONE;

	for (uint32_t i = 0; !index->chained && i < index->n && best == INDEX_NONE; i++)
		if (selector_matches(&index->items[i].config->pods, labels, n))
			best = i;
	for (size_t i = 0; index->chained && i < n; i++)
		best = first_match(index,
				   index->chains[chain_of(index, labels[i].key, labels[i].value)],
				   best, labels, n);
	if (index->chained)
		best = first_match(index, index->loose, best, labels, n);
	return best == INDEX_NONE ? NULL : index->items[best].entry;
}
