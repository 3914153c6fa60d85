/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file: the Collector's shape. Every declared component's type is checked; the
 * keys of those that a profiles pipeline (or service.extensions) uses are decoded, in pipeline
 * order. Several pipelines `profiles` and `profiles/x` are one here: there is one sampler, and
 * every exporter gets every window; so their processors must be the same.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "agent/config/internal.h"

enum { PIPE_WAIT_MS = 10000 }; /* longest wait for data when the file is a pipe */

struct document {
	const struct yaml_node *receivers, *processors, *exporters, *extensions, *service;
};

struct service {
	const struct yaml_node *extensions, *pipelines;
	enum log_level log_level;
};

struct pipeline {
	const struct yaml_node *receivers, *processors, *exporters;
};

static int keep_node(struct fields *f, const struct yaml_node *node, void *out)
{
	*(const struct yaml_node **)out = node;
	return 0;
}

static const struct field document_rows[] = {
    {"receivers", FIELD_CUSTOM, offsetof(struct document, receivers), .decode = keep_node},
    {"processors", FIELD_CUSTOM, offsetof(struct document, processors), .decode = keep_node},
    {"exporters", FIELD_CUSTOM, offsetof(struct document, exporters), .decode = keep_node},
    {"extensions", FIELD_CUSTOM, offsetof(struct document, extensions), .decode = keep_node},
    {"service", FIELD_CUSTOM, offsetof(struct document, service), .decode = keep_node},
    {"connectors", FIELD_IGNORED},
    {},
};

/* As the Collector's zap takes it. */
static int decode_log_level(struct fields *f, const struct yaml_node *node, void *out)
{
	static const char *const names[] = {"debug", "info", "warn", "error"};

	for (size_t i = 0; node->kind == YAML_SCALAR && i < ARRAY_SIZE(names); i++)
		if (strcasecmp(node->text, names[i]) == 0) {
			*(enum log_level *)out = (enum log_level)i;
			return 0;
		}
	return fields_error(f, node, "want debug, info, warn or error");
}

/* Keys: opentelemetry-collector 0ee5cfe0, service/telemetry/otelconftelemetry/config.go. */
static const struct field log_rows[] = {
    {"level", FIELD_CUSTOM, offsetof(struct service, log_level), .decode = decode_log_level},
    {"development", FIELD_IGNORED},
    {"encoding", FIELD_IGNORED},
    {"disable_caller", FIELD_IGNORED},
    {"disable_stacktrace", FIELD_IGNORED},
    {"sampling", FIELD_IGNORED},
    {"output_paths", FIELD_IGNORED},
    {"error_output_paths", FIELD_IGNORED},
    {"initial_fields", FIELD_IGNORED},
    {"processors", FIELD_IGNORED},
    {},
};

static const struct field telemetry_rows[] = {
    {"logs", FIELD_MAP, 0, .rows = log_rows},
    {"metrics", FIELD_IGNORED,
     .note = "accepted, but has no effect in this agent; its metrics are at /metrics of the "
	     "health_check extension"},
    {"traces", FIELD_IGNORED},
    {"resource", FIELD_IGNORED},
    {},
};

static const struct field service_rows[] = {
    {"extensions", FIELD_CUSTOM, offsetof(struct service, extensions), .decode = keep_node},
    {"pipelines", FIELD_CUSTOM, offsetof(struct service, pipelines), .decode = keep_node},
    {"telemetry", FIELD_MAP, 0, .rows = telemetry_rows},
    {},
};

static const struct field pipeline_rows[] = {
    {"receivers", FIELD_CUSTOM, offsetof(struct pipeline, receivers), .decode = keep_node},
    {"processors", FIELD_CUSTOM, offsetof(struct pipeline, processors), .decode = keep_node},
    {"exporters", FIELD_CUSTOM, offsetof(struct pipeline, exporters), .decode = keep_node},
    {},
};

/* One section of the file, and which of its components are used. */
struct section {
	const char *name;    /* "receivers" */
	const char *article; /* "a receiver" */
	const struct component_type *types;
	component_decode decode;
	const struct yaml_node *node; /* NULL: absent */
	const struct yaml_node *used[CONFIG_COMPONENTS_MAX];
	const struct component_type *used_types[CONFIG_COMPONENTS_MAX];
	size_t n_used;
};

static const char *type_name(const void *arg, size_t i)
{
	return ((const struct component_type *)arg)[i].name;
}

static const struct component_type *find_type(const struct component_type *types, const char *id)
{
	size_t n = strcspn(id, "/");

	for (; types->name; types++)
		if (strlen(types->name) == n && strncmp(types->name, id, n) == 0)
			return types;
	return NULL;
}

static int unknown_type(struct fields *f, const struct section *s, const struct yaml_node *node)
{
	char type[64];
	const char *nearest;
	size_t n = 0;

	snprintf(type, sizeof(type), "%.*s", (int)strcspn(node->key, "/"), node->key);
	while (s->types[n].name && !s->types[n].foreign)
		n++; /* foreign rows stand at the end */
	nearest = nearest_name(type, n, type_name, s->types);
	if (nearest)
		return fields_error(f, node,
				    "%s type that this agent does not have; did you mean %s?",
				    s->article, nearest);
	return fields_error(f, node, "%s type that this agent does not have", s->article);
}

static int check_id(struct fields *f, const struct yaml_node *node)
{
	const char *slash = strchr(node->key, '/');

	if (!node->key[0] || slash == node->key)
		return fields_error(f, node, "want an id such as TYPE or TYPE/NAME");
	if (slash && !slash[1])
		return fields_error(f, node, "the name after the / is missing");
	if (strlen(node->key) > 128)
		return fields_error(f, node, "longer than 128 characters");
	return 0;
}

static int check_section(struct fields *f, const struct section *s)
{
	size_t mark = fields_enter(f, s->name);
	int r = 0;

	if (s->node && s->node->kind != YAML_NULL)
		r = fields_want_map(f, s->node);
	for (const struct yaml_node *n = s->node ? s->node->child : NULL; r == 0 && n;
	     n = n->next) {
		size_t inner = fields_enter(f, n->key);

		r = check_id(f, n);
		if (r == 0 && !find_type(s->types, n->key))
			r = unknown_type(f, s, n);
		if (r == 0)
			fields_leave(f, inner);
	}
	if (r == 0)
		fields_leave(f, mark);
	return r;
}

static const char *child_key(const void *arg, size_t i)
{
	const struct yaml_node *n = arg;

	while (i--)
		n = n->next;
	return n->key;
}

/* Marks the component that NODE (an id in a list) names as used. */
static int use_component(struct fields *f, struct section *s, const struct yaml_node *node)
{
	const struct yaml_node *declared;
	const char *nearest = NULL;

	if (node->kind != YAML_SCALAR)
		return fields_error(f, node, "want the id of a component");
	declared = yaml_get(s->node, node->text);
	if (!declared) {
		if (s->node && s->node->child)
			nearest = nearest_name(node->text, MIN(yaml_count(s->node), 256), child_key,
					       s->node->child);
		return fields_error(f, node, "%s is not declared under %s; %s%s%s",
				    quote_text(node->text).text, s->name,
				    nearest ? "did you mean " : "add it there",
				    nearest ? nearest : "", nearest ? "?" : "");
	}
	for (size_t i = 0; i < s->n_used; i++)
		if (s->used[i] == declared)
			return 0;
	if (s->n_used == CONFIG_COMPONENTS_MAX)
		return fields_error(f, node, "more than %d components are used",
				    CONFIG_COMPONENTS_MAX);
	s->used_types[s->n_used] = find_type(s->types, node->text);
	s->used[s->n_used++] = declared;
	return 0;
}

/* LIST of a pipeline or of service.extensions; REQUIRED: at least one. */
static int use_list(struct fields *f, struct section *s, const struct yaml_node *list,
		    const struct yaml_node *parent, bool required)
{
	size_t mark = fields_enter(f, s->name);
	int r;

	if (!list || list->kind == YAML_NULL || (list->kind == YAML_LIST && !list->child)) {
		if (required)
			return fields_error(f, list ? list : parent, "at least one is required");
		fields_leave(f, mark);
		return 0;
	}
	r = fields_want_list(f, list);
	if (r < 0)
		return r;
	for (const struct yaml_node *n = list->child; n; n = n->next) {
		for (const struct yaml_node *m = list->child; m != n; m = m->next)
			if (m->text && n->text && streq(m->text, n->text))
				return fields_error(f, n, "%s is listed twice",
						    quote_text(n->text).text);
		r = use_component(f, s, n);
		if (r < 0)
			return r;
	}
	fields_leave(f, mark);
	return 0;
}

struct sections {
	struct section receivers, processors, exporters, extensions;
};

/* A pipeline without a profiling receiver is the configuration of some other process. */
static int check_receivers(struct fields *f, const struct section *receivers,
			   const struct yaml_node *list)
{
	const struct yaml_node *other = NULL;
	size_t mark = fields_enter(f, "receivers");

	for (const struct yaml_node *n = list->child; n; n = n->next) {
		const struct component_type *t = find_type(receivers->types, n->text);

		if (!t->foreign && streq(t->canonical, "profiling")) {
			fields_leave(f, mark);
			return 0;
		}
		if (t->foreign || !other)
			other = n;
	}
	if (!find_type(receivers->types, other->text)->foreign)
		return fields_error(f, other, "the profiling receiver is missing");
	return fields_error(
	    f, other,
	    "kiln-agent is an agent: it takes samples with the profiling receiver and "
	    "cannot receive profiles from %s; run an OpenTelemetry Collector for that",
	    quote_text(other->text).text);
}

static bool same_list(const struct yaml_node *a, const struct yaml_node *b)
{
	const struct yaml_node *x = a ? a->child : NULL, *y = b ? b->child : NULL;

	for (; x && y; x = x->next, y = y->next)
		if (!x->text || !y->text || !streq(x->text, y->text))
			return false;
	return !x && !y;
}

static int read_pipeline(struct fields *f, const struct yaml_node *node, struct sections *s,
			 const struct pipeline *before, struct pipeline *ret)
{
	struct pipeline p = {0};
	int r;

	if (!streq(node->key, "profiles") && !has_prefix(node->key, "profiles/"))
		return fields_error(
		    f, node, "this agent has only profiles pipelines (profiles, profiles/NAME)");
	r = fields_decode(f, node, pipeline_rows, &p);
	if (r == 0)
		r = use_list(f, &s->receivers, p.receivers, node, true);
	if (r == 0)
		r = check_receivers(f, &s->receivers, p.receivers);
	if (r == 0)
		r = use_list(f, &s->processors, p.processors, node, false);
	if (r == 0)
		r = use_list(f, &s->exporters, p.exporters, node, true);
	if (r == 0 && before && !same_list(before->processors, p.processors))
		r = fields_error(f, node, "all profiles pipelines must have the same processors");
	if (r < 0)
		return r;
	*ret = p;
	return 0;
}

static int read_pipelines(struct fields *f, const struct yaml_node *node,
			  const struct yaml_node *parent, struct sections *s)
{
	struct pipeline first = {0}, p;
	size_t mark = fields_enter(f, "pipelines");
	bool have = false;
	int r;

	if (!node || node->kind == YAML_NULL)
		return fields_error(f, node ? node : parent,
				    "a pipeline named profiles is required");
	r = fields_want_map(f, node);
	if (r < 0)
		return r;
	for (const struct yaml_node *n = node->child; n; n = n->next) {
		size_t inner = fields_enter(f, n->key);

		r = read_pipeline(f, n, s, have ? &first : NULL, &p);
		if (r < 0)
			return r;
		if (!have)
			first = p;
		have = true;
		fields_leave(f, inner);
	}
	if (!have)
		return fields_error(f, node, "a pipeline named profiles is required");
	fields_leave(f, mark);
	return 0;
}

static int decode_used(struct fields *f, struct section *s, struct loading *l)
{
	for (size_t i = 0; i < s->n_used; i++) {
		size_t outer = fields_enter(f, s->name);
		int r;

		fields_enter(f, s->used[i]->key);
		r = s->decode(f, s->used_types[i], s->used[i], l);
		if (r < 0)
			return r;
		fields_leave(f, outer);
	}
	return 0;
}

static int read_document(struct fields *f, const struct yaml_node *root, struct loading *l)
{
	struct document d = {0};
	struct service service = {.log_level = LOG_INFO};
	struct sections s = {
	    .receivers = {"receivers", "a receiver", receiver_types, receiver_decode},
	    .processors = {"processors", "a processor", processor_types, processor_decode},
	    .exporters = {"exporters", "an exporter", exporter_types, exporter_decode},
	    .extensions = {"extensions", "an extension", extension_types, extension_decode},
	};
	struct section *all[] = {&s.receivers, &s.processors, &s.exporters, &s.extensions};
	size_t mark;
	int r;

	if (root->kind == YAML_NULL)
		return fields_error(f, root, "the file is empty");
	r = fields_decode(f, root, document_rows, &d);
	s.receivers.node = d.receivers;
	s.processors.node = d.processors;
	s.exporters.node = d.exporters;
	s.extensions.node = d.extensions;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++)
		r = check_section(f, all[i]);
	if (r < 0)
		return r;
	mark = fields_enter(f, "service");
	if (!d.service)
		return fields_error(f, root, "required: it names the pipeline that is to run");
	r = fields_decode(f, d.service, service_rows, &service);
	if (r == 0)
		r = use_list(f, &s.extensions, service.extensions, d.service, false);
	if (r == 0)
		r = read_pipelines(f, service.pipelines, d.service, &s);
	fields_leave(f, mark);
	l->config->log_level = service.log_level;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++)
		r = decode_used(f, all[i], l);
	return r;
}

int config_read_bytes(struct loading *l, const void *data, size_t size, struct error *err)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root = NULL;
	struct fields f = {.file = l->file, .warn = l->warn, .arg = l->arg, .err = err};
	int r = yaml_tree_load(l->file, data, size, &root, err);

	if (r == 0)
		r = config_expand(&f, root, l->envp);
	if (r == 0)
		r = read_document(&f, root, l);
	return r;
}

/* "-" is standard input. What the file is called in messages is left in l->file. */
static int open_file(struct loading *l, struct error *err)
{
	bool is_input = streq(l->file, "-");
	struct stat st;
	int fd;

	if (is_input)
		l->file = "standard input";
	/* O_NONBLOCK: a FIFO that nobody writes to must not stop the start. */
	fd = is_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
		      : open(l->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return error_set(err, -EINVAL, "%.256s: cannot open: %s", l->file, strerror(errno));
	if (is_input || (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode))))
		return fd;
	close(fd);
	return error_set(err, -EINVAL, "%.256s: neither a regular file nor a pipe", l->file);
}

int config_read_file(struct loading *l, struct error *err)
{
	_cleanup_free_ char *data = malloc(CONFIG_FILE_MAX + 1);
	_cleanup_close_ int fd = -1;
	size_t size = 0;
	ssize_t n = 1;

	if (!data)
		return error_set(err, -ENOMEM, "%.256s: out of memory", l->file);
	fd = open_file(l, err);
	if (fd < 0)
		return fd;
	while (n > 0 && size <= CONFIG_FILE_MAX) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		/* A regular file is always ready. */
		if (poll(&p, 1, PIPE_WAIT_MS) == 0)
			return error_set(err, -EINVAL, "%.256s: nothing came within %d s", l->file,
					 PIPE_WAIT_MS / 1000);
		n = read(fd, data + size, CONFIG_FILE_MAX + 1 - size);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			n = 1;
		else if (n < 0)
			return error_set(err, -EINVAL, "%.256s: cannot read: %s", l->file,
					 strerror(errno));
		else
			size += (size_t)n;
	}
	if (size > CONFIG_FILE_MAX)
		return error_set(err, -EINVAL, "%.256s: larger than %d bytes", l->file,
				 CONFIG_FILE_MAX);
	l->config->file_hash = hash_bytes(data, size, 0);
	return config_read_bytes(l, data, size, err);
}
