/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of bpf/unwind.h, compiled for the host, over hand-made stacks and tables: each rule
 * kind, and each way to end.
 */
#include "agent/sampler/finisher.h"
#include "tests/support/test.h"

enum { CODE = 0x10000, STACK = 0x7000, IMAGE_SLOT = 5, DUMP_WORDS = 128 };
enum { PAGE = 4096, PAGES_OF_DUMP = 2 };

static struct {
	_Alignas(64) uint32_t slab[64 * 16];
	struct kiln_table tables[KILN_MAX_IMAGES];
	struct kernel_memory memory;
	struct image image;
	struct stored_image stored;
	struct mapset_range ranges[2];
	struct mapset mapset;
	struct {
		struct kiln_sample head;
		uint64_t words[1];
		struct kiln_resume resume;
		uint64_t dump[KILN_RED_ZONE / 8 + PAGES_OF_DUMP * PAGE / 8];
	} record;
	uint64_t *stack; /* word 0 is at STACK */
	struct finish_result result;
} t;

/* One rule a KiB: code at CODE + 1024 * n is under rules[n]. */
static void load_rules(const struct kiln_rule *rules, uint32_t n)
{
	struct kiln_table *e = &t.tables[IMAGE_SLOT];

	e->base = 0;
	e->index_at = 16;
	e->rows_at = 16 * 4;
	e->rules_at = 16 * 8;
	e->rows = e->rules = n;
	for (uint32_t i = 0; i <= n; i++)
		t.slab[e->index_at + i] = i;
	for (uint32_t i = 0; i < n; i++) {
		struct kiln_row row = {.low = (uint16_t)(i * 1024), .rule = (uint16_t)i};

		memcpy(&t.slab[e->rows_at + i], &row, sizeof(row));
		memcpy(&t.slab[e->rules_at + i * 4], &rules[i], sizeof(rules[i]));
	}
	e->blocks = n;
}

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	t.memory = (struct kernel_memory){.slab = t.slab, .slab_slots = 64, .tables = t.tables};
	((struct kiln_rule *)t.slab)[KILN_BUILTIN_FP] =
	    (struct kiln_rule){.kind = KILN_RULE_FP, .flags = KILN_RULE_GUESS};
	t.stored.image = &t.image;
	t.stored.slot = IMAGE_SLOT;
	t.ranges[0] = (struct mapset_range){
	    .start = CODE, .end = CODE + 0x4000, .bias = CODE, .image = &t.stored};
	t.ranges[1] = (struct mapset_range){.start = 0x50000, .end = 0x51000, .jit = true};
	t.mapset = (struct mapset){.id = 1, .ranges = t.ranges, .n = 2};
	t.record.head = (struct kiln_sample){
	    .type = KILN_RECORD_SAMPLE,
	    .size = sizeof(t.record),
	    .n_user = 1,
	    .flags = KILN_SAMPLE_FIRST_FRAME,
	    .dump_len = KILN_RED_ZONE + DUMP_WORDS * 8,
	};
	t.record.resume.regs = (struct kiln_regs){.pc = CODE + 0x10, .sp = STACK};
	/* The page of the red zone, and that of the stack pointer. */
	t.record.resume.pages[0] = 3;
	t.record.words[0] = ((uint64_t)KILN_FRAME_NATIVE << KILN_FRAME_KIND_SHIFT) | (CODE + 0x10);
	t.stack = t.record.dump + KILN_RED_ZONE / 8;
	return 0;
}

static void walk(void)
{
	finish_walk(&t.memory, &t.mapset, &t.record.head, KILN_MAX_USER_FRAMES, &t.result);
}

static void assert_pcs(const uint64_t *pcs, uint32_t n)
{
	assert_int_equal(t.result.n, n);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(t.result.words[i] & KILN_FRAME_PC_MASK, pcs[i]);
		assert_int_equal(!!(t.result.words[i] & KILN_FRAME_RETURN), i > 0);
	}
}

static const struct kiln_rule push_rbp = {.kind = KILN_RULE_CFA,
					  .reg = 7,
					  .flags = KILN_RULE_SAVED_FP,
					  .ra_off = -8,
					  .cfa_off = 24,
					  .fp_off = -2};
static const struct kiln_rule by_rbp = {
    .kind = KILN_RULE_CFA, .reg = 6, .ra_off = -8, .cfa_off = 16};
static const struct kiln_rule stop = {.kind = KILN_RULE_STOP};

static void restores_rbp_and_stops_at_undefined_return_address(void **state)
{
	const struct kiln_rule rules[] = {push_rbp, by_rbp, stop};
	const uint64_t pcs[] = {CODE + 0x10, CODE + 0x500, CODE + 0x900};

	load_rules(rules, 3);
	t.stack[1] = STACK + 0x80; /* saved rbp */
	t.stack[2] = CODE + 0x500;
	t.stack[0x80 / 8 + 1] = CODE + 0x900;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
	assert_pcs(pcs, 3);
}

static void return_address_at_a_function_start_belongs_to_the_call_before(void **state)
{
	const struct kiln_rule plain = {
	    .kind = KILN_RULE_CFA, .reg = 7, .ra_off = -8, .cfa_off = 8};
	const struct kiln_rule rules[] = {plain, stop, {.kind = KILN_RULE_INVALID}};

	load_rules(rules, 3);
	/* The call is the last instruction of block 1; block 2 has no rule. */
	t.stack[0] = CODE + 0x800;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
}

/* The return address is on page 81 of the bitmap, which is the third page in the dump. */
static const struct kiln_rule large_frame = {
    .kind = KILN_RULE_CFA, .reg = 7, .ra_off = -8, .cfa_off = 0x50000 + 16};

static void pages_that_are_not_there_are_left_out_of_the_dump(void **state)
{
	const struct kiln_rule rules[] = {large_frame, stop};
	uint64_t *pages = t.record.resume.pages;

	load_rules(rules, 2);
	t.record.head.dump_len = sizeof(t.record.dump);
	pages[1] = 1ULL << 17;
	t.stack[PAGE / 8 + 1] = CODE + 0x410;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
	assert_int_equal(t.result.n, 2);
	/* Without the red zone's page, the other pages move down in the dump. */
	pages[0] = 2;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
	assert_int_equal(t.result.n, 1);
	t.record.dump[PAGE / 8 + 1] = CODE + 0x410;
	walk();
	assert_int_equal(t.result.words[1] & KILN_FRAME_PC_MASK, CODE + 0x410);
}

static void a_page_that_is_not_there_cannot_be_read(void **state)
{
	const struct kiln_rule rules[] = {large_frame, stop};

	load_rules(rules, 2);
	t.record.head.dump_len = sizeof(t.record.dump);
	for (unsigned int bit = 0; bit < 64; bit++) {
		t.record.resume.pages[1] = 1ULL << bit;
		t.stack[PAGE / 8 + 1] = CODE + 0x410;
		walk();
		assert_int_equal(t.result.end, bit == 17 ? KILN_END_ROOT : KILN_END_BAD_READ);
	}
	/* The bitmap has the page, but the dump ends before it. */
	t.record.resume.pages[1] = 1ULL << 17;
	t.record.head.dump_len = KILN_RED_ZONE + PAGE + 8;
	walk();
	assert_int_equal(t.result.end, KILN_END_BAD_READ);
}

static void a_word_may_lie_on_two_pages(void **state)
{
	const struct kiln_rule odd = {
	    .kind = KILN_RULE_CFA, .reg = 7, .ra_off = -8, .cfa_off = PAGE + 4};
	const struct kiln_rule rules[] = {odd, stop};
	const uint64_t pc = CODE + 0x410;

	load_rules(rules, 2);
	t.record.head.dump_len = sizeof(t.record.dump);
	memcpy((uint8_t *)t.stack + PAGE - 4, &pc, sizeof(pc));
	walk();
	assert_int_equal(t.result.end, KILN_END_BAD_READ);
	t.record.resume.pages[0] = 7;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
	assert_int_equal(t.result.words[1] & KILN_FRAME_PC_MASK, pc);
}

static void plt_rule_depends_on_the_place_in_the_stub(void **state)
{
	const struct kiln_rule plt = {.kind = KILN_RULE_PLT, .cfa_off = 11};
	const struct kiln_rule rules[] = {plt, stop};

	load_rules(rules, 2);
	t.record.resume.regs.pc = CODE + 0x20 + 10; /* before the push */
	t.stack[0] = CODE + 0x410;
	t.stack[1] = 0xbad;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
	t.record.resume.regs.pc = CODE + 0x20 + 11; /* after it */
	t.stack[0] = 0xbad;
	t.stack[1] = CODE + 0x410;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
}

static void signal_frame_gives_all_registers_back(void **state)
{
	const struct kiln_rule leaf = {.kind = KILN_RULE_CFA, .reg = 7, .ra_off = -8, .cfa_off = 8};
	const struct kiln_rule signal = {.kind = KILN_RULE_SIGNAL, .cfa_off = 0};
	/* CFA in r12: known again right after the signal frame. */
	const struct kiln_rule by_r12 = {
	    .kind = KILN_RULE_CFA, .reg = 12, .ra_off = -8, .cfa_off = 16};
	const struct kiln_rule rules[] = {leaf, signal, by_r12, stop};
	uint64_t *context = t.stack + 1;

	load_rules(rules, 4);
	t.stack[0] = CODE + 0x401;		    /* the trampoline */
	context[(40 + 4 * 8) / 8] = STACK + 0x200;  /* r12 */
	context[(40 + 15 * 8) / 8] = STACK + 0x180; /* rsp */
	context[(40 + 16 * 8) / 8] = CODE + 0x800;  /* rip: exactly at a function's start */
	t.stack[0x208 / 8] = CODE + 0xd00;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
	assert_int_equal(t.result.n, 4);
	assert_int_equal(t.result.words[2] & KILN_FRAME_PC_MASK, CODE + 0x800);
	assert_false(t.result.words[2] & KILN_FRAME_RETURN);
	assert_int_equal(t.result.words[3] & KILN_FRAME_PC_MASK, CODE + 0xd00);
}

static void realigned_stack_is_found_through_memory(void **state)
{
	const struct kiln_rule deref = {.kind = KILN_RULE_DEREF,
					.reg = 7,
					.ra_off = -8,
					.cfa_off = -8, /* in the red zone, as OpenSSL does */
					.deref_off = 8};
	const struct kiln_rule rules[] = {deref, stop};

	load_rules(rules, 2);
	t.stack[-1] = STACK + 0x100;
	t.stack[0x100 / 8] = CODE + 0x410;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
}

static void saved_registers_may_lie_by_rbp(void **state)
{
	const struct kiln_rule realigned = {.kind = KILN_RULE_DEREF,
					    .reg = 6,
					    .flags = KILN_RULE_SAVED_FP | KILN_RULE_SAVED_AT_FP,
					    .ra_off = -8,
					    .cfa_off = -8,
					    .fp_off = 0};
	const struct kiln_rule rules[] = {realigned, by_rbp, stop};

	load_rules(rules, 3);
	t.record.resume.regs.fp = STACK + 0x40;
	t.stack[0x38 / 8] = STACK + 0x100; /* the CFA */
	t.stack[0x40 / 8] = STACK + 0x180; /* the caller's rbp, where rbp points */
	t.stack[0xf8 / 8] = CODE + 0x410;
	t.stack[0x188 / 8] = CODE + 0x810;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
	assert_int_equal(t.result.n, 3);
}

static void jit_code_is_walked_by_frame_pointers(void **state)
{
	const struct kiln_rule rules[] = {stop};

	load_rules(rules, 1);
	t.record.resume.regs.pc = 0x50010;
	t.record.resume.regs.fp = STACK + 0x20;
	t.stack[4] = STACK + 0x40;
	t.stack[5] = 0x50020;
	t.stack[8] = 0;
	t.stack[9] = CODE + 0x10;
	walk();
	assert_int_equal(t.result.end, KILN_END_ROOT);
	assert_int_equal(t.result.n, 3);
}

static void a_frame_pointer_that_leads_nowhere_is_not_believed(void **state)
{
	const struct kiln_rule rules[] = {stop};

	load_rules(rules, 1);
	t.record.resume.regs.pc = 0x50010;
	t.record.resume.regs.fp = STACK + 0x20;
	t.stack[4] = 0x1234;
	t.stack[5] = 0x99999;
	walk();
	assert_int_equal(t.result.end, KILN_END_NO_RULE);
	assert_int_equal(t.result.n, 1);
}

static void every_failure_has_its_own_end(void **state)
{
	const struct kiln_rule back = {
	    .kind = KILN_RULE_CFA, .reg = 6, .ra_off = -8, .cfa_off = 16};
	const struct kiln_rule unknown_register = {
	    .kind = KILN_RULE_CFA, .reg = 12, .ra_off = -8, .cfa_off = 16};
	const struct kiln_rule rules[] = {back, unknown_register, {.kind = KILN_RULE_INVALID}};

	load_rules(rules, 3);
	t.record.resume.regs.fp = STACK - 0x100;
	walk();
	assert_int_equal(t.result.end, KILN_END_BAD_CFA);
	t.record.resume.regs.fp = STACK + 0x100000;
	walk();
	assert_int_equal(t.result.end, KILN_END_BAD_READ);
	t.record.resume.regs.pc = CODE + 0x810;
	walk();
	assert_int_equal(t.result.end, KILN_END_NO_RULE);
	t.record.resume.regs.pc = 0x99999999;
	walk();
	assert_int_equal(t.result.end, KILN_END_NO_MAPPING);
	t.record.resume.regs.pc = CODE + 0x10;
	t.tables[IMAGE_SLOT].blocks = 0;
	walk();
	assert_int_equal(t.result.end, KILN_END_NO_TABLE);
	assert_ptr_equal(t.result.wanted, &t.stored);
	/* A register that only the leaf knows. */
	load_rules(rules, 3);
	t.record.head.flags = 0;
	t.record.resume.regs.pc = CODE + 0x410;
	walk();
	assert_int_equal(t.result.end, KILN_END_NO_RULE);
}

static void code_that_nobody_has_read_is_asked_for(void **state)
{
	const struct kiln_rule rules[] = {by_rbp, {.kind = KILN_RULE_UNREAD}};

	load_rules(rules, 2);
	t.record.resume.regs.fp = STACK;
	t.stack[1] = CODE + 0x410;
	walk();
	assert_int_equal(t.result.end, KILN_END_NO_TABLE);
	assert_int_equal(t.result.n, 2);
	assert_ptr_equal(t.result.wanted, &t.stored);
	/* Of a return address, the call. */
	assert_int_equal(t.result.wanted_pc, CODE + 0x40f);
	assert_int_equal(t.result.wanted_vaddr, 0x40f);
	t.record.resume.regs.pc = CODE + 0x410;
	walk();
	assert_int_equal(t.result.end, KILN_END_NO_TABLE);
	assert_int_equal(t.result.wanted_vaddr, 0x410);
}

static void endless_chain_ends_at_the_limit(void **state)
{
	const struct kiln_rule rules[] = {{.kind = KILN_RULE_FP}};

	load_rules(rules, 1);
	t.record.resume.regs.fp = STACK;
	t.stack[0] = STACK;
	t.stack[1] = CODE + 0x20;
	walk();
	assert_int_equal(t.result.end, KILN_END_DEPTH);
	assert_int_equal(t.result.n, KILN_MAX_USER_FRAMES);
	finish_walk(&t.memory, &t.mapset, &t.record.head, 10, &t.result);
	assert_int_equal(t.result.n, 10);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
	    TEST(restores_rbp_and_stops_at_undefined_return_address),
	    TEST(return_address_at_a_function_start_belongs_to_the_call_before),
	    TEST(pages_that_are_not_there_are_left_out_of_the_dump),
	    TEST(a_page_that_is_not_there_cannot_be_read),
	    TEST(a_word_may_lie_on_two_pages),
	    TEST(plt_rule_depends_on_the_place_in_the_stub),
	    TEST(signal_frame_gives_all_registers_back),
	    TEST(realigned_stack_is_found_through_memory),
	    TEST(saved_registers_may_lie_by_rbp),
	    TEST(jit_code_is_walked_by_frame_pointers),
	    TEST(a_frame_pointer_that_leads_nowhere_is_not_believed),
	    TEST(every_failure_has_its_own_end),
	    TEST(code_that_nobody_has_read_is_asked_for),
	    TEST(endless_chain_ends_at_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
