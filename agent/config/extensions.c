/* SPDX-License-Identifier: Apache-2.0 */
/* `extensions`: the listeners. One is on when service.extensions names it. */
#include "agent/config/internal.h"

const struct component_type extension_types[] = {
    {"pprof", "pprof"},
    {"health_check", "health_check"},
    {"live", "live"},
    {},
};

static int decode_endpoint(struct fields *f, const struct yaml_node *node, void *out)
{
	_cleanup_free_ char *text = NULL;
	struct error why = {0};
	int r;

	if (node->kind == YAML_NULL)
		return 0;
	r = fields_string(f, node, &text);
	if (r < 0)
		return r;
	r = parse_address(text, out, &why);
	if (r == -ENOMEM)
		return fields_no_memory(f);
	return r < 0 ? fields_error(f, node, "%s", why.message) : 0;
}

static int decode_url_path(struct fields *f, const struct yaml_node *node, void *out)
{
	char *s;
	int r = node->kind == YAML_NULL ? 1 : fields_string(f, node, &s);

	if (r != 0)
		return MIN(r, 0);
	if (s[0] != '/' || strcspn(s, " ?#") != strlen(s)) {
		free(s);
		return fields_error(f, node, "want a path such as /health, got %s",
				    quote_text(node->text).text);
	}
	free(*(char **)out);
	*(char **)out = s;
	return 0;
}

static const struct field pprof_rows[] = {
    {"endpoint", FIELD_CUSTOM, 0, .decode = decode_endpoint},
    {"block_profile_fraction", FIELD_IGNORED},
    {"mutex_profile_fraction", FIELD_IGNORED},
    {"save_to_file", FIELD_IGNORED},
    {"dialer", FIELD_IGNORED},
    {},
};

static const struct field health_rows[] = {
    {"endpoint", FIELD_CUSTOM, 0, .decode = decode_endpoint},
    {"path", FIELD_CUSTOM, offsetof(struct http_config, path), .decode = decode_url_path},
    {"response_body", FIELD_IGNORED},
    {"check_collector_pipeline", FIELD_IGNORED},
    {"tls", FIELD_IGNORED},
    {"use_v2", FIELD_IGNORED},
    {"http", FIELD_IGNORED},
    {"grpc", FIELD_IGNORED},
    {"component_health", FIELD_IGNORED},
    {},
};

/* Keys of the Collector's configtls.ServerConfig. */
static const struct field live_tls_rows[] = {
    {"cert_file", FIELD_STRING, offsetof(struct http_config, cert_file)},
    {"key_file", FIELD_STRING, offsetof(struct http_config, key_file)},
    {"client_ca_file", FIELD_STRING, offsetof(struct http_config, client_ca_file)},
    {},
};

static const struct field live_rows[] = {
    {"endpoint", FIELD_CUSTOM, 0, .decode = decode_endpoint},
    {"token_file", FIELD_STRING, offsetof(struct http_config, token_file)},
    {"tls", FIELD_MAP, 0, .rows = live_tls_rows},
    {},
};

int extension_decode(struct fields *f, const struct component_type *type,
		     const struct yaml_node *node, struct loading *l)
{
	const struct field *rows = live_rows;
	struct http_config *http = &l->config->live;

	if (streq(type->canonical, "pprof")) {
		http = &l->config->pprof;
		rows = pprof_rows;
	} else if (streq(type->canonical, "health_check")) {
		http = &l->config->health_check;
		rows = health_rows;
	}
	if (http->enabled)
		return fields_error(f, node, "only one %s extension can be used", type->canonical);
	http->enabled = true;
	return fields_decode(f, node, rows, http);
}
