/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pprof profiles, written as wire format. Field numbers: google/pprof, proto/profile.proto.
 *
 * Every table is a wire_table with unique entries, so batches can be added one after the other
 * although each has indices of its own. Samples are such a table too: it holds the message without
 * its values. The values are in an array, grow as batches are added, and are appended at the end.
 */
#include "agent/profile/pprof.h"

#include "agent/profile/wire.h"
#include "lib/gzip.h"

enum {
	PROFILE_MAX = 1 << 30,	 /* bytes of one table */
	BUILDER_MAX = 512 << 20, /* of pprof_encode() */
	ATTRIBUTES_MAX = 128,	 /* of the first resource */
};

/*
 * The columns of a sample's values. CPU samples have the first two, which are always written;
 * others are written when a sample has a value. After these there is one column for each probe.
 */
enum column { COLUMN_SAMPLES, COLUMN_CPU, COLUMN_OFF_CPU, COLUMN_EVENTS, COLUMN_PROBES };
enum { PROBE_COLUMNS_MAX = 32 }; /* the samples of further probes are events */

struct pprof_builder {
	size_t max_bytes;
	struct wire_table mappings, locations, functions, strings, samples, comments;
	int64_t *values; /* of samples, by index; each has as many as there are columns */
	size_t values_cap;
	struct buf a, b, label; /* scratch */
	uint64_t *ids;		/* scratch: location ids of one stack */
	size_t ids_cap;
	uint64_t start_unix_ns, end_unix_ns, period_ns;
	int64_t overflow;
	bool used[COLUMN_PROBES]; /* columns of other than CPU samples */
	char *probes[PROBE_COLUMNS_MAX];
	size_t n_probes;
	/* `comments` holds "key=value" of the first resource; comment_counts: how many resources
	 * had each. */
	uint32_t comment_counts[ATTRIBUTES_MAX], n_resources;
	bool full;
};

struct source {
	const struct batch *batch;
	uint32_t *location_ids; /* index in the batch -> id in the profile; 0: not looked up yet */
};

static int64_t add_string(struct pprof_builder *p, const char *s)
{
	return wire_table_add_str(&p->strings, s);
}

static size_t columns(const struct pprof_builder *p)
{
	return COLUMN_PROBES + p->n_probes;
}

/* Removes the columns of probes. The values array then has room for more samples. */
static void forget_probes(struct pprof_builder *p)
{
	size_t room = p->values_cap * columns(p);

	while (p->n_probes)
		free(p->probes[--p->n_probes]);
	p->values_cap = room / columns(p);
}

static void start(struct pprof_builder *p)
{
	struct wire_table *tables[] = {&p->mappings, &p->locations, &p->functions,
				       &p->strings,  &p->samples,   &p->comments};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		tables[i]->sealed = false;
		wire_table_reset(tables[i]);
	}
	forget_probes(p);
	if (p->values)
		memset(p->values, 0, p->values_cap * columns(p) * sizeof(*p->values));
	add_string(p, "");
	p->start_unix_ns = p->end_unix_ns = p->period_ns = 0;
	p->overflow = 0;
	memset(p->used, 0, sizeof(p->used));
	p->n_resources = 0;
	memset(p->comment_counts, 0, sizeof(p->comment_counts));
	p->full = false;
}

int pprof_builder_new(size_t max_bytes, struct pprof_builder **ret)
{
	struct pprof_builder *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->max_bytes = max_bytes;
	wire_table_init(&p->mappings, 3, true, PROFILE_MAX);
	wire_table_init(&p->locations, 4, true, PROFILE_MAX);
	wire_table_init(&p->functions, 5, true, PROFILE_MAX);
	wire_table_init(&p->strings, 6, false, PROFILE_MAX);
	wire_table_init(&p->samples, 2, false, PROFILE_MAX);
	wire_table_init(&p->comments, 0, false, PROFILE_MAX);
	buf_init(&p->a, PROFILE_MAX);
	buf_init(&p->b, PROFILE_MAX);
	buf_init(&p->label, PROFILE_MAX);
	start(p);
	if (p->strings.n != 1) { /* "" must be string 0 */
		pprof_builder_free(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

struct pprof_builder *pprof_builder_free(struct pprof_builder *p)
{
	if (!p)
		return NULL;
	wire_table_done(&p->mappings);
	wire_table_done(&p->locations);
	wire_table_done(&p->functions);
	wire_table_done(&p->strings);
	wire_table_done(&p->samples);
	wire_table_done(&p->comments);
	buf_done(&p->a);
	buf_done(&p->b);
	buf_done(&p->label);
	forget_probes(p);
	free(p->values);
	free(p->ids);
	free(p);
	return NULL;
}

void pprof_builder_reset(struct pprof_builder *p)
{
	start(p);
}

int64_t pprof_builder_overflow(const struct pprof_builder *p)
{
	return p->overflow;
}

static int builder_error(const struct pprof_builder *p)
{
	const struct buf *bufs[] = {&p->mappings.bytes,
				    &p->locations.bytes,
				    &p->functions.bytes,
				    &p->strings.bytes,
				    &p->samples.bytes,
				    &p->comments.bytes,
				    &p->a,
				    &p->b,
				    &p->label};

	for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
		if (bufs[i]->error)
			return bufs[i]->error;
	return 0;
}

/* After a failed batch. The tables are consistent, because an entry is added last, so the builder
 * can go on. */
static void clear_errors(struct pprof_builder *p)
{
	struct wire_table *tables[] = {&p->mappings, &p->locations, &p->functions,
				       &p->strings,  &p->samples,   &p->comments};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		wire_table_repair(tables[i]);
	buf_reset(&p->a);
	buf_reset(&p->b);
	buf_reset(&p->label);
}

/* Estimated memory of the tables, with about 40 bytes an entry for their hash tables. */
static size_t builder_size(const struct pprof_builder *p)
{
	const struct wire_table *tables[] = {&p->mappings, &p->locations, &p->functions,
					     &p->strings,  &p->samples,	  &p->comments};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		n += tables[i]->bytes.len + tables[i]->n * (size_t)40;
	return n;
}

static void seal(struct pprof_builder *p, bool sealed)
{
	p->mappings.sealed = p->locations.sealed = p->functions.sealed = p->strings.sealed =
	    p->samples.sealed = p->comments.sealed = sealed;
}

/* ---- tables; each gives an id (index + 1), or 0 when it is not there and may not be added ------
 */

static uint64_t id_of(uint32_t index)
{
	return index == REF_TABLE_NONE ? 0 : (uint64_t)index + 1;
}

/* Appends FIELD with the index of the string S. False: S is not there and cannot be added. */
static bool put_string(struct pprof_builder *p, struct buf *out, unsigned int field, const char *s)
{
	uint32_t index = wire_table_add_str(&p->strings, s);

	if (index == REF_TABLE_NONE)
		return false;
	wire_uint(out, field, index);
	return true;
}

/* Function {1 id, 2 name, 3 system_name, 4 filename, 5 start_line}. */
static uint64_t add_function(struct pprof_builder *p, const struct batch_function *f)
{
	buf_reset(&p->a);
	if (!put_string(p, &p->a, 2, f->name) || !put_string(p, &p->a, 3, f->system_name) ||
	    !put_string(p, &p->a, 4, f->file))
		return 0;
	wire_uint(&p->a, 5, f->start_line);
	return id_of(wire_table_add_buf(&p->functions, &p->a));
}

/* Mapping {1 id, 2 start, 3 limit, 4 offset, 5 filename, 6 build_id, 7..10 has_*}. */
static uint64_t add_mapping(struct pprof_builder *p, const struct batch_mapping *m)
{
	const char *build_id = m->build_id_gnu[0]  ? m->build_id_gnu
			       : m->build_id_go[0] ? m->build_id_go
						   : m->htlhash;

	buf_reset(&p->a);
	wire_uint(&p->a, 2, m->start);
	wire_uint(&p->a, 3, m->limit);
	wire_uint(&p->a, 4, m->file_offset);
	if (!put_string(p, &p->a, 5, m->filename) || !put_string(p, &p->a, 6, build_id))
		return 0;
	wire_uint(&p->a, 7, m->has_functions);
	wire_uint(&p->a, 8, m->has_lines); /* filenames come with lines */
	wire_uint(&p->a, 9, m->has_lines);
	wire_uint(&p->a, 10, m->has_inlines);
	return id_of(wire_table_add_buf(&p->mappings, &p->a));
}

/* Location {1 id, 2 mapping_id, 3 address, 4 line {1 function_id, 2 line}}. */
static uint64_t add_location(struct pprof_builder *p, const struct source *from, uint32_t index)
{
	const struct batch *batch = from->batch;
	const struct batch_location *l = &batch->locations[index];
	uint64_t mapping = 0, function;

	if (from->location_ids[index])
		return from->location_ids[index];
	if (l->mapping != BATCH_NO_MAPPING) {
		mapping = add_mapping(p, &batch->mappings[l->mapping]);
		if (!mapping)
			return 0;
	}
	buf_reset(&p->b);
	wire_uint(&p->b, 2, mapping);
	wire_uint(&p->b, 3, l->address);
	for (uint32_t i = 0; i < l->n_lines; i++) {
		const struct batch_line *line = &batch->lines[l->first_line + i];

		function = add_function(p, &batch->functions[line->function]);
		if (!function)
			return 0;
		buf_reset(&p->a);
		wire_uint(&p->a, 1, function);
		wire_uint(&p->a, 2, line->line);
		wire_bytes(&p->b, 4, p->a.data, p->a.len);
	}
	from->location_ids[index] = id_of(wire_table_add_buf(&p->locations, &p->b));
	return from->location_ids[index];
}

/* Label {1 key, 2 str, 3 num}. Empty ones are left out. */
static bool put_label(struct pprof_builder *p, struct buf *out, const char *key, const char *str,
		      uint64_t num)
{
	if (str ? !str[0] : !num)
		return true;
	buf_reset(&p->label);
	if (!put_string(p, &p->label, 1, key) || (str && !put_string(p, &p->label, 2, str)))
		return false;
	wire_uint(&p->label, 3, num);
	wire_bytes(out, 3, p->label.data, p->label.len);
	return true;
}

/* ---- samples ----------------------------------------------------------------------------------
 */

/*
 * Tools that read pprof take the first mapping of a profile for the main program. So the first one
 * added is the executable of the first sample's process or, if no frame of the stack is in it, the
 * file of the outermost native frame; never the kernel. A failure to add it is not lost: the
 * sample's locations need the same room.
 */
static void add_main_mapping(struct pprof_builder *p, const struct batch *batch,
			     const struct batch_stack *stack, const char *executable_path)
{
	const struct batch_mapping *found = NULL;

	for (uint32_t i = stack->len; i > 0; i--) {
		uint32_t at =
		    batch->locations[batch->stack_locations[stack->first + i - 1]].mapping;
		const struct batch_mapping *m;

		if (at == BATCH_NO_MAPPING)
			continue;
		m = &batch->mappings[at];
		if (streq(m->filename, executable_path)) {
			found = m;
			break;
		}
		if (!found && m->filename[0] != '[')
			found = m;
	}
	if (found)
		(void)add_mapping(p, found);
}

/* Adds Sample {1 location_id, 2 value, 3 label} without the values; REF_TABLE_NONE on failure. */
static uint32_t add_sample(struct pprof_builder *p, const struct source *from,
			   const struct batch_sample *s, const char *container_id)
{
	const struct batch_stack *stack = &from->batch->stacks[s->stack];
	const struct batch_process *process = &from->batch->processes[s->process];
	const struct batch_label_set *labels = &from->batch->label_sets[s->labels];
	size_t len = 0;

	if (grow_array((void **)&p->ids, &p->ids_cap, stack->len, sizeof(*p->ids), 1 << 20) < 0) {
		p->samples.bytes.error = -ENOMEM;
		return REF_TABLE_NONE;
	}
	if (!p->mappings.n)
		add_main_mapping(p, from->batch, stack, process->executable_path);
	for (uint32_t i = 0; i < stack->len; i++) {
		p->ids[i] = add_location(p, from, from->batch->stack_locations[stack->first + i]);
		if (!p->ids[i])
			return REF_TABLE_NONE;
		len += wire_varint_len(p->ids[i]);
	}
	buf_reset(&p->a);
	if (stack->len) {
		wire_varint(&p->a, 1 << 3 | 2);
		wire_varint(&p->a, len);
	}
	for (uint32_t i = 0; i < stack->len; i++)
		wire_varint(&p->a, p->ids[i]);
	if (!put_label(p, &p->a, "pid", NULL, process->pid) ||
	    !put_label(p, &p->a, "thread", NULL, s->tid) ||
	    !put_label(p, &p->a, "thread_name", s->thread_name, 0) ||
	    !put_label(p, &p->a, "process", process->executable_name, 0) ||
	    !put_label(p, &p->a, "container_id", container_id, 0))
		return REF_TABLE_NONE;
	for (size_t i = 0; i < labels->n; i++)
		if (!put_label(p, &p->a, labels->labels[i].key, labels->labels[i].value, 0))
			return REF_TABLE_NONE;
	return wire_table_add_buf(&p->samples, &p->a);
}

/* The sample "[profile full]", made when it is first needed. */
static uint32_t overflow_sample(struct pprof_builder *p)
{
	const struct batch_function f = {"[profile full]", "[profile full]", "", 0};
	uint32_t index = REF_TABLE_NONE;
	uint64_t id;

	seal(p, false);
	id = add_function(p, &f);
	buf_reset(&p->a);
	wire_uint(&p->a, 1, id);
	buf_reset(&p->b);
	wire_bytes(&p->b, 4, p->a.data, p->a.len);
	id = id ? id_of(wire_table_add_buf(&p->locations, &p->b)) : 0;
	if (id) {
		buf_reset(&p->a);
		wire_varint(&p->a, 1 << 3 | 2);
		wire_varint(&p->a, wire_varint_len(id));
		wire_varint(&p->a, id);
		index = wire_table_add_buf(&p->samples, &p->a);
	}
	seal(p, true);
	return index;
}

/* Makes room for the values of one more sample, so that every sample has values. */
static int reserve_values(struct pprof_builder *p)
{
	size_t old = p->values_cap, n = columns(p);
	int r = grow_array((void **)&p->values, &p->values_cap, (size_t)p->samples.n + 1,
			   n * sizeof(*p->values), PROFILE_MAX);

	if (r < 0)
		return r;
	memset(p->values + old * n, 0, (p->values_cap - old) * n * sizeof(*p->values));
	return 0;
}

/* One more column, for the probe NAME: the values of all samples are laid out anew. */
static int add_column(struct pprof_builder *p, const char *name)
{
	size_t before = columns(p), after = before + 1;
	int64_t *values = calloc(MAX(p->values_cap, (size_t)1), after * sizeof(*values));
	char *copy = strdup(name);

	if (!values || !copy) {
		free(values);
		free(copy);
		return -ENOMEM;
	}
	for (size_t i = 0; i < p->values_cap; i++)
		memcpy(values + i * after, p->values + i * before, before * sizeof(*values));
	free(p->values);
	p->values = values;
	p->probes[p->n_probes++] = copy;
	return 0;
}

/* The column of the probe NAME. */
static int probe_column(struct pprof_builder *p, const char *name, size_t *ret)
{
	int r = 0;
	size_t i = 0;

	while (i < p->n_probes && !streq(p->probes[i], name))
		i++;
	if (i == PROBE_COLUMNS_MAX || !*name) {
		*ret = COLUMN_EVENTS;
		return 0;
	}
	if (i == p->n_probes)
		r = add_column(p, name);
	if (!r)
		*ret = COLUMN_PROBES + i;
	return r;
}

/* The column that holds the values of a kind as they are. */
static const enum column column_of[PROFILE_KIND_COUNT] = {
    [PROFILE_CPU] = COLUMN_SAMPLES,
    [PROFILE_OFF_CPU] = COLUMN_OFF_CPU,
    [PROFILE_PROBE] = COLUMN_EVENTS,
};

static void add_value(int64_t *values, size_t column, int64_t value)
{
	if (__builtin_add_overflow(values[column], value, &values[column]))
		values[column] = INT64_MAX;
}

/* COLUMN: the column of the profile's values. */
static void count_sample(struct pprof_builder *p, uint32_t index, size_t column,
			 const struct batch_profile *profile, int64_t value)
{
	int64_t *v = p->values + index * columns(p), ns;

	add_value(v, column, value);
	if (column < COLUMN_PROBES)
		p->used[column] = true;
	if (profile->kind != PROFILE_CPU)
		return;
	if (__builtin_mul_overflow(value, (int64_t)profile->period_ns, &ns))
		ns = INT64_MAX;
	add_value(v, COLUMN_CPU, ns);
}

static void put_attribute(struct buf *out, const struct attr *a)
{
	buf_printf(out, "%s=", a->key);
	if (a->type == ATTR_STR)
		buf_puts(out, a->str);
	else if (a->type == ATTR_BOOL)
		buf_puts(out, a->num ? "true" : "false");
	else if (a->type == ATTR_INT)
		buf_printf(out, "%lld", (long long)a->num);
	for (size_t i = 0; i < a->n_strs; i++)
		buf_printf(out, "%s%s", i ? "," : "", a->strs[i]);
}

/*
 * `go tool pprof` prints comments above every report, so there is only one comment: the attributes
 * that all resources of the profile have in common. Only those of the first resource are
 * candidates.
 */
static void count_attributes(struct pprof_builder *p, const struct batch_resource *r)
{
	uint32_t index;

	for (size_t i = 0; i < r->n_attrs; i++) {
		buf_reset(&p->b);
		put_attribute(&p->b, &r->attrs[i]);
		p->comments.sealed = p->n_resources || p->comments.n == ATTRIBUTES_MAX;
		index = wire_table_add_buf(&p->comments, &p->b);
		if (index != REF_TABLE_NONE)
			p->comment_counts[index]++;
	}
	p->n_resources++;
}

/* Appends 13 comment = the string index of the comment, if there is one. */
static void put_comment(struct pprof_builder *p, struct buf *out)
{
	size_t len;

	buf_reset(&p->b);
	for (uint32_t i = 0; i < p->comments.n; i++) {
		const char *attribute = wire_table_get(&p->comments, i, &len);

		if (p->comment_counts[i] < p->n_resources)
			continue;
		buf_puts(&p->b, p->b.len ? " " : "");
		buf_append(&p->b, attribute, len);
	}
	if (!p->b.len)
		return;
	wire_varint(out, 13 << 3);
	wire_varint(out, wire_table_add_buf(&p->strings, &p->b));
}

static int add_profile(struct pprof_builder *p, const struct source *from,
		       const struct batch_profile *profile, const struct pprof_filter *filter)
{
	const struct batch *batch = from->batch;
	const struct batch_resource *resource = &batch->resources[profile->resource];
	size_t column = column_of[profile->kind];
	bool any = false;
	int r = profile->kind == PROFILE_PROBE ? probe_column(p, profile->probe, &column) : 0;

	if (r < 0)
		return r;
	if (filter && filter->container && !has_prefix(resource->container_id, filter->container))
		return 0;
	for (uint32_t i = 0; i < profile->n_samples; i++) {
		const struct batch_sample *s = &batch->samples[profile->first_sample + i];
		uint32_t index;

		if (filter && filter->pid && batch->processes[s->process].pid != filter->pid)
			continue;
		if (!any)
			count_attributes(p, resource);
		any = true;
		if (!p->full && builder_size(p) >= p->max_bytes) {
			p->full = true;
			seal(p, true);
		}
		r = reserve_values(p);
		if (r < 0)
			return r;
		index = add_sample(p, from, s, resource->container_id);
		if (index == REF_TABLE_NONE && p->full && !builder_error(p)) {
			index = overflow_sample(p);
			p->overflow += s->value;
		}
		r = builder_error(p);
		if (r < 0)
			return r;
		count_sample(p, index, column, profile, s->value);
	}
	if (any && !p->period_ns)
		p->period_ns = profile->period_ns;
	return 0;
}

int pprof_builder_add(struct pprof_builder *p, const struct batch *batch,
		      const struct pprof_filter *filter)
{
	_cleanup_free_ uint32_t *ids = calloc((size_t)batch->n_locations + 1, sizeof(*ids));
	struct source from = {.batch = batch, .location_ids = ids};
	uint64_t end = batch->start_unix_ns + batch->duration_ns;
	int r = ids ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < batch->n_profiles && !r; i++)
		r = add_profile(p, &from, &batch->profiles[i], filter);
	if (r < 0) {
		clear_errors(p);
		return r;
	}
	if (!p->start_unix_ns || batch->start_unix_ns < p->start_unix_ns)
		p->start_unix_ns = batch->start_unix_ns;
	p->end_unix_ns = MAX(p->end_unix_ns, end);
	return 0;
}

/* ---- the file ---------------------------------------------------------------------------------
 */

static void put_value_type(struct pprof_builder *p, struct buf *out, unsigned int field,
			   const char *type, const char *unit)
{
	buf_reset(&p->a);
	wire_uint(&p->a, 1, (uint64_t)add_string(p, type));
	wire_uint(&p->a, 2, (uint64_t)add_string(p, unit));
	wire_bytes(out, field, p->a.data, p->a.len);
}

static bool has_column(const struct pprof_builder *p, size_t column)
{
	return column <= COLUMN_CPU || column >= COLUMN_PROBES || p->used[column];
}

static void put_samples(struct pprof_builder *p, struct buf *out)
{
	for (uint32_t i = 0; i < p->samples.n; i++) {
		const int64_t *values = p->values + i * columns(p);
		size_t len, values_len = 0;
		const char *message = wire_table_get(&p->samples, i, &len);

		for (size_t c = 0; c < columns(p); c++)
			if (has_column(p, c))
				values_len += wire_varint_len((uint64_t)values[c]);
		wire_varint(out, 2 << 3 | 2);
		wire_varint(out, len + 1 + wire_varint_len(values_len) + values_len);
		buf_append(out, message, len);
		wire_varint(out, 2 << 3 | 2);
		wire_varint(out, values_len);
		for (size_t c = 0; c < columns(p); c++)
			if (has_column(p, c))
				wire_varint(out, (uint64_t)values[c]);
	}
}

static void put_value_types(struct pprof_builder *p, struct buf *out)
{
	const struct profile_type *cpu = profile_type_of(PROFILE_CPU);

	put_value_type(p, out, 1, cpu->sample_type, cpu->sample_unit);
	put_value_type(p, out, 1, cpu->period_type, cpu->period_unit);
	for (unsigned int kind = PROFILE_CPU + 1; kind < PROFILE_KIND_COUNT; kind++) {
		const struct profile_type *type = profile_type_of((enum profile_kind)kind);

		if (p->used[column_of[kind]])
			put_value_type(p, out, 1, type->sample_type, type->sample_unit);
	}
	for (size_t i = 0; i < p->n_probes; i++)
		put_value_type(p, out, 1, p->probes[i], "count");
}

/*
 * Profile {1 sample_type, 2 sample, 3 mapping, 4 location, 5 function, 6 string_table, 9
 * time_nanos, 10 duration_nanos, 11 period_type, 12 period, 13 comment, 14 default_sample_type}.
 */
static void put_profile(struct pprof_builder *p, struct buf *out)
{
	seal(p, false);
	put_value_types(p, out);
	put_samples(p, out);
	buf_append(out, p->mappings.bytes.data, p->mappings.bytes.len);
	buf_append(out, p->locations.bytes.data, p->locations.bytes.len);
	buf_append(out, p->functions.bytes.data, p->functions.bytes.len);
	wire_uint(out, 9, p->start_unix_ns);
	wire_uint(out, 10, p->end_unix_ns - p->start_unix_ns);
	put_value_type(p, out, 11, "cpu", "nanoseconds");
	wire_uint(out, 12, p->period_ns);
	put_comment(p, out);
	wire_uint(out, 14, (uint64_t)add_string(p, "cpu"));
	buf_append(out, p->strings.bytes.data, p->strings.bytes.len);
	seal(p, p->full);
}

static int gzip(const struct buf *in, struct buf *out)
{
	size_t bound = gzip_bound(in->len), len = 0;
	void *room = buf_extend(out, bound);
	int r;

	if (!room)
		return out->error;
	r = gzip_compress(GZIP_SMALL, in->data, in->len, room, bound, &len);
	out->len -= bound - len;
	return r;
}

int pprof_builder_encode(struct pprof_builder *p, struct buf *out, struct error *err)
{
	struct buf raw;
	int r;

	buf_init(&raw, (size_t)2 * PROFILE_MAX);
	put_profile(p, &raw);
	r = builder_error(p);
	if (!r)
		r = raw.error ? raw.error : gzip(&raw, out);
	buf_done(&raw);
	if (r < 0) {
		clear_errors(p);
		return error_set(err, r, "encoding a pprof profile: %s", strerror(-r));
	}
	return 0;
}

int pprof_encode(const struct batch *const *batches, size_t n, const struct pprof_filter *filter,
		 struct buf *out, struct error *err)
{
	_cleanup_(pprof_builder_freep) struct pprof_builder *p = NULL;
	int r = pprof_builder_new(BUILDER_MAX, &p);

	for (size_t i = 0; i < n && !r; i++)
		r = pprof_builder_add(p, batches[i], filter);
	if (r < 0)
		return error_set(err, r, "encoding a pprof profile: %s", strerror(-r));
	return pprof_builder_encode(p, out, err);
}
