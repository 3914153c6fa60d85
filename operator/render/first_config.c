/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three requests, each started by the answer to the one before: read the ConfigMap, create the
 * config, mark the ConfigMap as used. If another replica or an admin has created the config in
 * between, the conflict counts as success. Loop thread only.
 */
#include "operator/render/first_config.h"

#include "lib/parse.h"
#include "lib/yaml.h"
#include "operator/render/json.h"

struct first_config {
	struct kube_client *client;
	struct kube_call *call; /* NULL: none under way */
	char *ns;
	first_config_done_fn *done;
	void *arg;
	bool created;
};

/* ---- YAML to JSON ---------------------------------------------------------------------------- */

static cJSON *from_yaml(const struct yaml_node *node);

static bool add_child(cJSON *json, const struct yaml_node *n) // NOLINT(misc-no-recursion)
{
	cJSON *value = from_yaml(n);

	if (value && (n->key ? cJSON_AddItemToObject(json, n->key, value)
			     : cJSON_AddItemToArray(json, value)))
		return true;
	cJSON_Delete(value);
	return false;
}

/* Unquoted numbers become JSON numbers, all other scalars strings: the kinds have no booleans. The
 * depth of the recursion is limited by YAML_DEPTH_MAX. */
static cJSON *from_yaml(const struct yaml_node *node) // NOLINT(misc-no-recursion)
{
	cJSON *json;
	int64_t number;

	if (node->kind == YAML_NULL)
		return cJSON_CreateNull();
	if (node->kind == YAML_SCALAR)
		return !node->quoted && parse_i64(node->text, &number) == 0
			   ? cJSON_CreateNumber((double)number)
			   : cJSON_CreateString(node->text);
	json = node->kind == YAML_MAP ? cJSON_CreateObject() : cJSON_CreateArray();
	for (const struct yaml_node *n = node->child; json && n; n = n->next) {
		if (add_child(json, n))
			continue;
		cJSON_Delete(json);
		return NULL;
	}
	return json;
}

int first_config_parse(const char *text, size_t len, cJSON **ret, struct error *err)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root = NULL;
	_cleanup_json_ cJSON *json = NULL;
	const char *kind, *name;
	int r = yaml_tree_load(FIRST_CONFIG_KEY, text, len, &root, err);

	if (r < 0)
		return r;
	json = from_yaml(root);
	if (!json)
		return error_set(err, -ENOMEM, "out of memory");
	kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "kind"));
	name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(
	    cJSON_GetObjectItemCaseSensitive(json, "metadata"), "name"));
	if (!kind || !streq(kind, "ClusterProfilingConfig") || !name)
		return error_set(err, -EINVAL,
				 FIRST_CONFIG_KEY ": want a ClusterProfilingConfig with a name");
	*ret = TAKE_PTR(json);
	return 0;
}

/* ---- the requests ---------------------------------------------------------------------------- */

static void finish(struct first_config *f, int result, const char *message)
{
	f->call = NULL;
	f->done(f->arg, result, f->created, message);
}

/* Ends the attempt: -EINVAL when a retry would get the same answer, else -EAGAIN. */
static void fail(struct first_config *f, const char *what, const struct kube_answer *answer)
{
	bool for_good = answer->status == 400 || answer->status == 422;
	char message[512];

	snprintf(message, sizeof(message), "%s: %.400s", what, answer->message);
	finish(f, for_good ? -EINVAL : -EAGAIN, message);
}

static void on_marked(void *arg, const struct kube_answer *answer)
{
	struct first_config *f = arg;

	/* 404: the ConfigMap went meanwhile, there is nothing to mark. */
	if (answer->status / 100 == 2 || answer->status == 404)
		finish(f, 0, "");
	else
		fail(f, FIRST_CONFIG_NAME " cannot be marked as used", answer);
}

static void mark(struct first_config *f)
{
	_cleanup_json_ cJSON *object = NULL;
	int r = json_make(&object,
			  "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {"
			  "  'name': '" FIRST_CONFIG_NAME "', 'namespace': %s,"
			  "  'annotations': {'" FIRST_CONFIG_USED "': 'true'}}}",
			  f->ns);

	if (r == 0)
		r = kube_apply(f->client, KUBE_CONFIG_MAPS, f->ns, FIRST_CONFIG_NAME, object,
			       on_marked, f, &f->call);
	if (r < 0)
		finish(f, -EAGAIN, strerror(-r));
}

static void on_created(void *arg, const struct kube_answer *answer)
{
	struct first_config *f = arg;

	f->call = NULL;
	f->created = answer->status / 100 == 2;
	if (f->created || answer->status == 409)
		mark(f);
	else
		fail(f, "the first ClusterProfilingConfig cannot be created", answer);
}

/* The config's text in the ConfigMap; NULL: there is none, or it was used already. */
static const char *find_text(const cJSON *map)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(map, "metadata");
	const cJSON *notes = cJSON_GetObjectItemCaseSensitive(meta, "annotations");
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(map, "data");

	if (cJSON_GetObjectItemCaseSensitive(notes, FIRST_CONFIG_USED))
		return NULL;
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, FIRST_CONFIG_KEY));
}

static void on_map(void *arg, const struct kube_answer *answer)
{
	struct first_config *f = arg;
	_cleanup_json_ cJSON *map = NULL, *object = NULL;
	struct error err = {0};
	const char *text;
	int r;

	f->call = NULL;
	if (answer->status == 404) {
		finish(f, 0, "");
		return;
	}
	if (answer->status / 100 != 2 || !answer->body) {
		fail(f, FIRST_CONFIG_NAME " cannot be read", answer);
		return;
	}
	map = cJSON_ParseWithLength((const char *)answer->body, answer->len);
	text = map ? find_text(map) : NULL;
	if (!text) {
		finish(f, map ? 0 : -EAGAIN, map ? "" : FIRST_CONFIG_NAME ": no JSON");
		return;
	}
	r = first_config_parse(text, strlen(text), &object, &err);
	if (r < 0) {
		(void)error_wrap(&err, r, FIRST_CONFIG_NAME);
		finish(f, r, err.message);
		return;
	}
	r = kube_create(f->client, KUBE_CLUSTER_CONFIGS, NULL, object, on_created, f, &f->call);
	if (r < 0)
		finish(f, -EAGAIN, strerror(-r));
}

int first_config_start(struct kube_client *client, const char *ns, first_config_done_fn *done,
		       void *arg, struct first_config **ret)
{
	_cleanup_(first_config_freep) struct first_config *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	*f = (struct first_config){.client = client, .done = done, .arg = arg, .ns = strdup(ns)};
	if (!f->ns)
		return -ENOMEM;
	r = kube_get(client, KUBE_CONFIG_MAPS, f->ns, FIRST_CONFIG_NAME, on_map, f, &f->call);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(f);
	return 0;
}

struct first_config *first_config_free(struct first_config *f)
{
	if (!f)
		return NULL;
	if (f->call)
		kube_cancel(f->call);
	free(f->ns);
	free(f);
	return NULL;
}
