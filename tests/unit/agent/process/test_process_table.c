/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long processes are remembered, over a directory in place of /proc: pids come, go and are used
 * again.
 */
#include "cm.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "agent/process/process_table.h"
#include "victim.h"

struct machine {
	char *dir;
	int fd;
	struct process_table *table;
	uint32_t window;
	const uint32_t *alive;
	size_t n_alive;
};

static int set_up(void **state)
{
	struct machine *m = calloc(1, sizeof(*m));

	m->dir = dir_make();
	m->fd = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	m->window = 1;
	*state = m;
	return m->fd < 0 || process_table_new(&m->table) < 0;
}

static int tear_down(void **state)
{
	struct machine *m = *state;

	process_table_free(m->table);
	close(m->fd);
	dir_remove(m->dir);
	free(m);
	return 0;
}

static void write_below(const struct machine *m, uint32_t pid, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%u/%s", m->dir, pid, name);
	assert_int_equal(file_write(path, text), 0);
}

static void begin(const struct machine *m, uint32_t pid, const char *name)
{
	char path[256], text[64];

	snprintf(path, sizeof(path), "%s/%u", m->dir, pid);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/%u/task", m->dir, pid);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/%u/task/%u", m->dir, pid, pid);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "task/%u/stat", pid);
	write_below(m, pid, path, "");
	snprintf(text, sizeof(text), "%s\n", name);
	write_below(m, pid, "comm", text);
	write_below(m, pid, "status", "");
	write_below(m, pid, "cgroup", "0::/\n");
	snprintf(path, sizeof(path), "%s/%u/exe", m->dir, pid);
	snprintf(text, sizeof(text), "/bin/%s", name);
	assert_int_equal(symlink(text, path), 0);
}

static void end(const struct machine *m, uint32_t pid)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%u", m->dir, pid);
	dir_remove(strdup(path));
}

/* Adds a sample of the process and returns its entry. *RET_NEW: the process was not known. */
static struct process *sample(struct machine *m, uint32_t pid, uint64_t start_time, bool *ret_new)
{
	const struct process_key key = {.tgid = pid, .start_time = start_time, .exec_id = 1};
	struct process *p = process_table_find(m->table, &key, m->window);
	struct process_info info = {};
	int r;

	*ret_new = !p;
	if (!p) {
		r = process_info_read(m->fd, pid, &info);
		assert_int_equal(process_table_add(m->table, &key, r ? NULL : &info, r, "comm", "",
						   m->window, &p),
				 0);
		process_info_done(&info);
	}
	assert_int_equal(p->last_window, m->window);
	return p;
}

static bool is_new(struct machine *m, uint32_t pid, uint64_t start_time)
{
	bool new;

	(void)sample(m, pid, start_time, &new);
	return new;
}

/* Ends the window and sweeps after naming it. Running processes stay for KEEP windows. */
static void next_window(struct machine *m, uint32_t keep)
{
	uint32_t named = m->window++;

	process_table_sweep(m->table, m->fd, named - keep, named, m->alive, m->n_alive);
}

/* A zombie has no /proc/PID/exe: it is named after the image in which it was sampled. */
static void one_that_has_ended_and_waits_has_its_images_name(void **state)
{
	static const struct {
		const char *image, *want;
	} rows[] = {{"/usr/bin/make", "make"}, {"", "worker"}};
	struct machine *m = *state;

	for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct process_key key = {.tgid = 7 + i, .start_time = 100, .exec_id = 1};
		struct process_info info = {.executable_path = strdup(""),
					    .executable_name = strdup("")};
		struct process *p;

		snprintf(info.container.pod_uid, sizeof(info.container.pod_uid), "uid");
		assert_int_equal(process_table_add(m->table, &key, &info, 0, "worker",
						   rows[i].image, m->window, &p),
				 0);
		assert_string_equal(p->info.executable_name, rows[i].want);
		assert_string_equal(p->info.executable_path, rows[i].image);
		assert_string_equal(p->info.container.pod_uid, "uid");
		process_info_done(&info);
	}
}

static void one_that_runs_is_remembered_for_as_long_as_asked(void **state)
{
	struct machine *m = *state;

	begin(m, 7, "ash");
	assert_true(is_new(m, 7, 100));
	for (int i = 0; i < 5; i++) {
		next_window(m, 4);
		assert_int_equal(process_table_count(m->table), 1);
	}
	next_window(m, 4);
	assert_int_equal(process_table_count(m->table), 0);
}

/*
 * The process ends in the window of its last sample: its entry goes when the next window was named.
 */
static void one_that_ended_is_forgotten_a_window_later(void **state)
{
	struct machine *m = *state;
	bool new;

	begin(m, 7, "ash");
	begin(m, 8, "birch");
	(void)sample(m, 7, 100, &new);
	(void)sample(m, 8, 100, &new);
	end(m, 7);
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 2);
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 1);
	assert_false(is_new(m, 8, 100));
}

/* The process ends after a time without samples. */
static void one_that_ends_without_a_sample_is_forgotten_too(void **state)
{
	struct machine *m = *state;

	begin(m, 7, "ash");
	assert_true(is_new(m, 7, 100));
	for (int i = 0; i < 10; i++)
		next_window(m, 100);
	end(m, 7);
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 1);
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 0);
}

/* Records may be in the ring when their process ends: its entry stays for their window. */
static void late_samples_have_their_name(void **state)
{
	struct machine *m = *state;
	struct process *p;
	bool new;

	begin(m, 7, "ash");
	assert_true(is_new(m, 7, 100));
	end(m, 7);
	next_window(m, 100);
	p = sample(m, 7, 100, &new);
	assert_false(new);
	assert_string_equal(p->info.executable_path, "/bin/ash");
	next_window(m, 100);
	/* A sample of the current window, after the sweep of the window before. */
	p = sample(m, 7, 100, &new);
	assert_false(new);
	assert_string_equal(p->info.executable_path, "/bin/ash");
	next_window(m, 100);
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 0);
}

/*
 * A pid is used again before or right after the first process's end was noticed: both have their
 * own entry.
 */
static void a_pid_that_comes_again_is_another_process(void **state)
{
	struct machine *m = *state;
	struct process *before, *after;
	bool new;

	begin(m, 7, "ash");
	(void)sample(m, 7, 100, &new);
	end(m, 7);
	next_window(m, 100);
	begin(m, 7, "birch");
	after = sample(m, 7, 200, &new);
	assert_true(new);
	before = sample(m, 7, 100, &new);
	assert_false(new);
	assert_string_equal(before->info.executable_path, "/bin/ash");
	assert_string_equal(after->info.executable_path, "/bin/birch");
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 2);
	next_window(m, 100);
	/* The pid is in use, but the entry of the first process is removed. */
	assert_int_equal(process_table_count(m->table), 1);
	after = sample(m, 7, 200, &new);
	assert_false(new);
	assert_string_equal(after->info.executable_path, "/bin/birch");
	for (int i = 0; i < 20; i++)
		next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 1);
}

/*
 * These pids are in the list of running ones, so /proc is not read, which would say that they
 * ended.
 */
static void pids_that_are_known_to_be_in_use_are_not_asked_for(void **state)
{
	static const uint32_t alive[] = {3, 7, 9};
	struct machine *m = *state;

	begin(m, 7, "ash");
	begin(m, 8, "birch");
	assert_true(is_new(m, 7, 100));
	assert_true(is_new(m, 8, 100));
	end(m, 7);
	end(m, 8);
	m->alive = alive;
	m->n_alive = ARRAY_SIZE(alive);
	next_window(m, 100);
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 1);
	assert_false(is_new(m, 7, 100));
	m->n_alive = 1;
	next_window(m, 100);
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 0);
}

/* The process was gone before /proc was read: it counts as ended without another look. */
static void one_that_was_gone_at_first_sight_is_named_and_forgotten(void **state)
{
	struct machine *m = *state;
	struct process *p;
	bool new;

	p = sample(m, 7, 100, &new);
	assert_true(new);
	assert_false(p->known);
	assert_string_equal(p->info.executable_name, "comm");
	begin(m, 7, "birch");
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 1);
	next_window(m, 100);
	assert_int_equal(process_table_count(m->table), 0);
}

/*
 * 1,000 processes a window, each sampled once: the table never has more than those of two windows.
 */
static void a_storm_leaves_two_windows_of_them(void **state)
{
	enum { A_WINDOW = 1000, WINDOWS = 20 };
	struct machine *m = *state;
	uint32_t pid = 1000;
	bool new;

	begin(m, 7, "ash");
	for (int i = 0; i < WINDOWS; i++) {
		for (int j = 0; j < A_WINDOW; j++)
			(void)sample(m, pid++, 100, &new);
		assert_false(is_new(m, 7, 100) && i);
		assert_in_range(process_table_count(m->table), A_WINDOW + 1, 2 * A_WINDOW + 1);
		next_window(m, 14);
	}
	next_window(m, 14);
	assert_int_equal(process_table_count(m->table), 1);
}

#define test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    test(one_that_has_ended_and_waits_has_its_images_name),
	    test(one_that_runs_is_remembered_for_as_long_as_asked),
	    test(one_that_ended_is_forgotten_a_window_later),
	    test(one_that_ends_without_a_sample_is_forgotten_too),
	    test(late_samples_have_their_name),
	    test(a_pid_that_comes_again_is_another_process),
	    test(pids_that_are_known_to_be_in_use_are_not_asked_for),
	    test(one_that_was_gone_at_first_sight_is_named_and_forgotten),
	    test(a_storm_leaves_two_windows_of_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
