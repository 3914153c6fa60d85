/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LabelSelectors from JSON: matchLabels become IN requirements with one value, matchExpressions
 * follow in their order. At most CONFIG_SELECTOR_MAX of each, and of the values of one. Pure.
 */
#include "operator/policy/config_internal.h"

static const struct json_row label_value = {.max = 63, .syntax = &syntax_label_value};

/* Room for N more requirements, zeroed. */
static int make_room(struct json_fields *f, struct selector *s, size_t n)
{
	struct selector_requirement *q = realloc(s->requirements, (s->n + n) * sizeof(*q));

	if (!q)
		return json_no_memory(f);
	memset(q + s->n, 0, n * sizeof(*q));
	s->requirements = q;
	return 0;
}

static int decode_labels(struct json_fields *f, const cJSON *node, size_t min, size_t max,
			 struct selector *s)
{
	const cJSON *child;
	int r = json_check_map(f, node, min, max, &label_value);

	if (r < 0 || !node->child)
		return r;
	r = make_room(f, s, max);
	if (r < 0)
		return r;
	cJSON_ArrayForEach(child, node)
	{
		struct selector_requirement *q = &s->requirements[s->n++];

		q->op = SELECTOR_IN;
		q->key = strdup(child->string);
		q->values = calloc(1, sizeof(*q->values));
		if (!q->key || !q->values)
			return json_no_memory(f);
		q->values[0] = strdup(child->valuestring);
		if (!q->values[0])
			return json_no_memory(f);
		q->n_values = 1;
	}
	return 0;
}

static int decode_match_labels(struct json_fields *f, const cJSON *node, void *out)
{
	return decode_labels(f, node, 0, CONFIG_SELECTOR_MAX, out);
}

static const struct json_choice operators[] = {{"In", SELECTOR_IN, NULL},
					       {"NotIn", SELECTOR_NOT_IN, NULL},
					       {"Exists", SELECTOR_EXISTS, NULL},
					       {"DoesNotExist", SELECTOR_DOES_NOT_EXIST, NULL},
					       {}};

static int decode_one_value(struct json_fields *f, const cJSON *node, void *out)
{
	const struct json_row row = {.type = JSON_STRING, .max = 63, .syntax = &syntax_label_value};

	return json_decode_value(f, node, &row, out);
}

static int decode_values(struct json_fields *f, const cJSON *node, void *out)
{
	struct selector_requirement *q = out;
	void *items = NULL;
	size_t n = 0;
	int r = json_list(f, node, CONFIG_SELECTOR_MAX, sizeof(*q->values), decode_one_value,
			  &items, &n);

	q->values = items;
	q->n_values = n;
	return r;
}

static const struct json_row requirement_rows[] = {
    {"key", JSON_STRING, offsetof(struct selector_requirement, key), .min = 1, .max = 317,
     .syntax = &syntax_label_key, .required = true},
    {"operator", JSON_CHOICE, offsetof(struct selector_requirement, op), .choices = operators,
     .required = true},
    {"values", JSON_CUSTOM, 0, .decode = decode_values},
    {}};

static int decode_requirement(struct json_fields *f, const cJSON *node, void *out)
{
	struct selector_requirement *q = out;
	int r = json_decode(f, node, requirement_rows, q);

	if (r < 0)
		return r;
	json_path_enter(f, "values");
	if ((q->op == SELECTOR_IN || q->op == SELECTOR_NOT_IN) && !q->n_values)
		return json_error(f, "want values with operator %s, got none",
				  operators[q->op].name);
	if ((q->op == SELECTOR_EXISTS || q->op == SELECTOR_DOES_NOT_EXIST) && q->n_values)
		return json_error(f, "want no values with operator %s, got %zu",
				  operators[q->op].name, q->n_values);
	return 0;
}

static int decode_match_expressions(struct json_fields *f, const cJSON *node, void *out)
{
	struct selector *s = out;
	void *items = NULL;
	struct selector expressions = {0};
	int r = json_list(f, node, CONFIG_SELECTOR_MAX, sizeof(*expressions.requirements),
			  decode_requirement, &items, &expressions.n);

	expressions.requirements = items;
	if (r == 0 && expressions.n)
		r = make_room(f, s, expressions.n);
	if (r == 0 && expressions.n) {
		memcpy(s->requirements + s->n, expressions.requirements,
		       expressions.n * sizeof(*s->requirements));
		s->n += expressions.n;
		expressions.n = 0;
	}
	selector_done(&expressions);
	return r;
}

static const struct json_row selector_rows[] = {
    {"matchLabels", JSON_CUSTOM, .decode = decode_match_labels},
    {"matchExpressions", JSON_CUSTOM, .decode = decode_match_expressions},
    {}};

int selector_decode(struct json_fields *f, const cJSON *node, void *out)
{
	struct selector *s = out;

	s->set = true;
	return json_decode(f, node, selector_rows, s);
}

int label_selector_decode(struct json_fields *f, const cJSON *node, size_t max,
			  struct selector *out)
{
	/* JSON_IGNORED: json_decode() only checks the members; the labels are decoded below. */
	const struct json_row rows[] = {{"matchLabels", JSON_IGNORED, .required = true}, {}};
	size_t mark;
	int r = json_decode(f, node, rows, out);

	if (r < 0)
		return r;
	out->set = true;
	mark = json_path_enter(f, "matchLabels");
	r = decode_labels(f, json_get(node, "matchLabels"), 1, max, out);
	if (r == 0)
		json_path_leave(f, mark);
	return r;
}
