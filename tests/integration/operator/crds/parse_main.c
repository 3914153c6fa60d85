/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's own reading of configs, for the test that compares it with the API server's: one
 * object in JSON a line on standard input, one line for each on standard output: empty, or why the
 * operator refuses it. One thread.
 */
#include <stdio.h>
#include <stdlib.h>

#include "operator/policy/config.h"

/* An unknown field is no error for the operator, but strict clients of the API server get one. */
static int check_ignored(const struct object_id *id, struct error *err)
{
	return id->ignored ? error_set(err, -EINVAL, "%s", id->ignored) : 0;
}

static int parse(const cJSON *object, struct error *err)
{
	int r;

	_cleanup_(cluster_config_freep) struct cluster_config *cluster = NULL;
	_cleanup_(namespace_config_freep) struct namespace_config *tenant = NULL;
	const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "kind"));

	if (kind && streq(kind, "ClusterProfilingConfig")) {
		r = cluster_config_parse(object, &cluster, err);
		return r < 0 ? r : check_ignored(&cluster->id, err);
	}
	r = namespace_config_parse(object, &tenant, err);
	return r < 0 ? r : check_ignored(&tenant->id, err);
}

int main(void)
{
	_cleanup_free_ char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, stdin) > 0) {
		cJSON *object = cJSON_Parse(line);
		struct error err = {0};

		if (!object) {
			fputs("crd_parse: no JSON\n", stderr);
			return 2;
		}
		puts(parse(object, &err) < 0 ? err.message : "");
		cJSON_Delete(object);
	}
	return 0;
}
