/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

char *load_file(const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	char *text = calloc(1, 1 << 20);

	if (!f || !text || !fread(text, 1, (1 << 20) - 1, f)) {
		fprintf(stderr, "%s: cannot be read\n", path);
		exit(1);
	}
	return text;
}

cJSON *load_json(const char *path)
{
	_cleanup_free_ char *text = load_file(path);
	cJSON *json = cJSON_Parse(text);

	if (!json) {
		fprintf(stderr, "%s: no JSON near %.40s\n", path, cJSON_GetErrorPtr());
		exit(1);
	}
	return json;
}

struct cluster_config *load_config(const cJSON *object)
{
	struct cluster_config *config;
	struct error err = {0};

	if (cluster_config_parse(object, &config, &err) < 0) {
		fprintf(stderr, "config: %s\n", err.message);
		exit(1);
	}
	return config;
}

struct rendered *render_config(const struct cluster_config *config)
{
	const struct render_input in = {
	    .config = config,
	    .ns = "kiln-system",
	    .image = "registry.example/kiln-agent:1",
	    .stream = true,
	    .max_hz = config->defaults.hz > 0 ? config->defaults.hz : 20,
	};
	struct rendered *r;
	struct error err = {0};

	if (render(&in, &r, &err) < 0) {
		fprintf(stderr, "render: %s\n", err.message);
		exit(1);
	}
	return r;
}

const struct rendered_object *find_object(const struct rendered *r, enum kube_kind kind,
					  const char *name)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->objects[i].kind == kind && streq(r->objects[i].name, name))
			return &r->objects[i];
	return NULL;
}

const char *agent_yaml(const struct rendered *r, const char *name)
{
	const struct rendered_object *o = find_object(r, KUBE_CONFIG_MAPS, name);
	const cJSON *data = o ? cJSON_GetObjectItem(o->object, "data") : NULL;

	return cJSON_GetStringValue(cJSON_GetObjectItem(data, "agent.yaml"));
}

const cJSON *find_in_list(const cJSON *list, const cJSON *like, const char *name)
{
	const cJSON *kind = cJSON_GetObjectItem(like, "kind"), *item;

	cJSON_ArrayForEach(item, cJSON_GetObjectItem(list, "items"))
	{
		const cJSON *meta = cJSON_GetObjectItem(item, "metadata");
		const char *its = cJSON_GetStringValue(cJSON_GetObjectItem(meta, "name"));

		if (cJSON_Compare(cJSON_GetObjectItem(item, "kind"), kind, true) && its &&
		    streq(its, name))
			return item;
	}
	return NULL;
}
