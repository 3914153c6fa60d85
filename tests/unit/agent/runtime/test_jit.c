/* SPDX-License-Identifier: Apache-2.0 */
/* A process's JIT memory belongs to its runtime, also memory that /proc/PID/maps does not show
 * as code yet. And what new mappings do to a mapset in force. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "agent/sampler/sideband.h"
#include "tests/unit/agent/runtime/fake.h"

enum { PY = FAKE_PYTHON, V8 = FAKE_V8, PAGE = 4096, PAGES = 16 };

static uint8_t *memory; /* PAGES pages, at first without execute permission */

static int setup(void **state)
{
	memory = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? -1 : fake_setup(state);
}

static int teardown(void **state)
{
	munmap(memory, PAGES * PAGE);
	return fake_teardown(state);
}

static void make_code(int page)
{
	assert_int_equal(mprotect(memory + page * PAGE, PAGE, PROT_READ | PROT_EXEC), 0);
}

static uint64_t at(int page)
{
	return (uint64_t)(uintptr_t)memory + (uint64_t)page * PAGE;
}

/* The mapping at ADDRESS in the kernel's copy. */
static const struct kiln_mapping *kernel_mapping(const struct mapset *m, uint64_t address)
{
	for (uint32_t i = 0; i < m->n; i++) {
		const struct kiln_mapping *k = &fake.mappings[m->first + i];

		if (address >= k->start && address < k->end)
			return k;
	}
	return NULL;
}

static uint32_t owner(const struct mapset *m, uint64_t address)
{
	const struct kiln_mapping *k = kernel_mapping(m, address);

	return k ? k->flags >> KILN_MAPPING_RUNTIME_SHIFT & 31 : 99;
}

static void assert_sorted(const struct mapset *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		assert_true(m->ranges[i].start < m->ranges[i].end);
		assert_true(!i || m->ranges[i - 1].end <= m->ranges[i].start);
	}
}

static void jit_memory_belongs_to_the_runtime_that_owns_it(void **state)
{
	struct mapset *m;

	make_code(3);
	fake_probe(1);
	assert_int_equal(owner(fake_read(2), at(3)), 0);
	fake_restart(~0U);
	fake.r[V8].owns_jit = true;
	fake_probe(1);
	m = fake_read(3);
	assert_int_equal(owner(m, at(3)), V8);
	assert_int_equal(kernel_mapping(m, at(3))->flags & 1, KILN_MAPPING_JIT);
	assert_int_equal(owner(m, at(4)), 99);
	assert_int_equal(owner(m, fake_own_range(m)->start), 0);
	assert_sorted(m);
}

/* The surest claim wins, whatever the order of attaching. */
static void memory_belongs_to_the_runtime_that_is_surest_of_it(void **state)
{
	struct mapset *m;

	make_code(2);
	make_code(4);
	make_code(6);
	fake.r[V8].owns_jit = true;
	fake.r[PY].jit_start = at(4);
	fake.r[PY].jit_end = at(5);
	fake.r[V8].jit_start = at(6);
	fake.r[V8].jit_end = at(7);
	fake_probe(1);
	m = fake_read(2);
	assert_int_equal(owner(m, at(2)), V8);
	assert_int_equal(owner(m, at(4)), PY);
	assert_int_equal(owner(m, at(6)), V8);
	fake.r[PY].owns_jit = true;
	m = fake_read(3);
	assert_int_equal(owner(m, at(2)), PY);
	assert_int_equal(owner(m, at(4)), PY);
	assert_int_equal(owner(m, at(6)), V8);
}

static void of_two_claims_that_are_alike_the_lower_id_wins(void **state)
{
	struct mapset *m;
	uint32_t epoch;

	make_code(4);
	m = fake_read(1);
	fake.r[PY].attach_result = -EAGAIN;
	for (int i = PY; i <= V8; i++) {
		fake.r[i].jit_start = at(4);
		fake.r[i].jit_end = at(5);
	}
	fake_probe(2);
	assert_int_equal(owner(m, at(4)), V8);
	/* Python is attached to later, when the mapset is in force. */
	epoch = fake.epoch;
	fake.r[PY].attach_result = 0;
	runtimes_missed(fake.rt, m, PY, 3000000000);
	assert_int_equal(owner(m, at(4)), PY);
	assert_true(fake.epoch > epoch);
	assert_int_equal(owner(fake_read(4), at(4)), PY);
}

/* Memory that is reserved for code leaves out pages that another runtime claims for certain. */
static void code_to_come_leaves_out_the_code_of_others(void **state)
{
	struct mapset *m;

	make_code(5);
	make_code(7);
	fake.r[PY].jit_start = at(5);
	fake.r[PY].jit_end = at(6);
	fake.r[V8].code_start = at(2);
	fake.r[V8].code_end = at(10);
	fake_probe(1);
	m = fake_read(2);
	assert_sorted(m);
	for (int page = 0; page < PAGES; page++)
		assert_int_equal(owner(m, at(page)), page == 5		      ? PY
						     : page >= 2 && page < 10 ? V8
									      : 99);
}

static void code_to_come_is_part_of_the_mapset(void **state)
{
	struct mapset *m;

	fake.r[V8].owns_jit = true;
	fake.r[V8].code_start = at(2);
	fake.r[V8].code_end = at(10);
	make_code(1);
	make_code(4);
	make_code(9);
	make_code(10);
	fake_probe(1);
	m = fake_read(2);
	assert_sorted(m);
	for (int page = 0; page < PAGES; page++)
		assert_int_equal(owner(m, at(page)), page >= 1 && page <= 10 ? V8 : 99);
	/*
	 * The reserved memory is one range, so that pages which become code later change nothing.
	 */
	assert_int_equal(mapset_find(m, at(2))->start, at(2));
	assert_int_equal(mapset_find(m, at(2))->end, at(10));
}

static void a_range_that_crosses_a_border_is_cut_there(void **state)
{
	struct mapset *m;

	fake.r[V8].owns_jit = true;
	fake.r[V8].code_start = at(2);
	fake.r[V8].code_end = at(10);
	for (int page = 1; page < 4; page++)
		make_code(page);
	for (int page = 8; page < 12; page++)
		make_code(page);
	fake_probe(1);
	m = fake_read(2);
	assert_sorted(m);
	for (int page = 0; page < PAGES; page++)
		assert_int_equal(owner(m, at(page)), page >= 1 && page < 12 ? V8 : 99);
	assert_int_equal(mapset_find(m, at(1))->end, at(2));
	assert_int_equal(mapset_find(m, at(2))->end, at(10));
	assert_int_equal(mapset_find(m, at(10))->end, at(12));
}

static void a_claim_never_takes_a_segment_of_a_file(void **state)
{
	const struct mapset_range *own;
	struct mapset *m = fake_read(1);
	struct stored_image *image;
	uint32_t n = m->n;
	uint64_t start = fake_own_range(m)->start, end = fake_own_range(m)->end;

	fake.r[V8].owns_jit = true;
	fake.r[V8].code_start = start - PAGE;
	fake.r[V8].code_end = end + PAGE;
	fake_probe(1);
	m = fake_read(2);
	assert_sorted(m);
	own = mapset_find(m, start);
	image = own->image;
	assert_non_null(image);
	assert_int_equal(own->start, start);
	assert_int_equal(own->end, end);
	assert_int_equal(owner(m, start - 1), V8);
	assert_int_equal(owner(m, end), V8);
	assert_int_equal(m->n, n + 2);
}

/* Maps the page of FD at OFFSET as code in place of PAGE. */
static struct sideband_mapping map_file(int fd, uint64_t offset, int page)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_ptr_equal(mmap(memory + page * PAGE, PAGE, PROT_READ | PROT_EXEC,
			      MAP_PRIVATE | MAP_FIXED, fd, (off_t)offset),
			 memory + page * PAGE);
	return (struct sideband_mapping){.tgid = (uint32_t)getpid(),
					 .dev_major = major(st.st_dev),
					 .dev_minor = minor(st.st_dev),
					 .inode = st.st_ino,
					 .start = at(page),
					 .length = PAGE,
					 .offset = offset,
					 .time = 5};
}

static void a_file_that_is_no_elf_can_be_claimed(void **state)
{
	FILE *file = tmpfile();
	struct sideband_mapping mapping;
	struct mapset *m;

	assert_non_null(file);
	assert_int_equal(ftruncate(fileno(file), PAGE), 0);
	mapping = map_file(fileno(file), 0, 3);
	fake.r[V8].jit_start = at(3);
	fake.r[V8].jit_end = at(4);
	fake_probe(1);
	m = fake_read(2);
	assert_int_equal(owner(m, at(3)), V8);
	assert_int_equal(kernel_mapping(m, at(3))->image, 0);
	assert_int_equal(mapset_compare(m, &mapping), MAPSET_HOLDS);
	fclose(file);
}

/* A file that holds a program and more behind its segments: its last page is in no segment. */
static void what_no_segment_of_an_elf_file_has_can_be_claimed(void **state)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	const struct mapset_range *own;
	struct sideband_mapping mapping;
	struct mapset *m;
	struct stat st;

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	mapping = map_file(fd, (uint64_t)(st.st_size - 1) / PAGE * PAGE, 3);
	fake.r[V8].jit_start = at(3);
	fake.r[V8].jit_end = at(4);
	fake_probe(1);
	m = fake_read(2);
	assert_int_equal(owner(m, at(3)), V8);
	/* The file's table and symbols do not apply to that page. */
	assert_null(mapset_range_elf(mapset_find(m, at(3))));
	assert_int_equal(kernel_mapping(m, at(3))->image, 0);
	assert_int_equal(mapset_compare(m, &mapping), MAPSET_HOLDS);
	/* They apply to all of its segments, as before. */
	own = fake_own_range(m);
	assert_non_null(mapset_range_elf(own));
	assert_int_equal(owner(m, own->start), 0);
	assert_true(kernel_mapping(m, own->start)->image > 0);
}

static void a_whole_address_space_can_be_claimed(void **state)
{
	struct mapset *m;

	fake.r[V8].owns_jit = true;
	fake.r[V8].code_start = 1;
	fake.r[V8].code_end = UINT64_MAX;
	make_code(3);
	fake_probe(1);
	m = fake_read(2);
	assert_sorted(m);
	assert_int_equal(owner(m, at(0)), V8);
	assert_int_equal(owner(m, 1), V8);
	assert_int_equal(owner(m, fake_own_range(m)->start), 0);
}

static void a_mapset_in_force_is_marked_in_place_and_caches_are_void(void **state)
{
	struct mapset *m;
	uint32_t epoch;

	make_code(3);
	m = fake_read(1);
	assert_int_equal(owner(m, at(3)), 0);
	epoch = fake.epoch;
	fake.r[V8].owns_jit = true;
	fake_probe(2);
	assert_int_equal(owner(m, at(3)), V8);
	assert_true(fake.epoch > epoch);
}

/* The process's mapset lacks the memory reserved for code, so it gets a new one. */
static void a_mapset_in_force_is_renewed_for_code_to_come(void **state)
{
	struct mapset *now;

	(void)fake_read(1);
	fake.r[V8].owns_jit = true;
	fake.r[V8].code_start = at(2);
	fake.r[V8].code_end = at(10);
	fake_probe(2);
	now = mapset_store_find(fake.mapsets, fake.process.mapset);
	assert_non_null(now);
	assert_int_equal(owner(now, at(5)), V8);
	assert_non_null(fake_find(now, V8));
}

/* ---- new mappings ---------------------------------------------------------------------------- */

static struct sideband_mapping mapped(uint64_t start, uint64_t length, uint64_t inode)
{
	return (struct sideband_mapping){.tgid = (uint32_t)getpid(),
					 .start = start,
					 .length = length,
					 .offset = start,
					 .inode = inode,
					 .time = 5};
}

static void code_that_was_to_come_changes_nothing(void **state)
{
	struct sideband_mapping new = mapped(at(4), PAGE, 0);
	struct mapset *m;

	fake.r[V8].owns_jit = true;
	fake.r[V8].code_start = at(2);
	fake.r[V8].code_end = at(10);
	fake_probe(1);
	m = fake_read(2);
	assert_int_equal(mapset_compare(m, &new), MAPSET_HOLDS);
}

static void code_where_nothing_was_leaves_the_mapset_in_force(void **state)
{
	struct sideband_mapping new = mapped(at(4), 2 * PAGE, 77);

	assert_int_equal(mapset_compare(fake_read(1), &new), MAPSET_EXTENDED);
}

/* The kernel merges code pages and reports the whole area when the next page becomes code. */
static void jit_memory_that_grows_leaves_the_mapset_in_force(void **state)
{
	struct sideband_mapping new;
	struct mapset *m;

	make_code(5);
	m = fake_read(1);
	new = mapped(at(5), 2 * PAGE, 0);
	assert_int_equal(mapset_compare(m, &new), MAPSET_EXTENDED);
}

static void code_in_the_place_of_other_code_is_an_exchange(void **state)
{
	struct sideband_mapping new;
	struct mapset *m;

	make_code(5);
	m = fake_read(1);
	/* The end of the new mapping overlaps known code; its beginning does not. */
	new = mapped(at(3), 3 * PAGE, 77);
	assert_int_equal(mapset_compare(m, &new), MAPSET_EXCHANGED);
	mapset_store_forget(fake.mapsets, m->tgid);
	assert_int_equal(fake.process.mapset, 0);
	assert_null(mapset_store_in_force(fake.mapsets, m->tgid, m->exec_id));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(jit_memory_belongs_to_the_runtime_that_owns_it),
	    TEST(memory_belongs_to_the_runtime_that_is_surest_of_it),
	    TEST(of_two_claims_that_are_alike_the_lower_id_wins),
	    TEST(code_to_come_leaves_out_the_code_of_others),
	    TEST(code_to_come_is_part_of_the_mapset),
	    TEST(a_range_that_crosses_a_border_is_cut_there),
	    TEST(a_claim_never_takes_a_segment_of_a_file),
	    TEST(a_file_that_is_no_elf_can_be_claimed),
	    TEST(what_no_segment_of_an_elf_file_has_can_be_claimed),
	    TEST(a_whole_address_space_can_be_claimed),
	    TEST(a_mapset_in_force_is_marked_in_place_and_caches_are_void),
	    TEST(a_mapset_in_force_is_renewed_for_code_to_come),
	    TEST(code_that_was_to_come_changes_nothing),
	    TEST(code_where_nothing_was_leaves_the_mapset_in_force),
	    TEST(jit_memory_that_grows_leaves_the_mapset_in_force),
	    TEST(code_in_the_place_of_other_code_is_an_exchange),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
