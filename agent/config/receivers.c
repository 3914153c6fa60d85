/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `receivers`: profiling and customprofilesreceiver. Keys of the reference profiler's receiver that
 * steer its own machinery are known and do nothing here (opentelemetry-ebpf-profiler, receiver
 * configuration, 2025-09 to 2026-08; names listed, not code).
 */
#include "agent/config/internal.h"

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

static int decode_tracers(struct fields *f, const struct yaml_node *node, void *out)
{
	char joined[1024];
	struct error why = {0};
	size_t n = 0;

	if (node->kind == YAML_NULL)
		return 0;
	if (node->kind == YAML_MAP)
		return fields_error(f, node, "want names of tracers, got a map");
	if (node->kind == YAML_SCALAR && strlen(node->text) < sizeof(joined))
		n = (size_t)snprintf(joined, sizeof(joined), "%s", node->text);
	for (const struct yaml_node *i = node->child; i; i = i->next) {
		if (i->kind != YAML_SCALAR)
			return fields_error(f, i, "want the name of a tracer");
		if (n + strlen(i->text) + 2 < sizeof(joined))
			n += (size_t)snprintf(joined + n, sizeof(joined) - n, "%s,", i->text);
	}
	joined[n] = 0;
	if (parse_tracers(joined, out, &why) == -ENOMEM)
		return fields_no_memory(f);
	return why.code ? fields_error(f, node, "%s", why.message) : 0;
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

struct interpreters {
	struct interpreter items[TRACER_COUNT];
};

#define INTERPRETER(name_, tracer)                                                                 \
	{                                                                                          \
		name_, FIELD_MAP, offsetof(struct interpreters, items[tracer]),                    \
		    .rows = interpreter_rows                                                       \
	}
static const struct field interpreters_rows[] = {
    INTERPRETER("python", TRACER_PYTHON),
    INTERPRETER("perl", TRACER_PERL),
    INTERPRETER("php", TRACER_PHP),
    INTERPRETER("hotspot", TRACER_HOTSPOT),
    INTERPRETER("ruby", TRACER_RUBY),
    INTERPRETER("v8", TRACER_V8),
    INTERPRETER("dotnet", TRACER_DOTNET),
    INTERPRETER("go", TRACER_GO),
    INTERPRETER("beam", TRACER_BEAM),
    INTERPRETER("luajit", TRACER_LUAJIT),
    {},
};

static int decode_interpreters(struct fields *f, const struct yaml_node *node, void *out)
{
	struct interpreters v = {0};
	uint32_t *tracers = out;
	int r = fields_decode(f, node, interpreters_rows, &v);

	for (size_t i = 0; r == 0 && i < TRACER_COUNT; i++)
		if (v.items[i].disabled)
			*tracers &= ~(1u << i);
	return r;
}

static const struct field python_rows[] = {
    {"native_frames", FIELD_BOOL, offsetof(struct python_config, native_frames)},
    {},
};

#define RECEIVER(member) offsetof(struct config, receiver.member)
static const struct field profiling_rows[] = {
    {"samples_per_second", FIELD_U32, RECEIVER(samples_per_second), 1, SAMPLES_PER_SECOND_MAX},
    {"tracers", FIELD_CUSTOM, RECEIVER(tracers), .decode = decode_tracers},
    {"interpreters", FIELD_QUIET}, /* after tracers, see receiver_decode */
    {"reporter_interval", FIELD_DURATION_MS, RECEIVER(reporter_interval_ms),
     REPORTER_INTERVAL_MIN_MS, REPORTER_INTERVAL_MAX_MS},
    {"max_stack_depth", FIELD_U32, RECEIVER(max_stack_depth), 1, STACK_DEPTH_MAX},
    {"unwind_table_memory_mib", FIELD_U32, RECEIVER(unwind_table_mib), 4, 1024},
    {"memory_budget_mib", FIELD_U32, RECEIVER(memory_budget_mib), 16, 65536},
    {"off_cpu_threshold", FIELD_DOUBLE, RECEIVER(off_cpu_threshold), 0, 1},
    {"process_filter", FIELD_CUSTOM, RECEIVER(process_filter), .decode = decode_filter},
    {"timestamps", FIELD_BOOL, RECEIVER(timestamps)},
    {"python", FIELD_MAP, RECEIVER(python), .rows = python_rows},
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
    {"probes", FIELD_IGNORED},
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

/* Whichever of the two keys stands first: what is disabled stays out of the list. */
static int decode_profiling(struct fields *f, const struct yaml_node *node, struct config *c)
{
	const struct yaml_node *interpreters = fields_find(node, "interpreters");
	size_t mark;
	int r = fields_decode(f, node, profiling_rows, c);

	if (r < 0 || !interpreters)
		return r;
	mark = fields_enter(f, "interpreters");
	r = decode_interpreters(f, interpreters, &c->receiver.tracers);
	if (r == 0)
		fields_leave(f, mark);
	return r;
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
