/* SPDX-License-Identifier: Apache-2.0 */
/* The first config against an API server that is this file: the calls are kept, the test answers.
 */
#include "tests/support/test.h"

#include "load.h"

#include "operator/render/first_config.h"

static struct {
	const char *verb; /* "get", "create", "apply"; NULL: nothing is under way */
	enum kube_kind kind;
	char *object; /* what was sent */
	kube_done_fn *done;
	void *arg;
	int refuse; /* the next call fails with it */
} server;

static int keep(const char *verb, enum kube_kind kind, const cJSON *object, kube_done_fn *done,
		void *arg, struct kube_call **ret)
{
	assert_null(server.verb);
	if (server.refuse)
		return server.refuse;
	free(server.object);
	server.verb = verb;
	server.kind = kind;
	server.object = object ? cJSON_PrintUnformatted(object) : NULL;
	server.done = done;
	server.arg = arg;
	*ret = (struct kube_call *)&server;
	return 0;
}

int kube_get(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
	     kube_done_fn *done, void *arg, struct kube_call **ret)
{
	assert_string_equal(ns, "kiln-system");
	assert_string_equal(name, FIRST_CONFIG_NAME);
	return keep("get", kind, NULL, done, arg, ret);
}

int kube_create(struct kube_client *client, enum kube_kind kind, const char *ns,
		const cJSON *object, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	assert_null(ns);
	return keep("create", kind, object, done, arg, ret);
}

int kube_apply(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
	       const cJSON *object, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	assert_string_equal(ns, "kiln-system");
	assert_string_equal(name, FIRST_CONFIG_NAME);
	return keep("apply", kind, object, done, arg, ret);
}

static unsigned int cancelled;
void kube_cancel(struct kube_call *call)
{
	assert_ptr_equal(call, &server);
	server.verb = NULL;
	cancelled++;
}

static void answer(const char *verb, enum kube_kind kind, int status, const char *body)
{
	const struct kube_answer a = {.status = status,
				      .message = status / 100 == 2 ? "" : "the server's word",
				      .reason = "",
				      .content_type = "application/json",
				      .body = (const uint8_t *)body,
				      .len = body ? strlen(body) : 0};

	assert_non_null(server.verb);
	assert_string_equal(server.verb, verb);
	assert_int_equal(server.kind, kind);
	server.verb = NULL;
	server.done(server.arg, &a);
}

/* ---- one attempt ----------------------------------------------------------------------------- */

struct outcome {
	unsigned int times;
	int result;
	bool created;
	char message[512];
};

static void on_done(void *arg, int result, bool created, const char *message)
{
	struct outcome *o = arg;

	o->times++;
	o->result = result;
	o->created = created;
	snprintf(o->message, sizeof(o->message), "%s", message);
}

static struct first_config *start(struct outcome *o)
{
	struct first_config *f = NULL;

	*o = (struct outcome){0};
	assert_int_equal(first_config_start(NULL, "kiln-system", on_done, o, &f), 0);
	return f;
}

static void end(struct first_config *f, const struct outcome *o, int result, bool created)
{
	assert_int_equal(o->times, 1);
	assert_int_equal(o->result, result);
	assert_int_equal(o->created, created);
	assert_null(server.verb);
	first_config_free(f);
	free(server.object);
	server.object = NULL;
}

/* A ConfigMap with TEXT, and ANNOTATIONS as JSON. */
static char *map_of(const char *text, const char *annotations)
{
	cJSON *map = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(map, "metadata");
	cJSON *data = cJSON_AddObjectToObject(map, "data");
	char *json;

	cJSON_AddItemToObject(meta, "annotations", cJSON_Parse(annotations));
	if (text)
		cJSON_AddStringToObject(data, FIRST_CONFIG_KEY, text);
	json = cJSON_PrintUnformatted(map);
	cJSON_Delete(map);
	return json;
}

static const char small[] =
    "apiVersion: profiling.kiln.dev/v1alpha1\nkind: ClusterProfilingConfig\n"
    "metadata: {name: cluster}\nspec: {defaults: {sampling: {hz: 19}}, "
    "agent: {resources: {limits: {cpu: \"1\", memory: 0.5Gi}}}}\n";

static void it_is_created_once_and_marked(void **state)
{
	_cleanup_free_ char *map = map_of(small, "{}");
	struct outcome o;
	struct first_config *f = start(&o);

	answer("get", KUBE_CONFIG_MAPS, 200, map);
	assert_string_equal(
	    server.object,
	    "{\"apiVersion\":\"profiling.kiln.dev/v1alpha1\",\"kind\":\"ClusterProfilingConfig\","
	    "\"metadata\":{\"name\":\"cluster\"},\"spec\":{\"defaults\":{\"sampling\":{\"hz\":19}},"
	    "\"agent\":{\"resources\":{\"limits\":{\"cpu\":\"1\",\"memory\":\"0.5Gi\"}}}}}");
	answer("create", KUBE_CLUSTER_CONFIGS, 201, "{}");
	assert_int_equal(o.times, 0);
	assert_non_null(strstr(server.object, "\"" FIRST_CONFIG_USED "\":\"true\""));
	answer("apply", KUBE_CONFIG_MAPS, 200, "{}");
	end(f, &o, 0, true);
}

static void one_that_exists_is_left_alone(void **state)
{
	_cleanup_free_ char *map = map_of(small, "{}");
	struct outcome o;
	struct first_config *f = start(&o);

	answer("get", KUBE_CONFIG_MAPS, 200, map);
	answer("create", KUBE_CLUSTER_CONFIGS, 409, NULL);
	answer("apply", KUBE_CONFIG_MAPS, 200, "{}");
	end(f, &o, 0, false);
}

/* An admin who deleted the config wants none. */
static void a_used_one_is_not_used_again(void **state)
{
	_cleanup_free_ char *map = map_of(small, "{\"" FIRST_CONFIG_USED "\":\"true\"}");
	struct outcome o;
	struct first_config *f = start(&o);

	answer("get", KUBE_CONFIG_MAPS, 200, map);
	end(f, &o, 0, false);
}

static void without_a_config_map_there_is_nothing_to_do(void **state)
{
	_cleanup_free_ char *empty = map_of(NULL, "{}");
	struct outcome o;
	struct first_config *f = start(&o);

	answer("get", KUBE_CONFIG_MAPS, 404, NULL);
	end(f, &o, 0, false);
	f = start(&o);
	answer("get", KUBE_CONFIG_MAPS, 200, empty);
	end(f, &o, 0, false);
}

static void failures_tell_whether_to_try_again(void **state)
{
	static const struct {
		int create, mark, result;
	} rows[] = {
	    {404, 0, -EAGAIN}, /* the CRD is not established yet */
	    {403, 0, -EAGAIN}, {500, 0, -EAGAIN}, {0, 0, -EAGAIN},   {422, 0, -EINVAL},
	    {400, 0, -EINVAL}, {201, 404, 0},	  {201, 0, -EAGAIN}, {409, 503, -EAGAIN},
	};
	_cleanup_free_ char *map = map_of(small, "{}");
	struct first_config *f;
	struct outcome o;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		f = start(&o);
		answer("get", KUBE_CONFIG_MAPS, 200, map);
		answer("create", KUBE_CLUSTER_CONFIGS, rows[i].create, "{}");
		if (rows[i].create == 201 || rows[i].create == 409)
			answer("apply", KUBE_CONFIG_MAPS, rows[i].mark, NULL);
		if (rows[i].result < 0)
			assert_non_null(strstr(o.message, "the server's word"));
		end(f, &o, rows[i].result, rows[i].create == 201);
	}
	f = start(&o);
	answer("get", KUBE_CONFIG_MAPS, 503, NULL);
	end(f, &o, -EAGAIN, false);
	f = start(&o);
	answer("get", KUBE_CONFIG_MAPS, 200, "no JSON");
	end(f, &o, -EAGAIN, false);
	/* The client's queue is full. */
	f = start(&o);
	server.refuse = -EBUSY;
	answer("get", KUBE_CONFIG_MAPS, 200, map);
	server.refuse = 0;
	end(f, &o, -EAGAIN, false);
}

static void what_is_no_config_is_named(void **state)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
	    {"a: [", FIRST_CONFIG_KEY ":"},
	    {"", "want a ClusterProfilingConfig"},
	    {"kind: Pod\nmetadata: {name: cluster}\n", "want a ClusterProfilingConfig"},
	    {"kind: ClusterProfilingConfig\n", "with a name"},
	    {"- 1\n", "want a ClusterProfilingConfig"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *map = map_of(rows[i].text, "{}");
		struct outcome o;
		struct first_config *f = start(&o);

		answer("get", KUBE_CONFIG_MAPS, 200, map);
		assert_non_null(strstr(o.message, FIRST_CONFIG_NAME));
		if (!strstr(o.message, rows[i].says))
			fail_msg("\"%s\": %s", rows[i].text, o.message);
		end(f, &o, -EINVAL, false);
	}
}

static void an_attempt_can_be_cancelled(void **state)
{
	struct outcome o;
	struct first_config *f = start(&o);
	unsigned int before = cancelled;

	first_config_free(f);
	assert_int_equal(cancelled, before + 1);
	assert_int_equal(o.times, 0);
	assert_null(first_config_free(NULL));
}

/* What kustomize/overlays/default ships is a config that the operator takes and renders. */
static void the_shipped_config_is_good(void **state)
{
	_cleanup_free_ char *text = load_file(KUSTOMIZE "/overlays/default/cluster.yaml");
	struct cluster_config *config;
	struct rendered *r;
	struct error err = {0};
	cJSON *object;

	assert_int_equal(first_config_parse(text, strlen(text), &object, &err), 0);
	config = load_config(object);
	r = render_config(config);
	assert_non_null(strstr(agent_yaml(r, "kiln-agent"), "customprofilesexporter/logs"));
	assert_non_null(strstr(agent_yaml(r, "kiln-agent"), "reporter_interval: 60s"));
	rendered_free(r);
	cluster_config_free(config);
	cJSON_Delete(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_is_created_once_and_marked),
	    cmocka_unit_test(one_that_exists_is_left_alone),
	    cmocka_unit_test(a_used_one_is_not_used_again),
	    cmocka_unit_test(without_a_config_map_there_is_nothing_to_do),
	    cmocka_unit_test(failures_tell_whether_to_try_again),
	    cmocka_unit_test(what_is_no_config_is_named),
	    cmocka_unit_test(an_attempt_can_be_cancelled),
	    cmocka_unit_test(the_shipped_config_is_good),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
