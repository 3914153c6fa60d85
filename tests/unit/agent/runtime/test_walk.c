/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of bpf/unwind.h with runtimes, compiled for the host: the order of frames, which frames
 * a walker may hide or step over, and where the walk ends. Native frame N is at PC(N) and has 16
 * bytes of stack; owner[N] is the runtime whose code it is in.
 */
#include "tests/support/test.h"

#define KILN_WALKER test_walker
#include "bpf/unwind.h"

#include "tests/unit/agent/runtime/walkers.h"

enum { PC0 = 0x100000, PC_STEP = 0x100, STACK = 0x7000, FRAMES = 3000, RUNTIMES = -1 };
#define PC(n) ((uint64_t)PC0 + (uint64_t)(n)*PC_STEP)

static struct {
	uint64_t words[KILN_RECORD_WORDS];
	uint64_t stack[2 * FRAMES];
	uint8_t owner[FRAMES]; /* enum kiln_runtime_id */
	uint32_t n;	       /* native frames; the last one is the root */
	bool attached;
	uint32_t lookups, calls;
	uint32_t reads, bytes; /* reads of the stack, and their bytes */
	struct kiln_cache_entry entry;
	struct kiln_walk walk;
} t;

static inline struct kiln_walk *env_walk(uint32_t slot)
{
	return &t.walk;
}

static inline const struct kiln_mapping *env_mapping(uint32_t index)
{
	return NULL;
}

static inline const struct kiln_table *env_table(uint32_t image)
{
	return NULL;
}

static inline const uint32_t *env_slot(uint32_t slot)
{
	return NULL;
}

static inline int env_read(void *dst, uint32_t len, uint64_t address)
{
	if (address < STACK || address + len > STACK + sizeof(t.stack))
		return -1;
	/* A read across pages would fail if the next page is missing. */
	assert_true((address ^ (address + len - 1)) < KILN_PAGE);
	t.reads++;
	t.bytes += len;
	memcpy(dst, (const uint8_t *)t.stack + (address - STACK), len);
	return 0;
}

static inline struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	return NULL;
}

static inline struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	uint64_t n = (pc - PC0) / PC_STEP;

	assert_true(n < t.n);
	t.entry = (struct kiln_cache_entry){.pc = pc, .tag = w->tag};
	if (n + 1 == t.n)
		t.entry.rule = (struct kiln_rule){.kind = KILN_RULE_STOP};
	else
		t.entry.rule = (struct kiln_rule){.kind = KILN_RULE_CFA,
						  .reg = ARCH_REG_SP,
						  .cfa_off = 16,
						  .ra_off = ARCH_RA_OFFSET};
	if (t.owner[n]) {
		t.entry.rule.flags |= KILN_RULE_RUNTIME;
		t.entry.rule.deref_off = t.owner[n];
	}
	return &t.entry;
}

static inline const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	static struct kiln_runtime runtime;

	t.lookups++;
	runtime.data[0] = id;
	runtime.size = sizeof(runtime.data[0]);
	return t.attached ? &runtime : NULL;
}

static inline uint64_t *env_words(struct kiln_walk *w)
{
	return t.words;
}

static void no_walker(struct kiln_walk *w)
{
	fail_msg("nobody asked for this walker");
}

/* Emits one frame whose second word is the number of this call. */
static void one_frame(struct kiln_walk *w)
{
	t.calls++;
	walk_emit(w, 0, t.calls, w->runtime.data[0]);
}

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	t.attached = true;
	for (uint32_t i = 0; i + 1 < FRAMES; i++)
		t.stack[2 * i + 1] = PC(i + 1) + 1;
	walker_of[FIRST] = walker_of[SECOND] = no_walker;
	return 0;
}

static void walk(uint32_t n, uint32_t at, uint32_t max_frames, uint32_t runtimes)
{
	t.n = n;
	memset(&t.walk, 0, sizeof(t.walk));
	t.walk.regs = (struct kiln_regs){.pc = PC(0), .sp = STACK};
	t.walk.tag = 1;
	t.walk.exact = 1;
	t.walk.runtimes = runtimes;
	walk_begin(&t.walk, at, max_frames);
	assert_int_equal(walk_put(&t.walk, walk_frame(&t.walk)), 0);
	walk_on(&t.walk);
}

static uint64_t native(uint32_t n)
{
	return ((uint64_t)KILN_FRAME_NATIVE << KILN_FRAME_KIND_SHIFT) |
	       (n ? KILN_FRAME_RETURN | (PC(n) + 1) : PC(0));
}

static uint64_t frame_of(uint32_t id, uint64_t address)
{
	return ((uint64_t)KILN_FRAME_RUNTIME(id) << KILN_FRAME_KIND_SHIFT) | address;
}

static uint64_t python(uint64_t address)
{
	return frame_of(FIRST, address);
}

static uint64_t v8(uint64_t address)
{
	return frame_of(SECOND, address);
}

static uint64_t missing(uint32_t id, enum kiln_missing why)
{
	return ((uint64_t)KILN_FRAME_MISSING << KILN_FRAME_KIND_SHIFT) | id << 8 | (uint64_t)why;
}

static void a_word_has_room_for_every_runtime(void **unused)
{
	(void)unused;
	for (uint32_t id = 1; id < 32; id++) {
		memset(&t.walk, 0, sizeof(t.walk));
		walk_begin(&t.walk, 0, 4);
		t.walk.runtime_id = id;
		assert_int_equal(walk_emit(&t.walk, 5, KILN_FRAME_PC_MASK, UINT64_MAX), 0);
		walk_missing(&t.walk, KILN_MISSING_BUDGET);
		assert_int_equal(t.walk.n, 3);
		assert_int_equal(kiln_frame_words(t.words[0]), 2);
		assert_int_equal(kiln_frame_runtime(t.words[0]), id);
		assert_int_equal(KILN_FRAME_FLAGS(t.words[0]), 5);
		assert_int_equal(t.words[0] & KILN_FRAME_PC_MASK, KILN_FRAME_PC_MASK);
		assert_int_equal(kiln_frame_words(t.words[2]), 1);
		assert_int_equal(kiln_frame_runtime(t.words[2]), 0);
		assert_int_equal(KILN_FRAME_KIND(t.words[2]), KILN_FRAME_MISSING);
		assert_int_equal(kiln_missing_runtime(t.words[2]), id);
		assert_int_equal(kiln_missing_reason(t.words[2]), KILN_MISSING_BUDGET);
	}
}

static void assert_words(const uint64_t *words, uint32_t n, uint32_t at)
{
	assert_int_equal(t.walk.n, n);
	for (uint32_t i = 0; i < n; i++)
		if (t.words[at + i] != words[i])
			fail_msg("word %u is %#llx, not %#llx", i,
				 (unsigned long long)t.words[at + i], (unsigned long long)words[i]);
}

static void frames_of_a_runtime_come_before_the_native_frame_that_ran_them(void **state)
{
	const uint64_t want[] = {native(0), python(1), 1,	  native(1), native(2),
				 python(2), 1,	       native(3), native(4)};

	t.owner[1] = t.owner[3] = FIRST;
	walker_of[FIRST] = one_frame;
	walk(5, 7, 100, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_words(want, ARRAY_SIZE(want), 7);
	assert_int_equal(t.walk.runtime_frames, 2);
	/* The process's entry in `runtimes` is looked up once a walk. */
	assert_int_equal(t.lookups, 1);
}

static void the_leaf_and_the_root_may_be_a_runtimes(void **state)
{
	const uint64_t want[] = {python(1), 1, native(0), python(2), 1, native(1)};

	t.owner[0] = t.owner[1] = FIRST;
	walker_of[FIRST] = one_frame;
	walk(2, 0, 100, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_words(want, ARRAY_SIZE(want), 0);
}

static void each_runtime_is_asked_for_its_own_frames(void **state)
{
	const uint64_t want[] = {v8(1),	    SECOND, native(0), native(1), python(2), FIRST,
				 native(2), v8(3),  SECOND,    native(3), native(4)};

	t.owner[0] = t.owner[3] = SECOND;
	t.owner[2] = FIRST;
	walker_of[FIRST] = walker_of[SECOND] = one_frame;
	walk(5, 0, 100, (uint32_t)RUNTIMES);
	assert_words(want, ARRAY_SIZE(want), 0);
}

static void hiding(struct kiln_walk *w)
{
	one_frame(w);
	w->hide_native = 1;
}

static void a_frame_that_stands_for_the_native_one_takes_its_place(void **state)
{
	const uint64_t want[] = {native(0), python(1), 1, python(2), 1, native(3)};

	t.owner[1] = t.owner[2] = FIRST;
	walker_of[FIRST] = hiding;
	walk(4, 0, 100, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_words(want, ARRAY_SIZE(want), 0);
}

/* Steps over two native frames. */
static void stepping(struct kiln_walk *w)
{
	uint64_t n = (w->regs.sp - STACK) / 16 + 2;

	one_frame(w);
	w->hide_native = 1;
	w->stepped = !walk_enter(w, PC(n) + 1, STACK + n * 16, 0, 0);
}

static void a_walker_may_go_to_the_caller_itself(void **state)
{
	const uint64_t want[] = {native(0), python(1), 1, python(2), 1, native(5), native(6)};

	t.owner[1] = t.owner[3] = FIRST;
	walker_of[FIRST] = stepping;
	walk(7, 0, 100, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_words(want, ARRAY_SIZE(want), 0);
}

static void a_runtime_that_is_not_known_yet_is_said_once(void **state)
{
	const uint64_t want[] = {native(0), missing(FIRST, KILN_MISSING_UNKNOWN),
				 native(1), native(2),
				 native(3), native(4)};

	t.attached = false;
	t.owner[1] = t.owner[2] = t.owner[3] = FIRST;
	walk(5, 0, 100, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_words(want, ARRAY_SIZE(want), 0);
}

static void each_runtime_that_lacks_frames_says_so(void **state)
{
	const uint64_t want[] = {missing(FIRST, KILN_MISSING_UNKNOWN), native(0),
				 missing(SECOND, KILN_MISSING_UNKNOWN), native(1), native(2)};

	t.attached = false;
	t.owner[0] = FIRST;
	t.owner[1] = SECOND;
	walk(3, 0, 100, (uint32_t)RUNTIMES);
	assert_words(want, ARRAY_SIZE(want), 0);
}

static void a_tracer_that_a_policy_has_off_is_not_asked(void **state)
{
	const uint64_t want[] = {native(0), v8(1), SECOND, native(1), native(2)};

	t.owner[0] = FIRST;
	t.owner[1] = SECOND;
	walker_of[SECOND] = one_frame;
	walk(3, 0, 100, 1U << SECOND);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_words(want, ARRAY_SIZE(want), 0);
	assert_int_equal(t.lookups, 1);
}

static void endless(struct kiln_walk *w)
{
	t.calls++;
	while (!walk_emit(w, 0, 1, 1))
		;
}

static void more_frames_than_may_be_end_the_walk_with_the_native_one_in_it(void **state)
{
	t.owner[1] = FIRST;
	walker_of[FIRST] = endless;
	walk(5, 0, 100, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_DEPTH);
	assert_int_equal(t.walk.runtime_frames, 100);
	assert_int_equal(t.walk.n, 1 + 2 * 100 + 1);
	assert_true(t.words[t.walk.n - 1] == native(1));
	assert_int_equal(t.calls, 1);
}

static void native_frames_alone_are_limited_as_ever(void **state)
{
	walk(FRAMES, 0, 127, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_DEPTH);
	assert_int_equal(t.walk.n, 127);
	assert_true(t.words[126] == native(126));
}

/* Every byte that is read costs: small stacks are read in one small piece. */
static void of_a_small_stack_little_is_read(void **state)
{
	walk(20, 0, 1024, 0);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_int_equal(t.reads, 1);
	assert_true(t.bytes <= 1024);
}

static void of_a_large_stack_pages_are_read(void **state)
{
	const uint32_t frames = 1000, bytes = frames * 16;

	walk(frames, 0, 1024, 0);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_true(t.bytes <= bytes + KILN_PAGE);
	assert_true(t.reads <= bytes / KILN_PAGE + 3);
}

/* As in CPython before 3.11, which has several native frames for each of its own. */
static void each_frame_of_a_runtime_allows_for_native_ones(void **state)
{
	uint32_t deep = KILN_MAX_USER_FRAMES, native_frames = 2 * deep;

	for (uint32_t i = 0; i < native_frames; i += 2)
		t.owner[i] = FIRST;
	walker_of[FIRST] = one_frame;
	walk(native_frames, 0, deep, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	assert_int_equal(t.walk.runtime_frames, deep);
	assert_int_equal(t.walk.n, native_frames + 2 * deep);
}

/* Steps back to the same native frame each time: the walk must end and the record not overflow. */
static void back(struct kiln_walk *w)
{
	t.calls++;
	walk_emit(w, 0, t.calls, 0);
	w->stepped = !walk_enter(w, PC(1) + 1, STACK + 16, 0, 0);
}

static void a_walker_that_goes_in_circles_comes_to_an_end(void **state)
{
	t.owner[1] = FIRST;
	walker_of[FIRST] = back;
	walk(5, 0, KILN_MAX_USER_FRAMES, (uint32_t)RUNTIMES);
	assert_int_equal(t.walk.end, KILN_END_DEPTH);
	assert_true(t.walk.n <= KILN_MAX_USER_WORDS);
	assert_true(t.calls <= KILN_CHUNKS * KILN_CHUNK_STEPS);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
	    TEST(a_word_has_room_for_every_runtime),
	    TEST(frames_of_a_runtime_come_before_the_native_frame_that_ran_them),
	    TEST(the_leaf_and_the_root_may_be_a_runtimes),
	    TEST(each_runtime_is_asked_for_its_own_frames),
	    TEST(a_frame_that_stands_for_the_native_one_takes_its_place),
	    TEST(a_walker_may_go_to_the_caller_itself),
	    TEST(a_runtime_that_is_not_known_yet_is_said_once),
	    TEST(each_runtime_that_lacks_frames_says_so),
	    TEST(a_tracer_that_a_policy_has_off_is_not_asked),
	    TEST(more_frames_than_may_be_end_the_walk_with_the_native_one_in_it),
	    TEST(native_frames_alone_are_limited_as_ever),
	    TEST(of_a_small_stack_little_is_read),
	    TEST(of_a_large_stack_pages_are_read),
	    TEST(each_frame_of_a_runtime_allows_for_native_ones),
	    TEST(a_walker_that_goes_in_circles_comes_to_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
