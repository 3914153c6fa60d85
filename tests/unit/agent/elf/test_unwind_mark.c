/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A marked table against the table before: at every address the rule must be the one from before,
 * with the mark inside of the ranges and without it elsewhere.
 */
#include <fcntl.h>

#include "agent/elf/unwind.h"
#include "tests/support/test.h"

enum { ID = 3, OTHER_ID = 5 };

static struct unwind_table *before, *after;

static int setup(void **state)
{
	struct image *image = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || image_open(fd, "self", &image, NULL) < 0)
		return -1;
	if (unwind_compile(image, &before, NULL) < 0 || unwind_compile(image, &after, NULL) < 0)
		return -1;
	image_unref(image);
	return 0;
}

static int teardown(void **state)
{
	before = unwind_table_free(before);
	after = unwind_table_free(after);
	return 0;
}

static uint64_t end_of(const struct unwind_table *t)
{
	return t->base + ((uint64_t)t->blocks << KILN_BLOCK_SHIFT);
}

static const struct unwind_range *holder(const struct unwind_range *ranges, size_t n, uint64_t pc)
{
	for (size_t i = 0; i < n; i++)
		if (pc >= ranges[i].start && pc < ranges[i].end)
			return &ranges[i];
	return NULL;
}

static struct kiln_rule expected(const struct unwind_range *ranges, size_t n, uint64_t pc)
{
	const struct unwind_range *range = holder(ranges, n, pc);
	struct kiln_rule rule = *unwind_lookup(before, pc);

	if (!range)
		return rule;
	if (range->frame_pointer)
		return (struct kiln_rule){
		    .kind = KILN_RULE_FP, .flags = KILN_RULE_RUNTIME, .deref_off = ID};
	if (rule.kind == KILN_RULE_DEREF)
		return rule;
	if (range->keeps_fp)
		rule.flags |= KILN_RULE_FRAME_POINTER;
	if (range->native)
		return rule;
	rule.flags |= KILN_RULE_RUNTIME;
	rule.deref_off = ID;
	return rule;
}

/* Compares the rules of every byte: the program is small. */
static void mark_and_compare(const struct unwind_range *ranges, size_t n)
{
	size_t marked = 0;

	assert_int_equal(unwind_table_mark(&after, ranges, n, ID), 0);
	assert_int_equal(after->base, before->base);
	assert_int_equal(after->blocks, before->blocks);
	assert_int_equal(after->malformed, before->malformed);
	for (uint64_t pc = before->base; pc < end_of(before); pc++) {
		struct kiln_rule want = expected(ranges, n, pc);

		if (memcmp(unwind_lookup(after, pc), &want, sizeof(want)) != 0)
			fail_msg("at %#llx the rule is another", (unsigned long long)pc);
		marked += (want.flags & KILN_RULE_RUNTIME) != 0;
	}
	assert_true(marked > 0);
}

/* The address at which the rule changes for the Nth time. */
static uint64_t some_row(unsigned int n)
{
	uint64_t pc = before->base;
	const struct kiln_rule *last = unwind_lookup(before, pc);

	for (; n && pc < end_of(before); pc++) {
		n -= unwind_lookup(before, pc) != last;
		last = unwind_lookup(before, pc);
	}
	assert_true(pc < end_of(before));
	return pc - 1;
}

/* The first of four bytes that share a rule which can be marked. */
static uint64_t inside_a_row(void)
{
	for (uint64_t pc = some_row(40); pc + 4 < end_of(before); pc++) {
		const struct kiln_rule *rule = unwind_lookup(before, pc);

		if (rule->kind == KILN_RULE_CFA && unwind_lookup(before, pc + 1) == rule &&
		    unwind_lookup(before, pc + 2) == rule && unwind_lookup(before, pc + 3) == rule)
			return pc;
	}
	fail_msg("no row of four bytes");
	return 0;
}

static void a_range_within_one_row_splits_it(void **state)
{
	uint64_t at = inside_a_row();
	const struct unwind_range range = {.start = at + 1, .end = at + 2};

	mark_and_compare(&range, 1);
	assert_true(after->n_rows > before->n_rows);
}

static void a_range_of_whole_rows_adds_none(void **state)
{
	const struct unwind_range range = {.start = some_row(20), .end = some_row(60)};

	mark_and_compare(&range, 1);
	assert_int_equal(after->n_rows, before->n_rows);
}

static void many_ranges_in_any_order_and_over_blocks(void **state)
{
	uint64_t size = end_of(before) - before->base;
	const struct unwind_range ranges[] = {
	    {.start = before->base + size / 2, .end = before->base + size / 2 + 5000},
	    {.start = before->base + 100, .end = before->base + 1023, .frame_pointer = true},
	    {.start = before->base + 1023, .end = before->base + 1024},
	    {.start = before->base + 1024, .end = before->base + 2048, .frame_pointer = true},
	    {.start = some_row(30) + 3, .end = some_row(90) + 1},
	    {.start = some_row(100), .end = some_row(110), .keeps_fp = true},
	    {.start = some_row(120), .end = some_row(125), .keeps_fp = true},
	    {.start = some_row(120), .end = some_row(140), .keeps_fp = true, .native = true},
	};

	mark_and_compare(ranges, ARRAY_SIZE(ranges));
}

static void everything_can_be_marked(void **state)
{
	const struct unwind_range plain = {.start = 0, .end = UINT64_MAX};

	mark_and_compare(&plain, 1);
}

static void a_frame_pointer_makes_one_row_of_all(void **state)
{
	const struct unwind_range range = {
	    .start = before->base, .end = end_of(before), .frame_pointer = true};

	mark_and_compare(&range, 1);
	assert_int_equal(after->n_rows, 1);
}

static void ranges_outside_of_the_table_or_without_bytes_change_nothing(void **state)
{
	const struct unwind_range ranges[] = {
	    {.start = 0, .end = before->base},
	    {.start = end_of(before), .end = UINT64_MAX, .frame_pointer = true},
	    {.start = before->base + 50, .end = before->base + 50},
	    {.start = before->base + 500, .end = before->base + 40, .frame_pointer = true},
	};

	assert_int_equal(unwind_table_mark(&after, ranges, ARRAY_SIZE(ranges), ID), 0);
	assert_int_equal(after->n_rows, before->n_rows);
	assert_memory_equal(after->rows, before->rows, before->n_rows * sizeof(*before->rows));
	assert_memory_equal(after->index, before->index,
			    (before->blocks + 1) * sizeof(*before->index));
}

static void code_that_two_runtimes_claim_is_the_firsts(void **state)
{
	const struct unwind_range all = {.start = before->base, .end = end_of(before)},
				  part = {.start = some_row(10), .end = some_row(50)};

	mark_and_compare(&part, 1);
	assert_int_equal(unwind_table_mark(&after, &all, 1, OTHER_ID), 0);
	assert_int_equal(unwind_lookup(after, some_row(11))->deref_off, ID);
	assert_int_equal(unwind_lookup(after, some_row(60))->deref_off, OTHER_ID);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_range_within_one_row_splits_it),
	    TEST(a_range_of_whole_rows_adds_none),
	    TEST(many_ranges_in_any_order_and_over_blocks),
	    TEST(everything_can_be_marked),
	    TEST(a_frame_pointer_makes_one_row_of_all),
	    TEST(ranges_outside_of_the_table_or_without_bytes_change_nothing),
	    TEST(code_that_two_runtimes_claim_is_the_firsts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
