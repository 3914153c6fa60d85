/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `receivers`: profiling and customprofilesreceiver. Keys of the reference profiler's receiver that
 * steer its own machinery are known and do nothing here (opentelemetry-ebpf-profiler, receiver
 * configuration, 2025-09 to 2026-08; names listed, not code).
 */
#include "agent/config/internal.h"
#include "lib/buf.h"

const struct component_type receiver_types[] = {
    {"profiling", "profiling"},
    {"customprofilesreceiver", "customprofilesreceiver"},
    {"otlp", "otlp", true},
    {"hostmetrics", "hostmetrics", true},
    {"prometheus", "prometheus", true},
    {"filelog", "filelog", true},
    {"nop", "nop", true},
    {"pprof", "pprof", true},
    {"httprest", "httprest", true},
    {},
};

static int decode_tracers(struct fields *f, const struct yaml_node *node, struct config *c)
{
	const char *text = node->kind == YAML_SCALAR ? node->text : NULL;
	_cleanup_(buf_done) struct buf joined;
	struct error why = {0};
	int r;

	if (node->kind == YAML_NULL)
		return 0;
	if (node->kind == YAML_MAP)
		return fields_error(f, node, "want names of tracers, got a map");
	buf_init(&joined, CONFIG_FILE_MAX);
	for (const struct yaml_node *i = node->child; i; i = i->next) {
		if (i->kind != YAML_SCALAR)
			return fields_error(f, i, "want the name of a tracer");
		buf_printf(&joined, "%s,", i->text);
	}
	if (buf_error(&joined) < 0)
		return fields_no_memory(f);
	if (!text)
		text = joined.data ? joined.data : "";
	r = parse_tracers(c->known_tracers, text, &c->receiver.tracers, &why);
	if (r == -ENOMEM)
		return fields_no_memory(f);
	if (r < 0)
		return fields_error(f, node, "%s", why.message);
	c->receiver.named_tracers = c->receiver.tracers;
	return 0;
}

static int decode_filter(struct fields *f, const struct yaml_node *node, void *out)
{
	struct error why = {0};
	int r;

	if (node->kind == YAML_NULL)
		return 0;
	if (node->kind == YAML_SCALAR) {
		r = check_process_filter(node->text, &why);
		if (r == -ENOMEM)
			return fields_no_memory(f);
		if (r < 0)
			return fields_error(f, node, "%s", why.message);
	}
	free(*(char **)out);
	*(char **)out = NULL;
	return fields_string(f, node, out);
}

/* Replaces the list of a receiver that was decoded before. */
static int decode_probes(struct fields *f, const struct yaml_node *node, struct config *c)
{
	struct error why = {0};
	int r;

	if (node->kind == YAML_NULL)
		return 0;
	if (node->kind != YAML_LIST)
		return fields_error(f, node,
				    "want a list of probes such as "
				    "uprobe:/lib/x86_64-linux-gnu/libc.so.6:malloc");
	c->receiver.n_probes = 0;
	for (const struct yaml_node *i = node->child; i; i = i->next) {
		if (i->kind != YAML_SCALAR)
			return fields_error(f, i, "want a probe such as kprobe:vfs_read");
		r = add_probe(&c->receiver, i->text, &why);
		if (r == -ENOMEM)
			return fields_no_memory(f);
		if (r < 0)
			return fields_error(f, i, "%s", why.message);
	}
	return 0;
}

/* labels: [tenant, http.route] */
static int decode_labels(struct fields *f, const struct yaml_node *node, struct config *c)
{
	struct error why = {0};
	int r = fields_want_list(f, node);

	config_strings_done(&c->receiver.labels);
	for (const struct yaml_node *item = node->child; item && r == 0; item = item->next) {
		_cleanup_free_ char *key = NULL;

		r = fields_string(f, item, &key);
		if (r == 0)
			r = add_label_key(&c->receiver.labels, key ? key : "", &why);
		if (r == -ENOMEM)
			return fields_no_memory(f);
		if (r < 0 && why.message[0])
			return fields_error(f, item, "%s", why.message);
	}
	return r;
}

/* interpreters.python.disabled: true */
struct interpreter {
	bool disabled;
};

static const struct field interpreter_rows[] = {
    {"disabled", FIELD_BOOL, offsetof(struct interpreter, disabled)},
    {"labels", FIELD_IGNORED},
    {"symbolization", FIELD_IGNORED},
    {"skip_native_resume", FIELD_IGNORED},
    {},
};

static int decode_interpreters(struct fields *f, const struct yaml_node *node, struct config *c)
{
	struct interpreter interpreters[CONFIG_RUNTIMES_MAX] = {0};
	/* The first is go's. The native walk finds Go's frames, so that it cannot be disabled. */
	struct field rows[CONFIG_RUNTIMES_MAX + 1] = {
	    {"go", FIELD_MAP, 0, .rows = interpreter_rows}};
	size_t n = 1;
	int r;

	for (const struct tracer *t = c->known_tracers; t->name && n < CONFIG_RUNTIMES_MAX; t++)
		if (t->id)
			rows[n++] =
			    (struct field){t->name, FIELD_MAP, t->id * sizeof(interpreters[0]),
					   .rows = interpreter_rows};
	r = fields_decode(f, node, rows, interpreters);
	if (r == 0 && interpreters[0].disabled)
		fields_warn(f, node,
			    "go.disabled: accepted, but has no effect: the native walk finds Go's "
			    "frames");
	for (uint32_t id = 1; r == 0 && id < CONFIG_RUNTIMES_MAX; id++)
		if (interpreters[id].disabled)
			c->receiver.tracers &= ~(1U << id);
	return r;
}

static const struct field runtime_rows[] = {
    {"native_frames", FIELD_BOOL, offsetof(struct runtime_config, native_frames)},
    {},
};

static int decode_budget_cpu(struct fields *f, const struct yaml_node *node, void *out)
{
	struct error why = {0};

	if (node->kind == YAML_NULL)
		return 0;
	if (node->kind != YAML_SCALAR)
		return fields_error(f, node, "want a share of all CPUs such as 0.5%%");
	return parse_budget_cpu(node->text, out, &why) < 0
		   ? fields_error(f, node, "%s", why.message)
		   : 0;
}

static int decode_budget_memory(struct fields *f, const struct yaml_node *node, void *out)
{
	struct error why = {0};

	if (node->kind == YAML_NULL)
		return 0;
	if (node->kind != YAML_SCALAR)
		return fields_error(f, node, "want a size such as 128MiB");
	return parse_budget_memory(node->text, out, &why) < 0
		   ? fields_error(f, node, "%s", why.message)
		   : 0;
}

static const struct field budget_rows[] = {
    {"cpu", FIELD_CUSTOM, offsetof(struct budget, cpu), .decode = decode_budget_cpu},
    {"memory", FIELD_CUSTOM, offsetof(struct budget, memory_bytes), .decode = decode_budget_memory},
    {},
};

static int refuse_old_budget(struct fields *f, const struct yaml_node *node, void *out)
{
	return fields_error(f, node, "is now budget: {memory: %.16sMiB}",
			    node->kind == YAML_SCALAR ? node->text : "N");
}

#define RECEIVER(member) offsetof(struct config, receiver.member)
static const struct field profiling_rows[] = {
    {"samples_per_second", FIELD_U32, RECEIVER(samples_per_second), 1, SAMPLES_PER_SECOND_MAX},
    {"tracers", FIELD_QUIET},	   /* decode_profiling() reads it */
    {"interpreters", FIELD_QUIET}, /* decode_profiling() reads it, after `tracers` */
    {"reporter_interval", FIELD_DURATION_MS, RECEIVER(reporter_interval_ms),
     REPORTER_INTERVAL_MIN_MS, REPORTER_INTERVAL_MAX_MS},
    {"max_stack_depth", FIELD_U32, RECEIVER(max_stack_depth), 1, STACK_DEPTH_MAX},
    {"unwind_table_memory_mib", FIELD_U32, RECEIVER(unwind_table_mib), 4, 1024},
    {"budget", FIELD_MAP, RECEIVER(budget), .rows = budget_rows},
    {"memory_budget_mib", FIELD_CUSTOM, 0, .decode = refuse_old_budget},
    {"off_cpu_threshold", FIELD_DOUBLE, RECEIVER(off_cpu_threshold), 0, 1},
    {"process_filter", FIELD_CUSTOM, RECEIVER(process_filter), .decode = decode_filter},
    {"timestamps", FIELD_BOOL, RECEIVER(timestamps)},
    {"labels", FIELD_QUIET}, /* decode_profiling() reads it */
    {"verbose_mode", FIELD_BOOL, offsetof(struct config, verbose)},
    {"reporter_jitter", FIELD_IGNORED},
    {"monitor_interval", FIELD_IGNORED},
    {"clock_sync_interval", FIELD_IGNORED},
    {"frame_cache_size", FIELD_IGNORED},
    {"probabilistic_interval", FIELD_IGNORED},
    {"probabilistic_threshold", FIELD_IGNORED},
    {"filter_min_process_age", FIELD_IGNORED},
    {"map_scale_factor", FIELD_IGNORED},
    {"send_error_frames", FIELD_IGNORED},
    {"send_idle_frames", FIELD_IGNORED},
    {"pin_cpu_ids", FIELD_IGNORED},
    {"no_kernel_version_check", FIELD_IGNORED},
    {"obi_process_ctx", FIELD_IGNORED},
    {"bpf_verifier_log_level", FIELD_IGNORED},
    {"bpf_fs_root", FIELD_IGNORED},
    {"include_env_vars", FIELD_IGNORED},
    {"probes", FIELD_QUIET}, /* decode_profiling() reads it */
    {"probe_links", FIELD_IGNORED},
    {"uprobe_links", FIELD_IGNORED},
    {"load_probe", FIELD_IGNORED},
    {"max_grpc_retries", FIELD_IGNORED},
    {"max_rpc_msg_size", FIELD_IGNORED},
    {"error_mode", FIELD_IGNORED},
    {"pid_namespace_translation", FIELD_IGNORED},
    {},
};

static const struct field window_rows[] = {
    {"report_interval", FIELD_DURATION_MS, RECEIVER(reporter_interval_ms), REPORTER_INTERVAL_MIN_MS,
     REPORTER_INTERVAL_MAX_MS},
    {},
};

static int decode_key(struct fields *f, const struct yaml_node *node, const char *key,
		      int (*decode)(struct fields *f, const struct yaml_node *node,
				    struct config *c),
		      struct config *c)
{
	const struct yaml_node *value = fields_find(node, key);
	size_t mark;
	int r;

	if (!value)
		return 0;
	mark = fields_enter(f, key);
	r = decode(f, value, c);
	if (r == 0)
		fields_leave(f, mark);
	return r;
}

/*
 * Besides the fixed keys there is one key for each runtime, its name. A disabled runtime stays
 * disabled, whichever of `tracers` and `interpreters` comes first.
 */
static int decode_profiling(struct fields *f, const struct yaml_node *node, struct config *c)
{
	struct field rows[ARRAY_SIZE(profiling_rows) + CONFIG_RUNTIMES_MAX] = {0};
	size_t n = ARRAY_SIZE(profiling_rows) - 1;
	int r;

	memcpy(rows, profiling_rows, sizeof(profiling_rows));
	for (const struct tracer *t = c->known_tracers; t->name && n < ARRAY_SIZE(rows) - 1; t++)
		if (t->id && t->walked)
			rows[n++] = (struct field){t->name, FIELD_MAP, RECEIVER(runtimes[t->id]),
						   .rows = runtime_rows};
	r = fields_decode(f, node, rows, c);
	if (r == 0)
		r = decode_key(f, node, "tracers", decode_tracers, c);
	if (r == 0)
		r = decode_key(f, node, "probes", decode_probes, c);
	if (r == 0)
		r = decode_key(f, node, "labels", decode_labels, c);
	return r ? r : decode_key(f, node, "interpreters", decode_interpreters, c);
}

int receiver_decode(struct fields *f, const struct component_type *type,
		    const struct yaml_node *node, struct loading *l)
{
	if (type->foreign) {
		fields_warn(f, node, "accepted, but an agent receives nothing: it takes samples");
		return 0;
	}
	if (streq(type->canonical, "profiling")) {
		if (l->have_profiling)
			return fields_error(f, node, "only one profiling receiver can be used");
		l->have_profiling = true;
		/* The window of customprofilesreceiver wins, whatever the order of the two. */
		if (l->have_window) {
			uint64_t window = l->config->receiver.reporter_interval_ms;
			int r = decode_profiling(f, node, l->config);

			l->config->receiver.reporter_interval_ms = window;
			return r;
		}
		return decode_profiling(f, node, l->config);
	}
	if (fields_find(node, "report_interval"))
		l->have_window = true;
	return fields_decode(f, node, window_rows, l->config);
}
