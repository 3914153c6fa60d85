/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LabelSelectors over labels, as apimachinery's labels.Requirement matches: NotIn is also true
 * without the label, requirements are ANDed, no requirement matches everything. Pure.
 */
#include "operator/policy/policy.h"

static const char *find_label(const struct label *labels, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (streq(labels[i].key, key))
			return labels[i].value;
	return NULL;
}

static bool requirement_holds(const struct selector_requirement *q, const char *value)
{
	bool in = false;

	switch (q->op) {
	case SELECTOR_EXISTS:
		return value;
	case SELECTOR_DOES_NOT_EXIST:
		return !value;
	case SELECTOR_IN:
	case SELECTOR_NOT_IN:
		for (size_t i = 0; value && !in && i < q->n_values; i++)
			in = streq(q->values[i], value);
		return in == (q->op == SELECTOR_IN);
	}
	return false;
}

bool selector_matches(const struct selector *selector, const struct label *labels, size_t n)
{
	for (size_t i = 0; i < selector->n; i++) {
		const struct selector_requirement *q = &selector->requirements[i];

		if (!requirement_holds(q, find_label(labels, n, q->key)))
			return false;
	}
	return true;
}
