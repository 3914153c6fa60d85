/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OTLP encoder against protobuf-c's decoder (generation G6), against the wire itself (G4, G5),
 * and against its own promises: split sizes, dictionaries without holes, duplicates or orphans.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/profile/otlp_convert.h"
#include "lib/cursor.h"
#include "lib/metrics.h"
#include "otlp/profiles.pb-c.h"
#include "tests/support/failalloc.h"
#include "tests/support/sample_batch.h"

typedef Otlp__ExportProfilesServiceRequest Request;
typedef Otlp__ProfilesDictionary Dictionary;

static Request *decode(const struct otlp_request *r)
{
	Request *request = otlp__export_profiles_service_request__unpack(NULL, r->len, r->data);

	assert_non_null(request);
	return request;
}

static void free_request(Request *r)
{
	otlp__export_profiles_service_request__free_unpacked(r, NULL);
}

static const char *string(const Dictionary *d, int32_t i)
{
	assert_in_range(i, 0, d->n_string_table - 1);
	return d->string_table[i];
}

static const Otlp__AnyValue *attribute(const Dictionary *d, const int32_t *indices, size_t n,
				       const char *key)
{
	for (size_t i = 0; i < n; i++) {
		assert_in_range(indices[i], 1, d->n_attribute_table - 1);
		if (streq(string(d, d->attribute_table[indices[i]]->key_strindex), key))
			return d->attribute_table[indices[i]]->value;
	}
	return NULL;
}

static void assert_str(const Otlp__AnyValue *v, const char *want)
{
	assert_non_null(v);
	assert_int_equal(v->value_case, OTLP__ANY_VALUE__VALUE_STRING_VALUE);
	assert_string_equal(v->string_value, want);
}

static void assert_int(const Otlp__AnyValue *v, int64_t want)
{
	assert_non_null(v);
	assert_int_equal(v->value_case, OTLP__ANY_VALUE__VALUE_INT_VALUE);
	assert_int_equal(v->int_value, want);
}

static struct otlp_request *encode_batch(struct batch *batch, enum otlp_generation g,
					 size_t max_bytes, size_t *n)
{
	struct otlp_options options = {.generation = g, .max_bytes = max_bytes};
	struct otlp_request *requests;
	struct error err = {0};

	assert_int_equal(otlp_encode(batch, &options, &requests, n, &err), 0);
	return requests;
}

static struct otlp_request *encode_sample_batch(enum otlp_generation g)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct otlp_request *requests;
	size_t n;

	assert_int_equal(sample_batch_build(&batch), 0);
	requests = encode_batch(batch, g, 0, &n);
	assert_int_equal(n, 1);
	assert_int_equal(requests[0].samples, 6);
	return requests;
}

/* ---- generation 6 -----------------------------------------------------------------------------
 */

static void entry_0_of_every_table_is_the_empty_message(void **state)
{
	struct otlp_request *requests = encode_sample_batch(OTLP_G6);
	Request *r = decode(requests);
	const Dictionary *d = r->dictionary;

	assert_string_equal(d->string_table[0], "");
	assert_int_equal(otlp__mapping__get_packed_size(d->mapping_table[0]), 0);
	assert_int_equal(otlp__location__get_packed_size(d->location_table[0]), 0);
	assert_int_equal(otlp__function__get_packed_size(d->function_table[0]), 0);
	assert_int_equal(otlp__key_value_and_unit__get_packed_size(d->attribute_table[0]), 0);
	assert_int_equal(otlp__stack__get_packed_size(d->stack_table[0]), 0);
	assert_int_equal(d->n_link_table, 1);
	assert_int_equal(otlp__link__get_packed_size(d->link_table[0]), 0);
	free_request(r);
	otlp_requests_free(requests, 1);
}

static void resources_have_plain_keys_and_typed_values(void **state)
{
	struct otlp_request *requests = encode_sample_batch(OTLP_G6);
	Request *r = decode(requests);
	const Otlp__Resource *host = r->resource_profiles[0]->resource,
			     *container = r->resource_profiles[1]->resource;

	assert_int_equal(r->n_resource_profiles, 2);
	assert_int_equal(host->n_attributes, 5);
	assert_string_equal(host->attributes[0]->key, "service.name");
	assert_str(host->attributes[0]->value, "worker");
	assert_int(host->attributes[3]->value, 0);
	assert_int_equal(host->attributes[4]->value->value_case, OTLP__ANY_VALUE__VALUE_BOOL_VALUE);
	assert_true(host->attributes[4]->value->bool_value);
	for (size_t i = 0; i < host->n_attributes; i++)
		assert_int_equal(host->attributes[i]->key_strindex, 0);
	assert_int_equal(container->n_attributes, 5);
	assert_int_equal(container->attributes[3]->value->value_case,
			 OTLP__ANY_VALUE__VALUE_ARRAY_VALUE);
	assert_str(container->attributes[3]->value->array_value->values[0],
		   "registry.k8s.io/kube-apiserver@sha256:e04f6223");
	for (size_t i = 0; i < 2; i++) {
		const Otlp__ScopeProfiles *s = r->resource_profiles[i]->scope_profiles[0];

		assert_int_equal(r->resource_profiles[i]->n_scope_profiles, 1);
		assert_string_equal(s->scope->name, "kiln");
		assert_string_equal(s->scope->version, KILN_VERSION);
	}
	free_request(r);
	otlp_requests_free(requests, 1);
}

static void profiles_have_type_period_and_time(void **state)
{
	struct otlp_request *requests = encode_sample_batch(OTLP_G6);
	Request *r = decode(requests);
	const Dictionary *d = r->dictionary;
	const Otlp__ScopeProfiles *s = r->resource_profiles[0]->scope_profiles[0];
	const Otlp__Profile *cpu = s->profiles[0], *off = s->profiles[1];

	assert_int_equal(s->n_profiles, 2);
	assert_string_equal(string(d, cpu->sample_type->type_strindex), "samples");
	assert_string_equal(string(d, cpu->sample_type->unit_strindex), "count");
	assert_string_equal(string(d, cpu->period_type->type_strindex), "cpu");
	assert_string_equal(string(d, cpu->period_type->unit_strindex), "nanoseconds");
	assert_int_equal(cpu->period, SAMPLE_BATCH_PERIOD);
	assert_true(cpu->time_unix_nano == (uint64_t)SAMPLE_BATCH_START * 1000000000);
	assert_int_equal(cpu->duration_nano, 5000000000);
	assert_int_equal(cpu->profile_id.len, 0);
	assert_string_equal(string(d, off->sample_type->type_strindex), "off_cpu");
	assert_string_equal(string(d, off->sample_type->unit_strindex), "nanoseconds");
	assert_null(off->period_type);
	assert_int_equal(off->period, 0);
	assert_int_equal(off->n_samples, 1);
	assert_int_equal(off->samples[0]->values[0], 1500);
	free_request(r);
	otlp_requests_free(requests, 1);
}

static void samples_have_one_value_and_their_attributes(void **state)
{
	struct otlp_request *requests = encode_sample_batch(OTLP_G6);
	Request *r = decode(requests);
	const Dictionary *d = r->dictionary;
	const Otlp__Profile *p = r->resource_profiles[1]->scope_profiles[0]->profiles[0];
	const Otlp__Sample *s = p->samples[0];

	assert_int_equal(p->n_samples, 2);
	assert_int_equal(s->n_values, 1);
	assert_int_equal(s->values[0], 3);
	assert_int_equal(s->n_timestamps_unix_nano, 0);
	assert_int_equal(p->samples[1]->values[0], 1);
	assert_int_equal(s->stack_index, p->samples[1]->stack_index);
	assert_int_equal(s->n_attribute_indices, 5);
	assert_str(attribute(d, s->attribute_indices, 5, "thread.name"), "kube-apiserver");
	assert_int(attribute(d, s->attribute_indices, 5, "thread.id"), 2832);
	assert_int(attribute(d, s->attribute_indices, 5, "process.pid"), 2751);
	assert_str(attribute(d, s->attribute_indices, 5, "process.executable.name"),
		   "kube-apiserver");
	assert_str(attribute(d, s->attribute_indices, 5, "process.executable.path"),
		   "/usr/local/bin/kube-apiserver");
	/* The host's resource says what runs; its samples need not. */
	s = r->resource_profiles[0]->scope_profiles[0]->profiles[0]->samples[0];
	assert_int_equal(s->n_attribute_indices, 3);
	assert_null(attribute(d, s->attribute_indices, 3, "process.executable.name"));
	free_request(r);
	otlp_requests_free(requests, 1);
}

static void stacks_are_leaf_first_with_inlined_lines(void **state)
{
	struct otlp_request *requests = encode_sample_batch(OTLP_G6);
	Request *r = decode(requests);
	const Dictionary *d = r->dictionary;
	const Otlp__Sample *s = r->resource_profiles[0]->scope_profiles[0]->profiles[0]->samples[0];
	const Otlp__Stack *stack = d->stack_table[s->stack_index];
	const Otlp__Location *leaf = d->location_table[stack->location_indices[0]],
			     *root = d->location_table[stack->location_indices[2]];
	const Otlp__Mapping *m = d->mapping_table[leaf->mapping_index];
	const Otlp__Function *f = d->function_table[leaf->lines[0]->function_index];

	assert_int_equal(stack->n_location_indices, 3);
	assert_int_equal(leaf->address, 0x1234);
	assert_int_equal(leaf->n_lines, 2);
	assert_string_equal(string(d, f->name_strindex), "std::max<int>(int const&, int const&)");
	assert_string_equal(string(d, f->system_name_strindex), "_ZSt3maxIiERKT_S2_S2_");
	assert_string_equal(string(d, f->filename_strindex), "max.h");
	assert_int_equal(f->start_line, 3);
	assert_int_equal(leaf->lines[0]->line, 5);
	f = d->function_table[leaf->lines[1]->function_index];
	assert_string_equal(string(d, f->name_strindex), "work(int)");
	assert_str(
	    attribute(d, leaf->attribute_indices, leaf->n_attribute_indices, "profile.frame.type"),
	    "native");
	assert_int_equal(m->memory_start, 0x1000);
	assert_int_equal(m->memory_limit, 0x9000);
	assert_int_equal(m->file_offset, 0x1000);
	assert_string_equal(string(d, m->filename_strindex), "/opt/worker");
	assert_str(attribute(d, m->attribute_indices, m->n_attribute_indices,
			     "process.executable.build_id.gnu"),
		   "deadbeef");
	assert_int_equal(root->mapping_index, 0);
	assert_str(attribute(d, root->attribute_indices, 1, "profile.frame.type"), "cpython");
	free_request(r);
	otlp_requests_free(requests, 1);
}

/* A window that filled up counts without threads. */
static void what_has_no_thread_has_no_thread_id(void **state)
{
	struct batch_builder *b;
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct batch_sample s = {.value = 1, .thread_name = ""};
	struct otlp_request *requests;
	const Otlp__Sample *out;
	Request *r;
	size_t n;

	assert_int_equal(batch_builder_new(1, &b), 0);
	s.process = batch_add_process(b, 1, "", "");
	s.stack = batch_add_stack(b, NULL, 0);
	batch_add_sample(b, batch_add_resource(b, NULL, 0, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 9999, &batch), 0);
	requests = encode_batch(batch, OTLP_G6, 0, &n);
	r = decode(requests);
	out = r->resource_profiles[0]->scope_profiles[0]->profiles[0]->samples[0];
	assert_int_equal(out->n_attribute_indices, 1);
	assert_int(attribute(r->dictionary, out->attribute_indices, 1, "process.pid"), 1);
	free_request(r);
	otlp_requests_free(requests, n);
}

static void timestamps_replace_values(void **state)
{
	struct batch_builder *b;
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	uint64_t times[2] = {1000, 2000};
	struct batch_sample s = {.value = 2, .timestamps = times};
	struct otlp_request *requests;
	size_t n;

	assert_int_equal(batch_builder_new(1, &b), 0);
	s.process = batch_add_process(b, 1, "a", "/a");
	s.stack = batch_add_stack(b, NULL, 0);
	batch_add_sample(b, batch_add_resource(b, NULL, 0, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 9999, &batch), 0);
	requests = encode_batch(batch, OTLP_G6, 0, &n);
	Request *r = decode(requests);
	const Otlp__Sample *out =
	    r->resource_profiles[0]->scope_profiles[0]->profiles[0]->samples[0];

	assert_int_equal(out->n_values, 0);
	assert_int_equal(out->n_timestamps_unix_nano, 2);
	assert_int_equal(out->timestamps_unix_nano[1], 2000);
	assert_int_equal(requests[0].samples, 2);
	free_request(r);
	/* Values are there, packed and empty, before two timestamps: see add_sample(). */
	assert_non_null(memmem(requests[0].data, requests[0].len, "\x22\x00\x2a\x10", 4));
	otlp_requests_free(requests, n);
	requests = encode_batch(batch, OTLP_G5, 0, &n);
	assert_non_null(memmem(requests[0].data, requests[0].len, "\x12\x00\x2a\x10", 4));
	otlp_requests_free(requests, n);
}

static void resources_keep_at_most_26_attributes(void **state)
{
	struct batch_builder *b;
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct attr attrs[40];
	char keys[40][8];
	struct batch_sample s = {.value = 1};
	struct otlp_request *requests;
	size_t n;

	for (int i = 0; i < 40; i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%d", i);
		attrs[i] = (struct attr){.key = i ? keys[i] : "", .type = ATTR_STR, .str = "v"};
	}
	assert_int_equal(batch_builder_new(1, &b), 0);
	s.process = batch_add_process(b, 1, "a", "/a");
	s.stack = batch_add_stack(b, NULL, 0);
	batch_add_sample(b, batch_add_resource(b, attrs, 40, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	requests = encode_batch(batch, OTLP_G6, 0, &n);
	Request *r = decode(requests);

	assert_int_equal(r->resource_profiles[0]->resource->n_attributes, 26);
	assert_string_equal(r->resource_profiles[0]->resource->attributes[0]->key, "k1");
	assert_int_equal(r->resource_profiles[0]->resource->dropped_attributes_count, 14);
	free_request(r);
	otlp_requests_free(requests, n);
}

/* ---- splitting --------------------------------------------------------------------------------
 */

/* Marks the entries of the dictionary that are used; asserts that every index is valid. */
static void mark(bool *used, int64_t index, size_t n)
{
	assert_in_range(index, 0, n - 1);
	used[index] = true;
}

static int64_t check_request(const struct otlp_request *encoded)
{
	Request *r = decode(encoded);
	const Dictionary *d = r->dictionary;
	bool *stacks = calloc(d->n_stack_table, 1), *locations = calloc(d->n_location_table, 1),
	     *functions = calloc(d->n_function_table, 1), *strings = calloc(d->n_string_table, 1),
	     *attributes = calloc(d->n_attribute_table, 1);
	int64_t sum = 0;

	stacks[0] = locations[0] = functions[0] = strings[0] = attributes[0] = true;
	assert_in_range(r->n_resource_profiles, 1, 3);
	for (size_t i = 0; i < r->n_resource_profiles; i++) {
		const Otlp__ScopeProfiles *scope = r->resource_profiles[i]->scope_profiles[0];

		assert_int_equal(scope->n_profiles, 1);
		const Otlp__Profile *p = scope->profiles[0];

		mark(strings, p->sample_type->type_strindex, d->n_string_table);
		mark(strings, p->sample_type->unit_strindex, d->n_string_table);
		mark(strings, p->period_type->type_strindex, d->n_string_table);
		mark(strings, p->period_type->unit_strindex, d->n_string_table);
		assert_true(p->n_samples > 0);
		for (size_t j = 0; j < p->n_samples; j++) {
			const Otlp__Sample *s = p->samples[j];

			assert_int_equal(s->n_values, 1);
			sum += s->values[0];
			assert_int_not_equal(s->stack_index, 0);
			mark(stacks, s->stack_index, d->n_stack_table);
			for (size_t k = 0; k < s->n_attribute_indices; k++)
				mark(attributes, s->attribute_indices[k], d->n_attribute_table);
		}
	}
	for (size_t i = 1; i < d->n_stack_table; i++) {
		assert_int_equal(d->stack_table[i]->n_location_indices, 20);
		for (size_t k = 0; k < 20; k++)
			mark(locations, d->stack_table[i]->location_indices[k],
			     d->n_location_table);
	}
	for (size_t i = 1; i < d->n_location_table; i++) {
		const Otlp__Location *l = d->location_table[i];
		char name[64];

		assert_int_equal(l->mapping_index, 1);
		mark(functions, l->lines[0]->function_index, d->n_function_table);
		mark(attributes, l->attribute_indices[0], d->n_attribute_table);
		/*
		 * The address is made of the name's number: the location must still have that name
		 * after the split.
		 */
		snprintf(name, sizeof(name), "function_with_a_long_name_%u",
			 (unsigned int)l->address / 16);
		assert_string_equal(
		    string(d, d->function_table[l->lines[0]->function_index]->name_strindex), name);
	}
	for (size_t i = 1; i < d->n_function_table; i++) {
		mark(strings, d->function_table[i]->name_strindex, d->n_string_table);
		mark(strings, d->function_table[i]->system_name_strindex, d->n_string_table);
		mark(strings, d->function_table[i]->filename_strindex, d->n_string_table);
	}
	for (size_t i = 1; i < d->n_mapping_table; i++) {
		mark(strings, d->mapping_table[i]->filename_strindex, d->n_string_table);
		mark(attributes, d->mapping_table[i]->attribute_indices[0], d->n_attribute_table);
	}
	for (size_t i = 0; i < d->n_attribute_table; i++)
		mark(strings, d->attribute_table[i]->key_strindex, d->n_string_table);
	for (size_t i = 0; i < d->n_stack_table; i++)
		assert_true(stacks[i]);
	for (size_t i = 0; i < d->n_location_table; i++)
		assert_true(locations[i]);
	for (size_t i = 0; i < d->n_function_table; i++)
		assert_true(functions[i]);
	for (size_t i = 0; i < d->n_attribute_table; i++)
		assert_true(attributes[i]);
	for (size_t i = 0; i < d->n_string_table; i++) {
		assert_true(strings[i]);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(d->string_table[i], d->string_table[j]);
	}
	free(stacks);
	free(locations);
	free(functions);
	free(strings);
	free(attributes);
	free_request(r);
	return sum;
}

static void split_requests_lose_nothing_and_stand_alone(void **state)
{
	static const size_t limits[] = {0, 100000, 20000, 5000};
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	int64_t dropped = metric_get(M_OTLP_OVERSIZE_SAMPLES);
	struct otlp_request *requests;
	size_t n, last = 0;

	assert_int_equal(sample_batch_large(1000, &batch), 0);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		int64_t sum = 0;

		requests = encode_batch(batch, OTLP_G6, limits[i], &n);
		assert_true(n > last);
		last = n;
		for (size_t j = 0; j < n; j++) {
			assert_int_equal(check_request(&requests[j]), requests[j].samples);
			sum += requests[j].samples;
			if (limits[i])
				assert_in_range(requests[j].len, 1, limits[i]);
		}
		assert_int_equal(sum, batch_cpu_samples(batch));
		otlp_requests_free(requests, n);
	}
	assert_int_equal(metric_get(M_OTLP_OVERSIZE_SAMPLES), dropped);
}

static void labels_of_a_sample_are_attributes(void **state)
{
	const struct batch_label labels[] = {{"trace_id", "0af7"}, {"user", "x"}};
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct otlp_request *requests;
	const Otlp__Sample *sample;
	struct batch_builder *b;
	struct batch_sample s = {.value = 5};
	Request *r;
	size_t n;

	assert_int_equal(batch_builder_new(1, &b), 0);
	s.stack = batch_add_stack(b, NULL, 0);
	s.process = batch_add_process(b, 1, "p", "");
	s.labels = batch_add_labels(b, labels, 2);
	batch_add_sample(b, batch_add_resource(b, NULL, 0, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	requests = encode_batch(batch, OTLP_G6, 0, &n);
	assert_int_equal(n, 1);
	r = decode(requests);
	sample = r->resource_profiles[0]->scope_profiles[0]->profiles[0]->samples[0];
	assert_str(attribute(r->dictionary, sample->attribute_indices, sample->n_attribute_indices,
			     "trace_id"),
		   "0af7");
	assert_str(attribute(r->dictionary, sample->attribute_indices, sample->n_attribute_indices,
			     "user"),
		   "x");
	free_request(r);
	otlp_requests_free(requests, n);
}

/* In each generation the link's index has its own field, and link 0 is empty. */
static void a_trace_is_a_link(void **state)
{
	static const char trace[] = "0af7651916cd43dd8448eb211c80319c", span[] = "b7ad6b7169203331";
	const struct batch_label linked[] = {{"trace_id", trace}, {"span_id", span}, {"user", "x"}};
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct batch_sample s = {.value = 5};
	struct batch_builder *b;
	uint32_t resource;

	assert_int_equal(batch_builder_new(1, &b), 0);
	s.stack = batch_add_stack(b, NULL, 0);
	s.process = batch_add_process(b, 1, "p", "");
	resource = batch_add_resource(b, NULL, 0, "");
	batch_add_sample(b, resource, PROFILE_CPU, 1, &s);
	s.labels = batch_add_labels(b, linked, 3);
	batch_add_sample(b, resource, PROFILE_CPU, 1, &s);
	s.tid = 1;
	batch_add_sample(b, resource, PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	for (int g = OTLP_G4; g <= OTLP_G6; g++) {
		size_t n;
		struct otlp_request *requests = encode_batch(batch, (enum otlp_generation)g, 0, &n);
		const Otlp__Profile *profile;
		Request *r;

		assert_int_equal(n, 1);
		assert_int_equal(
		    otlp_convert(requests->data, requests->len, (enum otlp_generation)g, OTLP_G6),
		    0);
		r = decode(requests);
		profile = r->resource_profiles[0]->scope_profiles[0]->profiles[0];
		assert_int_equal(r->dictionary->n_link_table, 2);
		assert_int_equal(r->dictionary->link_table[0]->trace_id.len, 0);
		assert_int_equal(r->dictionary->link_table[1]->trace_id.len, 16);
		assert_int_equal(r->dictionary->link_table[1]->trace_id.data[1], 0xf7);
		assert_int_equal(r->dictionary->link_table[1]->span_id.len, 8);
		assert_int_equal(r->dictionary->link_table[1]->span_id.data[7], 0x31);
		assert_int_equal(profile->n_samples, 3);
		assert_int_equal(profile->samples[0]->link_index, 0);
		for (size_t i = 1; i < 3; i++) {
			const Otlp__Sample *sample = profile->samples[i];

			assert_int_equal(sample->link_index, 1);
			assert_str(attribute(r->dictionary, sample->attribute_indices,
					     sample->n_attribute_indices, "user"),
				   "x");
			assert_null(attribute(r->dictionary, sample->attribute_indices,
					      sample->n_attribute_indices, "trace_id"));
		}
		free_request(r);
		otlp_requests_free(requests, n);
	}
}

static void a_sample_that_never_fits_is_dropped_and_counted(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	int64_t dropped = metric_get(M_OTLP_OVERSIZE_SAMPLES), sum = 0;
	struct otlp_request *requests;
	struct batch_builder *b;
	struct batch_sample s = {.value = 5};
	struct batch_line line = {0};
	char name[6000];
	uint32_t l;
	size_t n;

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_int_equal(batch_builder_new(1, &b), 0);
	s.process = batch_add_process(b, 1, "a", "/a");
	for (uint32_t i = 0, r = batch_add_resource(b, NULL, 0, ""); i < 3; i++) {
		line.function = batch_add_function(b, i == 1 ? name : "f", NULL, "", i);
		l = batch_add_location(b, BATCH_NO_MAPPING, i, FRAME_GO, &line, 1);
		s.stack = batch_add_stack(b, &l, 1);
		batch_add_sample(b, r, PROFILE_CPU, 1, &s);
	}
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	requests = encode_batch(batch, OTLP_G6, 4000, &n);
	assert_int_equal(n, 2);
	for (size_t i = 0; i < n; i++)
		sum += requests[i].samples;
	assert_int_equal(sum, 10);
	assert_int_equal(metric_get(M_OTLP_OVERSIZE_SAMPLES) - dropped, 5);
	otlp_requests_free(requests, n);
}

static void an_empty_batch_gives_no_request(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct otlp_request *requests;
	struct batch_builder *b;
	size_t n;

	assert_int_equal(batch_builder_new(1, &b), 0);
	batch_add_resource(b, NULL, 0, "");
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	requests = encode_batch(batch, OTLP_G6, 0, &n);
	assert_int_equal(n, 0);
	otlp_requests_free(requests, n);
}

static void every_failing_allocation_is_survived(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct otlp_options options = {.max_bytes = 5000};
	bool failed = true;
	long n = 0;

	assert_int_equal(sample_batch_large(60, &batch), 0);
	for (; failed; n++) {
		struct otlp_request *requests = NULL;
		struct error err = {0};
		size_t count = 0;
		int r;

		failalloc_at(n);
		r = otlp_encode(batch, &options, &requests, &count, &err);
		failed = failalloc_stop();
		assert_int_equal(r, failed ? -ENOMEM : 0);
		assert_int_equal(err.code, r);
		if (!failed)
			otlp_requests_free(requests, count);
	}
	assert_in_range(n, 20, 10000);
}

/* ---- the wire of the older generations --------------------------------------------------------
 */

/* The content of the first length-delimited FIELD in C. */
static struct cursor find_field(struct cursor c, unsigned int field)
{
	while (cursor_left(&c)) {
		uint64_t tag = cursor_uleb(&c);

		if ((tag & 7) == 2) {
			struct cursor content = cursor_sub(&c, cursor_uleb(&c));

			if (tag >> 3 == field)
				return content;
		} else if ((tag & 7) == 1) {
			cursor_skip(&c, 8);
		} else {
			assert_int_equal(tag & 7, 0);
			cursor_uleb(&c);
		}
		assert_false(c.bad);
	}
	fail_msg("no field %u", field);
	return c;
}

/* Request.resource_profiles[0].scope_profiles[0].profiles[0] */
static struct cursor first_profile(const struct otlp_request *r)
{
	return find_field(find_field(find_field(cursor_of(r->data, r->len), 1), 2), 2);
}

static void sample_tags_are_those_of_the_generation(void **state)
{
	/* The worker's sample: 3 attributes, value 2. v1.8.0 and v1.9.0: values=2, attributes=3. */
	static const struct {
		enum otlp_generation generation;
		unsigned int values, attributes;
	} cases[] = {{OTLP_G4, 2, 3}, {OTLP_G5, 2, 3}, {OTLP_G6, 4, 2}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct otlp_request *requests = encode_sample_batch(cases[i].generation);
		struct cursor sample = find_field(first_profile(requests), 2);
		struct cursor values = find_field(sample, cases[i].values),
			      attributes = find_field(sample, cases[i].attributes);

		assert_int_equal(cursor_uleb(&sample), 1 << 3); /* stack_index */
		assert_int_equal(values.size, 1);
		assert_int_equal(cursor_uleb(&values), 2);
		assert_int_equal(attributes.size, 3);
		otlp_requests_free(requests, 1);
	}
}

static void g4_and_g5_are_the_same_bytes_and_end_before_field_7(void **state)
{
	struct otlp_request *g4 = encode_sample_batch(OTLP_G4), *g5 = encode_sample_batch(OTLP_G5);
	struct cursor c = first_profile(g4);

	assert_int_equal(g4->len, g5->len);
	assert_memory_equal(g4->data, g5->data, g4->len);
	while (cursor_left(&c)) {
		uint64_t tag = cursor_uleb(&c);

		assert_in_range(tag >> 3, 1, 6);
		if ((tag & 7) == 2)
			cursor_skip(&c, cursor_uleb(&c));
		else if ((tag & 7) == 1)
			cursor_skip(&c, 8);
		else
			cursor_uleb(&c);
	}
	assert_false(c.bad);
	otlp_requests_free(g4, 1);
	otlp_requests_free(g5, 1);
}

static void assert_same_field(struct cursor a, unsigned int field_a, struct cursor b,
			      unsigned int field_b)
{
	struct cursor x = find_field(a, field_a), y = find_field(b, field_b);

	assert_int_equal(x.size, y.size);
	assert_memory_equal(x.data, y.data, x.size);
}

static void a_request_of_one_generation_becomes_one_of_another(void **state)
{
	struct otlp_request *made = encode_sample_batch(OTLP_G6),
			    *g5 = encode_sample_batch(OTLP_G5);
	_cleanup_free_ uint8_t *data = malloc(made->len);
	struct otlp_request converted = {.data = data, .len = made->len};
	struct cursor profile, want = first_profile(g5);

	assert_non_null(data);
	memcpy(data, made->data, made->len);
	assert_int_equal(otlp_convert(data, made->len, OTLP_G6, OTLP_G5), 0);
	profile = first_profile(&converted);
	assert_same_field(find_field(profile, 2), 2, find_field(want, 2), 2);
	assert_same_field(find_field(profile, 2), 3, find_field(want, 2), 3);
	/* Other fields than the samples have not changed, e.g. the type of the values. */
	assert_same_field(profile, 1, want, 1);
	assert_int_equal(otlp_convert(data, made->len, OTLP_G4, OTLP_G5), 0);
	assert_int_equal(otlp_convert(data, made->len, OTLP_G4, OTLP_G6), 0);
	assert_memory_equal(data, made->data, made->len);
	otlp_requests_free(made, 1);
	otlp_requests_free(g5, 1);
}

static void damaged_requests_are_not_converted(void **state)
{
	struct otlp_request *made = encode_sample_batch(OTLP_G6);
	/* A group; a length beyond the end; a field 0. */
	uint8_t bad[][4] = {{0x0b, 0, 0, 0}, {0x0a, 0x7f, 0, 0}, {0x02, 0x01, 0, 0}};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(otlp_convert(bad[i], sizeof(bad[i]), OTLP_G6, OTLP_G5), -EBADMSG);
	/* Cut off anywhere: an answer, and no byte beyond is touched. */
	for (size_t n = 0; n < made->len; n++) {
		_cleanup_free_ uint8_t *data = malloc(n + 1);

		assert_non_null(data);
		memcpy(data, made->data, n);
		assert_in_range(-otlp_convert(data, n, OTLP_G6, OTLP_G5), 0, EBADMSG);
	}
	otlp_requests_free(made, 1);
}

static void generations_are_known_by_name(void **state)
{
	enum otlp_generation g = OTLP_G4;

	assert_int_equal(otlp_generation_parse("auto", &g), 0);
	assert_int_equal(g, OTLP_G6);
	assert_int_equal(otlp_generation_parse("v1.9", &g), 0);
	assert_int_equal(g, OTLP_G5);
	assert_int_equal(otlp_generation_parse("v1.7", &g), -EINVAL);
	assert_int_equal(g, OTLP_G5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(labels_of_a_sample_are_attributes),
	    cmocka_unit_test(a_trace_is_a_link),
	    cmocka_unit_test(entry_0_of_every_table_is_the_empty_message),
	    cmocka_unit_test(resources_have_plain_keys_and_typed_values),
	    cmocka_unit_test(profiles_have_type_period_and_time),
	    cmocka_unit_test(samples_have_one_value_and_their_attributes),
	    cmocka_unit_test(stacks_are_leaf_first_with_inlined_lines),
	    cmocka_unit_test(what_has_no_thread_has_no_thread_id),
	    cmocka_unit_test(timestamps_replace_values),
	    cmocka_unit_test(resources_keep_at_most_26_attributes),
	    cmocka_unit_test(split_requests_lose_nothing_and_stand_alone),
	    cmocka_unit_test(a_sample_that_never_fits_is_dropped_and_counted),
	    cmocka_unit_test(an_empty_batch_gives_no_request),
	    cmocka_unit_test(every_failing_allocation_is_survived),
	    cmocka_unit_test(sample_tags_are_those_of_the_generation),
	    cmocka_unit_test(g4_and_g5_are_the_same_bytes_and_end_before_field_7),
	    cmocka_unit_test(a_request_of_one_generation_becomes_one_of_another),
	    cmocka_unit_test(damaged_requests_are_not_converted),
	    cmocka_unit_test(generations_are_known_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
