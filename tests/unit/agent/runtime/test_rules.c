/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of bpf/unwind.h over a table, compiled for the host: which rule a frame gets, and what
 * is cached of it, in code that keeps a frame pointer (KILN_RULE_FRAME_POINTER).
 */
#include "tests/support/test.h"

#include "bpf/unwind.h"

enum {
	CODE = 0x100000, /* address of the image's vaddr 0 */
	STACK = 0x7000,
	CALLED = 0,    /* vaddr of code whose rule counts from sp */
	KEEPS = 0x100, /* ... that saves fp and extra below its frame record */
	ROOT = 0x200,  /* ... that nothing has called */
	OTHER = 0x300, /* as ROOT */
	INDEX_AT = 16,
	ROWS_AT = 18,
	RULES_AT = 32,
	ENTRIES = 256,
};

static struct {
	uint32_t slab[RULES_AT + 4 * 4];
	uint64_t stack[256], words[KILN_RECORD_WORDS];
	struct kiln_cache_entry cache[ENTRIES], shared[ENTRIES];
	struct kiln_mapping mapping;
	struct kiln_table table;
	struct kiln_walk walk;
} t;

static inline struct kiln_walk *env_walk(uint32_t slot)
{
	return &t.walk;
}

static inline const struct kiln_mapping *env_mapping(uint32_t index)
{
	return &t.mapping;
}

static inline const struct kiln_table *env_table(uint32_t image)
{
	return &t.table;
}

static inline const uint32_t *env_slot(uint32_t slot)
{
	return slot < ARRAY_SIZE(t.slab) / 16 ? t.slab + (size_t)slot * 16 : NULL;
}

static inline int env_read(void *dst, uint32_t len, uint64_t address)
{
	if (address < STACK || address + len > STACK + sizeof(t.stack))
		return -1;
	memcpy(dst, (const uint8_t *)t.stack + (address - STACK), len);
	return 0;
}

static inline struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	return &t.cache[pc / 16 % ENTRIES];
}

static inline struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	return &t.shared[vaddr / 16 % ENTRIES];
}

static inline const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	fail_msg("no code here is a runtime's");
	return NULL;
}

static inline uint64_t *env_words(struct kiln_walk *w)
{
	return t.words;
}

static void put_rule(uint32_t n, struct kiln_rule rule)
{
	memcpy(t.slab + RULES_AT + (size_t)n * 4, &rule, sizeof(rule));
}

static int setup(void **state)
{
	const uint32_t rows[] = {CALLED, KEEPS | 1 << 16, ROOT | 2 << 16};

	memset(&t, 0, sizeof(t));
	t.mapping =
	    (struct kiln_mapping){.start = CODE, .end = CODE + 0x1000, .bias = CODE, .image = 2};
	t.table = (struct kiln_table){.index_at = INDEX_AT,
				      .blocks = 1,
				      .rows_at = ROWS_AT,
				      .rows = ARRAY_SIZE(rows),
				      .rules_at = RULES_AT,
				      .rules = 3};
	t.slab[INDEX_AT + 1] = ARRAY_SIZE(rows);
	memcpy(t.slab + ROWS_AT, rows, sizeof(rows));
	put_rule(0, (struct kiln_rule){.kind = KILN_RULE_CFA,
				       .reg = ARCH_REG_SP,
				       .flags = KILN_RULE_FRAME_POINTER,
				       .ra_off = ARCH_RA_OFFSET,
				       .cfa_off = 8});
	put_rule(1, (struct kiln_rule){.kind = KILN_RULE_CFA,
				       .reg = ARCH_REG_FP,
				       .flags = KILN_RULE_FRAME_POINTER | KILN_RULE_SAVED_FP |
						KILN_RULE_SAVED_EXTRA,
				       .ra_off = ARCH_RA_OFFSET,
				       .cfa_off = 16,
				       .fp_off = -2,
				       .extra_off = -3});
	put_rule(2, (struct kiln_rule){.kind = KILN_RULE_STOP});
	return 0;
}

/*
 * Walks a stack whose leaf was interrupted in CALLED and was called from FROM. The unwind rule of
 * FROM (CFA from sp) says that its caller is OTHER; the frame record that FP points to says ROOT,
 * if FP is the address of the sixth word of the stack. So the third frame tells which was used.
 */
static void walk(uint32_t mapset, uint64_t from, uint64_t fp)
{
	t.stack[0] = CODE + from;
	t.stack[1] = CODE + OTHER + 5;
	t.stack[4] = 0xe;
	t.stack[5] = STACK + 48;
	t.stack[6] = CODE + ROOT + 5;
	memset(&t.walk, 0, sizeof(t.walk));
	t.walk.regs = (struct kiln_regs){.pc = CODE + CALLED + 1, .sp = STACK, .fp = fp};
	t.walk.tag = (uint64_t)mapset << 32 | 1;
	t.walk.count = 1;
	t.walk.exact = 1;
	walk_begin(&t.walk, 0, 100);
	assert_int_equal(walk_put(&t.walk, walk_frame(&t.walk)), 0);
	walk_on(&t.walk);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_int_equal(t.walk.n, 3);
	assert_int_equal(t.words[1] & KILN_FRAME_PC_MASK, CODE + from);
}

static uint64_t last_vaddr(void)
{
	return (t.words[2] & KILN_FRAME_PC_MASK) - CODE;
}

/*
 * The first walk reads the table, the second the cache, the third (another process) the shared
 * cache.
 */
static void a_return_address_is_left_by_the_frame_pointer(void **state)
{
	for (uint32_t i = 0; i < 3; i++) {
		walk(1 + i / 2, CALLED + 0x40, STACK + 40);
		assert_int_equal(last_vaddr(), ROOT + 5);
		assert_int_equal(t.walk.regs.fp, STACK + 48);
		assert_int_equal(t.walk.misses, i == 1 ? 0 : 3);
	}
}

static void the_usual_step_does_it(void **state)
{
	uint64_t pc = CODE + CALLED + 0x40, sp = STACK + 8;

	walk(1, CALLED + 0x40, STACK + 40);
	t.walk.regs.fp = STACK + 40;
	assert_int_equal(walk_usual_step(&t.walk, pc - 1, 0, &pc, &sp), 0);
	assert_int_equal(pc, CODE + ROOT + 5);
	assert_int_equal(sp, STACK + 56);
}

static void where_that_leads_nowhere_the_rule_counts(void **state)
{
	const uint64_t nowhere[] = {0, STACK - 16, STACK + 4096, STACK + 400};

	/* The cached entry may be the step by frame pointer or the rule itself. */
	for (int again = 0; again < 2; again++) {
		walk(1, CALLED + 0x40, STACK + 40);
		assert_int_equal(last_vaddr(), ROOT + 5);
		for (size_t i = 0; i < ARRAY_SIZE(nowhere); i++) {
			walk(1, CALLED + 0x40, nowhere[i]);
			assert_int_equal(last_vaddr(), OTHER + 5);
		}
	}
}

static void a_rule_that_counts_from_the_frame_pointer_keeps_what_else_it_says(void **state)
{
	for (uint32_t i = 0; i < 2; i++) {
		walk(1, KEEPS + 0x40, STACK + 40);
		assert_int_equal(last_vaddr(), ROOT + 5);
		assert_int_equal(t.walk.regs.extra, 0xe);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
	    TEST(a_return_address_is_left_by_the_frame_pointer),
	    TEST(the_usual_step_does_it),
	    TEST(where_that_leads_nowhere_the_rule_counts),
	    TEST(a_rule_that_counts_from_the_frame_pointer_keeps_what_else_it_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
