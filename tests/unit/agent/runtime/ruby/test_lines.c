// SPDX-License-Identifier: Apache-2.0
/* Lines by a bit vector of any length, and by the places of 2.5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/agent/runtime/ruby/host_walk.h"

enum { BODY = 0x1000, LINES = 0x10000, TABLE = 0x40000, PLACES_MAX = 4000, WORDS = 0x10000 };

/* Memory of its own, from address 0 on. */
static uint64_t words[WORDS];

static int read_words(void *arg, uint64_t address, void *dst, size_t len)
{
	(void)arg;
	if (address >= sizeof(words) || len > sizeof(words) - address)
		return -EFAULT;
	memcpy(dst, (char *)words + address, len);
	return 0;
}

static const struct target_memory memory = {.read = read_words};

static void put(uint64_t address, uint32_t value)
{
	memcpy((char *)words + address, &value, sizeof(value));
}

/* Of INDEX among the first PLACES_MAX instructions; 0 too when the tables cannot be read. */
static uint32_t line_of(const struct ruby_look *look, uint32_t index)
{
	struct ruby_lines lines = {0};
	uint32_t line;

	if (ruby_read_lines(look, BODY, PLACES_MAX, &lines) < 0)
		return 0;
	line = ruby_line(look->process->layout, lines.bytes, lines.size, lines.n, index);
	free(lines.bytes);
	return line;
}

/* As Ruby 3.3.8's iseq.c makes it: stretches begin at BEGIN[0 .. N). */
static void make_table(const uint32_t *begin, size_t n)
{
	uint64_t *imm = words + TABLE / 8, *block = imm + 6;
	uint32_t rank = 0, within = 0;

	for (uint32_t place = 0; place < PLACES_MAX; place++) {
		bool begins = false;

		for (size_t i = 0; i < n; i++)
			begins |= begin[i] == place;
		if (place >= 54 && (place - 54) % 512 == 0) {
			block = imm + 6 + (place - 54) / 512 * 10;
			block[0] = rank;
			within = 0;
		}
		if (place >= 54 && (place - 54) % 64 == 0 && (place - 54) % 512 / 64)
			block[1] |= (uint64_t)within << ((place - 54) % 512 / 64 - 1) * 9;
		rank += begins;
		within += begins;
		if (place < 54)
			imm[place / 9] |= (uint64_t)rank << place % 9 * 7;
		else if (begins)
			block[2 + (place - 54) % 512 / 64] |= 1ULL << (place - 54) % 64;
	}
}

static void make_body(const struct ruby_layout *l, const uint32_t *begin, size_t n)
{
	memset(words, 0, sizeof(words));
	words[(BODY + l->lines) / 8] = LINES;
	put(BODY + l->lines_size, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		if (!l->lines_index)
			put(LINES + i * l->line_size, begin[i]);
		put(LINES + i * l->line_size + l->line_at, 100 + (uint32_t)i);
	}
	if (l->lines_index) {
		words[(BODY + l->lines_index) / 8] = TABLE;
		make_table(begin, n);
	}
}

/* The same, as the walker finds it. */
static uint32_t line_sent(const struct ruby_look *look, uint32_t index)
{
	const struct ruby_layout *l = look->process->layout;
	struct kiln_ruby *k = (struct kiln_ruby *)host.walk.runtime.data;

	host.memory = look->memory;
	k->lines = (uint8_t)l->lines;
	k->lines_size = (uint8_t)l->lines_size;
	k->lines_index = (uint8_t)l->lines_index;
	k->line_size = l->line_size;
	return (uint32_t)ruby_line_at(0, BODY, index);
}

static void every_place_has_its_line(void **unused)
{
	static const uint32_t begin[] = {0,   1,   5,	53,  54,  55,	100,  117,  118, 119,
					 181, 182, 565, 566, 567, 1077, 1078, 1079, 2000};
	static const unsigned int versions[] = {205, 206, 207, 300, 301, 302, 303, 304, 400};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct ruby_process p = {.layout = ruby_layout_of(versions[v])};
		struct ruby_look look = {&p, &memory};
		uint32_t stretch = 0;

		make_body(p.layout, begin, ARRAY_SIZE(begin));
		for (uint32_t place = 0; place < 3000; place++) {
			if (stretch + 1 < ARRAY_SIZE(begin) && begin[stretch + 1] <= place)
				stretch++;
			assert_int_equal(line_of(&look, place), 100 + stretch);
			if (p.layout->lines_index)
				assert_int_equal(line_sent(&look, place), 100 + stretch);
		}
	}
}

static void a_stretch_without_a_line_has_that_before_it(void **unused)
{
	static const uint32_t begin[] = {0, 2, 4};
	struct ruby_process p = {.layout = ruby_layout_of(303)};
	struct ruby_look look = {&p, &memory};

	(void)unused;
	make_body(p.layout, begin, ARRAY_SIZE(begin));
	put(LINES + p.layout->line_size, 0);
	assert_int_equal(line_of(&look, 3), 100);
	assert_int_equal(line_sent(&look, 3), 100);
	assert_int_equal(line_of(&look, 4), 102);
}

static void tables_that_make_no_sense_have_no_lines(void **unused)
{
	static const uint32_t begin[] = {0, 2};
	struct ruby_process p = {.layout = ruby_layout_of(303)};
	struct ruby_look look = {&p, &memory};

	(void)unused;
	make_body(p.layout, begin, ARRAY_SIZE(begin));
	put(BODY + p.layout->lines_size, UINT32_MAX);
	assert_int_equal(line_of(&look, 0), 0);
	put(BODY + p.layout->lines_size, 2);
	words[TABLE / 8] = UINT64_MAX;
	assert_int_equal(line_of(&look, 3), 0);
	words[(BODY + p.layout->lines_index) / 8] = 1ULL << 50;
	assert_int_equal(line_of(&look, 700), 0);
	words[(BODY + p.layout->lines_index) / 8] = TABLE;
	assert_int_equal(ruby_line(p.layout, words, 8, 2, 1 << 30), 0);
	assert_int_equal(ruby_line(p.layout, words, 0, UINT32_MAX, 5), 0);
	put(BODY + p.layout->lines_size, 0);
	assert_int_equal(line_of(&look, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_place_has_its_line),
	    cmocka_unit_test(a_stretch_without_a_line_has_that_before_it),
	    cmocka_unit_test(tables_that_make_no_sense_have_no_lines),
	};

	return cmocka_run_group_tests_name("ruby_lines", tests, NULL, NULL);
}
