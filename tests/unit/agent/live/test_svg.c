/* SPDX-License-Identifier: Apache-2.0 */
/* The SVG: the place and width of each frame; no function name can break the document. */
#include "agent/live/svg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "tests/support/sample_batch.h"

enum { PERIOD = 10000000 };

struct stack_of {
	const char *names[4]; /* root first */
	int64_t value;
};

static struct batch *make(const struct stack_of *stacks, size_t n, enum frame_type type)
{
	struct batch_builder *b = NULL;
	struct batch *batch = NULL;
	const struct attr attr = {.key = "process.executable.name", .str = "app"};

	assert_int_equal(batch_builder_new(1000000000, &b), 0);
	for (size_t i = 0; i < n; i++) {
		struct batch_sample s = {.value = stacks[i].value, .tid = 7};
		uint32_t locations[4], len = 0;

		for (int f = ARRAY_SIZE(locations); f-- > 0;) {
			struct batch_line line = {0};
			const char *name = stacks[i].names[f];

			if (!name)
				continue;
			line.function = batch_add_function(b, name, name, "", 0);
			locations[len++] = batch_add_location(
			    b, BATCH_NO_MAPPING, (uint64_t)line.function + 1, type, &line, 1);
		}
		s.stack = batch_add_stack(b, locations, len);
		s.process = batch_add_process(b, 7, "app", "/app");
		s.thread_name = batch_string(b, "app");
		batch_add_sample(b, batch_add_resource(b, &attr, 1, ""), PROFILE_CPU, PERIOD, &s);
	}
	assert_int_equal(batch_builder_finish(b, 2000000000, &batch), 0);
	return batch;
}

static char *render(const struct batch *b, enum profile_kind kind)
{
	struct buf out;

	buf_init(&out, 8 << 20);
	assert_int_equal(svg_encode(b, kind, "a<host>", &out), 0);
	buf_append(&out, "", 1);
	assert_int_equal(buf_error(&out), 0);
	return buf_take(&out);
}

static unsigned int times(const char *text, const char *what)
{
	unsigned int n = 0;

	for (const char *p = text; (p = strstr(p, what)); p++)
		n++;
	return n;
}

#define HAS(svg, what) assert_non_null(strstr(svg, what))

static void frames_have_the_room_of_their_samples(void **state)
{
	static const struct stack_of stacks[] = {
	    {{"main", "work", "zeta"}, 1}, {{"main", "work", "alpha"}, 2}, {{"main", "idle"}, 1}};
	_cleanup_(batch_unrefp) struct batch *b = make(stacks, ARRAY_SIZE(stacks), FRAME_GO);
	_cleanup_free_ char *svg = render(b, PROFILE_CPU);

	HAS(svg, ">a&lt;host&gt; · 0.04 s CPU in 2 s</text>");
	HAS(svg, "<title>all 100.00%</title><rect x=\"0.0\" y=\"104\" width=\"1199.5\"");
	HAS(svg, "<title>app (7) 100.00%</title><rect x=\"0.0\" y=\"86\" width=\"1199.5\"");
	HAS(svg, "<title>main 100.00%</title><rect x=\"0.0\" y=\"68\" width=\"1199.5\"");
	/* Callees are sorted by name and lie above their caller. */
	HAS(svg, "<title>idle 25.00%</title><rect x=\"0.0\" y=\"50\" width=\"299.5\"");
	HAS(svg, "<title>work 75.00%</title><rect x=\"300.0\" y=\"50\" width=\"899.5\"");
	HAS(svg,
	    "<title>alpha 50.00%</title><rect x=\"300.0\" y=\"32\" width=\"599.5\" height=\"17\" "
	    "fill=\"#56b4e9\"");
	HAS(svg, "<title>zeta 25.00%</title><rect x=\"900.0\" y=\"32\" width=\"299.5\"");
	assert_int_equal(times(svg, "<g>"), 7);
	assert_int_equal(times(svg, "</g>"), 7);
}

static void no_name_breaks_the_document(void **state)
{
	static const struct stack_of stacks[] = {
	    {{"a<b>(\"c\" & 'd')", "tab\there\x01", "\xff\xfe cut", "\xef\xbf\xbf"}, 1}};
	_cleanup_(batch_unrefp) struct batch *b = make(stacks, 1, FRAME_NATIVE);
	_cleanup_free_ char *svg = render(b, PROFILE_CPU);

	HAS(svg, "<title>a&lt;b&gt;(&quot;c&quot; &amp; 'd') 100.00%</title>");
	HAS(svg, "<title>tab here  100.00%</title>");
	HAS(svg, "<title>  100.00%</title>");
	assert_null(strchr(svg, '\x01'));
	assert_null(strstr(svg, "\xef\xbf\xbf"));
}

static void what_is_too_narrow_is_not_drawn(void **state)
{
	char longest[400];
	struct stack_of stacks[2] = {{{"main", longest}, 10}, {{"main", "tiny"}, 99990}};
	_cleanup_(batch_unrefp) struct batch *b = NULL;
	_cleanup_free_ char *svg = NULL;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	b = make(stacks, 2, FRAME_NATIVE);
	svg = render(b, PROFILE_CPU);
	assert_null(strstr(svg, "xxx"));
	HAS(svg, "<title>tiny 99.99%</title><rect x=\"0.0\"");
	stacks[0].value = 99990;
	batch_unref(b);
	b = make(stacks, 2, FRAME_NATIVE);
	free(TAKE_PTR(svg));
	svg = render(b, PROFILE_CPU);
	/* The title has the whole name, the text what fits. */
	HAS(svg, longest);
	HAS(svg, "x…</text>");
}

static void kinds_are_not_mixed(void **state)
{
	_cleanup_(batch_unrefp) struct batch *b = NULL;
	_cleanup_free_ char *cpu = NULL, *off_cpu = NULL;

	assert_int_equal(sample_batch_build(&b), 0);
	cpu = render(b, PROFILE_CPU);
	off_cpu = render(b, PROFILE_OFF_CPU);
	HAS(cpu, "kube-apiserver (2751) ");
	HAS(cpu, "· 0.30 s CPU in ");
	assert_null(strstr(off_cpu, "kube-apiserver"));
	HAS(off_cpu, "<title>worker (77) 100.00%</title>");
	HAS(off_cpu, " off CPU in ");
}

static void nothing_is_a_document_too(void **state)
{
	_cleanup_(batch_unrefp) struct batch *b = make(NULL, 0, FRAME_NATIVE);
	_cleanup_free_ char *svg = render(b, PROFILE_CPU);

	HAS(svg, "0.00 s CPU");
	HAS(svg, "</svg>");
	assert_int_equal(times(svg, "<g>"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(frames_have_the_room_of_their_samples),
	    cmocka_unit_test(no_name_breaks_the_document),
	    cmocka_unit_test(what_is_too_narrow_is_not_drawn),
	    cmocka_unit_test(kinds_are_not_mixed),
	    cmocka_unit_test(nothing_is_a_document_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
