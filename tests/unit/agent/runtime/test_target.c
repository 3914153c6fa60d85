/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-ahead of a process's memory: it saves system calls and returns the same bytes as a direct
 * read.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "agent/runtime/target.h"
#include "tests/support/test.h"

enum { BASE = 0x10000, PAGES = 2, PAGE = 4096 };

struct fake {
	uint8_t bytes[PAGES * PAGE];
	size_t last; /* bytes from this offset on cannot be read */
	unsigned int calls;
	size_t longest;
	struct target_source source;
	struct target target;
	struct target_pieces pieces;
	struct target_memory memory;
};

static uint8_t byte_at(const struct fake *f, size_t i)
{
	return i < sizeof(f->bytes) ? f->bytes[i] : (uint8_t)(i * 7 + i / 256);
}

static int read_fake(void *arg, uint32_t tgid, uint64_t address, void *dst, size_t len)
{
	struct fake *f = arg;

	assert_int_equal(tgid, 7);
	f->calls++;
	f->longest = MAX(f->longest, len);
	if (address < BASE || address - BASE + len > f->last)
		return -EFAULT;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)dst)[i] = byte_at(f, address - BASE + i);
	return 0;
}

static int setup(void **state)
{
	struct fake *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	for (size_t i = 0; i < sizeof(f->bytes); i++)
		f->bytes[i] = (uint8_t)(i * 7 + i / 256);
	f->last = sizeof(f->bytes);
	f->source = (struct target_source){.read = read_fake, .arg = f, .proc_dirfd = -1};
	f->target = (struct target){.source = &f->source, .tgid = 7};
	f->memory = target_memory_ahead(&f->target, &f->pieces);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

/* Reads LEN bytes at AT, and asserts their contents and the number of system calls. */
static void expect(struct fake *f, size_t at, size_t len, unsigned int calls)
{
	uint8_t got[PAGE];

	f->calls = 0;
	assert_int_equal(target_read(&f->memory, BASE + at, got, len), 0);
	assert_memory_equal(got, f->bytes + at, len);
	assert_int_equal(f->calls, calls);
}

static void what_lies_beside_it_is_read_once(void **state)
{
	struct fake *f = *state;

	expect(f, 100, 8, 1);
	expect(f, 108, 200, 0);
	expect(f, 92, 8, 0);
	expect(f, 0, 512, 0);
	expect(f, 500, 24, 1); /* needs the next piece too */
	expect(f, 520, 24, 0);
	/* Several pieces are kept, enough for the objects of one name. */
	expect(f, 1100, 8, 1);
	expect(f, 2100, 8, 1);
	expect(f, 3100, 8, 1);
	expect(f, 1108, 8, 0);
	expect(f, 2090, 8, 0);
}

static void no_page_is_read_that_nobody_asked_for(void **state)
{
	struct fake *f = *state;

	f->last = PAGE;
	expect(f, PAGE - 16, 8, 1);
	expect(f, PAGE - 8, 8, 0);
	assert_int_equal(target_read(&f->memory, BASE + PAGE - 4, f->bytes, 8), -EFAULT);
	/* Where memory ends inside of a piece, the readable part can be read. */
	f->last = 500;
	target_renew(&f->memory);
	expect(f, 480, 8, 2);
	assert_int_equal(target_read(&f->memory, BASE + 496, f->bytes, 8), -EFAULT);
}

static void a_piece_that_failed_is_no_piece(void **state)
{
	struct fake *f = *state;
	uint8_t byte;

	for (size_t i = 0; i < PAGES * PAGE / TARGET_PIECE; i++)
		expect(f, i * TARGET_PIECE, 8, 1);
	target_renew(&f->memory);
	f->last = 0;
	assert_int_equal(target_read(&f->memory, BASE + 5000, &byte, 1), -EFAULT);
	f->last = sizeof(f->bytes);
	expect(f, 5000, 1, 1);
	assert_int_equal(target_read(&f->memory, UINT64_MAX, f->bytes, 8), -EFAULT);
}

static void renewed_memory_is_read_again(void **state)
{
	struct fake *f = *state;

	expect(f, 100, 8, 1);
	f->bytes[100] ^= 1;
	target_renew(&f->memory);
	expect(f, 100, 8, 1);
}

/* The reads of compiled code CODE. */
static void expect_kept(struct fake *f, uint64_t code, size_t at, unsigned int calls)
{
	target_keep_begin(&f->memory, code);
	expect(f, at, 8, calls);
	assert_int_equal(target_has_read(&f->memory), calls > 0);
	target_keep_end(&f->memory);
	assert_int_equal(target_has_read(&f->memory), calls > 0);
	target_renew(&f->memory);
}

static void what_code_keeps_is_read_once(void **state)
{
	struct fake *f = *state;

	f->memory.space = 3;
	expect_kept(f, 5, 100, 1);
	expect_kept(f, 5, 100, 0);
	/* Not for other code, another process, or any other read. */
	expect_kept(f, 6, 100, 1);
	f->memory.space = 4;
	expect_kept(f, 5, 100, 1);
	f->memory.space = 3;
	expect(f, 100, 8, 1);
	target_renew(&f->memory);
	expect_kept(f, 5, 100, 0);
	expect_kept(f, 6, 100, 0);
	target_forget(&f->memory, 5);
	expect_kept(f, 5, 100, 1);
	expect_kept(f, 6, 100, 0);
}

/* What is read before, as the object that tells whether there is still the code, is not kept. */
static void what_was_read_before_is_not_kept(void **state)
{
	struct fake *f = *state;

	f->memory.space = 3;
	expect(f, 100, 8, 1);
	expect_kept(f, 5, 100, 0);
	f->bytes[100] ^= 1;
	expect(f, 100, 8, 1);
	target_renew(&f->memory);
	expect_kept(f, 5, 100, 1);
}

static void one_call_reads_no_two_pieces_into_one_place(void **state)
{
	struct fake *f = *state;
	struct target_span spans[2 * TARGET_WAYS];
	uint8_t got[TARGET_PIECE];
	size_t n = 0;

	/* Pieces of one set */
	f->last = SIZE_MAX;
	for (uint64_t at = BASE; n < ARRAY_SIZE(spans); at += TARGET_PIECE)
		if (hash_words(&at, 1, 0) % TARGET_SETS == 0)
			spans[n++] = (struct target_span){at, TARGET_PIECE};
	target_read_together(&f->memory, spans, n);
	assert_int_equal(f->calls, TARGET_WAYS);
	for (size_t i = 0; i < n; i++) {
		f->calls = 0;
		assert_int_equal(target_read(&f->memory, spans[i].address, got, TARGET_PIECE), 0);
		for (size_t k = 0; k < TARGET_PIECE; k++)
			assert_int_equal(got[k], byte_at(f, spans[i].address - BASE + k));
		assert_int_equal(f->calls, i < TARGET_WAYS ? 0 : 1);
	}
}

static void spans_are_read_together(void **state)
{
	struct fake *f = *state;
	const struct target_span spans[] = {
	    {BASE + 100, 8}, {BASE + 500, 24}, {BASE + 108, 8}, {0, 0}, {BASE + 6000, 1}};

	target_read_together(&f->memory, spans, ARRAY_SIZE(spans));
	assert_int_equal(f->calls, 3); /* pieces; a real process is read by one call */
	expect(f, 100, 8, 0);
	expect(f, 500, 24, 0);
	expect(f, 6000, 1, 0);
	/* What is there is not read again. */
	f->calls = 0;
	target_read_together(&f->memory, spans, ARRAY_SIZE(spans));
	assert_int_equal(f->calls, 0);
	target_renew(&f->memory);
	expect(f, 100, 8, 1);
}

static void a_span_that_cannot_be_read_does_no_harm(void **state)
{
	struct fake *f = *state;
	const struct target_span spans[] = {
	    {BASE, 8}, {1, 8}, {BASE + 2048, 8}, {UINT64_MAX - 3, 8}, {BASE, SIZE_MAX}};

	target_read_together(&f->memory, spans, ARRAY_SIZE(spans));
	expect(f, 0, 8, 0);
	/* Those behind it are read when they are asked for. */
	expect(f, 2048, 8, 1);
	f->calls = 0;
	target_read_together(&f->memory, &spans[4], 1);
	/* To the end of the memory, and not further than pieces are kept. */
	assert_in_range(f->calls, PAGES * PAGE / TARGET_PIECE - 2, TARGET_BATCH);
	expect(f, PAGES * PAGE - 8, 8, 0);
}

static void spans_of_a_process_are_read_by_one_call(void **state)
{
	struct target_source source = {.proc_dirfd = -1};
	const struct mapset mapset = {0};
	struct target target = {.source = &source, .mapset = &mapset, .tgid = (uint32_t)getpid()};
	static struct target_pieces pieces;
	struct target_memory memory = target_memory_ahead(&target, &pieces);
	static uint64_t here[1024] = {[0] = 11, [300] = 22, [900] = 33};
	struct target_span spans[] = {{(uintptr_t)&here[0], 8},
				      {(uintptr_t)&here[300], 8},
				      {16, 8}, /* nothing lies there */
				      {(uintptr_t)&here[900], 8}};
	uint64_t got;

	target_read_together(&memory, spans, ARRAY_SIZE(spans));
	/* These reads are answered by what was read before. */
	here[0] = here[300] = here[900] = 44;
	assert_int_equal(target_read(&memory, (uintptr_t)&here[0], &got, 8), 0);
	assert_int_equal(got, 11);
	assert_int_equal(target_read(&memory, (uintptr_t)&here[300], &got, 8), 0);
	assert_int_equal(got, 22);
	assert_int_equal(target_read(&memory, (uintptr_t)&here[900], &got, 8), 0);
	assert_int_equal(got, 44);
	target_renew(&memory);
	assert_int_equal(target_read(&memory, (uintptr_t)&here[0], &got, 8), 0);
	assert_int_equal(got, 44);
}

/* What is read once more is read behind the rest, and is what later reads get. */
static void what_was_read_before_is_read_again_behind_the_rest(void **state)
{
	struct fake *f = *state;
	const struct target_span again = {BASE, 8}, spans[] = {{BASE + 2048, 8}};

	f->memory.space = 3;
	target_keep_begin(&f->memory, 5);
	target_keep_end(&f->memory);
	expect(f, 0, 8, 1);
	f->calls = 0;
	f->bytes[0]++;
	target_read_again(&f->memory, spans, 1, &again);
	assert_int_equal(f->calls, 2);
	assert_false(target_has_read(&f->memory));
	expect(f, 0, 8, 0);
	/* Without anything to read there is no need. */
	f->calls = 0;
	target_read_again(&f->memory, spans, 1, &again);
	assert_int_equal(f->calls, 0);
	/* A read behind it is seen. */
	expect(f, 4096, 8, 1);
	assert_true(target_has_read(&f->memory));
}

/* AGAIN tells whether the code still exists, so each later call has to read it anew: it is never
 * kept with the code's other pieces. */
static void what_is_read_again_is_not_kept(void **state)
{
	struct fake *f = *state;
	const struct target_span again = {BASE, 8}, spans[] = {{BASE + 2048, 8}};

	f->memory.space = 3;
	target_keep_begin(&f->memory, 5);
	target_read_again(&f->memory, spans, 1, &again);
	target_keep_end(&f->memory);
	assert_false(target_has_read(&f->memory));
	target_renew(&f->memory);
	target_keep_begin(&f->memory, 5);
	f->calls = 0;
	expect(f, 2048, 8, 0);
	expect(f, 0, 8, 1);
	target_keep_end(&f->memory);
}

static void what_cannot_be_read_again_counts_as_read(void **state)
{
	struct fake *f = *state;
	const struct target_span again = {BASE, 8}, spans[] = {{BASE + 2048, 8}};

	f->memory.space = 3;
	expect(f, 0, 8, 1);
	f->last = 0;
	target_keep_begin(&f->memory, 5);
	target_read_again(&f->memory, spans, 1, &again);
	target_keep_end(&f->memory);
	assert_true(target_has_read(&f->memory));
	f->last = sizeof(f->bytes);
	f->calls = 0;
	expect(f, 0, 8, 1);
}

static void long_pieces_are_not_kept(void **state)
{
	struct fake *f = *state;

	expect(f, 0, TARGET_READ_MAX + 8, 1);
	expect(f, 0, TARGET_READ_MAX + 8, 1);
	assert_int_equal(f->longest, TARGET_READ_MAX + 8);
}

/* A page that is not in memory may be of a file on a filesystem that hangs. */
static void of_unknown_mappings_only_pages_in_memory_are_read(void **state)
{
	int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct target_source source = {.proc_dirfd = proc_dirfd};
	struct target target = {.source = &source, .tgid = (uint32_t)getpid()};
	struct target_memory memory = target_memory_of(&target);
	uint8_t *page =
	    mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t byte = 0;

	assert_true(proc_dirfd >= 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	assert_int_equal(target_read(&memory, (uintptr_t)page, &byte, 1), -EFAULT);
	page[0] = 5;
	assert_int_equal(target_read(&memory, (uintptr_t)page, &byte, 1), 0);
	assert_int_equal(byte, 5);
	munmap(page, PAGE);
	close(proc_dirfd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_lies_beside_it_is_read_once, setup, teardown),
	    cmocka_unit_test_setup_teardown(no_page_is_read_that_nobody_asked_for, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_piece_that_failed_is_no_piece, setup, teardown),
	    cmocka_unit_test_setup_teardown(renewed_memory_is_read_again, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_code_keeps_is_read_once, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_was_read_before_is_not_kept, setup, teardown),
	    cmocka_unit_test_setup_teardown(one_call_reads_no_two_pieces_into_one_place, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(spans_are_read_together, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_span_that_cannot_be_read_does_no_harm, setup,
					    teardown),
	    cmocka_unit_test(spans_of_a_process_are_read_by_one_call),
	    cmocka_unit_test_setup_teardown(what_was_read_before_is_read_again_behind_the_rest,
					    setup, teardown),
	    cmocka_unit_test_setup_teardown(what_is_read_again_is_not_kept, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_cannot_be_read_again_counts_as_read, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(long_pieces_are_not_kept, setup, teardown),
	    cmocka_unit_test(of_unknown_mappings_only_pages_in_memory_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
