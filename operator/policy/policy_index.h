/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct policy_index: a namespace's configs with a podSelector, in order of precedence. A small
 * index is searched one by one; in a large one a config is found by a label that it requires, so
 * that a thousand configs cost a pod little more than its labels.
 */
#pragma once

#include "operator/policy/policy.h"

struct policy_index_item {
	const struct namespace_config *config;
	void *entry; /* the owner's */
};
/* A config in the chain of a label; NEXT is a link to one further down, or INDEX_NONE. */
struct policy_index_link {
	uint32_t item, next;
};
struct policy_index {
	struct policy_index_item *items;
	uint32_t n, cap;
	/*
	 * Set by policy_index_sort(). `chained` is false when there are few items or memory ran
	 * out: then all items are searched.
	 */
	bool chained;
	struct policy_index_link *links;
	uint32_t n_links;
	uint32_t *chains; /* n_chains, a power of two: the first link of each */
	uint32_t n_chains;
	uint32_t loose; /* the first link of the configs without an In requirement */
};

/* Room for N items. What is in it stays. */
int policy_index_reserve(struct policy_index *index, size_t n) _must_check_;
void policy_index_done(struct policy_index *index);
/* Empty it, add, then sort: by priority, older first, by name. Adding needs room. */
void policy_index_clear(struct policy_index *index);
void policy_index_add(struct policy_index *index, const struct namespace_config *config,
		      void *entry);
void policy_index_sort(struct policy_index *index);
/* The entry of the first config whose selector matches; NULL: none. */
void *policy_index_find(const struct policy_index *index, const struct label *labels, size_t n);
