/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: one or two dashes, "--flag value" and "--flag=value", as Go's flag package and
 * the Collector take them. Parsing comes before everything else (it says which file to read),
 * applying comes last (flags win). Flags of the reference profiler that steer its own machinery are
 * known.
 */
#include "agent/config/internal.h"
#include "lib/parse.h"

enum flag_kind {
	FLAG_END,
	FLAG_TEXT,    /* const char * at `offset` */
	FLAG_BOOL,    /* bool at `offset` */
	FLAG_CALL,    /* `parse` */
	FLAG_IGNORED, /* takes a value, which is dropped with a warning */
	FLAG_IGNORED_BOOL,
	FLAG_QUIET, /* takes a value, which is dropped */
	FLAG_LIVE,  /* may take an address */
	FLAG_PIDS,  /* takes all numbers that follow */
	FLAG_HELP,
	FLAG_VERSION,
};

struct flag {
	const char *name;
	enum flag_kind kind;
	size_t offset;
	int (*parse)(const char *text, struct flags *flags, struct error *why);
};

static int no_memory(struct error *err)
{
	return error_set(err, -ENOMEM, "out of memory");
}

static int flag_rate(const char *text, struct flags *flags, struct error *why)
{
	uint64_t v;

	if (parse_u64(text, &v) == -EINVAL)
		return error_set(why, -EINVAL, "want a whole number, got %s",
				 quote_text(text).text);
	if (parse_u64(text, &v) < 0 || v < 1 || v > SAMPLES_PER_SECOND_MAX)
		return error_set(why, -EINVAL, "want 1..%d, got %.32s", SAMPLES_PER_SECOND_MAX,
				 text);
	flags->samples_per_second = (uint32_t)v;
	return 0;
}

static int duration_ms(const char *text, uint64_t *ret, struct error *why)
{
	uint64_t ns;

	if (parse_duration(text, &ns) < 0)
		return error_set(why, -EINVAL, "want a duration such as 5s or 1m30s, got %s",
				 quote_text(text).text);
	*ret = ns / 1000000 + (ns % 1000000 != 0);
	return 0;
}

static int flag_interval(const char *text, struct flags *flags, struct error *why)
{
	uint64_t ms = 0;
	int r = duration_ms(text, &ms, why);

	if (r < 0)
		return r;
	if (ms < REPORTER_INTERVAL_MIN_MS || ms > REPORTER_INTERVAL_MAX_MS)
		return error_set(why, -EINVAL, "want 100ms..1h, got %s", quote_text(text).text);
	flags->reporter_interval_ms = ms;
	return 0;
}

static int flag_duration(const char *text, struct flags *flags, struct error *why)
{
	uint64_t ms = 0;
	int r = duration_ms(text, &ms, why);

	if (r < 0)
		return r;
	if (!ms)
		return error_set(why, -EINVAL, "want more than nothing, got %s",
				 quote_text(text).text);
	flags->duration_ms = ms;
	return 0;
}

static int flag_tracers(const char *text, struct flags *flags, struct error *why)
{
	flags->have_tracers = true;
	return parse_tracers(flags->known_tracers, text, &flags->tracers, why);
}

static int flag_filter(const char *text, struct flags *flags, struct error *why)
{
	flags->process_filter = text;
	return check_process_filter(text, why);
}

static int flag_collector(const char *text, struct flags *flags, struct error *why)
{
	int plaintext;

	flags->collection_agent = text;
	return check_grpc_endpoint(text, &plaintext, why);
}

static int flag_tags(const char *text, struct flags *flags, struct error *why)
{
	struct config_pairs pairs = {0};
	int r = pairs_parse(&pairs, text, false, CONFIG_LIST_MAX, why);

	pairs_done(&pairs);
	if (r < 0)
		return r;
	if (flags->n_tags == ARRAY_SIZE(flags->tags))
		return error_set(why, -EINVAL, "given too often");
	flags->tags[flags->n_tags++] = text;
	return 0;
}

static int flag_off_cpu(const char *text, struct flags *flags, struct error *why)
{
	double v;

	if (parse_double(text, &v) < 0)
		return error_set(why, -EINVAL, "want a number, got %s", quote_text(text).text);
	if (v < 0 || v > 1)
		return error_set(why, -EINVAL, "want 0..1, got %.32s", text);
	flags->off_cpu_threshold = v;
	flags->have_off_cpu = true;
	return 0;
}

static int flag_budget(const char *text, struct flags *flags, struct error *why)
{
	return parse_budget(text, &flags->budget, why);
}

static int flag_labels(const char *text, struct flags *flags, struct error *why)
{
	struct config_strings keys = {0};
	int r = add_label_keys(&keys, text, why);

	config_strings_done(&keys);
	flags->labels = text;
	return r;
}

static int flag_config(const char *text, struct flags *flags, struct error *why)
{
	if (flags->config)
		return error_set(why, -EINVAL, "only one file can be given");
	flags->config = has_prefix(text, "file:") ? text + 5 : text;
	return 0;
}

static int flag_pprof(const char *text, struct flags *flags, struct error *why)
{
	flags->pprof_file = text;
	return check_path_template(text, why);
}

static int flag_folded(const char *text, struct flags *flags, struct error *why)
{
	flags->folded_file = text;
	return check_path_template(text, why);
}

static int flag_probe(const char *text, struct flags *flags, struct error *why)
{
	struct probe_spec spec;

	if (flags->n_probes == ARRAY_SIZE(flags->probes))
		return error_set(why, -EINVAL, "more than %d probes", PROBE_COUNT_MAX);
	flags->probes[flags->n_probes++] = text;
	return probe_spec_parse(text, &spec, why);
}

/* "12,34" */
static int add_pids(const char *text, struct flags *flags, struct error *why)
{
	_cleanup_free_ char *copy = strdup(text);
	char *rest = copy, *item;

	if (!copy)
		return no_memory(why);
	while ((item = strsep(&rest, ","))) {
		uint64_t pid;

		if (parse_u64(item, &pid) < 0 || pid < 1 || pid > INT32_MAX)
			return error_set(why, -EINVAL, "want process ids, got %s",
					 quote_text(text).text);
		if (flags->n_pids == ARRAY_SIZE(flags->pids))
			return error_set(why, -EINVAL, "more than %d process ids", FLAG_PIDS_MAX);
		flags->pids[flags->n_pids++] = (uint32_t)pid;
	}
	return 0;
}

/* Without an allocation, so that a failure always means "not an address". */
static int flag_address(const char *text, struct error *why)
{
	struct host_port hp;

	if (parse_host_port(text, &hp) < 0)
		return error_set(why, -EINVAL, "want HOST:PORT or :PORT, got %s",
				 quote_text(text).text);
	return 0;
}

static const struct flag known[] = {
    {"config", FLAG_CALL, .parse = flag_config},
    {"collection-agent", FLAG_CALL, .parse = flag_collector},
    {"samples-per-second", FLAG_CALL, .parse = flag_rate},
    {"reporter-interval", FLAG_CALL, .parse = flag_interval},
    {"tracers", FLAG_CALL, .parse = flag_tracers},
    {"t", FLAG_CALL, .parse = flag_tracers},
    {"process-filter", FLAG_CALL, .parse = flag_filter},
    {"service-name", FLAG_TEXT, offsetof(struct flags, service_name)},
    {"tags", FLAG_CALL, .parse = flag_tags},
    {"budget", FLAG_CALL, .parse = flag_budget},
    {"off-cpu", FLAG_BOOL, offsetof(struct flags, off_cpu)},
    {"off-cpu-threshold", FLAG_CALL, .parse = flag_off_cpu},
    {"labels", FLAG_CALL, .parse = flag_labels},
    {"timestamps", FLAG_BOOL, offsetof(struct flags, timestamps)},
    {"disable-tls", FLAG_BOOL, offsetof(struct flags, disable_tls)},
    {"stdout", FLAG_BOOL, offsetof(struct flags, use_stdout)},
    {"live", FLAG_LIVE},
    {"duration", FLAG_CALL, .parse = flag_duration},
    {"pid", FLAG_PIDS},
    {"probe", FLAG_CALL, .parse = flag_probe},
    {"pprof-file", FLAG_CALL, .parse = flag_pprof},
    {"folded-file", FLAG_CALL, .parse = flag_folded},
    {"check", FLAG_BOOL, offsetof(struct flags, check)},
    {"verbose", FLAG_BOOL, offsetof(struct flags, verbose)},
    {"v", FLAG_BOOL, offsetof(struct flags, verbose)},
    {"version", FLAG_VERSION},
    {"help", FLAG_HELP},
    {"h", FLAG_HELP},
    {"feature-gates", FLAG_QUIET},
    {"reporter-jitter", FLAG_IGNORED},
    {"monitor-interval", FLAG_IGNORED},
    {"clock-sync-interval", FLAG_IGNORED},
    {"frame-cache-size", FLAG_IGNORED},
    {"probabilistic-interval", FLAG_IGNORED},
    {"probabilistic-threshold", FLAG_IGNORED},
    {"filter-min-process-age", FLAG_IGNORED},
    {"map-scale-factor", FLAG_IGNORED},
    {"bpf-log-level", FLAG_IGNORED},
    {"bpffs-root", FLAG_IGNORED},
    {"env-vars", FLAG_IGNORED},
    {"pin-cpu-ids", FLAG_IGNORED},
    {"probe-link", FLAG_IGNORED},
    {"pprof", FLAG_IGNORED},
    {"send-error-frames", FLAG_IGNORED_BOOL},
    {"send-idle-frames", FLAG_IGNORED_BOOL},
    {"no-kernel-version-check", FLAG_IGNORED_BOOL},
    {"obi-process-ctx", FLAG_IGNORED_BOOL},
    {},
};

static const char *flag_name(const void *arg, size_t i)
{
	return ((const struct flag *)arg)[i].name;
}

/* The command line as it is read. */
struct line {
	int argc, next;
	char *const *argv;
	const char *shown; /* the flag as written, without its value */
};

static int unknown_flag(const struct line *line, const char *name, struct error *err)
{
	const char *nearest = nearest_name(name, ARRAY_SIZE(known) - 1, flag_name, known);

	/* Any other letter is similar to an option of one letter. */
	if (nearest && strlen(nearest) > 1)
		return error_set(err, -EINVAL, "%.64s: unknown option; did you mean --%s?",
				 line->shown, nearest);
	return error_set(err, -EINVAL, "%.64s: unknown option; see --help", line->shown);
}

static bool takes_value(enum flag_kind kind)
{
	return kind == FLAG_TEXT || kind == FLAG_CALL || kind == FLAG_IGNORED ||
	       kind == FLAG_QUIET || kind == FLAG_PIDS;
}

/* The next argument, if it can be the value of --pid or --live without "=": not when it is an
 * option. */
static const char *peek(const struct line *line)
{
	if (line->next < line->argc && line->argv[line->next][0] != '-')
		return line->argv[line->next];
	return NULL;
}

static int one_flag(struct loading *l, const struct flag *flag, struct line *line,
		    const char *value, struct flags *flags, struct error *why)
{
	int r = 0;

	switch (flag->kind) {
	case FLAG_TEXT:
		*(const char **)((char *)flags + flag->offset) = value;
		return 0;
	case FLAG_BOOL:
	case FLAG_IGNORED_BOOL: {
		bool on = true;

		if (value && parse_bool(value, &on) < 0)
			return error_set(why, -EINVAL, "want true or false, got %s",
					 quote_text(value).text);
		if (flag->kind == FLAG_BOOL)
			*(bool *)((char *)flags + flag->offset) = on;
		else
			loading_warn(l, "%.64s: accepted, but has no effect in this agent",
				     line->shown);
		return 0;
	}
	case FLAG_CALL:
		return flag->parse(value, flags, why);
	case FLAG_IGNORED:
		loading_warn(l, "%.64s: accepted, but has no effect in this agent", line->shown);
		return 0;
	case FLAG_LIVE:
		flags->live = true;
		if (!value && peek(line) && flag_address(peek(line), NULL) == 0)
			value = line->argv[line->next++];
		flags->live_address = value;
		return value ? flag_address(value, why) : 0;
	case FLAG_PIDS:
		r = add_pids(value, flags, why);
		while (r == 0 && peek(line) && peek(line)[0] >= '0' && peek(line)[0] <= '9')
			r = add_pids(line->argv[line->next++], flags, why);
		return r;
	default:
		return 0;
	}
}

/* One option at LINE->next. */
static int next_flag(struct loading *l, struct line *line, struct flags *flags,
		     enum config_action *ret_action, struct error *err)
{
	const char *arg = line->argv[line->next++], *name, *value = NULL;
	struct error why = {0};
	char shown[80], word[80];
	size_t i = 0, n = strcspn(arg, "=");
	int r;

	name = arg + (arg[0] == '-') + (arg[0] == '-' && arg[1] == '-');
	if (name == arg || !*name)
		return error_set(err, -EINVAL, "unexpected argument %s; see --help",
				 quote_text(arg).text);
	snprintf(shown, sizeof(shown), "%.*s", (int)MIN(n, 64), arg);
	parse_make_printable(shown);
	snprintf(word, sizeof(word), "%s", shown + (name - arg));
	line->shown = shown;
	while (known[i].name && (n > 64 || !streq(known[i].name, word)))
		i++;
	if (!known[i].name)
		return unknown_flag(line, word, err);
	if (arg[n] == '=')
		value = arg + n + 1;
	else if (takes_value(known[i].kind) && line->next < line->argc)
		value = line->argv[line->next++];
	if (takes_value(known[i].kind) && (!value || !*value))
		return error_set(err, -EINVAL, "%s: a value is missing", shown);
	if (known[i].kind == FLAG_HELP || known[i].kind == FLAG_VERSION) {
		*ret_action = known[i].kind == FLAG_HELP ? CONFIG_SHOW_HELP : CONFIG_SHOW_VERSION;
		return 0;
	}
	r = one_flag(l, &known[i], line, value, flags, &why);
	return r < 0 ? error_set(err, r, "%s: %s", shown, why.message) : 0;
}

int flags_parse(struct loading *l, int argc, char *const *argv, struct flags *ret,
		enum config_action *ret_action, struct error *err)
{
	struct line line = {.argc = argc, .next = 1, .argv = argv};
	enum config_action action = CONFIG_RUN;

	ret->known_tracers = l->config->known_tracers;
	while (line.next < argc && action == CONFIG_RUN) {
		int r = next_flag(l, &line, ret, &action, err);

		if (r < 0)
			return r;
	}
	*ret_action = action;
	return 0;
}

static struct exporter_config *first_of(struct config *c, const char *type)
{
	for (size_t i = 0; i < c->n_exporters; i++)
		if (streq(c->exporters[i].type, type))
			return &c->exporters[i];
	return NULL;
}

/* The first exporter of TYPE, or a new one. */
static int have_exporter(struct config *c, const char *type, const char *flag,
			 struct exporter_config **ret, struct error *err)
{
	int r;

	*ret = first_of(c, type);
	if (*ret)
		return 0;
	r = config_add_exporter(c, type, type, ret);
	if (r == -E2BIG)
		return error_set(err, -EINVAL, "%s: more than %d exporters", flag,
				 CONFIG_COMPONENTS_MAX);
	return r < 0 ? no_memory(err) : 0;
}

/* Folded stacks are of one kind: those of off-CPU time, or of probes, go into a file of their own.
 */
static int add_folded_file(struct config *c, const char *path, const char *id, const char *kind,
			   struct error *err)
{
	struct exporter_config *e;
	int r = config_add_exporter(c, "folded_file", id, &e);

	if (r == -E2BIG)
		return error_set(err, -EINVAL, "--folded-file: more than %d exporters",
				 CONFIG_COMPONENTS_MAX);
	if (r < 0 || set_string(&e->profile, kind) < 0 ||
	    asprintf(&e->path, "%s.%s", path, kind) < 0)
		return no_memory(err);
	return 0;
}

static int apply_destinations(struct config *c, const struct flags *flags, struct error *err)
{
	struct exporter_config *e;
	int r = 0;

	if (flags->collection_agent) {
		r = have_exporter(c, "otlp_grpc", "--collection-agent", &e, err);
		if (r == 0 && set_string(&e->endpoint, flags->collection_agent) < 0)
			r = no_memory(err);
	}
	if (r == 0 && flags->use_stdout) {
		r = have_exporter(c, "customprofilesexporter", "--stdout", &e, err);
		if (r == 0) {
			e->ignore_profiles_without_container_id = false;
			free(e->output);
			e->output = NULL;
		}
	}
	if (r == 0 && flags->pprof_file) {
		r = have_exporter(c, "pprof_file", "--pprof-file", &e, err);
		if (r == 0 && set_string(&e->path, flags->pprof_file) < 0)
			r = no_memory(err);
	}
	if (r == 0 && flags->folded_file) {
		r = have_exporter(c, "folded_file", "--folded-file", &e, err);
		if (r == 0 && set_string(&e->path, flags->folded_file) < 0)
			r = no_memory(err);
		if (r == 0 && c->receiver.off_cpu_threshold > 0)
			r = add_folded_file(c, flags->folded_file, "folded_file/off_cpu", "off_cpu",
					    err);
		if (r == 0 && c->receiver.n_probes)
			r = add_folded_file(c, flags->folded_file, "folded_file/probe", "probe",
					    err);
	}
	return r;
}

static int apply_plaintext(struct config *c, struct error *err)
{
	for (size_t i = 0; i < c->n_exporters; i++) {
		struct exporter_config *e = &c->exporters[i];
		int plaintext = 0;

		if (!streq(e->type, "otlp_grpc") || !e->endpoint)
			continue;
		if (check_grpc_endpoint(e->endpoint, &plaintext, NULL) == 0 && plaintext < 0)
			return error_set(err, -EINVAL,
					 "--disable-tls: the endpoint of %.64s says https", e->id);
		e->tls.insecure = true;
	}
	return 0;
}

static int apply_receiver(struct receiver_config *rx, const struct flags *flags, struct error *err)
{
	if (flags->samples_per_second)
		rx->samples_per_second = flags->samples_per_second;
	if (flags->have_tracers)
		rx->tracers = rx->named_tracers = flags->tracers;
	if (flags->reporter_interval_ms)
		rx->reporter_interval_ms = flags->reporter_interval_ms;
	if (flags->budget.cpu)
		rx->budget.cpu = flags->budget.cpu;
	if (flags->budget.memory_bytes)
		rx->budget.memory_bytes = flags->budget.memory_bytes;
	if (flags->have_off_cpu)
		rx->off_cpu_threshold = flags->off_cpu_threshold;
	else if (flags->off_cpu && !rx->off_cpu_threshold)
		rx->off_cpu_threshold = OFF_CPU_THRESHOLD;
	if (flags->process_filter && set_string(&rx->process_filter, flags->process_filter) < 0)
		return no_memory(err);
	rx->timestamps |= flags->timestamps;
	if (flags->labels) {
		config_strings_done(&rx->labels);
		if (add_label_keys(&rx->labels, flags->labels, err) < 0)
			return no_memory(err);
	}
	if (flags->n_pids) {
		rx->pids = malloc(flags->n_pids * sizeof(rx->pids[0]));
		if (!rx->pids)
			return no_memory(err);
		memcpy(rx->pids, flags->pids, flags->n_pids * sizeof(rx->pids[0]));
		rx->n_pids = flags->n_pids;
	}
	if (flags->n_probes)
		rx->n_probes = 0;
	for (size_t i = 0; i < flags->n_probes; i++) {
		struct error why = {0};
		int r = add_probe(rx, flags->probes[i], &why);

		if (r < 0)
			return error_set(err, r, "--probe: %s", why.message);
	}
	return 0;
}

static int apply_tags(struct config *c, const char *text, struct error *err)
{
	struct error why = {0};
	int r = pairs_parse(&c->resource_attributes, text, false, CONFIG_LIST_MAX, &why);

	return r < 0 ? error_set(err, r, "--tags: %s", why.message) : 0;
}

/* The file may have configured the token or client CA that a non-loopback address requires. */
static int apply_live(struct http_config *live, const char *address, struct error *err)
{
	int r = address ? parse_address(address, live, err) : 0;

	if (r < 0)
		return r;
	live->enabled = true;
	if (!address || is_safe_live(live))
		return 0;
	return error_set(err, -EINVAL,
			 "--live: %.253s:%u is not an address of this machine alone: "
			 "extensions.live.token_file or tls.client_ca_file is required, in a file "
			 "(--config)",
			 live->host, live->port);
}

int flags_apply(struct loading *l, const struct flags *flags, struct error *err)
{
	struct config *c = l->config;
	int r = apply_receiver(&c->receiver, flags, err);

	if (r == 0)
		r = apply_destinations(c, flags, err);
	if (r == 0 && flags->disable_tls)
		r = apply_plaintext(c, err);
	for (size_t i = 0; r == 0 && i < flags->n_tags; i++)
		r = apply_tags(c, flags->tags[i], err);
	if (r == 0 && flags->service_name && set_string(&c->service_name, flags->service_name) < 0)
		r = no_memory(err);
	if (r == 0 && flags->live)
		r = apply_live(&c->live, flags->live_address, err);
	if (flags->duration_ms)
		c->duration_ms = flags->duration_ms;
	c->check = flags->check;
	c->verbose |= flags->verbose;
	return r;
}
