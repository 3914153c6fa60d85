/* SPDX-License-Identifier: Apache-2.0 */
/*
 * render_dump CONFIG.json: what render() makes of a ClusterProfilingConfig, as one v1 List.
 *
 *   --yaml NAME	only that ConfigMap's agent.yaml
 *   --covers FILE	says of each object whether the List in FILE has it as it should be
 */
#include "load.h"

static int show_list(const struct rendered *r)
{
	cJSON *list = cJSON_CreateObject(), *items;
	char *text;
	int code;

	cJSON_AddStringToObject(list, "apiVersion", "v1");
	cJSON_AddStringToObject(list, "kind", "List");
	items = cJSON_AddArrayToObject(list, "items");
	for (size_t i = 0; i < r->n; i++)
		cJSON_AddItemToArray(items, cJSON_Duplicate(r->objects[i].object, true));
	text = cJSON_Print(list);
	code = !text || puts(text) < 0;
	cJSON_free(text);
	cJSON_Delete(list);
	return code;
}

static int show_yaml(const struct rendered *r, const char *name)
{
	const char *yaml = agent_yaml(r, name);

	return !yaml || fputs(yaml, stdout) < 0;
}

static int show_drift(const struct rendered *r, const char *path)
{
	cJSON *live = load_json(path);
	bool all = true;

	for (size_t i = 0; i < r->n; i++) {
		const cJSON *item = find_in_list(live, r->objects[i].object, r->objects[i].name);
		bool good = item && render_covers(item, r->objects[i].object);

		printf("%s %s/%s\n",
		       !item  ? "missing"
		       : good ? "same"
			      : "drift",
		       cJSON_GetStringValue(cJSON_GetObjectItem(r->objects[i].object, "kind")),
		       r->objects[i].name);
		all &= good;
	}
	cJSON_Delete(live);
	return !all;
}

int main(int argc, char **argv)
{
	cJSON *object;
	struct cluster_config *config;
	struct rendered *r;
	int code = 2;

	if (argc != 2 && argc != 4)
		return 2;
	object = load_json(argv[1]);
	config = load_config(object);
	r = render_config(config);
	if (argc == 2)
		code = show_list(r);
	else if (streq(argv[2], "--yaml"))
		code = show_yaml(r, argv[3]);
	else if (streq(argv[2], "--covers"))
		code = show_drift(r, argv[3]);
	rendered_free(r);
	cluster_config_free(config);
	cJSON_Delete(object);
	return code;
}
