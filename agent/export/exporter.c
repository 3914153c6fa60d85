/* SPDX-License-Identifier: Apache-2.0 */
/* The table of exporter types: a new exporter is its own file and one row here. */
#include "agent/export/exporter.h"

static const struct exporter_ops *const exporter_ops_table[] = {
    &otlp_grpc_exporter_ops,  &otlp_http_exporter_ops,	 &text_exporter_ops,
    &pprof_file_exporter_ops, &folded_file_exporter_ops, &top_exporter_ops,
};

int exporter_new(const struct exporter_config *config, uv_loop_t *loop, struct exporter **ret,
		 struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(exporter_ops_table); i++)
		if (streq(exporter_ops_table[i]->type, config->type))
			return exporter_ops_table[i]->create(config, loop, ret, err);
	return error_set(err, -EINVAL, "unknown type \"%s\"", config->type);
}

bool exporter_healthy(const struct exporter *exporter, char *error, size_t size)
{
	if (exporter->ops->healthy)
		return exporter->ops->healthy(exporter, error, size);
	if (!exporter->failed)
		return true;
	snprintf(error, size, "it cannot be written, see the agent's log");
	return false;
}
