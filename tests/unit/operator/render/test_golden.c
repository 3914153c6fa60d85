/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is rendered, byte for byte: tests/data/render/NAME.json -> NAME.golden. After a change that
 * is meant: KILN_UPDATE_GOLDEN=1 test_op_render_golden, and read the difference.
 */
#include "tests/support/test.h"

#include "load.h"

#include "lib/buf.h"
#include "operator/render/internal.h"

static char *text_of(const struct rendered *r)
{
	struct buf out;

	buf_init(&out, 1 << 20);
	buf_printf(&out, "config %s\n", r->config_hash);
	for (size_t i = 0; i < r->n; i++) {
		const struct rendered_object *o = &r->objects[i];
		const char *yaml = o->kind == KUBE_CONFIG_MAPS ? agent_yaml(r, o->name) : NULL;
		cJSON *copy = cJSON_Duplicate(o->object, true);
		char *text;

		if (yaml)
			cJSON_DeleteItemFromObject(copy, "data");
		text = cJSON_Print(copy);
		buf_printf(&out, "\n=== %s/%s %s\n%s\n", o->ns, o->name, o->hash, text);
		if (yaml)
			buf_printf(&out, "--- agent.yaml\n%s", yaml);
		cJSON_free(text);
		cJSON_Delete(copy);
	}
	assert_int_equal(buf_error(&out), 0);
	return buf_take(&out);
}

static void check(const char *name)
{
	_cleanup_free_ char *text = NULL, *again = NULL, *want = NULL;
	char path[512];
	cJSON *object;
	struct cluster_config *config;
	struct rendered *r;

	snprintf(path, sizeof(path), RENDER_DATA "%s.json", name);
	object = load_json(path);
	config = load_config(object);
	r = render_config(config);
	text = text_of(r);
	rendered_free(r);
	r = render_config(config);
	again = text_of(r);
	rendered_free(r);
	cluster_config_free(config);
	cJSON_Delete(object);
	assert_string_equal(text, again);

	snprintf(path, sizeof(path), RENDER_DATA "%s.golden", name);
	if (getenv("KILN_UPDATE_GOLDEN")) {
		FILE *f = fopen(path, "we");

		assert_non_null(f);
		assert_true(fputs(text, f) >= 0);
		fclose(f);
		return;
	}
	want = load_file(path);
	for (const char *a = text, *b = want; *a || *b; a++, b++)
		if (*a != *b) {
			while (a > text && a[-1] != '\n')
				a--, b--;
			fail_msg("%s: got \"%.*s\", want \"%.*s\"", name, (int)strcspn(a, "\n"), a,
				 (int)strcspn(b, "\n"), b);
		}
}

static void minimal_config_renders_as_reviewed(void **state)
{
	check("minimal");
}

static void full_config_renders_as_reviewed(void **state)
{
	check("full");
}

static const struct rendered_object *first_of(const struct rendered *r, enum kube_kind kind)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->objects[i].kind == kind)
			return &r->objects[i];
	return NULL;
}

static void no_agents_when_nothing_is_profiled(void **state)
{
	cJSON *object = load_json(RENDER_DATA "full.json");
	struct cluster_config *config = load_config(object);
	const struct render_input in = {
	    .config = config, .ns = "kiln-system", .image = "x", .max_hz = 0};
	struct rendered *r;
	struct error err = {0};

	assert_int_equal(render(&in, &r, &err), 0);
	assert_null(first_of(r, KUBE_DAEMON_SETS));
	assert_null(first_of(r, KUBE_CONFIG_MAPS));
	assert_non_null(first_of(r, KUBE_SERVICE_ACCOUNTS));
	rendered_free(r);
	cluster_config_free(config);
	cJSON_Delete(object);
}

/* What the reconciler lists, orders and prunes by. */
static void objects_are_what_the_reconciler_expects(void **state)
{
	cJSON *object = load_json(RENDER_DATA "full.json");
	struct cluster_config *config = load_config(object);
	struct rendered *r = render_config(config);
	bool seen_set = false;

	for (size_t i = 0; i < r->n; i++) {
		const struct rendered_object *o = &r->objects[i];
		const cJSON *meta = cJSON_GetObjectItem(o->object, "metadata");
		const cJSON *labels = cJSON_GetObjectItem(meta, "labels");
		const cJSON *notes = cJSON_GetObjectItem(meta, "annotations");
		const cJSON *owner =
		    cJSON_GetArrayItem(cJSON_GetObjectItem(meta, "ownerReferences"), 0);
		bool known = false;

		for (size_t k = 0; k < n_render_kinds; k++)
			known |= render_kinds[k] == o->kind;
		assert_true(known);
		assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(
					labels, "app.kubernetes.io/managed-by")),
				    "kiln-operator");
		assert_string_equal(
		    cJSON_GetStringValue(cJSON_GetObjectItem(notes, KILN_APPLIED_HASH)), o->hash);
		assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(owner, "uid")),
				    config->id.uid);
		assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(meta, "name")),
				    o->name);
		for (size_t k = 0; k < i; k++)
			assert_false(r->objects[k].kind == o->kind &&
				     streq(r->objects[k].name, o->name));
		/* A DaemonSet's ConfigMap is there before it. */
		if (o->kind == KUBE_DAEMON_SETS) {
			seen_set = true;
			assert_int_equal(r->objects[i - 1].kind, KUBE_CONFIG_MAPS);
			assert_string_equal(r->objects[i - 1].name, o->name);
		}
	}
	assert_true(seen_set);
	rendered_free(r);
	cluster_config_free(config);
	cJSON_Delete(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(minimal_config_renders_as_reviewed),
	    cmocka_unit_test(full_config_renders_as_reviewed),
	    cmocka_unit_test(no_agents_when_nothing_is_profiled),
	    cmocka_unit_test(objects_are_what_the_reconciler_expects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
