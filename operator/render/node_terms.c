/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node affinity that gives each node to one DaemonSet: group i serves the nodes that have its
 * labels and that no earlier group serves. "Not (a and b)" is "not a, or not b", and only
 * nodeSelectorTerms are ORed; so the terms are the product of the earlier groups' labels.
 *
 * Each label of any group is one bit; a term is the set of labels that its nodes must not have, in
 * addition to the group's own, which they must have. A term that excludes a label of the group
 * itself matches nothing and is dropped; a label whose key the group has with another value cannot
 * be there, and needs no exclusion; a term that is covered by another one is dropped. No state; any
 * thread.
 */
#include "operator/render/internal.h"

enum { ATOMS_MAX = 64 };

struct atom {
	const char *key, *value;
};
struct atoms {
	struct atom items[ATOMS_MAX];
	size_t n;
};

static int atom_of(struct atoms *atoms, const struct selector_requirement *q, size_t *ret)
{
	size_t i = 0;

	for (; i < atoms->n; i++)
		if (streq(atoms->items[i].key, q->key) &&
		    streq(atoms->items[i].value, q->values[0]))
			break;
	if (i == ATOMS_MAX)
		return -E2BIG;
	if (i == atoms->n)
		atoms->items[atoms->n++] = (struct atom){q->key, q->values[0]};
	*ret = i;
	return 0;
}

static int mask_of(struct atoms *atoms, const struct node_group *group, uint64_t *ret)
{
	uint64_t mask = 0;

	for (size_t i = 0; i < group->nodes.n; i++) {
		size_t atom;
		int r = atom_of(atoms, &group->nodes.requirements[i], &atom);

		if (r < 0)
			return r;
		mask |= 1ULL << atom;
	}
	*ret = mask;
	return 0;
}

/* True when the group has the key of ATOM with another value. */
static bool excluded_anyway(const struct atoms *atoms, uint64_t own, size_t atom)
{
	for (size_t i = 0; i < atoms->n; i++)
		if (own >> i & 1 && i != atom && streq(atoms->items[i].key, atoms->items[atom].key))
			return true;
	return false;
}

struct terms {
	uint64_t items[RENDER_TERMS_MAX]; /* labels that the nodes must not have */
	size_t n;
};

/*
 * Adds the term T unless another term covers it, and drops the terms that T covers. A term covers
 * those that exclude all of its labels, and perhaps more.
 */
static int add_term(struct terms *terms, uint64_t t)
{
	size_t kept = 0;

	for (size_t i = 0; i < terms->n; i++)
		if ((terms->items[i] & ~t) == 0)
			return 0;
	for (size_t i = 0; i < terms->n; i++)
		if ((t & ~terms->items[i]) != 0)
			terms->items[kept++] = terms->items[i];
	terms->n = kept;
	if (terms->n == RENDER_TERMS_MAX)
		return -E2BIG;
	terms->items[terms->n++] = t;
	return 0;
}

/* Limits TERMS to nodes that do not have all labels of EARLIER. */
static int exclude(const struct atoms *atoms, uint64_t own, uint64_t earlier, struct terms *terms)
{
	struct terms out = {.n = 0};
	int r = 0;

	for (size_t i = 0; i < atoms->n; i++)
		if (earlier >> i & 1 && excluded_anyway(atoms, own, i))
			return 0;
	for (size_t t = 0; t < terms->n; t++)
		for (size_t i = 0; r == 0 && i < atoms->n; i++)
			if (earlier >> i & 1 && !(own >> i & 1))
				r = add_term(&out, terms->items[t] | 1ULL << i);
	if (r == 0)
		*terms = out;
	return r;
}

static int put_expression(cJSON *list, const char *key, const char *op, cJSON *values)
{
	return json_append(list, "{'key': %s, 'operator': %s, 'values': %j}", key, op, values);
}

/* One expression for each key, with all values that nodes must not have. */
static int put_excluded(cJSON *list, const struct atoms *atoms, uint64_t term)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < atoms->n; i++) {
		_cleanup_json_ cJSON *values = NULL;

		if (!(term >> i & 1))
			continue;
		r = json_make(&values, "[]");
		for (size_t k = i; r == 0 && k < atoms->n; k++) {
			if (!(term >> k & 1) || !streq(atoms->items[k].key, atoms->items[i].key))
				continue;
			term &= ~(1ULL << k);
			r = json_append(values, "%s", atoms->items[k].value);
		}
		if (r == 0)
			r = put_expression(list, atoms->items[i].key, "NotIn", values);
	}
	return r;
}

static int put_term(cJSON *terms, const struct atoms *atoms, uint64_t own, uint64_t term)
{
	_cleanup_json_ cJSON *list = NULL, *arches = NULL;
	int r = json_make(&list, "[]");

	/* The machines that the agent is built for. */
	if (r == 0)
		r = json_make(&arches, "['amd64']");
	if (r == 0)
		r = put_expression(list, "kubernetes.io/arch", "In", arches);
	for (size_t i = 0; r == 0 && i < atoms->n; i++) {
		_cleanup_json_ cJSON *values = NULL;

		if (!(own >> i & 1))
			continue;
		r = json_make(&values, "[%s]", atoms->items[i].value);
		if (r == 0)
			r = put_expression(list, atoms->items[i].key, "In", values);
	}
	if (r == 0)
		r = put_excluded(list, atoms, term);
	return r < 0 ? r : json_append(terms, "{'matchExpressions': %j}", list);
}

static int check_product(const struct node_group *groups, size_t n, struct error *err)
{
	size_t product = 1;

	for (size_t i = 0; i < n; i++) {
		product *= groups[i].nodes.n;
		if (!groups[i].nodes.n)
			return error_set(
			    err, -EINVAL,
			    "spec.nodeGroups[%s].nodeSelector: want at least one label",
			    groups[i].name);
		if (product > RENDER_TERMS_MAX)
			return error_set(
			    err, -EINVAL,
			    "spec.nodeGroups: want at most %d as the product of the groups' "
			    "counts of labels, reached at %s",
			    RENDER_TERMS_MAX, groups[i].name);
	}
	return 0;
}

int node_terms(const struct node_group *groups, size_t n_groups, size_t index, cJSON **ret,
	       struct error *err)
{
	struct terms terms = {.items = {0}, .n = 1};
	struct atoms atoms = {.n = 0};
	_cleanup_json_ cJSON *list = NULL;
	uint64_t own = 0, earlier;
	int r = check_product(groups, n_groups, err);

	if (r < 0)
		return r;
	if (index < n_groups)
		r = mask_of(&atoms, &groups[index], &own);
	for (size_t i = 0; r == 0 && i < MIN(index, n_groups); i++) {
		r = mask_of(&atoms, &groups[i], &earlier);
		if (r == 0)
			r = exclude(&atoms, own, earlier, &terms);
		if (r == 0 && !terms.n)
			return error_set(
			    err, -EINVAL,
			    "spec.nodeGroups[%s]: no node can be in it, the groups before it "
			    "have them all (the last of these: %s); put it before them",
			    groups[index].name, groups[i].name);
	}
	if (r == -E2BIG)
		return error_set(err, -EINVAL, "spec.nodeGroups: more than %d node affinity terms",
				 RENDER_TERMS_MAX);
	if (r == 0)
		r = json_make(&list, "[]");
	for (size_t i = 0; r == 0 && i < terms.n; i++)
		r = put_term(list, &atoms, own, terms.items[i]);
	if (r < 0)
		return error_set(err, r, "out of memory");
	*ret = TAKE_PTR(list);
	return 0;
}
