/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full ring and a full map are counted, large records arrive whole, and kernel threads have no
 * user frames.
 */
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum { RATE = 999, ENOUGH = 20, PAGE = 4096, EDGE = 64, WAKEUP_MS = 10000 };
enum { SELDOM = KILN_DUMPS_LARGE / 2 }; /* every dump may be large */

static struct {
	struct profiled *p;
	struct child children[2];
	struct watch watches[2];
	uint64_t bad_dumps, large_dumps, kernel_threads, bad_kernel_threads;
} t;

static struct watch *const w = &t.watches[0], *const other = &t.watches[1];

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	return 0;
}

static int teardown(void **state)
{
	t.p = profiled_free(t.p);
	child_end(&t.children[0]);
	child_end(&t.children[1]);
	return 0;
}

static void start(const struct sampler_options *options)
{
	struct error err = {};

	if (profiled_new(options, &t.p, &err) < 0 || sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
	for (size_t i = 0; i < ARRAY_SIZE(t.watches); i++)
		t.watches[i] = (struct watch){.tgid = (uint32_t)t.children[i].pid};
}

static uint64_t counted(enum kiln_stat stat)
{
	struct sampler_stats stats;

	sampler_read_stats(t.p->sampler, &stats);
	return stats.counts[stat];
}

static const struct kiln_resume *resume_of(const struct kiln_sample *record)
{
	return (const struct kiln_resume *)(record->words + record->n_kernel + record->n_user);
}

/*
 * The first and the last EDGE words of the child's pattern must hold their own address. Returns how
 * many of these words the dump has.
 */
static uint32_t check_pattern(const struct kiln_sample *record, uint64_t edge)
{
	const struct child_report *said = &t.children[0].report;
	const struct kiln_resume *resume = resume_of(record);
	const uint64_t *word = (const uint64_t *)(resume + 1), *end = word + record->dump_len / 8;
	uint64_t at = (resume->regs.sp & ~7ULL) - KILN_RED_ZONE;
	uint32_t seen = 0;

	for (uint32_t page = 0; page < KILN_DUMP_PAGES; page++) {
		uint64_t next = (at / PAGE + 1) * PAGE;

		if (!(resume->pages[page / 64] >> (page % 64) & 1)) {
			at = next;
			continue;
		}
		for (; at < next && word < end; at += 8, word++) {
			if (at < said->words_from || at >= said->words_to ||
			    (at >= said->words_from + edge * 8 && at < said->words_to - edge * 8))
				continue;
			seen++;
			t.bad_dumps += *word != at;
		}
		t.bad_dumps += at < next; /* more pages in the bitmap than bytes in the dump */
	}
	t.bad_dumps += word != end;
	return seen;
}

static bool is_full(uint32_t len, uint32_t limit)
{
	return len <= limit && len > limit - PAGE;
}

static void check_dump(struct watch *self, const struct kiln_sample *record)
{
	const struct kiln_resume *resume = resume_of(record);
	uint32_t seen = check_pattern(record, UINT32_MAX);

	t.large_dumps += record->dump_len > KILN_DUMP_SMALL;
	t.bad_dumps += !is_full(record->dump_len, KILN_DUMP_MAX) &&
		       !is_full(record->dump_len, KILN_DUMP_SMALL);
	t.bad_dumps += seen < record->dump_len / 8 / 2;
	t.bad_dumps += record->size != sizeof(*record) + (record->n_kernel + record->n_user) * 8 +
					   sizeof(*resume) + record->dump_len;
	t.bad_dumps += resume->leaf[16] != resume->regs.pc;
	t.bad_dumps += !(record->flags & KILN_SAMPLE_FIRST_FRAME);
}

/* A process that fills the ring loses its dumps after a while: see test_share.c. */
static void check_dump_if_any(struct watch *self, const struct kiln_sample *record)
{
	if (record->dump_len)
		check_dump(self, record);
}

/* The kernel limits large dumps a second and CPU: other processes must not use them up. */
static void start_child_alone(uint32_t hz, size_t ring_bytes)
{
	const uint32_t pid = (uint32_t)t.children[0].pid;
	const struct sampler_options options = {.hz = hz,
						.cgroup_mode = CGROUP_HYBRID,
						.ring_bytes = ring_bytes,
						.pids = &pid,
						.n_pids = 1};

	start(&options);
}

static void largest_dump_arrives_whole(void **state)
{
	assert_int_equal(child_start("deep", 3, NULL, &t.children[0]), 0);
	start_child_alone(SELDOM, 16 << 20);
	w->each = check_dump;
	assert_true(watch_until(t.p, w, 1, &w->with_dump, ENOUGH));
	assert_int_equal(t.bad_dumps, 0);
	assert_true(t.large_dumps > 0);
}

/* At most KILN_DUMPS_LARGE a second and CPU (two seconds' worth as slack), whatever the rate is. */
static void large_dumps_are_few(void **state)
{
	uint64_t from;

	assert_int_equal(child_start("deep", 3, NULL, &t.children[0]), 0);
	start_child_alone(RATE, 16 << 20);
	w->each = check_dump;
	from = profiled_now_ns();
	assert_true(watch_until(t.p, w, 1, &w->with_dump, RATE / 2));
	assert_int_equal(t.bad_dumps, 0);
	assert_in_range(t.large_dumps, 1,
			(uint64_t)KILN_DUMPS_LARGE * libbpf_num_possible_cpus() *
			    ((profiled_now_ns() - from) / 1000000000 + 2));
	assert_true(t.large_dumps < w->with_dump);
}

static void check_sparse(struct watch *self, const struct kiln_sample *record)
{
	t.bad_dumps += check_pattern(record, EDGE) != 2 * EDGE;
	t.bad_dumps += record->dump_len >= KILN_DUMP_MAX / 2;
}

static void pages_that_were_never_touched_take_no_room(void **state)
{
	assert_int_equal(child_start("sparse", 3, NULL, &t.children[0]), 0);
	start_child_alone(SELDOM, 16 << 20);
	w->each = check_sparse;
	assert_true(watch_until(t.p, w, 1, &w->with_dump, ENOUGH));
	assert_int_equal(t.bad_dumps, 0);
}

static void a_thousand_frames_arrive_whole(void **state)
{
	const struct sampler_options options = {.hz = RATE, .cgroup_mode = CGROUP_HYBRID};

	assert_int_equal(child_start("spin", 1000, NULL, &t.children[0]), 0);
	start(&options);
	w->learn = true;
	w->child = &t.children[0];
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	/*
	 * Each complete stack was compared with the child's report. The last record may be cut:
	 * samples that were taken while the tables were compiled brought copies of their stacks.
	 */
	assert_int_equal(w->wrong, 0);
	assert_true(t.children[0].report.n > 1000);
}

static void largest_record_has_a_thousand_frames_and_a_dump(void **state)
{
	const struct sampler_options options = {.hz = RATE, .cgroup_mode = CGROUP_HYBRID};
	const struct mapset_range *above;

	/*
	 * Without the table of libc the walk ends above main(): the record has its frames and a
	 * dump.
	 */
	assert_int_equal(child_start("spin", 1000, NULL, &t.children[0]), 0);
	start(&options);
	w->learn = true;
	assert_true(watch_until(t.p, w, 1, &w->complete, 1));
	for (uint32_t i = 0; i < w->mapset->n; i++) {
		above = &w->mapset->ranges[i];
		if (above->image && strstr(above->image->path, "libc.so"))
			unwind_store_remove(t.p->unwind, above->image, 0);
	}
	watch_drain(t.p, w, 1);
	watch_reset(w);
	assert_true(watch_until(t.p, w, 1, &w->with_dump, ENOUGH));
	assert_int_equal(w->complete, 0);
	assert_int_equal(w->by_end[KILN_END_NO_TABLE], w->records);
	assert_int_equal(w->last.n_user, 1 + t.children[0].report.n + 1);
	assert_int_equal(w->last.size, sizeof(w->last) + (w->last.n_kernel + w->last.n_user) * 8 +
					   sizeof(struct kiln_resume) + w->last.dump_len);
}

static void full_ring_is_counted(void **state)
{
	const struct sampler_options options = {
	    .hz = RATE, .cgroup_mode = CGROUP_HYBRID, .ring_bytes = 1};
	uint64_t lost = 0;

	/* The mappings are never loaded: each sample puts 20 KiB and more into a ring of 1 MiB. */
	assert_int_equal(child_start("deep", 3, NULL, &t.children[0]), 0);
	start(&options);
	w->each = check_dump_if_any;
	for (int i = 0; i < 3000 && !lost; i++) {
		usleep(10000);
		lost = counted(KILN_STAT_RING_FULL);
	}
	assert_true(lost > 0);
	/* The records in the full ring are whole, and new ones arrive once it is read. */
	watch_drain(t.p, w, 1);
	assert_true(w->records > 0);
	assert_true(watch_until(t.p, w, 1, &w->records, w->records + ENOUGH));
	assert_int_equal(t.bad_dumps, 0);
}

/*
 * Records of a thousand frames fill the ring within tens of milliseconds. The reader reads it only
 * when the kernel wakes it, which the kernel does while half of the ring is still free.
 */
static void reader_is_woken_before_the_ring_is_full(void **state)
{
	struct pollfd fd = {.events = POLLIN};

	assert_int_equal(child_start("spin", 1000, NULL, &t.children[0]), 0);
	/* Lower the child's priority: on a busy machine this process runs first. */
	assert_int_equal(setpriority(PRIO_PROCESS, (id_t)t.children[0].pid, 10), 0);
	start_child_alone(RATE, 1 << 20);
	w->learn = true;
	assert_true(watch_until(t.p, w, 1, &w->complete, 1));
	fd.fd = sampler_ring_fd(t.p->sampler);
	while (w->complete < 2 * RATE && poll(&fd, 1, WAKEUP_MS) == 1)
		watch_drain(t.p, w, 1);
	assert_true(w->complete >= 2 * RATE);
	assert_int_equal(counted(KILN_STAT_RING_FULL), 0);
}

static void full_processes_map_is_counted_and_loses_no_sample(void **state)
{
	uint32_t pids[2];
	struct sampler_options options = {.hz = RATE,
					  .cgroup_mode = CGROUP_HYBRID,
					  .max_processes = 1,
					  .pids = pids,
					  .n_pids = 2};

	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(child_start("spin", 3, NULL, &t.children[i]), 0);
		pids[i] = (uint32_t)t.children[i].pid;
	}
	start(&options);
	assert_true(watch_until(t.p, t.watches, 2, &w->records, ENOUGH));
	assert_true(watch_until(t.p, t.watches, 2, &other->records, ENOUGH));
	assert_true(counted(KILN_STAT_PROCESS_FULL) > 0);
	assert_int_equal(w->with_dump, w->records);
	assert_int_equal(other->with_dump, other->records);
}

static void look_at_kernel_threads(const struct kiln_sample *record, void *arg)
{
	if (!(record->flags & KILN_SAMPLE_KTHREAD))
		return;
	t.kernel_threads++;
	t.bad_kernel_threads += record->n_user || record->mapset || record->dump_len ||
				record->end != KILN_END_NONE || !record->n_kernel;
}

/* Makes kernel threads run. */
static void write_and_sync(void)
{
	static char block[1 << 20];
	FILE *f = tmpfile();

	for (int i = 0; f && i < 8; i++)
		fwrite(block, sizeof(block), 1, f);
	if (f) {
		fflush(f);
		fsync(fileno(f));
		fclose(f);
	}
}

static void kernel_threads_have_no_user_frames(void **state)
{
	const struct sampler_options options = {.hz = 4999, .cgroup_mode = CGROUP_HYBRID};

	start(&options);
	for (int i = 0; i < 300 && !t.kernel_threads; i++) {
		write_and_sync();
		(void)sampler_drain(t.p->sampler, look_at_kernel_threads, NULL);
	}
	assert_true(t.kernel_threads > 0);
	assert_int_equal(t.bad_kernel_threads, 0);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(largest_dump_arrives_whole),
	    TEST(large_dumps_are_few),
	    TEST(pages_that_were_never_touched_take_no_room),
	    TEST(a_thousand_frames_arrive_whole),
	    TEST(largest_record_has_a_thousand_frames_and_a_dump),
	    TEST(full_ring_is_counted),
	    TEST(reader_is_woken_before_the_ring_is_full),
	    TEST(full_processes_map_is_counted_and_loses_no_sample),
	    TEST(kernel_threads_have_no_user_frames),
	};
	int r = argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);

	__asm__ volatile("" ::: "memory");
	return r;
}
