/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OTLP encoder writes the wire format directly: requests are large, and every table entry is
 * needed only once. Field numbers: opentelemetry-proto v1.10.0 and v1.11.0, profiles/v1development
 * (proto/otlp/profiles.proto); those of G4 and G5 (v1.8.0, v1.9.0) differ in three tags of Sample.
 *
 * Samples are appended until the next one would bring the request over its limit; then what that
 * sample added is cut off again, the request is closed, and the sample opens a new one with an
 * empty dictionary. Hence a dictionary never holds what its request does not use, except for what
 * the first entry of every table, the empty message, stands for.
 *
 * No profile_id is written. It is optional; no receiver reads it (Pyroscope makes its own, Parca
 * and the Collector's exporters ignore it); its field number differs between G4 and G5; and text
 * exporters print an absent one as the zeroes that users of the eBPF profiler know.
 */
#include "agent/profile/otlp.h"

#include "agent/profile/otlp_internal.h"
#include "lib/metrics.h"

enum {
	TABLE_BYTES_MAX = 256 << 20,
	REQUESTS_MAX = 1 << 16,
	FRAME_BYTES = 256, /* tags and lengths of the messages around samples and tables */
	TABLES = 7,
	/* Pyroscope takes 30 labels; it adds __name__, __delta__, __otel__ and service_name. */
	RESOURCE_ATTRS_MAX = 26,
};

static struct wire_table *table(struct otlp_encoder *e, size_t i)
{
	struct wire_table *tables[TABLES] = {&e->mappings, &e->locations,  &e->functions, &e->links,
					     &e->strings,  &e->attributes, &e->stacks};

	return i < ARRAY_SIZE(tables) ? tables[i] : NULL;
}

#define FOR_EACH_TABLE(e, t)                                                                       \
	for (size_t i_ = 0; i_ < TABLES; i_++)                                                     \
		for (struct wire_table *t = table(e, i_); t; t = NULL)

static int encoder_error(struct otlp_encoder *e)
{
	const struct buf *bufs[] = {&e->resources, &e->profiles, &e->samples,
				    &e->resource,  &e->a,	 &e->b};
	int r = e->error;

	for (size_t i = 0; i < ARRAY_SIZE(bufs) && !r; i++)
		r = bufs[i]->error;
	FOR_EACH_TABLE(e, t)
	r = r ? r : t->bytes.error;
	return r;
}

/* An upper bound of what the request takes when it is closed now. */
static size_t request_size(struct otlp_encoder *e)
{
	size_t n =
	    FRAME_BYTES + e->resources.len + e->profiles.len + e->samples.len + e->resource.len;

	FOR_EACH_TABLE(e, t)
	n += t->bytes.len;
	return n;
}

/* ---- resources, profiles, samples -------------------------------------------------------------
 */

static void put_value(struct buf *out, unsigned int field, const struct attr *a)
{
	struct buf value, item;

	buf_init(&value, TABLE_BYTES_MAX);
	buf_init(&item, TABLE_BYTES_MAX);
	switch (a->type) {
	case ATTR_STR:
		wire_bytes(&value, 1, a->str, strlen(a->str));
		break;
	case ATTR_BOOL:
	case ATTR_INT: /* written even when 0: the oneof must be set */
		wire_varint(&value, (a->type == ATTR_BOOL ? 2 : 3) << 3);
		wire_varint(&value, (uint64_t)a->num);
		break;
	case ATTR_STRS: {
		struct buf list;

		buf_init(&list, TABLE_BYTES_MAX);
		for (size_t i = 0; i < a->n_strs; i++) {
			buf_reset(&item);
			wire_bytes(&item, 1, a->strs[i], strlen(a->strs[i]));
			wire_bytes(&list, 1, item.data, item.len);
		}
		wire_bytes(&value, 5, list.data, list.len);
		if (list.error)
			value.error = list.error;
		buf_done(&list);
		break;
	}
	}
	wire_bytes(out, field, value.data, value.len);
	if (value.error || item.error)
		out->error = value.error ? value.error : item.error;
	buf_done(&value);
	buf_done(&item);
}

/* Resource {1 attributes {1 key, 2 value}, 2 dropped_attributes_count}. */
static void open_resource(struct otlp_encoder *e, const struct batch_resource *r)
{
	size_t n = 0, dropped = 0;

	e->resource_of = r;
	e->has_executable_name = false;
	e->has_executable_path = false;
	buf_reset(&e->resource);
	for (size_t i = 0; i < r->n_attrs; i++) {
		const struct attr *a = &r->attrs[i];

		if (!a->key[0] || n == RESOURCE_ATTRS_MAX) {
			dropped++;
			continue;
		}
		if (streq(a->key, "process.executable.name"))
			e->has_executable_name = true;
		if (streq(a->key, "process.executable.path"))
			e->has_executable_path = true;
		buf_reset(&e->a);
		wire_str(&e->a, 1, a->key);
		put_value(&e->a, 2, a);
		wire_bytes(&e->resource, 1, e->a.data, e->a.len);
		n++;
	}
	wire_uint(&e->resource, 2, dropped);
}

static void close_resource(struct otlp_encoder *e)
{
	struct buf *scope = &e->a, *out = &e->b;

	if (!e->profiles.len)
		return;
	/* InstrumentationScope {1 name, 2 version} in ScopeProfiles {1 scope, 2 profiles}. */
	buf_reset(scope);
	wire_str(scope, 1, "kiln");
	wire_str(scope, 2, KILN_VERSION);
	buf_reset(out);
	wire_bytes(out, 1, scope->data, scope->len);
	buf_append(out, e->profiles.data, e->profiles.len);
	/* ResourceProfiles {1 resource, 2 scope_profiles}. */
	buf_reset(scope);
	wire_bytes(scope, 1, e->resource.data, e->resource.len);
	wire_bytes(scope, 2, out->data, out->len);
	wire_bytes(&e->resources, 1, scope->data, scope->len);
	buf_reset(&e->profiles);
}

static void open_profile(struct otlp_encoder *e, const struct batch_profile *p)
{
	e->profile = p;
	e->n_samples = 0;
	buf_reset(&e->samples);
}

/* Called with the profile's first sample: the dictionary of a request without samples must not hold
 * these strings. */
static void name_profile(struct otlp_encoder *e)
{
	const struct profile_type *type = profile_type_of(e->profile->kind);

	e->sample_type = otlp_add_string(e, batch_sample_type(e->profile));
	e->sample_unit = otlp_add_string(e, type->sample_unit);
	e->period_type = e->period_unit = 0;
	if (e->profile->period_ns) {
		e->period_type = otlp_add_string(e, type->period_type);
		e->period_unit = otlp_add_string(e, type->period_unit);
	}
}

static void put_value_type(struct buf *out, struct buf *scratch, unsigned int field, uint32_t type,
			   uint32_t unit)
{
	buf_reset(scratch);
	wire_uint(scratch, 1, type);
	wire_uint(scratch, 2, unit);
	wire_bytes(out, field, scratch->data, scratch->len);
}

/*
 * Profile {1 sample_type, 2 samples, 3 time_unix_nano, 4 duration_nano, 5 period_type, 6 period};
 * nothing at 7 and above, where the generations differ.
 */
static void close_profile(struct otlp_encoder *e)
{
	struct buf *out = &e->b;

	if (!e->n_samples)
		return;
	buf_reset(out);
	put_value_type(out, &e->a, 1, e->sample_type, e->sample_unit);
	buf_append(out, e->samples.data, e->samples.len);
	wire_fixed64(out, 3, e->batch->start_unix_ns);
	wire_uint(out, 4, e->batch->duration_ns);
	if (e->period_type) {
		put_value_type(out, &e->a, 5, e->period_type, e->period_unit);
		wire_uint(out, 6, e->profile->period_ns);
	}
	wire_bytes(&e->profiles, 2, out->data, out->len);
	buf_reset(&e->samples);
	e->n_samples = 0;
}

enum { SAMPLE_ATTRIBUTES_MAX = 5 + 64 /* labels */ };

static size_t sample_attributes(struct otlp_encoder *e, const struct batch_sample *s, bool linked,
				uint32_t ret[SAMPLE_ATTRIBUTES_MAX])
{
	const struct batch_process *p = &e->batch->processes[s->process];
	const struct batch_label_set *set = &e->batch->label_sets[s->labels];
	size_t n = 0;

	if (s->thread_name[0])
		ret[n++] = otlp_add_attribute(e, "thread.name", s->thread_name, 0);
	if (p->executable_name[0] && !e->has_executable_name)
		ret[n++] = otlp_add_attribute(e, "process.executable.name", p->executable_name, 0);
	if (p->executable_path[0] && !e->has_executable_path)
		ret[n++] = otlp_add_attribute(e, "process.executable.path", p->executable_path, 0);
	ret[n++] = otlp_add_attribute(e, "process.pid", NULL, p->pid);
	if (s->tid)
		ret[n++] = otlp_add_attribute(e, "thread.id", NULL, s->tid);
	/* With a link, the first two labels (trace_id and span_id) are not repeated as
	 * attributes. */
	for (size_t i = linked ? 2 : 0; i < set->n && n < SAMPLE_ATTRIBUTES_MAX; i++)
		ret[n++] = otlp_add_attribute(e, set->labels[i].key, set->labels[i].value, 0);
	return n;
}

/*
 * Sample {1 stack_index, 2 attribute_indices, 3 link_index, 4 values, 5 timestamps_unix_nano};
 * in G4 and G5 2 is values, 3 attribute_indices, 4 link_index. With timestamps there are no values:
 * each stands for one. The field is there all the same, packed and empty: a receiver of the other
 * generation expects another wire type at its number and refuses the request. Without it, a
 * Collector 0.139 reads the attributes as values and answers with success.
 */
static void add_sample(struct otlp_encoder *e, const struct batch_sample *s)
{
	bool g6 = e->generation == OTLP_G6;
	uint32_t attributes[SAMPLE_ATTRIBUTES_MAX], stack = otlp_add_stack(e, s->stack);
	uint32_t link = otlp_add_link(e, &e->batch->label_sets[s->labels]);
	size_t n = sample_attributes(e, s, link != 0, attributes), value_len;
	struct buf *out = &e->a;

	buf_reset(out);
	wire_uint(out, 1, stack);
	if (g6) {
		wire_packed(out, 2, attributes, n);
		wire_uint(out, 3, link);
	}
	value_len = s->timestamps ? 0 : wire_varint_len((uint64_t)s->value);
	wire_varint(out, (uint64_t)(g6 ? 4 : 2) << 3 | 2);
	wire_varint(out, value_len);
	if (s->timestamps)
		wire_packed_fixed64(out, 5, s->timestamps, (size_t)s->value);
	else
		wire_varint(out, (uint64_t)s->value);
	if (!g6) {
		wire_packed(out, 3, attributes, n);
		wire_uint(out, 4, link);
	}
	wire_bytes(&e->samples, 2, out->data, out->len);
}

/* ---- requests ---------------------------------------------------------------------------------
 */

static void start_request(struct otlp_encoder *e)
{
	FOR_EACH_TABLE(e, t)
	{
		wire_table_reset(t);
		wire_table_add(t, "", 0);
	}
	memset(e->mapping_index, 0, e->n_indices * sizeof(*e->mapping_index));
	memset(e->frame_type_index, 0, sizeof(e->frame_type_index));
	buf_reset(&e->resources);
	buf_reset(&e->profiles);
	buf_reset(&e->samples);
	e->n_samples = 0;
	e->request_samples = 0;
}

/* ProfilesDictionary: tables 1..3, 4 link_table, 5 strings, 6 attributes, 7 stacks. */
static void put_dictionary(struct otlp_encoder *e, struct buf *out)
{
	size_t len = 0;

	FOR_EACH_TABLE(e, t)
	len += t->bytes.len;
	wire_varint(out, 2 << 3 | 2);
	wire_varint(out, len);
	FOR_EACH_TABLE(e, t)
	buf_append(out, t->bytes.data, t->bytes.len);
}

static int finish_request(struct otlp_encoder *e)
{
	struct buf out;
	int r;

	close_profile(e);
	close_resource(e);
	if (!e->resources.len || encoder_error(e))
		return encoder_error(e);
	r = grow_array((void **)&e->requests, &e->requests_cap, e->n_requests + 1,
		       sizeof(*e->requests), REQUESTS_MAX);
	if (r < 0)
		return r;
	buf_init(&out, SIZE_MAX / 4);
	buf_append(&out, e->resources.data, e->resources.len);
	put_dictionary(e, &out);
	if (out.error) {
		r = out.error;
		buf_done(&out);
		return r;
	}
	e->requests[e->n_requests].len = out.len;
	e->requests[e->n_requests].samples = e->request_samples;
	e->requests[e->n_requests].data = (uint8_t *)buf_take(&out);
	e->n_requests++;
	return 0;
}

struct mark {
	size_t bytes[TABLES], samples;
};

static void set_mark(struct otlp_encoder *e, struct mark *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(m->bytes); i++)
		m->bytes[i] = table(e, i)->bytes.len;
	m->samples = e->samples.len;
}

/* The tables' indices still know what is cut off: start_request() must follow before the next add.
 */
static void cut_to_mark(struct otlp_encoder *e, const struct mark *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(m->bytes); i++)
		table(e, i)->bytes.len = m->bytes[i];
	e->samples.len = m->samples;
}

static int encode_sample(struct otlp_encoder *e, const struct batch_sample *s)
{
	struct mark mark;
	int r;

	for (bool fresh = !e->n_samples && !e->profiles.len && !e->resources.len;; fresh = true) {
		set_mark(e, &mark);
		if (!e->n_samples)
			name_profile(e);
		add_sample(e, s);
		r = encoder_error(e);
		if (r < 0)
			return r;
		if (request_size(e) <= e->max_bytes)
			break;
		cut_to_mark(e, &mark);
		r = finish_request(e);
		if (r < 0)
			return r;
		start_request(e);
		open_profile(e, e->profile);
		if (fresh) {
			metric_add(M_OTLP_OVERSIZE_SAMPLES,
				   e->profile->kind == PROFILE_CPU ? s->value : 1);
			return 0;
		}
	}
	e->n_samples++;
	if (e->profile->kind == PROFILE_CPU)
		e->request_samples += s->value;
	return 0;
}

static int encode_batch(struct otlp_encoder *e)
{
	const struct batch *b = e->batch;
	int r;

	start_request(e);
	for (uint32_t i = 0; i < b->n_profiles; i++) {
		const struct batch_profile *p = &b->profiles[i];

		close_profile(e);
		if (&b->resources[p->resource] != e->resource_of) {
			close_resource(e);
			open_resource(e, &b->resources[p->resource]);
		}
		open_profile(e, p);
		for (uint32_t j = 0; j < p->n_samples; j++) {
			r = encode_sample(e, &b->samples[p->first_sample + j]);
			if (r < 0)
				return r;
		}
	}
	return finish_request(e);
}

static int allocate_indices(struct otlp_encoder *e)
{
	const struct batch *b = e->batch;

	e->n_indices = (size_t)b->n_mappings + b->n_functions + b->n_locations + b->n_stacks;
	e->mapping_index = calloc(e->n_indices + 1, sizeof(*e->mapping_index));
	if (!e->mapping_index)
		return -ENOMEM;
	e->function_index = e->mapping_index + b->n_mappings;
	e->location_index = e->function_index + b->n_functions;
	e->stack_index = e->location_index + b->n_locations;
	return 0;
}

static void encoder_done(struct otlp_encoder *e)
{
	struct buf *bufs[] = {&e->resources, &e->profiles, &e->samples, &e->resource, &e->a, &e->b};

	for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
		buf_done(bufs[i]);
	FOR_EACH_TABLE(e, t)
	wire_table_done(t);
	free(e->mapping_index);
	otlp_requests_free(e->requests, e->n_requests);
}

int otlp_encode(const struct batch *batch, const struct otlp_options *options,
		struct otlp_request **ret_requests, size_t *ret_n, struct error *err)
{
	_cleanup_(encoder_done) struct otlp_encoder e = {
	    .batch = batch,
	    .generation = options->generation,
	    .max_bytes = options->max_bytes ? options->max_bytes : OTLP_REQUEST_MAX,
	};
	struct buf *bufs[] = {&e.resources, &e.profiles, &e.samples, &e.resource, &e.a, &e.b};
	static const unsigned int fields[TABLES] = {1, 2, 3, 4, 5, 6, 7};
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
		buf_init(bufs[i], TABLE_BYTES_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		wire_table_init(table(&e, i), fields[i], false, TABLE_BYTES_MAX);
	r = allocate_indices(&e);
	if (!r)
		r = encode_batch(&e);
	if (r < 0)
		return error_set(err, r, "encoding a batch of %u samples: %s", batch->n_samples,
				 strerror(-r));
	*ret_requests = TAKE_PTR(e.requests);
	*ret_n = e.n_requests;
	e.n_requests = 0;
	return 0;
}

void otlp_requests_free(struct otlp_request *requests, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(requests[i].data);
	free(requests);
}

int otlp_generation_parse(const char *text, enum otlp_generation *ret)
{
	static const struct {
		const char *name;
		enum otlp_generation generation;
	} names[] = {
	    {"auto", OTLP_G6}, {"g6", OTLP_G6}, {"v1.11", OTLP_G6}, {"v1.10", OTLP_G6},
	    {"v1.9", OTLP_G5}, {"g5", OTLP_G5}, {"v1.8", OTLP_G4},  {"g4", OTLP_G4},
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (streq(names[i].name, text)) {
			*ret = names[i].generation;
			return 0;
		}
	return -EINVAL;
}
