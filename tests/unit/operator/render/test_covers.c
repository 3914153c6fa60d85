/* SPDX-License-Identifier: Apache-2.0 */
/*
 * render_covers() on what a real API server made of our objects (tests/data/render/live.json, which
 * tests/integration/operator/render compares with a running one): they are covered; no single value
 * may differ and none may be missing; what others add does not matter.
 */
#include "tests/support/test.h"

#include "load.h"

#include "operator/render/internal.h"

struct world {
	cJSON *object, *live;
	struct cluster_config *config;
	struct rendered *r;
};

static int set_up(void **state)
{
	static struct world w;

	w.object = load_json(RENDER_DATA "full.json");
	w.live = load_json(RENDER_DATA "live.json");
	w.config = load_config(w.object);
	w.r = render_config(w.config);
	*state = &w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	rendered_free(w->r);
	cluster_config_free(w->config);
	cJSON_Delete(w->live);
	cJSON_Delete(w->object);
	return 0;
}

static const cJSON *find_live(const struct world *w, const struct rendered_object *o)
{
	const cJSON *item = find_in_list(w->live, o->object, o->name);

	if (!item)
		fail_msg("%s is not in live.json", o->name);
	return item;
}

static void real_objects_cover_what_was_rendered(void **state)
{
	const struct world *w = *state;

	for (size_t i = 0; i < w->r->n; i++)
		if (!render_covers(find_live(w, &w->r->objects[i]), w->r->objects[i].object))
			fail_msg("%s", w->r->objects[i].name);
}

/* ---- every value counts ---------------------------------------------------------------------- */

struct walk {
	const cJSON *live;
	cJSON *want; /* the whole */
	unsigned int n;
};

static void expect_drift(struct walk *w, const char *name, const char *what)
{
	w->n++;
	if (render_covers(w->live, w->want))
		fail_msg("%s %s is not seen", name ? name : "an element", what);
}

static void change_leaf(struct walk *w, cJSON *leaf)
{
	char *text = leaf->valuestring, other[8192];
	double number = leaf->valuedouble;
	int type = leaf->type;

	if (cJSON_IsString(leaf)) {
		/* A quantity stays one: another first digit. */
		snprintf(other, sizeof(other), "%s%.8000s", text[0] ? "9" : "x", text);
		leaf->valuestring = other;
		expect_drift(w, leaf->string, "changed");
		leaf->valuestring = text;
	} else if (cJSON_IsNumber(leaf)) {
		cJSON_SetNumberValue(leaf, number + 1);
		expect_drift(w, leaf->string, "changed");
		cJSON_SetNumberValue(leaf, number);
	} else {
		leaf->type = cJSON_IsTrue(leaf) ? cJSON_False : cJSON_True;
		expect_drift(w, leaf->string, "flipped");
		leaf->type = type;
	}
}

static void change_each(struct walk *w, cJSON *node)
{
	cJSON *child;

	if (!cJSON_IsObject(node) && !cJSON_IsArray(node)) {
		change_leaf(w, node);
		return;
	}
	cJSON_ArrayForEach(child, node) change_each(w, child);
	/* What we never asked for, and nobody has. */
	if (cJSON_IsObject(node)) {
		cJSON_AddStringToObject(node, "kiln-extra", "x");
		expect_drift(w, node->string, "without a new member");
		cJSON_DeleteItemFromObject(node, "kiln-extra");
	} else {
		cJSON_AddItemToArray(node, cJSON_CreateString("kiln-extra"));
		expect_drift(w, node->string, "without a new element");
		cJSON_DeleteItemFromArray(node, cJSON_GetArraySize(node) - 1);
	}
}

static void every_value_counts(void **state)
{
	const struct world *w = *state;
	unsigned int n = 0;

	for (size_t i = 0; i < w->r->n; i++) {
		struct walk walk = {find_live(w, &w->r->objects[i]),
				    cJSON_Duplicate(w->r->objects[i].object, true), 0};

		/* They are not in the elements of a list. */
		cJSON_DeleteItemFromObject(walk.want, "apiVersion");
		cJSON_DeleteItemFromObject(walk.want, "kind");
		change_each(&walk, walk.want);
		assert_true(render_covers(walk.live, walk.want));
		cJSON_Delete(walk.want);
		n += walk.n;
	}
	assert_in_range(n, 700, 100000);
}

/* Hides each member and element of WANT in LIVE in turn: under another name, or as null. */
static void remove_each(const cJSON *whole_live, const cJSON *whole_want, cJSON *live,
			const cJSON *want)
{
	for (const cJSON *c = want->child; c; c = c->next) {
		cJSON *l =
		    c->string ? cJSON_GetObjectItemCaseSensitive(live, c->string) : live->child;
		char *name, other[] = "kiln-removed";
		int type;

		/* Keyed lists may be in another order; these are not. */
		for (const cJSON *p = want->child; !c->string && l && p != c; p = p->next)
			l = l->next;
		if (!l ||
		    (c->string && (streq(c->string, "apiVersion") || streq(c->string, "kind"))))
			continue;
		remove_each(whole_live, whole_want, l, c);
		name = l->string;
		type = l->type;
		if (name)
			l->string = other;
		else
			l->type = cJSON_NULL;
		if (render_covers(whole_live, whole_want))
			fail_msg("%s removed is not seen", name ? name : "an element");
		l->string = name;
		l->type = type;
	}
}

static void every_removal_is_seen(void **state)
{
	const struct world *w = *state;

	for (size_t i = 0; i < w->r->n; i++) {
		cJSON *live = cJSON_Duplicate(find_live(w, &w->r->objects[i]), true);

		remove_each(live, w->r->objects[i].object, live, w->r->objects[i].object);
		assert_true(render_covers(live, w->r->objects[i].object));
		cJSON_Delete(live);
	}
}

/* ---- what others do -------------------------------------------------------------------------- */

static bool covers(const char *live, const char *want)
{
	cJSON *l = cJSON_Parse(live), *w = cJSON_Parse(want);
	bool r;

	if (!l || !w)
		fail_msg("no JSON: %s", l ? want : live);
	r = render_covers(l, w);
	cJSON_Delete(l);
	cJSON_Delete(w);
	return r;
}

static void table_of_single_cases(void **state)
{
	static const struct {
		const char *live, *want;
		bool covered;
	} rows[] = {
	    {"{}", "{}", true},
	    {"[]", "{}", false},
	    {"{\"spec\":{\"a\":1,\"b\":2}}", "{\"spec\":{\"a\":1}}", true},
	    {"{\"spec\":null}", "{\"spec\":{\"a\":1}}", false},
	    /* Elements of a list do not repeat what they are. */
	    {"{\"spec\":{}}", "{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"spec\":{}}", true},
	    /* Others' labels, annotations and fields. */
	    {"{\"metadata\":{\"labels\":{\"a\":\"1\",\"b\":\"2\"}}}",
	     "{\"metadata\":{\"labels\":{\"a\":\"1\"}}}", true},
	    /* A label with an empty value is not a missing one. */
	    {"{\"metadata\":{\"labels\":{}}}", "{\"metadata\":{\"labels\":{\"a\":\"\"}}}", false},
	    {"{\"spec\":{}}", "{\"spec\":{\"priorityClassName\":\"\"}}", true},
	    {"{\"spec\":{}}", "{\"spec\":{\"tolerations\":[]}}", true},
	    {"{\"spec\":{\"tolerations\":[{\"operator\":\"Exists\"}]}}",
	     "{\"spec\":{\"tolerations\":[]}}", false},
	    {"{\"spec\":{}}", "{\"spec\":{\"allowPrivilegeEscalation\":false}}", false},
	    {"{\"spec\":{}}", "{\"spec\":{\"runAsUser\":0}}", false},
	    {"{\"spec\":{\"hostPID\":true}}", "{\"spec\":{\"hostPID\":false}}", false},
	    {"{\"spec\":{}}", "{\"spec\":{\"hostPID\":true}}", false},
	    {"{\"spec\":{}}", "{\"spec\":{\"emptyDir\":{}}}", false},
	    /* Quantities by value, and only where quantities are. */
	    {"{\"resources\":{\"limits\":{\"cpu\":\"100m\"}}}",
	     "{\"resources\":{\"limits\":{\"cpu\":\"0.1\"}}}", true},
	    {"{\"resources\":{\"limits\":{\"cpu\":\"1\"}}}",
	     "{\"resources\":{\"limits\":{\"cpu\":1}}}", true},
	    {"{\"resources\":{\"limits\":{\"memory\":\"512Mi\"}}}",
	     "{\"resources\":{\"limits\":{\"memory\":\"0.5Gi\"}}}", true},
	    {"{\"resources\":{\"limits\":{\"memory\":\"512M\"}}}",
	     "{\"resources\":{\"limits\":{\"memory\":\"512Mi\"}}}", false},
	    {"{\"metadata\":{\"annotations\":{\"limits\":\"100m\"}}}",
	     "{\"metadata\":{\"annotations\":{\"limits\":\"0.1\"}}}", false},
	    /* An int and a text are two things elsewhere. */
	    {"{\"rollingUpdate\":{\"maxUnavailable\":1}}",
	     "{\"rollingUpdate\":{\"maxUnavailable\":1}}", true},
	    {"{\"rollingUpdate\":{\"maxUnavailable\":\"1\"}}",
	     "{\"rollingUpdate\":{\"maxUnavailable\":1}}", false},
	    /* Keyed lists: any order, more elements. */
	    {"{\"env\":[{\"name\":\"B\",\"value\":\"2\"},{\"name\":\"A\",\"value\":\"1\"}]}",
	     "{\"env\":[{\"name\":\"A\",\"value\":\"1\"}]}", true},
	    {"{\"env\":[{\"name\":\"A\",\"value\":\"2\"}]}",
	     "{\"env\":[{\"name\":\"A\",\"value\":\"1\"}]}", false},
	    {"{\"env\":[{\"name\":\"B\",\"value\":\"1\"}]}",
	     "{\"env\":[{\"name\":\"A\",\"value\":\"1\"}]}", false},
	    /* Other lists: whole, in order. */
	    {"{\"args\":[\"a\",\"b\"]}", "{\"args\":[\"a\",\"b\"]}", true},
	    {"{\"args\":[\"b\",\"a\"]}", "{\"args\":[\"a\",\"b\"]}", false},
	    {"{\"args\":[\"a\",\"b\",\"c\"]}", "{\"args\":[\"a\",\"b\"]}", false},
	    {"{\"tolerations\":[{\"operator\":\"Exists\",\"key\":\"x\"}]}",
	     "{\"tolerations\":[{\"operator\":\"Exists\"}]}", true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (covers(rows[i].live, rows[i].want) != rows[i].covered)
			fail_msg("row %zu: %s, %s", i, rows[i].live, rows[i].want);
}

static void quantities_are_compared_by_value(void **state)
{
	static const struct {
		const char *a, *b;
		bool equal;
	} rows[] = {
	    {"0", "0m", true},		 {"0.1", "100m", true},
	    {"1", "1000m", true},	 {"1k", "1000", true},
	    {"1Ki", "1024", true},	 {"1.5Gi", "1536Mi", true},
	    {"1e3", "1k", true},	 {"1E3", "1000", true},
	    {"0.000000001", "1n", true}, {"134217728", "128Mi", true},
	    {"1Mi", "1M", false},	 {"100m", "101m", false},
	    {"-1", "1", false},		 {"1E", "1000P", true},
	    {"+1", "1", true},		 {"1u", "1000n", true},
	    {"10e-1", "1", true},
	};
	static const char *const bad[] = {"",	".",  "1.2.3", "x",    "1x",
					  "1 ", "1e", "1e99",  "1Kii", "99999999999999999999999"};
	struct quantity a, b;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(quantity_parse(rows[i].a, &a), 0);
		assert_int_equal(quantity_parse(rows[i].b, &b), 0);
		if (quantity_equal(&a, &b) != rows[i].equal)
			fail_msg("%s, %s", rows[i].a, rows[i].b);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (quantity_parse(bad[i], &a) == 0)
			fail_msg("\"%s\" is taken", bad[i]);
	assert_int_equal(quantity_parse("1.5Gi", &a), 0);
	assert_true(quantity_value(&a) == 1536.0 * (1 << 20));
	assert_int_equal(quantity_parse("250m", &a), 0);
	assert_true(quantity_value(&a) == 0.25);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(real_objects_cover_what_was_rendered),
	    cmocka_unit_test(every_value_counts),
	    cmocka_unit_test(every_removal_is_seen),
	    cmocka_unit_test(table_of_single_cases),
	    cmocka_unit_test(quantities_are_compared_by_value),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
