/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One YAML document as a tree whose nodes know their line. Built on libyaml's event parser.
 *
 * Refused, each with line and cause: several documents, duplicate keys, keys that are not scalars,
 * custom tags, NUL characters, nesting deeper than YAML_DEPTH_MAX and more nodes than
 * YAML_NODES_MAX (aliases are copied and count). `<<: *x` merges as YAML 1.1 says.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum {
	YAML_DEPTH_MAX = 64,
	YAML_NODES_MAX = 1 << 16,
};

enum yaml_kind { YAML_NULL, YAML_SCALAR, YAML_MAP, YAML_LIST };

struct yaml_node {
	enum yaml_kind kind;
	bool quoted;		 /* scalar: not plain, so never null */
	unsigned int line;	 /* from 1; of the key when the node is a value in a map */
	char *key;		 /* in a map: the key; else NULL */
	char *text;		 /* scalar, or null as it was written; NULL for map and list */
	struct yaml_node *child; /* map, list: the first */
	struct yaml_node *next;	 /* sibling */
};

/* Names begin with yaml_tree_ where libyaml exports the shorter one (yaml_free). */
struct yaml_node *yaml_tree_free(struct yaml_node *root);
DEFINE_CLEANUP(struct yaml_node *, yaml_tree_free)

/*
 * An empty document is a YAML_NULL node. On failure -EINVAL (-ENOMEM) and "NAME:LINE: cause" in
 * err.
 */
int yaml_tree_load(const char *name, const void *data, size_t size, struct yaml_node **ret,
		   struct error *err) _must_check_;

/* The value under exactly KEY, or NULL; NULL too when NODE is not a map. */
const struct yaml_node *yaml_get(const struct yaml_node *node, const char *key);
/* Replaces a scalar's text, which the node then owns, and determines again whether it is null. */
void yaml_set_text(struct yaml_node *node, char *text);
size_t yaml_count(const struct yaml_node *node); /* children */
