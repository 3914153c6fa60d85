/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `exporters`. One table per type over the one struct exporter_config. Header values may be
 * secrets: messages name the header, never its value. What only the whole configuration can tell (a
 * missing endpoint may come from a flag) is checked by config.c at the end.
 */
#include "agent/config/internal.h"

const struct component_type exporter_types[] = {
    {"otlp_grpc", "otlp_grpc"},
    {"otlp", "otlp_grpc"},
    {"otlp_http", "otlp_http"},
    {"otlphttp", "otlp_http"},
    {"customprofilesexporter", "customprofilesexporter"},
    {"debug", "customprofilesexporter"},
    {"pprof_file", "pprof_file"},
    {"folded_file", "folded_file"},
    {"top", "top"},
    {},
};

static int checked_string(struct fields *f, const struct yaml_node *node, char **out,
			  int (*check)(const char *text, struct error *err))
{
	struct error why = {0};
	char *s;
	int r = node->kind == YAML_NULL ? 1 : fields_string(f, node, &s);

	if (r != 0)
		return MIN(r, 0);
	r = check(s, &why);
	if (r < 0) {
		free(s);
		return r == -ENOMEM ? fields_no_memory(f)
				    : fields_error(f, node, "%s", why.message);
	}
	free(*out);
	*out = s;
	return 0;
}

static int check_grpc(const char *text, struct error *err)
{
	int plaintext;

	return check_grpc_endpoint(text, &plaintext, err);
}

static int decode_grpc_endpoint(struct fields *f, const struct yaml_node *node, void *out)
{
	return checked_string(f, node, out, check_grpc);
}

static int decode_http_endpoint(struct fields *f, const struct yaml_node *node, void *out)
{
	return checked_string(f, node, out, check_http_endpoint);
}

static int decode_template(struct fields *f, const struct yaml_node *node, void *out)
{
	return checked_string(f, node, out, check_path_template);
}

static int check_directory(const char *text, struct error *err)
{
	if (text[0] == '/')
		return 0;
	return error_set(err, -EINVAL, "want the absolute path of a directory, got %s",
			 quote_text(text).text);
}

static int decode_directory(struct fields *f, const struct yaml_node *node, void *out)
{
	return checked_string(f, node, out, check_directory);
}

static int add_header(struct fields *f, const struct yaml_node *node, const char *name,
		      const struct yaml_node *value, struct config_pairs *headers)
{
	const char *text = value && value->kind == YAML_SCALAR ? value->text : "";
	struct error why = {0};
	int r;

	if (value && (value->kind == YAML_MAP || value->kind == YAML_LIST))
		return fields_error(f, node, "the header's value must be text");
	if (check_header(name, text, &why) < 0)
		return fields_error(f, node, "%s", why.message);
	if (pairs_get(headers, header_spelled(headers, name)))
		return fields_error(f, node, "the header %.64s is given twice", name);
	r = pairs_set(headers, name, text, CONFIG_HEADERS_MAX);
	if (r == -E2BIG)
		return fields_error(f, node, "more than %d headers", CONFIG_HEADERS_MAX);
	return r < 0 ? fields_no_memory(f) : 0;
}

/* A map, or a list of {name, value} as newer Collectors write it. */
static int decode_headers(struct fields *f, const struct yaml_node *node, void *out)
{
	int r = 0;

	if (node->kind == YAML_SCALAR)
		return fields_error(f, node, "want a map of headers, got text");
	for (const struct yaml_node *n = node->child; r == 0 && n; n = n->next) {
		const struct yaml_node *name;

		if (node->kind == YAML_MAP) {
			r = add_header(f, n, n->key, n, out);
			continue;
		}
		name = fields_find(n, "name");
		if (!name || name->kind != YAML_SCALAR || !fields_find(n, "value"))
			return fields_error(f, n, "want {name: NAME, value: VALUE}");
		r = add_header(f, n, name->text, fields_find(n, "value"), out);
	}
	return r;
}

/* A list of names, or one text with commas. */
static int decode_names(struct fields *f, const struct yaml_node *node, void *out)
{
	_cleanup_free_ char *copy = NULL;
	char *rest, *item;
	int r = 0;

	if (node->kind == YAML_MAP)
		return fields_error(f, node, "want a list of names, got a map");
	if (node->kind == YAML_SCALAR) {
		r = fields_string(f, node, &copy);
		rest = copy;
		while (r == 0 && (item = strsep(&rest, ",")))
			if (*item)
				r = config_strings_add(out, item);
	}
	for (const struct yaml_node *n = node->child; r == 0 && n; n = n->next) {
		if (n->kind != YAML_SCALAR)
			return fields_error(f, n, "want a name");
		r = config_strings_add(out, n->text);
	}
	if (r == -E2BIG)
		return fields_error(f, node, "more than %d names", CONFIG_LIST_MAX);
	if (r == -ENOMEM)
		return fields_no_memory(f);
	return r;
}

/* Values of profile.frame.type (semantic conventions, profile registry). */
static const char *const frame_types[] = {"native",  "kernel", "go",	       "jvm",  "php",
					  "cpython", "perl",   "ruby",	       "v8js", "dotnet",
					  "beam",    "luajit", "abort-marker", NULL};

static int decode_frame_types(struct fields *f, const struct yaml_node *node, void *out)
{
	struct config_strings *s = out;
	const char *nearest;
	int r = decode_names(f, node, out);

	for (size_t i = 0; r == 0 && i < s->n; i++) {
		size_t known = 0;

		while (frame_types[known] && !streq(frame_types[known], s->items[i]))
			known++;
		if (frame_types[known])
			continue;
		nearest = nearest_choice(s->items[i], frame_types);
		return fields_error(f, node, "unknown frame type %s%s%s%s",
				    quote_text(s->items[i]).text, nearest ? "; did you mean " : "",
				    nearest ? nearest : "", nearest ? "?" : "");
	}
	return r;
}

static const char *const tls_versions[] = {"1.0", "1.1", "1.2", "1.3", NULL};
static const struct field tls_rows[] = {
    {"insecure", FIELD_BOOL, offsetof(struct tls_config, insecure)},
    {"insecure_skip_verify", FIELD_BOOL, offsetof(struct tls_config, insecure_skip_verify)},
    {"ca_file", FIELD_STRING, offsetof(struct tls_config, ca_file)},
    {"cert_file", FIELD_STRING, offsetof(struct tls_config, cert_file)},
    {"key_file", FIELD_STRING, offsetof(struct tls_config, key_file)},
    {"server_name_override", FIELD_STRING, offsetof(struct tls_config, server_name_override)},
    {"min_version", FIELD_CHOICE, offsetof(struct tls_config, min_version),
     .choices = tls_versions},
    {"max_version", FIELD_IGNORED},
    {"cipher_suites", FIELD_IGNORED},
    {"curve_preferences", FIELD_IGNORED},
    {"reload_interval", FIELD_IGNORED},
    {"include_system_ca_certs_pool", FIELD_IGNORED},
    {"ca_pem", FIELD_IGNORED, .note = "accepted, but has no effect: give ca_file"},
    {"cert_pem", FIELD_IGNORED, .note = "accepted, but has no effect: give cert_file"},
    {"key_pem", FIELD_IGNORED, .note = "accepted, but has no effect: give key_file"},
    {"tpm", FIELD_IGNORED},
    {},
};

enum { DAY_MS = 86400000 };
static const struct field retry_rows[] = {
    {"enabled", FIELD_BOOL, offsetof(struct retry_config, enabled)},
    {"initial_interval", FIELD_DURATION_MS, offsetof(struct retry_config, initial_interval_ms), 1,
     DAY_MS},
    {"multiplier", FIELD_DOUBLE, offsetof(struct retry_config, multiplier), 1, 100},
    {"randomization_factor", FIELD_DOUBLE, offsetof(struct retry_config, randomization_factor), 0,
     1},
    {"max_interval", FIELD_DURATION_MS, offsetof(struct retry_config, max_interval_ms), 1, DAY_MS},
    {"max_elapsed_time", FIELD_DURATION_MS, offsetof(struct retry_config, max_elapsed_time_ms), 0,
     30.0 * DAY_MS},
    {},
};

static const struct field queue_rows[] = {
    {"enabled", FIELD_BOOL, offsetof(struct queue_config, enabled)},
    {"queue_size", FIELD_U32, offsetof(struct queue_config, queue_size), 1, 1000000},
    {"num_consumers", FIELD_U32, offsetof(struct queue_config, num_consumers), 1, 1000},
    {"max_bytes", FIELD_SIZE, offsetof(struct queue_config, max_bytes), 1 << 20, 1LL << 40},
    {"storage", FIELD_CUSTOM, offsetof(struct queue_config, storage), .decode = decode_directory},
    {"storage_max_bytes", FIELD_SIZE, offsetof(struct queue_config, storage_max_bytes), 1 << 20,
     1LL << 50},
    {"sizer", FIELD_IGNORED},
    {"block_on_overflow", FIELD_IGNORED},
    {"wait_for_result", FIELD_IGNORED},
    {"blocking", FIELD_IGNORED},
    {"batch", FIELD_IGNORED},
    {},
};

#define AT(member) offsetof(struct exporter_config, member)
static const char auth_note[] =
    "accepted, but authenticator extensions have no effect in this agent: use headers or tls";

#define OTLP_ROWS                                                                                  \
	{"tls", FIELD_MAP, AT(tls), .rows = tls_rows},                                             \
	    {"headers", FIELD_CUSTOM, AT(headers), .decode = decode_headers, .secret = true},      \
	    {"compression", FIELD_CHOICE, AT(compression), .choices = compression_names},          \
	    {"timeout", FIELD_DURATION_MS, AT(timeout_ms), 1, DAY_MS},                             \
	    {"retry_on_failure", FIELD_MAP, AT(retry), .rows = retry_rows},                        \
	    {"sending_queue", FIELD_MAP, AT(queue), .rows = queue_rows},                           \
	    {"proto_generation", FIELD_CHOICE, AT(proto_generation),                               \
	     .choices = otlp_generation_names},                                                    \
	    {"read_buffer_size", FIELD_IGNORED}, {"write_buffer_size", FIELD_IGNORED},             \
	    {"auth", FIELD_IGNORED, .note = auth_note}, {"middlewares", FIELD_IGNORED},            \
	{                                                                                          \
		"batcher", FIELD_IGNORED                                                           \
	}

static const struct field grpc_rows[] = {
    {"endpoint", FIELD_CUSTOM, AT(endpoint), .decode = decode_grpc_endpoint},
    OTLP_ROWS,
    {"balancer_name", FIELD_IGNORED},
    {"wait_for_ready", FIELD_IGNORED},
    {"keepalive", FIELD_IGNORED},
    {"authority", FIELD_IGNORED},
    {},
};

static const struct field http_rows[] = {
    {"endpoint", FIELD_CUSTOM, AT(endpoint), .decode = decode_http_endpoint},
    {"profiles_endpoint", FIELD_CUSTOM, AT(profiles_endpoint), .decode = decode_http_endpoint},
    OTLP_ROWS,
    {"traces_endpoint", FIELD_IGNORED},
    {"metrics_endpoint", FIELD_IGNORED},
    {"logs_endpoint", FIELD_IGNORED},
    {"encoding", FIELD_IGNORED, .note = "accepted, but requests are always protobuf"},
    {"compression_params", FIELD_IGNORED},
    {"proxy_url", FIELD_IGNORED},
    {"cookies", FIELD_IGNORED},
    {"max_idle_conns", FIELD_IGNORED},
    {"max_idle_conns_per_host", FIELD_IGNORED},
    {"max_conns_per_host", FIELD_IGNORED},
    {"idle_conn_timeout", FIELD_IGNORED},
    {"disable_keep_alives", FIELD_IGNORED},
    {"http2_read_idle_timeout", FIELD_IGNORED},
    {"http2_ping_timeout", FIELD_IGNORED},
    {"force_attempt_http2", FIELD_IGNORED},
    {},
};

static const struct field text_rows[] = {
    {"export_resource_attributes", FIELD_BOOL, AT(export_resource_attributes)},
    {"export_profile_attributes", FIELD_BOOL, AT(export_profile_attributes)},
    {"export_sample_attributes", FIELD_BOOL, AT(export_sample_attributes)},
    {"export_stack_frames", FIELD_BOOL, AT(export_stack_frames)},
    {"export_function_file", FIELD_BOOL, AT(export_function_file)},
    {"ignore_profiles_without_container_id", FIELD_BOOL, AT(ignore_profiles_without_container_id)},
    {"export_stack_frame_types", FIELD_CUSTOM, AT(export_stack_frame_types),
     .decode = decode_frame_types},
    {"export_sample_types", FIELD_CUSTOM, AT(export_sample_types), .decode = decode_names},
    {"output", FIELD_STRING, AT(output)},
    {"verbosity", FIELD_IGNORED},
    {"sampling_initial", FIELD_IGNORED},
    {"sampling_thereafter", FIELD_IGNORED},
    {"use_internal_logger", FIELD_IGNORED},
    {"output_paths", FIELD_IGNORED},
    {"sending_queue", FIELD_IGNORED},
    {},
};

static const struct field file_rows[] = {
    {"path", FIELD_CUSTOM, AT(path), .decode = decode_template},
    {"rotation", FIELD_DURATION_MS, AT(rotation_ms), 0, 30.0 * DAY_MS},
    {},
};

static const struct field folded_rows[] = {
    {"path", FIELD_CUSTOM, AT(path), .decode = decode_template},
    {"rotation", FIELD_DURATION_MS, AT(rotation_ms), 0, 30.0 * DAY_MS},
    {"profile", FIELD_CHOICE, AT(profile), .choices = folded_profile_names},
    {},
};

static const struct field top_rows[] = {
    {"rows", FIELD_U32, AT(top_rows), 1, 1000},
    {},
};

static const struct field *rows_of(const char *type)
{
	if (streq(type, "otlp_grpc"))
		return grpc_rows;
	if (streq(type, "otlp_http"))
		return http_rows;
	if (streq(type, "customprofilesexporter"))
		return text_rows;
	if (streq(type, "folded_file"))
		return folded_rows;
	return streq(type, "top") ? top_rows : file_rows;
}

int exporter_decode(struct fields *f, const struct component_type *type,
		    const struct yaml_node *node, struct loading *l)
{
	const struct field *rows = rows_of(type->canonical);
	struct exporter_config *e;
	int r = config_add_exporter(l->config, type->canonical, node->key, &e);

	if (r < 0) /* the section's own cap comes first, so only memory is left */
		return fields_no_memory(f);
	l->exporter_lines[l->config->n_exporters - 1] = node->line;
	r = fields_decode(f, node, rows, e);
	if (r == 0 && (rows == file_rows || rows == folded_rows) && !e->path)
		return fields_error(f, node, "path: required");
	return r;
}
