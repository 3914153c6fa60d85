/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The struct config's life, and the order in which it is filled: defaults, file, environment,
 * flags, then the checks that need the whole. Everything here runs once, on the main thread, before
 * any other exists. Nothing is applied to the running system; a mistake leaves no trace but its
 * message.
 */
#include <stdarg.h>

#include "agent/config/internal.h"
#include "lib/log.h"
#include "lib/parse.h"

static void exporter_done(struct exporter_config *e)
{
	char *strings[] = {e->type,
			   e->id,
			   e->endpoint,
			   e->profiles_endpoint,
			   e->tls.ca_file,
			   e->tls.cert_file,
			   e->tls.key_file,
			   e->tls.server_name_override,
			   e->tls.min_version,
			   e->compression,
			   e->profile,
			   e->queue.storage,
			   e->proto_generation,
			   e->output,
			   e->path};

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
		free(strings[i]);
	pairs_done(&e->headers);
	config_strings_done(&e->export_stack_frame_types);
	config_strings_done(&e->export_sample_types);
}

static void processors_done(struct processors_config *p)
{
	pairs_done(&p->add_attributes);
	for (size_t i = 0; i < p->n_resource; i++) {
		free(p->resource[i].key);
		free(p->resource[i].value);
		free(p->resource[i].action);
	}
	free(p->resource);
	config_strings_done(&p->k8s_metadata);
	free(p->node_stream.endpoint);
	free(p->node_stream.ca_file);
	free(p->node_stream.token_file);
	free(p->node_stream.snapshot_file);
	free(p->node_stream.server_name);
}

struct config *config_free(struct config *c)
{
	struct http_config *listeners[3];

	if (!c)
		return NULL;
	listeners[0] = &c->pprof;
	listeners[1] = &c->health_check;
	listeners[2] = &c->live;
	free(c->receiver.process_filter);
	free(c->receiver.pids);
	free(c->receiver.probes);
	config_strings_done(&c->receiver.labels);
	processors_done(&c->processors);
	for (size_t i = 0; i < c->n_exporters; i++)
		exporter_done(&c->exporters[i]);
	free(c->exporters);
	for (size_t i = 0; i < ARRAY_SIZE(listeners); i++) {
		free(listeners[i]->host);
		free(listeners[i]->path);
		free(listeners[i]->token_file);
		free(listeners[i]->cert_file);
		free(listeners[i]->key_file);
		free(listeners[i]->client_ca_file);
	}
	pairs_done(&c->resource_attributes);
	free(c->service_name);
	free(c->node_name);
	free(c);
	return NULL;
}

struct config *config_new(const struct tracer *tracers)
{
	_cleanup_(config_freep) struct config *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->known_tracers = tracers;
	c->receiver = (struct receiver_config){
	    .samples_per_second = 20,
	    .tracers = TRACERS_ALL,
	    .reporter_interval_ms = 5000,
	    .max_stack_depth = STACK_DEPTH_MAX,
	    .unwind_table_mib = 512,
	};
	for (size_t i = 0; i < CONFIG_RUNTIMES_MAX; i++)
		c->receiver.runtimes[i].native_frames = true;
	c->log_level = LOG_INFO;
	c->pprof.port = 1777;
	c->health_check.port = 13133;
	c->live.port = 7070;
	if (set_string(&c->pprof.host, "localhost") < 0 ||
	    set_string(&c->health_check.host, "localhost") < 0 ||
	    set_string(&c->health_check.path, "/") < 0 ||
	    set_string(&c->live.host, "127.0.0.1") < 0)
		return NULL;
	return TAKE_PTR(c);
}

int config_add_exporter(struct config *c, const char *type, const char *id,
			struct exporter_config **ret)
{
	struct exporter_config *grown, e = {
					   .timeout_ms = streq(type, "otlp_http") ? 30000 : 5000,
					   .retry = {.enabled = true,
						     .initial_interval_ms = 5000,
						     .multiplier = 1.5,
						     .randomization_factor = 0.5,
						     .max_interval_ms = 30000,
						     .max_elapsed_time_ms = 300000},
					   .queue = {.enabled = true,
						     .queue_size = 1000,
						     .num_consumers = 10,
						     .max_bytes = 64 << 20,
						     .storage_max_bytes = 1 << 30},
					   .export_resource_attributes = true,
					   .export_profile_attributes = true,
					   .export_sample_attributes = true,
					   .export_stack_frames = true,
					   .ignore_profiles_without_container_id = true,
					   .top_rows = 20,
				       };

	if (c->n_exporters >= CONFIG_COMPONENTS_MAX)
		return -E2BIG;
	grown = realloc(c->exporters, (c->n_exporters + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	c->exporters = grown;
	if (set_string(&e.type, type) < 0 || set_string(&e.id, id) < 0 ||
	    set_string(&e.compression, "gzip") < 0 || set_string(&e.proto_generation, "auto") < 0) {
		exporter_done(&e);
		return -ENOMEM;
	}
	c->exporters[c->n_exporters] = e;
	*ret = &c->exporters[c->n_exporters++];
	return 0;
}

void loading_warn(struct loading *l, const char *format, ...)
{
	char line[1024];
	va_list ap;

	if (!l->warn)
		return;
	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	l->warn(l->arg, line);
}

static int no_memory(struct error *err)
{
	return error_set(err, -ENOMEM, "out of memory");
}

/* The pipeline of a user who configured nothing: see what runs, keep a file of it. */
static int add_embedded_pipeline(struct config *c, struct error *err)
{
	struct exporter_config *e;

	if (config_add_exporter(c, "top", "top", &e) < 0 ||
	    config_add_exporter(c, "pprof_file", "pprof_file", &e) < 0 ||
	    set_string(&e->path, "kiln.pb.gz") < 0)
		return no_memory(err);
	c->embedded = true;
	return 0;
}

/* "config.yaml:12: exporters.otlp" or "otlp_grpc" when no file is in play. */
static int exporter_error(struct loading *l, size_t i, struct error *err, const char *message)
{
	const char *id = l->config->exporters[i].id;

	if (l->exporter_lines[i])
		return error_set(err, -EINVAL, "%s:%u: exporters.%.64s.%s", l->file,
				 l->exporter_lines[i], id, message);
	return error_set(err, -EINVAL, "%s: %s", id, message);
}

/* Whether something that a Secret should hold is missing. The kubelet treats these references as
 * optional: the value is then "", or the file does not exist. */
static bool lacks_secret(const struct exporter_config *e)
{
	const char *files[] = {e->tls.ca_file, e->tls.cert_file, e->tls.key_file};

	for (size_t i = 0; i < e->headers.n; i++)
		if (!e->headers.items[i].value[0])
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (files[i] && access(files[i], F_OK) < 0 && errno == ENOENT)
			return true;
	return false;
}

static int check_exporter(struct loading *l, size_t i, struct error *err)
{
	struct exporter_config *e = &l->config->exporters[i];
	bool grpc = streq(e->type, "otlp_grpc"), http = streq(e->type, "otlp_http");
	int plaintext = 0;

	if (!grpc && !http)
		return 0;
	if (!e->endpoint && !e->profiles_endpoint)
		return exporter_error(l, i, err, "endpoint: required");
	if (!e->tls.cert_file != !e->tls.key_file)
		return exporter_error(l, i, err, "tls: cert_file and key_file go together");
	if (e->retry.initial_interval_ms > e->retry.max_interval_ms)
		return exporter_error(l, i, err,
				      "retry_on_failure: initial_interval is above max_interval");
	if (grpc) {
		if (check_grpc_endpoint(e->endpoint, &plaintext, err) < 0)
			return -EINVAL; /* it was checked where it was read */
		if (plaintext)
			e->tls.insecure = plaintext > 0;
	} else {
		e->tls.insecure =
		    strncasecmp(e->profiles_endpoint ? e->profiles_endpoint : e->endpoint,
				"http://", 7) == 0;
	}
	e->awaits_operator = l->config->processors.node_stream.endpoint && lacks_secret(e);
	return 0;
}

/* OTEL_SERVICE_NAME wins over service.name among the attributes, which is removed from them. */
static int settle_service_name(struct config *c, struct error *err)
{
	const char *name = pairs_get(&c->resource_attributes, "service.name");

	if (!name)
		return 0;
	if (!c->service_name && *name && set_string(&c->service_name, name) < 0)
		return no_memory(err);
	pairs_remove(&c->resource_attributes, "service.name");
	return 0;
}

bool is_safe_live(const struct http_config *live)
{
	return live->token_file || live->client_ca_file || is_loopback_host(live->host);
}

static int check_live(const struct http_config *live, struct error *err)
{
	if (!live->enabled)
		return 0;
	if (!live->cert_file != !live->key_file)
		return error_set(err, -EINVAL,
				 "extensions.live.tls: cert_file and key_file come together");
	if (live->client_ca_file && !live->cert_file)
		return error_set(err, -EINVAL,
				 "extensions.live.tls.client_ca_file: want cert_file and key_file, "
				 "too");
	if (is_safe_live(live))
		return 0;
	return error_set(err, -EINVAL,
			 "extensions.live.endpoint: %.253s:%u is not an address of this machine "
			 "alone: extensions.live.token_file or tls.client_ca_file is required",
			 live->host, live->port);
}

static int finish(struct loading *l, struct error *err)
{
	struct config *c = l->config;
	int r = 0;

	if (!l->file && !c->n_exporters)
		r = add_embedded_pipeline(c, err);
	for (size_t i = 0; r == 0 && i < c->n_exporters; i++)
		r = check_exporter(l, i, err);
	if (r == 0)
		r = settle_service_name(c, err);
	if (r == 0)
		r = check_live(&c->live, err);
	warn_of_tracers(l);
	return r;
}

int config_load_with(int argc, char *const *argv, const char *const *envp,
		     const struct tracer *tracers, void (*warn)(void *arg, const char *line),
		     void *arg, struct config **ret, enum config_action *ret_action,
		     struct error *err)
{
	_cleanup_(config_freep) struct config *c = config_new(tracers);
	struct loading l = {.config = c, .envp = envp, .warn = warn, .arg = arg};
	enum config_action action = CONFIG_RUN;
	_cleanup_free_ struct flags *flags = calloc(1, sizeof(*flags));
	int r;

	if (!c || !flags)
		return no_memory(err);
	r = flags_parse(&l, argc, argv, flags, &action, err);
	if (r == 0 && action == CONFIG_RUN) {
		l.file = flags->config;
		if (l.file)
			r = config_read_file(&l, err);
		if (r == 0)
			r = config_apply_env(&l, flags, err);
		if (r == 0)
			r = flags_apply(&l, flags, err);
		if (r == 0)
			r = finish(&l, err);
	}
	if (r < 0) {
		if (err)
			parse_make_printable(err->message); /* the file's name */
		return r;
	}
	*ret = TAKE_PTR(c);
	*ret_action = action;
	return 0;
}

static void warn_to_log(void *arg, const char *line)
{
	log_warn("config", "%s", line);
}

int config_load(int argc, char *const *argv, const char *const *envp, const struct tracer *tracers,
		struct config **ret, enum config_action *ret_action, struct error *err)
{
	return config_load_with(argc, argv, envp, tracers, warn_to_log, NULL, ret, ret_action, err);
}
