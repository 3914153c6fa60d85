/* SPDX-License-Identifier: Apache-2.0 */
/* pprof and folded output: read back with protobuf-c, by eye, and by `go tool pprof`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <zlib.h>

#include "agent/profile/folded.h"
#include "agent/profile/pprof.h"
#include "pprof/profile.pb-c.h"
#include "tests/support/failalloc.h"
#include "tests/support/sample_batch.h"

static Pprof__Profile *decode(const struct buf *gz)
{
	static uint8_t raw[8 << 20];
	z_stream z = {.next_in = (Bytef *)gz->data,
		      .avail_in = (uInt)gz->len,
		      .next_out = raw,
		      .avail_out = sizeof(raw)};
	Pprof__Profile *p;

	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(z.avail_in, 0);
	inflateEnd(&z);
	p = pprof__profile__unpack(NULL, z.total_out, raw);
	assert_non_null(p);
	return p;
}

static const char *name(const Pprof__Profile *p, int64_t i)
{
	assert_in_range(i, 0, p->n_string_table - 1);
	return p->string_table[i];
}

static const Pprof__Label *label(const Pprof__Profile *p, const Pprof__Sample *s, const char *key)
{
	for (size_t i = 0; i < s->n_label; i++)
		if (streq(name(p, s->label[i]->key), key))
			return s->label[i];
	return NULL;
}

/*
 * Ids must count from 1 without gaps, so that id - 1 is the index; every reference must be valid.
 */
static void check_references(const Pprof__Profile *p)
{
	for (size_t i = 0; i < p->n_function; i++)
		assert_int_equal(p->function[i]->id, i + 1);
	for (size_t i = 0; i < p->n_mapping; i++)
		assert_int_equal(p->mapping[i]->id, i + 1);
	for (size_t i = 0; i < p->n_location; i++) {
		assert_int_equal(p->location[i]->id, i + 1);
		assert_in_range(p->location[i]->mapping_id, 0, p->n_mapping);
		for (size_t j = 0; j < p->location[i]->n_line; j++)
			assert_in_range(p->location[i]->line[j]->function_id, 1, p->n_function);
	}
	for (size_t i = 0; i < p->n_sample; i++)
		for (size_t j = 0; j < p->sample[i]->n_location_id; j++)
			assert_in_range(p->sample[i]->location_id[j], 1, p->n_location);
	assert_string_equal(p->string_table[0], "");
}

static void a_profile_has_samples_labels_and_lines(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct buf out;
	struct error err = {0};

	assert_int_equal(sample_batch_build(&batch), 0);
	buf_init(&out, 1 << 20);
	assert_int_equal(
	    pprof_encode((const struct batch *const[]){batch, batch}, 2, NULL, &out, &err), 0);
	Pprof__Profile *p = decode(&out);
	const Pprof__Sample *worker = p->sample[0], *api = p->sample[1];
	const Pprof__Location *leaf = p->location[worker->location_id[0] - 1];
	const Pprof__Function *f = p->function[leaf->line[0]->function_id - 1];

	check_references(p);
	assert_int_equal(p->n_sample, 3); /* both batches are merged, off-CPU time too */
	assert_string_equal(name(p, p->sample_type[0]->type), "samples");
	assert_string_equal(name(p, p->sample_type[1]->type), "cpu");
	assert_string_equal(name(p, p->sample_type[1]->unit), "nanoseconds");
	assert_string_equal(name(p, p->default_sample_type), "cpu");
	assert_int_equal(p->period, SAMPLE_BATCH_PERIOD);
	assert_int_equal(p->time_nanos, (int64_t)SAMPLE_BATCH_START * 1000000000);
	assert_int_equal(p->duration_nanos, 5000000000);
	assert_int_equal(worker->value[0], 4);
	assert_int_equal(worker->value[1], 4 * (int64_t)SAMPLE_BATCH_PERIOD);
	assert_int_equal(worker->n_location_id, 3);
	assert_string_equal(name(p, f->name), "std::max<int>(int const&, int const&)");
	assert_string_equal(name(p, f->system_name), "_ZSt3maxIiERKT_S2_S2_");
	assert_int_equal(leaf->n_line, 2);
	assert_int_equal(leaf->line[1]->line, 12);
	assert_int_equal(leaf->address, 0x1234);
	assert_string_equal(name(p, p->mapping[leaf->mapping_id - 1]->build_id), "deadbeef");
	assert_int_equal(api->value[0], 6);
	assert_int_equal(label(p, api, "pid")->num, 2751);
	assert_int_equal(label(p, api, "thread")->num, 2832);
	assert_string_equal(name(p, label(p, api, "thread_name")->str), "kube-apiserver");
	assert_string_equal(name(p, label(p, api, "process")->str), "kube-apiserver");
	assert_int_equal(strlen(name(p, label(p, api, "container_id")->str)), 64);
	assert_null(label(p, worker, "container_id"));
	assert_int_equal(p->n_comment, 0); /* the two resources share nothing */
	pprof__profile__free_unpacked(p, NULL);
	buf_done(&out);
}

/* As `go tool pprof` shows it: "File: shop". */
static void the_first_mapping_is_the_programs(void **state)
{
	static const char *const files[] = {"[kernel.kallsyms]", "/lib/libc.so.6", "/opt/shop",
					    "/lib/libc.so.6"};
	static const char *const programs[] = {"/opt/shop", "/opt/other"};

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		_cleanup_(batch_unrefp) struct batch *batch = NULL;
		struct batch_sample sample = {.thread_name = "shop", .value = 1};
		struct batch_builder *b;
		uint32_t frames[ARRAY_SIZE(files)];
		const struct batch *one;
		struct buf out;

		assert_int_equal(batch_builder_new(0, &b), 0);
		for (uint32_t f = 0; f < ARRAY_SIZE(files); f++) {
			struct batch_line line = {batch_add_function(b, "f", "f", "", 0), f + 1};
			struct batch_mapping mapping = {.filename = files[f],
							.build_id_gnu = "",
							.build_id_go = "",
							.htlhash = files[f]};

			frames[f] = batch_add_location(b, batch_add_mapping(b, &mapping), f + 1,
						       FRAME_NATIVE, &line, 1);
		}
		sample.stack = batch_add_stack(b, frames, ARRAY_SIZE(files));
		sample.process = batch_add_process(b, 7, "shop", programs[i]);
		batch_add_sample(b, batch_add_resource(b, NULL, 0, ""), PROFILE_OFF_CPU, 0,
				 &sample);
		assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
		one = batch;
		buf_init(&out, 1 << 20);
		assert_int_equal(pprof_encode(&one, 1, NULL, &out, NULL), 0);
		Pprof__Profile *p = decode(&out);

		check_references(p);
		assert_int_equal(p->n_mapping, 3);
		assert_string_equal(name(p, p->mapping[0]->filename),
				    i ? "/lib/libc.so.6" : "/opt/shop");
		pprof__profile__free_unpacked(p, NULL);
		buf_done(&out);
	}
}

static void a_filter_takes_one_process(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct pprof_filter filter = {.pid = 77};
	const struct batch *one;
	struct buf out;

	assert_int_equal(sample_batch_build(&batch), 0);
	one = batch;
	buf_init(&out, 1 << 20);
	assert_int_equal(pprof_encode(&one, 1, &filter, &out, NULL), 0);
	Pprof__Profile *p = decode(&out);

	assert_int_equal(p->n_sample, 1);
	assert_int_equal(p->sample[0]->value[0], 2);
	assert_int_equal(p->n_comment, 1);
	assert_string_equal(name(p, p->comment[0]),
			    "service.name=worker process.executable.name=worker "
			    "process.executable.path=/opt/worker host.cpus=0 host.virtual=true");
	pprof__profile__free_unpacked(p, NULL);
	buf_done(&out);
}

/* One stack with CPU samples and hits of PROBES probes; probe N has N + 1 hits. */
static void build_probed(int probes, struct batch **ret)
{
	const struct attr attr = {.key = "service.name", .type = ATTR_STR, .str = "x"};
	struct batch_sample s = {.value = 3};
	struct batch_builder *b;
	uint32_t resource;
	char text[32];

	assert_int_equal(batch_builder_new(1, &b), 0);
	resource = batch_add_resource(b, &attr, 1, "");
	s.process = batch_add_process(b, 1, "a", "/a");
	s.stack = batch_add_stack(b, NULL, 0);
	batch_add_sample(b, resource, PROFILE_CPU, 1000, &s);
	s.value = 1;
	for (int i = probes; i-- > 0;) {
		snprintf(text, sizeof(text), "kprobe:f%d", i);
		for (int j = 0; j <= i; j++)
			batch_add_probe_sample(b, resource, text, &s);
	}
	assert_int_equal(batch_builder_finish(b, 1, ret), 0);
}

static void each_probe_is_a_column(void **state)
{
	_cleanup_(pprof_builder_freep) struct pprof_builder *builder = NULL;
	_cleanup_(batch_unrefp) struct batch *one = NULL, *many = NULL;
	struct buf out;

	build_probed(1, &one);
	build_probed(40, &many);
	assert_int_equal(one->n_profiles, 2);
	assert_int_equal(many->n_profiles, 41);
	assert_string_equal(batch_sample_type(&many->profiles[1]), "kprobe:f0");
	buf_init(&out, 1 << 20);
	assert_int_equal(pprof_builder_new(1 << 20, &builder), 0);
	assert_int_equal(pprof_builder_add(builder, one, NULL), 0);
	assert_int_equal(pprof_builder_add(builder, many, NULL), 0);
	assert_int_equal(pprof_builder_encode(builder, &out, NULL), 0);
	Pprof__Profile *p = decode(&out);

	check_references(p);
	/* 32 probes have columns of their own, the others share one. */
	assert_int_equal(p->n_sample_type, 2 + 1 + 32);
	assert_int_equal(p->n_sample, 1);
	assert_int_equal(p->sample[0]->n_value, 2 + 1 + 32);
	assert_int_equal(p->sample[0]->value[0], 6);
	assert_int_equal(p->sample[0]->value[1], 6000);
	assert_string_equal(name(p, p->sample_type[2]->type), "events");
	assert_string_equal(name(p, p->sample_type[3]->type), "kprobe:f0");
	assert_string_equal(name(p, p->sample_type[3]->unit), "count");
	assert_int_equal(p->sample[0]->value[3], 2);
	int64_t sum = 0;

	for (size_t i = 2; i < p->n_sample_type; i++)
		sum += p->sample[0]->value[i];
	assert_int_equal(sum, 1 + 40 * 41 / 2);
	pprof__profile__free_unpacked(p, NULL);
	/* After a reset the columns are those of the new samples. */
	pprof_builder_reset(builder);
	buf_reset(&out);
	assert_int_equal(pprof_builder_add(builder, one, NULL), 0);
	assert_int_equal(pprof_builder_encode(builder, &out, NULL), 0);
	p = decode(&out);
	assert_int_equal(p->n_sample_type, 3);
	assert_int_equal(p->sample[0]->value[2], 1);
	pprof__profile__free_unpacked(p, NULL);
	buf_done(&out);
}

static void the_comment_is_what_all_resources_share(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct attr attrs[2] = {{.key = "service.name", .type = ATTR_STR},
				{.key = "host.name", .type = ATTR_STR, .str = "node"}};
	const struct batch *two[2];
	struct batch_sample s = {.value = 1};
	struct batch_builder *b;
	struct buf out;

	assert_int_equal(batch_builder_new(1, &b), 0);
	s.process = batch_add_process(b, 1, "a", "/a");
	s.stack = batch_add_stack(b, NULL, 0);
	for (int i = 0; i < 3; i++) {
		attrs[0].str = (const char *const[]){"x", "y", "z"}[i];
		batch_add_sample(b, batch_add_resource(b, attrs, 2, ""), PROFILE_CPU, 1, &s);
	}
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	two[0] = two[1] = batch;
	buf_init(&out, 1 << 20);
	assert_int_equal(pprof_encode(two, 2, NULL, &out, NULL), 0);
	Pprof__Profile *p = decode(&out);

	assert_int_equal(p->n_comment, 1);
	assert_string_equal(name(p, p->comment[0]), "host.name=node");
	pprof__profile__free_unpacked(p, NULL);
	buf_done(&out);
}

static int64_t total(const Pprof__Profile *p)
{
	int64_t sum = 0;

	for (size_t i = 0; i < p->n_sample; i++)
		sum += p->sample[i]->value[0];
	return sum;
}

/* The count of the sample whose leaf is "[profile full]". */
static int64_t overflow_count(const Pprof__Profile *p)
{
	for (size_t i = 0; i < p->n_sample; i++) {
		const Pprof__Location *l = p->location[p->sample[i]->location_id[0] - 1];

		if (streq(name(p, p->function[l->line[0]->function_id - 1]->name),
			  "[profile full]"))
			return p->sample[i]->value[0];
	}
	return 0;
}

static void a_full_builder_keeps_totals(void **state)
{
	_cleanup_(pprof_builder_freep) struct pprof_builder *builder = NULL;
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct buf out;

	assert_int_equal(sample_batch_large(1000, &batch), 0);
	assert_int_equal(pprof_builder_new(50000, &builder), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pprof_builder_add(builder, batch, NULL), 0);
	buf_init(&out, 1 << 20);
	assert_int_equal(pprof_builder_encode(builder, &out, NULL), 0);
	Pprof__Profile *p = decode(&out);

	check_references(p);
	assert_in_range(p->n_sample, 10, 900);
	assert_int_equal(total(p), 3 * batch_cpu_samples(batch));
	assert_in_range(pprof_builder_overflow(builder), 1, total(p) - 1);
	assert_int_equal(overflow_count(p), pprof_builder_overflow(builder));
	pprof__profile__free_unpacked(p, NULL);

	/* After a reset the builder is empty, the overflow count too. */
	pprof_builder_reset(builder);
	batch_unref(TAKE_PTR(batch));
	assert_int_equal(sample_batch_build(&batch), 0);
	assert_int_equal(pprof_builder_add(builder, batch, NULL), 0);
	buf_reset(&out);
	assert_int_equal(pprof_builder_encode(builder, &out, NULL), 0);
	p = decode(&out);
	assert_int_equal(p->n_sample, 3);
	assert_int_equal(total(p), 6);
	pprof__profile__free_unpacked(p, NULL);
	buf_done(&out);
}

static void every_failing_allocation_is_survived(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	const struct batch *one;
	bool failed = true;
	long n = 0;

	assert_int_equal(sample_batch_large(60, &batch), 0);
	one = batch;
	for (; failed; n++) {
		struct buf out;
		int r;

		buf_init(&out, 1 << 20);
		failalloc_at(n);
		r = pprof_encode(&one, 1, NULL, &out, NULL);
		failed = failalloc_stop();
		assert_int_equal(r, failed ? -ENOMEM : 0);
		buf_done(&out);
	}
	assert_in_range(n, 20, 10000);
}

static void a_builder_works_on_after_a_failure(void **state)
{
	_cleanup_(pprof_builder_freep) struct pprof_builder *builder = NULL;
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct buf out;

	assert_int_equal(sample_batch_large(60, &batch), 0);
	for (long n = 0; n < 40; n++) {
		assert_int_equal(pprof_builder_new(1 << 24, &builder), 0);
		failalloc_at(n);
		int r = pprof_builder_add(builder, batch, NULL);

		assert_int_equal(r, failalloc_stop() ? -ENOMEM : 0);
		assert_int_equal(pprof_builder_add(builder, batch, NULL), 0);
		buf_init(&out, 1 << 20);
		assert_int_equal(pprof_builder_encode(builder, &out, NULL), 0);
		Pprof__Profile *p = decode(&out);

		check_references(p);
		assert_in_range(total(p), batch_cpu_samples(batch), 2 * batch_cpu_samples(batch));
		pprof__profile__free_unpacked(p, NULL);
		buf_done(&out);
		builder = pprof_builder_free(builder);
	}
}

static void go_tool_pprof_opens_it(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	const struct batch *one;
	char path[] = "/tmp/kiln-test-XXXXXX", command[256], text[8192];
	struct buf out;
	size_t n;
	FILE *f;
	int fd;

	if (system("go version >/dev/null 2>&1") != 0)
		skip();
	assert_int_equal(sample_batch_build(&batch), 0);
	one = batch;
	buf_init(&out, 1 << 20);
	assert_int_equal(pprof_encode(&one, 1, NULL, &out, NULL), 0);
	fd = mkstemp(path);
	assert_true(fd >= 0 && write(fd, out.data, out.len) == (ssize_t)out.len);
	close(fd);
	snprintf(command, sizeof(command), "go tool pprof -top %s 2>&1", path);
	f = popen(command, "r");
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	assert_int_equal(pclose(f), 0);
	unlink(path);
	assert_non_null(strstr(text, "Type: cpu"));
	assert_non_null(strstr(text, "Total samples = 300ms"));
	assert_non_null(strstr(text, "200ms 66.67% 66.67%      200ms 66.67%  x64_sys_call"));
	assert_non_null(strstr(text, "runtime.goexit"));
	assert_non_null(strstr(text, "std::max"));
	buf_done(&out);
}

static void labels_of_a_sample_are_labels(void **state)
{
	const struct batch_label labels[] = {{"trace_id", "0af7"}};
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	const struct batch *batches[1];
	struct batch_builder *b;
	struct batch_sample s = {.value = 1};
	struct buf out;

	assert_int_equal(batch_builder_new(1, &b), 0);
	s.stack = batch_add_stack(b, NULL, 0);
	s.process = batch_add_process(b, 1, "p", "");
	s.labels = batch_add_labels(b, labels, 1);
	batch_add_sample(b, batch_add_resource(b, NULL, 0, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	batches[0] = batch;
	buf_init(&out, 1 << 20);
	assert_int_equal(pprof_encode(batches, 1, NULL, &out, NULL), 0);
	Pprof__Profile *p = decode(&out);

	assert_int_equal(p->n_sample, 1);
	assert_string_equal(name(p, label(p, p->sample[0], "trace_id")->str), "0af7");
	pprof__profile__free_unpacked(p, NULL);
	buf_done(&out);
}

/* ---- folded -----------------------------------------------------------------------------------
 */

static void folded_lines_are_root_first(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	_cleanup_(folded_freep) struct folded *f = NULL;
	struct buf out;

	assert_int_equal(sample_batch_build(&batch), 0);
	assert_int_equal(folded_new(1 << 20, PROFILE_CPU, &f), 0);
	assert_int_equal(folded_add(f, batch), 0);
	assert_int_equal(folded_add(f, batch), 0);
	buf_init(&out, 1 << 20);
	assert_int_equal(folded_write(f, &out), 0);
	assert_string_equal(
	    out.data, "kube-apiserver;runtime.goexit;syscall.write;"
		      "internal/runtime/syscall.Syscall6;do_syscall_64;x64_sys_call 8\n"
		      "worker;<module>;main;work(int);std::max<int>(int const&, int const&) 4\n");
	folded_reset(f);
	assert_int_equal(folded_add(f, batch), 0);
	buf_reset(&out);
	assert_int_equal(folded_write(f, &out), 0);
	assert_non_null(strstr(out.data, "x64_sys_call 4\n"));
	buf_done(&out);
}

static void folded_names_cannot_break_a_line(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	_cleanup_(folded_freep) struct folded *f = NULL;
	struct batch_builder *b;
	struct batch_sample s = {.value = 1};
	struct batch_line line;
	struct buf out;
	uint32_t l;

	assert_int_equal(batch_builder_new(1, &b), 0);
	line = (struct batch_line){.function = batch_add_function(b, "Lcom/x;\nfoo", "", "", 0)};
	l = batch_add_location(b, BATCH_NO_MAPPING, 0, FRAME_JVM, &line, 1);
	s.stack = batch_add_stack(b, &l, 1);
	s.process = batch_add_process(b, 1, "a;b", "");
	batch_add_sample(b, batch_add_resource(b, NULL, 0, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	assert_int_equal(folded_new(1 << 20, PROFILE_CPU, &f), 0);
	assert_int_equal(folded_add(f, batch), 0);
	buf_init(&out, 1 << 20);
	assert_int_equal(folded_write(f, &out), 0);
	assert_string_equal(out.data, "a:b;Lcom/x: foo 1\n");
	buf_done(&out);
}

static void a_full_folded_profile_keeps_totals(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	_cleanup_(folded_freep) struct folded *f = NULL;
	struct buf out;
	int64_t sum = 0;
	char *line, *rest;

	assert_int_equal(sample_batch_large(500, &batch), 0);
	assert_int_equal(folded_new(30000, PROFILE_CPU, &f), 0);
	assert_int_equal(folded_add(f, batch), 0);
	assert_int_equal(folded_add(f, batch), 0);
	buf_init(&out, 1 << 20);
	assert_int_equal(folded_write(f, &out), 0);
	assert_in_range(out.len, 1000, 40000);
	assert_non_null(strstr(out.data, "worker;[profile full] "));
	for (line = strtok_r(out.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		sum += atoll(strrchr(line, ' '));
	assert_int_equal(sum, 2 * batch_cpu_samples(batch));
	buf_done(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(labels_of_a_sample_are_labels),
	    cmocka_unit_test(a_profile_has_samples_labels_and_lines),
	    cmocka_unit_test(the_first_mapping_is_the_programs),
	    cmocka_unit_test(a_filter_takes_one_process),
	    cmocka_unit_test(each_probe_is_a_column),
	    cmocka_unit_test(the_comment_is_what_all_resources_share),
	    cmocka_unit_test(a_full_builder_keeps_totals),
	    cmocka_unit_test(every_failing_allocation_is_survived),
	    cmocka_unit_test(a_builder_works_on_after_a_failure),
	    cmocka_unit_test(go_tool_pprof_opens_it),
	    cmocka_unit_test(folded_lines_are_root_first),
	    cmocka_unit_test(folded_names_cannot_break_a_line),
	    cmocka_unit_test(a_full_folded_profile_keeps_totals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
