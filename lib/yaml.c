/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml's events, turned into a tree. Invariants: a node is linked into its parent as soon as it
 * exists, so freeing the root frees everything in every error path; the depth of the tree is capped
 * before recursion; every node, copied or parsed, is charged to one budget. One thread at a time.
 */
#include "lib/yaml.h"

#include <yaml.h>

#include "lib/parse.h"

enum {
	YAML_ANCHORS_MAX = 64,
	YAML_KEYS_MAX = 4096,	  /* in one map: keys are looked up one by one */
	YAML_BYTES_MAX = 8 << 20, /* of text, so that aliases cannot multiply a long one */
};

struct anchor {
	char *name;
	const struct yaml_node *node; /* NULL while it is still being read */
};

struct loader {
	yaml_parser_t parser;
	const char *name;
	const char *data;
	size_t size;
	size_t nodes, bytes; /* of the whole tree, copies included */
	struct yaml_node
	    *merged; /* values of <<, kept until the end: anchors may point into them */
	struct anchor anchors[YAML_ANCHORS_MAX];
	size_t n_anchors;
	struct error *err;
};

static int fail(struct loader *l, size_t line, const char *what)
{
	return error_set(l->err, -EINVAL, "%s:%zu: %s", l->name, line, what);
}

static int no_memory(struct loader *l)
{
	return error_set(l->err, -ENOMEM, "%s: out of memory", l->name);
}

struct yaml_node *yaml_tree_free(struct yaml_node *root)
{
	while (root) {
		struct yaml_node *next = root->next;

		yaml_tree_free(root->child);
		free(root->key);
		free(root->text);
		free(root);
		root = next;
	}
	return NULL;
}

const struct yaml_node *yaml_get(const struct yaml_node *node, const char *key)
{
	if (!node || node->kind != YAML_MAP)
		return NULL;
	for (const struct yaml_node *n = node->child; n; n = n->next)
		if (streq(n->key, key))
			return n;
	return NULL;
}

size_t yaml_count(const struct yaml_node *node)
{
	size_t n = 0;

	for (const struct yaml_node *c = node->child; c; c = c->next)
		n++;
	return n;
}

static bool null_text(const char *s)
{
	return !*s || streq(s, "~") || streq(s, "null") || streq(s, "Null") || streq(s, "NULL");
}

void yaml_set_text(struct yaml_node *node, char *text)
{
	free(node->text);
	node->text = text;
	node->kind = !node->quoted && null_text(text) ? YAML_NULL : YAML_SCALAR;
}

static int new_node(struct loader *l, enum yaml_kind kind, size_t line, struct yaml_node **ret)
{
	struct yaml_node *n;

	if (l->nodes++ >= YAML_NODES_MAX)
		return fail(l, line, "too many values");
	n = calloc(1, sizeof(*n));
	if (!n)
		return no_memory(l);
	n->kind = kind;
	n->line = (unsigned int)line;
	*ret = n;
	return 0;
}

static int copy_text(struct loader *l, size_t line, const char *from, char **ret)
{
	char *s;

	l->bytes += strlen(from) + 1;
	if (l->bytes > YAML_BYTES_MAX)
		return fail(l, line, "too much text");
	s = strdup(from);
	if (!s)
		return no_memory(l);
	*ret = s;
	return 0;
}

/* A deep copy without key and siblings; failures are at LINE, where the copy is asked for. */
static int copy_node(struct loader *l, const struct yaml_node *from, size_t line,
		     unsigned int depth, struct yaml_node **ret)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *n = NULL;
	struct yaml_node **tail;
	int r;

	if (depth > YAML_DEPTH_MAX)
		return fail(l, line, "nested too deeply");
	r = new_node(l, from->kind, line, &n);
	if (r < 0)
		return r;
	n->line = from->line;
	n->quoted = from->quoted;
	if (from->text) {
		r = copy_text(l, line, from->text, &n->text);
		if (r < 0)
			return r;
	}
	tail = &n->child;
	for (const struct yaml_node *c = from->child; c; c = c->next) {
		r = copy_node(l, c, line, depth + 1, tail);
		if (r < 0)
			return r;
		if (c->key) {
			r = copy_text(l, line, c->key, &(*tail)->key);
			if (r < 0)
				return r;
		}
		tail = &(*tail)->next;
	}
	*ret = TAKE_PTR(n);
	return 0;
}

static int next_event(struct loader *l, yaml_event_t *ret)
{
	yaml_parser_t *p = &l->parser;
	size_t line;

	if (yaml_parser_parse(p, ret))
		return 0;
	if (p->error == YAML_MEMORY_ERROR)
		return no_memory(l);
	line = p->problem_mark.line + 1;
	if (p->error == YAML_READER_ERROR) { /* has an offset instead of a mark */
		line = 1;
		for (size_t i = 0; i < l->size && i < p->problem_offset; i++)
			line += l->data[i] == '\n';
	}
	return error_set(l->err, -EINVAL, "%s:%zu: not valid YAML: %s%s%s", l->name, line,
			 p->context ? p->context : "", p->context ? ", " : "",
			 p->problem ? p->problem : "syntax error");
}

/* Remembers an anchor; *ret_slot is where the node goes once it is complete. */
static int add_anchor(struct loader *l, const yaml_char_t *name, size_t line,
		      struct anchor **ret_slot)
{
	struct anchor *a = NULL;

	for (size_t i = 0; i < l->n_anchors; i++)
		if (streq(l->anchors[i].name, (const char *)name))
			a = &l->anchors[i]; /* a later anchor of one name wins, as YAML says */
	if (!a) {
		if (l->n_anchors == YAML_ANCHORS_MAX)
			return fail(l, line, "too many anchors");
		a = &l->anchors[l->n_anchors];
		a->name = strdup((const char *)name);
		if (!a->name)
			return no_memory(l);
		l->n_anchors++;
	}
	a->node = NULL;
	*ret_slot = a;
	return 0;
}

static int resolve_alias(struct loader *l, const yaml_char_t *name, size_t line, unsigned int depth,
			 struct yaml_node **ret)
{
	int r;

	for (size_t i = 0; i < l->n_anchors; i++) {
		if (!streq(l->anchors[i].name, (const char *)name))
			continue;
		if (!l->anchors[i].node)
			return fail(l, line, "an alias inside the value that it names");
		r = copy_node(l, l->anchors[i].node, line, depth, ret);
		if (r == 0)
			(*ret)->line = (unsigned int)line;
		return r;
	}
	return fail(l, line, "an alias without its anchor");
}

/* Scalars and collections may carry the tags of YAML's core schema; "!!str 5" is the text "5". */
static int check_tag(struct loader *l, const yaml_char_t *tag, size_t line, bool *ret_string)
{
	static const char *const known[] = {"str", "int", "bool", "float", "null", "map", "seq"};
	const char *prefix = "tag:yaml.org,2002:", *t = (const char *)tag;

	*ret_string = false;
	if (!t)
		return 0;
	if (has_prefix(t, prefix)) {
		for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
			if (streq(t + strlen(prefix), known[i])) {
				*ret_string = i == 0;
				return 0;
			}
		}
	} else if (streq(t, "!")) {
		*ret_string = true;
		return 0;
	}
	return fail(l, line, "tags of one's own are not supported");
}

static int scalar_text(struct loader *l, const yaml_event_t *e, char **ret)
{
	const char *value = (const char *)e->data.scalar.value;
	size_t line = e->start_mark.line + 1;

	if (strlen(value) != e->data.scalar.length)
		return fail(l, line, "a NUL character");
	return copy_text(l, line, value, ret);
}

static int load_node(struct loader *l, const yaml_event_t *e, unsigned int depth,
		     struct yaml_node **ret);

/* Reads the next event and builds its node; *RET_END: the event was END. Frees the event. */
static int load_next(struct loader *l, unsigned int depth, yaml_event_type_t end,
		     struct yaml_node **ret, bool *ret_end)
{
	yaml_event_t e;
	int r = next_event(l, &e);

	if (r < 0)
		return r;
	*ret_end = e.type == end;
	if (!*ret_end)
		r = load_node(l, &e, depth, ret);
	yaml_event_delete(&e);
	return r;
}

static int load_list(struct loader *l, struct yaml_node *list, unsigned int depth)
{
	struct yaml_node **tail = &list->child;

	for (;;) {
		bool end;
		int r = load_next(l, depth + 1, YAML_SEQUENCE_END_EVENT, tail, &end);

		if (r < 0 || end)
			return r;
		tail = &(*tail)->next;
	}
}

/* Adds the entries of SOURCE (a map or a list of maps) whose keys MAP does not have. */
static int merge_into(struct loader *l, struct yaml_node *map, const struct yaml_node *source,
		      unsigned int depth)
{
	struct yaml_node **tail = &map->child;
	size_t keys = yaml_count(map);
	int r;

	if (source->kind == YAML_LIST && depth <= YAML_DEPTH_MAX) {
		for (const struct yaml_node *n = source->child; n; n = n->next) {
			if (n->kind == YAML_LIST)
				return fail(l, source->line, "<<: want a map or a list of maps");
			r = merge_into(l, map, n, depth + 1);
			if (r < 0)
				return r;
		}
		return 0;
	}
	if (source->kind != YAML_MAP)
		return fail(l, source->line, "<<: want a map or a list of maps");
	for (const struct yaml_node *n = source->child; n; n = n->next) {
		if (yaml_get(map, n->key))
			continue;
		if (++keys > YAML_KEYS_MAX)
			return fail(l, source->line, "too many keys");
		while (*tail)
			tail = &(*tail)->next;
		r = copy_node(l, n, source->line, depth, tail);
		if (r < 0)
			return r;
		r = copy_text(l, source->line, n->key, &(*tail)->key);
		if (r < 0) {
			*tail = yaml_tree_free(*tail);
			return r;
		}
	}
	return 0;
}

/* Adds to MAP one entry: the key is event E, the value is read. */
static int load_pair(struct loader *l, struct yaml_node *map, const yaml_event_t *e,
		     unsigned int depth, struct yaml_node ***tail, struct yaml_node **merges)
{
	_cleanup_free_ char *key = NULL;
	_cleanup_(yaml_tree_freep) struct yaml_node *value = NULL;
	size_t line = e->start_mark.line + 1;
	const struct yaml_node *old;
	bool end, merge;
	int r;

	if (e->type != YAML_SCALAR_EVENT)
		return fail(l, line, "a key must be plain text");
	r = scalar_text(l, e, &key);
	if (r < 0)
		return r;
	merge = streq(key, "<<") && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	old = yaml_get(map, key);
	if (old)
		parse_make_printable(key);
	if (old)
		return error_set(l->err, -EINVAL, "%s:%zu: the key %.64s is already at line %u",
				 l->name, line, key, old->line);
	r = load_next(l, depth + 1, YAML_STREAM_START_EVENT, &value, &end);
	if (r < 0)
		return r;
	value->line = (unsigned int)line;
	value->key = TAKE_PTR(key);
	if (merge) {
		value->next = *merges;
		*merges = TAKE_PTR(value);
		return 0;
	}
	**tail = TAKE_PTR(value);
	*tail = &(**tail)->next;
	return 0;
}

static int load_map(struct loader *l, struct yaml_node *map, unsigned int depth)
{
	struct yaml_node *merges = NULL, **tail = &map->child, *last;
	size_t keys = 0;
	int r;

	for (;;) {
		yaml_event_t e;
		bool end;

		r = next_event(l, &e);
		if (r < 0)
			break;
		end = e.type == YAML_MAPPING_END_EVENT;
		if (!end && ++keys > YAML_KEYS_MAX)
			r = fail(l, e.start_mark.line + 1, "too many keys");
		else if (!end)
			r = load_pair(l, map, &e, depth, &tail, &merges);
		yaml_event_delete(&e);
		if (r < 0 || end)
			break;
	}
	/* Keys of the map itself win over merged ones, wherever the << stands. */
	for (const struct yaml_node *m = merges; r == 0 && m; m = m->next)
		r = merge_into(l, map, m, depth + 1);
	if (merges) {
		for (last = merges; last->next; last = last->next)
			;
		last->next = l->merged;
		l->merged = merges;
	}
	return r;
}

static int load_collection(struct loader *l, const yaml_event_t *e, unsigned int depth,
			   struct yaml_node **ret)
{
	bool map = e->type == YAML_MAPPING_START_EVENT, string;
	const yaml_char_t *name =
	    map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor;
	const yaml_char_t *tag = map ? e->data.mapping_start.tag : e->data.sequence_start.tag;
	_cleanup_(yaml_tree_freep) struct yaml_node *n = NULL;
	size_t line = e->start_mark.line + 1;
	struct anchor *a = NULL;
	int r = check_tag(l, tag, line, &string);

	if (r == 0 && name)
		r = add_anchor(l, name, line, &a);
	if (r == 0)
		r = new_node(l, map ? YAML_MAP : YAML_LIST, line, &n);
	if (r == 0)
		r = map ? load_map(l, n, depth) : load_list(l, n, depth);
	if (r < 0)
		return r;
	if (a)
		a->node = n;
	*ret = TAKE_PTR(n);
	return 0;
}

static int load_scalar(struct loader *l, const yaml_event_t *e, struct yaml_node **ret)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *n = NULL;
	size_t line = e->start_mark.line + 1;
	struct anchor *a = NULL;
	char *text;
	bool string;
	int r = check_tag(l, e->data.scalar.tag, line, &string);

	if (r == 0)
		r = new_node(l, YAML_SCALAR, line, &n);
	if (r == 0 && e->data.scalar.anchor)
		r = add_anchor(l, e->data.scalar.anchor, line, &a);
	if (r == 0)
		r = scalar_text(l, e, &text);
	if (r < 0)
		return r;
	n->quoted = string || e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	yaml_set_text(n, text);
	if (a)
		a->node = n;
	*ret = TAKE_PTR(n);
	return 0;
}

static int load_node(struct loader *l, const yaml_event_t *e, unsigned int depth,
		     struct yaml_node **ret)
{
	size_t line = e->start_mark.line + 1;

	if (depth > YAML_DEPTH_MAX)
		return fail(l, line, "nested too deeply");
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		return load_scalar(l, e, ret);
	case YAML_MAPPING_START_EVENT:
	case YAML_SEQUENCE_START_EVENT:
		return load_collection(l, e, depth, ret);
	case YAML_ALIAS_EVENT:
		return resolve_alias(l, e->data.alias.anchor, line, depth, ret);
	default:
		return fail(l, line, "not valid YAML: a value is missing");
	}
}

/* stream-start, then nothing or one document, then stream-end. */
static int load_stream(struct loader *l, struct yaml_node **ret)
{
	yaml_event_type_t type;
	bool have = false;

	do {
		yaml_event_t e;
		size_t line;
		bool end;
		int r = next_event(l, &e);

		if (r < 0)
			return r;
		type = e.type;
		line = e.start_mark.line + 1;
		yaml_event_delete(&e);
		if (type != YAML_DOCUMENT_START_EVENT)
			continue;
		if (have)
			return fail(l, line, "want one YAML document, got several");
		have = true;
		r = load_next(l, 0, YAML_STREAM_START_EVENT, ret, &end);
		if (r < 0)
			return r;
	} while (type != YAML_STREAM_END_EVENT);
	return have ? 0 : new_node(l, YAML_NULL, 1, ret);
}

int yaml_tree_load(const char *name, const void *data, size_t size, struct yaml_node **ret,
		   struct error *err)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root = NULL;
	struct loader l = {.name = name, .data = data, .size = size, .err = err};
	int r;

	if (!yaml_parser_initialize(&l.parser))
		return no_memory(&l);
	yaml_parser_set_input_string(&l.parser, data, size);
	r = load_stream(&l, &root);
	yaml_parser_delete(&l.parser);
	yaml_tree_free(l.merged);
	for (size_t i = 0; i < l.n_anchors; i++)
		free(l.anchors[i].name);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(root);
	return 0;
}
