/* SPDX-License-Identifier: Apache-2.0 */
/* What people read, letter by letter: the text dump and the table of top functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/export/render.h"
#include "tests/support/failalloc.h"
#include "tests/support/sample_batch.h"

/* The block of the seed (opentelemetry-collector-ebpf-profiler, README.md), with its rulers. */
static const char container_block[] =
    "--------------- New Resource Profile --------------\n"
    "  container.id: cb8ebdde43ea93f184b41d77695ae90411f952e7850c4a37f42408de78b8faa4 (Str)\n"
    "  k8s.pod.name: kube-apiserver-kube-control-plane (Str)\n"
    "  service.name: kube-apiserver-kube-control-plane (Str)\n"
    "  container.image.repo_digests: [\"registry.k8s.io/kube-apiserver@sha256:e04f6223\"] (Slice)\n"
    "  foo: bar (Str)\n"
    "------------------- New Profile -------------------\n"
    "  ProfileID: 00000000000000000000000000000000\n"
    "  Dropped attributes count: 0\n"
    "  SampleType: samples\n"
    "------------------- New Sample --------------------\n"
    "  thread.name: kube-apiserver (Str)\n"
    "  process.executable.name: kube-apiserver (Str)\n"
    "  process.executable.path: /usr/local/bin/kube-apiserver (Str)\n"
    "  process.pid: 2751 (Int)\n"
    "  thread.id: 2832 (Int)\n"
    "  Values: [3]\n"
    "---------------------------------------------------\n"
    "Instrumentation: kernel, Function: x64_sys_call\n"
    "Instrumentation: kernel, Function: do_syscall_64\n"
    "Instrumentation: go, Function: internal/runtime/syscall.Syscall6\n"
    "Instrumentation: go, Function: syscall.write\n"
    "Instrumentation: go, Function: runtime.goexit\n"
    "------------------- End Sample --------------------\n"
    "------------------- New Sample --------------------\n"
    "  thread.name: kube-apiserver (Str)\n"
    "  process.executable.name: kube-apiserver (Str)\n"
    "  process.executable.path: /usr/local/bin/kube-apiserver (Str)\n"
    "  process.pid: 2751 (Int)\n"
    "  thread.id: 2833 (Int)\n"
    "  Values: [1]\n"
    "---------------------------------------------------\n"
    "Instrumentation: kernel, Function: x64_sys_call\n"
    "Instrumentation: kernel, Function: do_syscall_64\n"
    "Instrumentation: go, Function: internal/runtime/syscall.Syscall6\n"
    "Instrumentation: go, Function: syscall.write\n"
    "Instrumentation: go, Function: runtime.goexit\n"
    "------------------- End Sample --------------------\n"
    "------------------- End Profile -------------------\n"
    "-------------- End Resource Profile ---------------\n\n";

static struct text_options everything(void)
{
	return (struct text_options){.resource_attributes = true,
				     .sample_attributes = true,
				     .stack_frames = true,
				     .frame_types = UINT32_MAX};
}

static char *text(const struct text_options *o)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct buf out;

	assert_int_equal(sample_batch_build(&batch), 0);
	buf_init(&out, 1 << 20);
	render_text(batch, o, &out, NULL, NULL);
	return buf_take(&out);
}

static void the_layout_is_the_seeds(void **state)
{
	struct text_options o = everything();
	_cleanup_free_ char *all = text(&o);

	/* The host's resource comes first: it was added first. */
	assert_string_equal(strstr(all, "\n\n") + 2, container_block);
	assert_non_null(strstr(all, "  host.cpus: 0 (Int)\n  host.virtual: true (Bool)\n"));
	assert_non_null(strstr(all, "  SampleType: off_cpu\n"));
	assert_non_null(strstr(all, "  Values: [1500]\n"));
	/* Inlined functions are lines of their own, innermost first. */
	assert_non_null(strstr(all, "Function: std::max<int>(int const&, int const&)\n"
				    "Instrumentation: native, Function: work(int)\n"));
}

static void each_key_takes_its_part_away(void **state)
{
	static const struct {
		size_t key;
		const char *gone;
	} cases[] = {
	    {offsetof(struct text_options, resource_attributes), "  container.id: "},
	    {offsetof(struct text_options, sample_attributes), "  thread.name: "},
	    {offsetof(struct text_options, sample_attributes),
	     "---------------------------------------------------\n"},
	    {offsetof(struct text_options, stack_frames), "Instrumentation"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct text_options o = everything();
		_cleanup_free_ char *with = text(&o), *without = NULL;

		*(bool *)((char *)&o + cases[i].key) = false;
		without = text(&o);
		assert_non_null(strstr(with, cases[i].gone));
		assert_null(strstr(without, cases[i].gone));
		assert_non_null(strstr(without, "  Values: [3]\n"));
	}
}

static void resources_without_container_can_be_skipped(void **state)
{
	struct text_options o = everything();
	_cleanup_free_ char *only = NULL;

	o.skip_without_container = true;
	only = text(&o);
	assert_string_equal(only, container_block);
}

static void frame_and_sample_types_are_filtered(void **state)
{
	struct text_options o = everything();
	_cleanup_free_ char *go = NULL, *off = NULL;
	char *types[] = {(char[]){"off_cpu"}};

	o.frame_types = 1U << FRAME_GO;
	go = text(&o);
	assert_null(strstr(go, "Instrumentation: kernel"));
	assert_non_null(strstr(go, "Instrumentation: go, Function: runtime.goexit"));
	o = everything();
	o.sample_types = types;
	o.n_sample_types = 1;
	off = text(&o);
	assert_null(strstr(off, "SampleType: samples"));
	assert_null(strstr(off, "container.id"));
	assert_non_null(strstr(off, "SampleType: off_cpu"));
}

static void function_files_come_with_lines(void **state)
{
	struct text_options o = everything();
	_cleanup_free_ char *all = NULL;

	o.function_file = true;
	all = text(&o);
	assert_non_null(strstr(all,
			       "Instrumentation: go, Function: syscall.write, File: /go/src/z.go, "
			       "Line: 970, Column: 0\n"));
	assert_non_null(strstr(all, "Function: x64_sys_call, File: , Line: 0, Column: 0\n"));
}

static void names_cannot_forge_lines(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct text_options o = everything();
	struct batch_builder *b;
	struct batch_sample s = {.value = 1, .thread_name = "a\n  process.pid: 1 (Int)"};
	struct attr attr = {.key = "k",
			    .type = ATTR_STRS,
			    .strs = (const char *const[]){"a\"\\\n", "b"},
			    .n_strs = 2};
	struct buf out;

	assert_int_equal(batch_builder_new(1, &b), 0);
	s.process = batch_add_process(b, 9, "x", "/x\x7f");
	s.stack = batch_add_stack(b, NULL, 0);
	batch_add_sample(b, batch_add_resource(b, &attr, 1, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	buf_init(&out, 1 << 20);
	render_text(batch, &o, &out, NULL, NULL);
	assert_non_null(strstr(out.data, "  thread.name: a\\x0a  process.pid: 1 (Int) (Str)\n"));
	assert_non_null(strstr(out.data, "  k: [\"a\\\"\\\\\\u000a\",\"b\"] (Slice)\n"));
	assert_non_null(strstr(out.data, "  process.executable.path: /x\\x7f (Str)\n"));
	buf_done(&out);
}

/* ---- top --------------------------------------------------------------------------------------
 */

static void the_table_has_self_and_total(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct top_options o = {.rows = 4};
	struct buf out;

	assert_int_equal(sample_batch_build(&batch), 0);
	buf_init(&out, 1 << 20);
	assert_int_equal(render_top(batch, &o, &out), 0);
	assert_string_equal(
	    out.data,
	    "kiln: 6 samples of 2 processes in 5.0 s\n"
	    "  SELF  TOTAL SAMPLES PROCESS         TYPE     FUNCTION\n"
	    " 66.7%  66.7%       4 kube-apiserver  kernel   x64_sys_call\n"
	    " 33.3%  33.3%       2 worker          native   std::max<int>(int const&, int co…\n"
	    "  0.0%  66.7%       0 kube-apiserver  kernel   do_syscall_64\n"
	    "  0.0%  66.7%       0 kube-apiserver  go       internal/runtime/syscall.Syscall6\n"
	    "                                               5 more functions\n"
	    "\n");
	buf_done(&out);
}

static size_t characters(const char *s, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)s[i] & 0xc0) != 0x80;
	return count;
}

static void no_line_is_wider_than_the_screen(void **state)
{
	static const unsigned int widths[] = {0, 60, 80, 132};
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct batch_builder *b;
	struct batch_line line;
	struct batch_sample s = {.value = 1};
	char name[1000] = "";
	uint32_t l;

	for (int i = 0; i < 100; i++)
		strcat(name, "gr\xc3\xbc\xc3\x9f"
			     "e::");
	assert_int_equal(batch_builder_new(1, &b), 0);
	line = (struct batch_line){.function = batch_add_function(b, name, "", "", 0)};
	l = batch_add_location(b, BATCH_NO_MAPPING, 0, FRAME_CPYTHON, &line, 1);
	s.stack = batch_add_stack(b, &l, 1);
	s.process = batch_add_process(b, 1, name, "");
	batch_add_sample(b, batch_add_resource(b, NULL, 0, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
		struct top_options o = {.width = widths[i]};
		struct buf out;
		size_t widest = 0;

		buf_init(&out, 1 << 20);
		assert_int_equal(render_top(batch, &o, &out), 0);
		for (char *p = out.data, *end; *p; p = end + 1) {
			end = strchr(p, '\n');
			widest = MAX(widest, characters(p, (size_t)(end - p)));
		}
		assert_int_equal(widest, widths[i] ? widths[i] : 80);
		buf_done(&out);
	}
}

static void recursion_counts_once(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct top_options o = {0};
	struct batch_builder *b;
	struct batch_line line;
	struct batch_sample s = {.value = 10};
	uint32_t l[3];
	struct buf out;

	assert_int_equal(batch_builder_new(1, &b), 0);
	line.function = batch_add_function(b, "f", "", "", 0);
	for (uint32_t i = 0; i < 3; i++) {
		line.line = i;
		l[i] = batch_add_location(b, BATCH_NO_MAPPING, i, FRAME_GO, &line, 1);
	}
	s.stack = batch_add_stack(b, l, 3);
	s.process = batch_add_process(b, 1, "p", "");
	batch_add_sample(b, batch_add_resource(b, NULL, 0, ""), PROFILE_CPU, 1, &s);
	assert_int_equal(batch_builder_finish(b, 1, &batch), 0);
	buf_init(&out, 1 << 20);
	assert_int_equal(render_top(batch, &o, &out), 0);
	assert_non_null(strstr(out.data, "100.0% 100.0%      10 p "));
	buf_done(&out);
}

static void an_idle_window_says_so(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct top_options o = {0};
	struct batch_builder *b;
	struct buf out;

	assert_int_equal(batch_builder_new(1, &b), 0);
	assert_int_equal(batch_builder_finish(b, 1000000000, &batch), 0);
	buf_init(&out, 1 << 20);
	assert_int_equal(render_top(batch, &o, &out), 0);
	assert_string_equal(out.data,
			    "kiln: 0 samples of 0 processes in 1.0 s\n  (nothing ran)\n\n");
	buf_done(&out);
}

static void top_survives_every_failing_allocation(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct top_options o = {0};
	bool failed = true;
	long n = 0;

	assert_int_equal(sample_batch_large(100, &batch), 0);
	for (; failed; n++) {
		struct buf out;
		int r;

		buf_init(&out, 1 << 20);
		failalloc_at(n);
		r = render_top(batch, &o, &out);
		failed = failalloc_stop();
		assert_true(r == 0 || r == -ENOMEM);
		assert_true(failed || r == 0);
		buf_done(&out);
	}
	assert_in_range(n, 5, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_layout_is_the_seeds),
	    cmocka_unit_test(each_key_takes_its_part_away),
	    cmocka_unit_test(resources_without_container_can_be_skipped),
	    cmocka_unit_test(frame_and_sample_types_are_filtered),
	    cmocka_unit_test(function_files_come_with_lines),
	    cmocka_unit_test(names_cannot_forge_lines),
	    cmocka_unit_test(the_table_has_self_and_total),
	    cmocka_unit_test(no_line_is_wider_than_the_screen),
	    cmocka_unit_test(recursion_counts_once),
	    cmocka_unit_test(an_idle_window_says_so),
	    cmocka_unit_test(top_survives_every_failing_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
