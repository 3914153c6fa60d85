/* SPDX-License-Identifier: Apache-2.0 */
/* The corpus of tests/data/cgroup, line by line, and the cgroup filesystems of this machine. */
#include "cm.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "agent/process/container.h"
#include "agent/process/proc_file.h"
#include "victim.h"

enum { FIELDS = 5 };

static const char *wanted(const char *field)
{
	return streq(field, "-") ? "" : field;
}

static void check(const char *what, char *const *field, const struct container_identity *got)
{
	if (!streq(got->container_id, wanted(field[1])) || !streq(got->pod_uid, wanted(field[2])) ||
	    got->static_pod != streq(field[3], "static") || !streq(got->runtime, wanted(field[4])))
		fail_msg("%s: got container \"%s\" pod \"%s\" static %d runtime \"%s\"", what,
			 got->container_id, got->pod_uid, got->static_pod, got->runtime);
}

/* Calls ONE with the fields of each row; returns how many there were. */
static unsigned int for_each_row(const char *path, void (*one)(char *const *))
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;
	unsigned int rows = 0;
	ssize_t n;

	assert_non_null(f);
	while ((n = getline(&line, &cap, f)) > 0) {
		char *field[FIELDS], *rest = line;

		line[n - 1] = 0;
		if (line[0] == '#')
			continue;
		for (size_t i = 0; i < FIELDS; i++) {
			field[i] = strsep(&rest, "\t");
			assert_non_null(field[i]);
		}
		one(field);
		rows++;
	}
	return rows;
}

static void check_path(char *const *field)
{
	struct container_identity got;

	memset(&got, 0xa5, sizeof(got));
	container_parse_path(field[0], &got);
	check(field[0], field, &got);
}

static void every_path_of_the_corpus_is_understood(void **state)
{
	assert_true(for_each_row(TEST_DATA "/cgroup/paths.tsv", check_path) >= 100);
}

/* The same paths as lines of v2 and v1 files. */
static void check_path_as_file(char *const *field)
{
	_cleanup_free_ char *text = NULL;
	struct container_identity got;

	assert_true(asprintf(&text, "0::%s\n", field[0]) > 0);
	container_parse_cgroup(text, strlen(text), &got);
	check(field[0], field, &got);
	free(text);
	assert_true(asprintf(&text, "4:memory:%s\n3:cpu,cpuacct:/\n0::/", field[0]) > 0);
	container_parse_cgroup(text, strlen(text), &got);
	check(field[0], field, &got);
}

static void every_path_is_understood_inside_a_cgroup_file(void **state)
{
	assert_true(for_each_row(TEST_DATA "/cgroup/paths.tsv", check_path_as_file) >= 100);
}

static void check_file(char *const *field)
{
	struct container_identity got;
	struct buf text;
	char path[256];

	buf_init(&text, 1 << 16);
	snprintf(path, sizeof(path), TEST_DATA "/cgroup/files/%s", field[0]);
	assert_int_equal(proc_file_read(AT_FDCWD, path, &text), 0);
	container_parse_cgroup(text.data, text.len, &got);
	check(field[0], field, &got);
	buf_done(&text);
}

static void of_a_cgroup_file_the_best_line_counts(void **state)
{
	assert_true(for_each_row(TEST_DATA "/cgroup/files.tsv", check_file) >= 10);
}

static void an_empty_cgroup_file_is_no_container(void **state)
{
	struct container_identity got;

	memset(&got, 0xa5, sizeof(got));
	container_parse_cgroup(NULL, 0, &got);
	assert_string_equal(got.container_id, "");
	assert_string_equal(got.pod_uid, "");
	assert_string_equal(got.runtime, "");
}

/* Each file of the corpus cut at every byte: nothing may be read outside. */
static void check_cuts(char *const *field)
{
	size_t len = strlen(field[0]);

	if (len > 400)
		return;
	for (size_t n = 0; n <= len; n++) {
		char *cut = malloc(n ? n : 1);
		struct container_identity got;

		memcpy(cut, field[0], n);
		container_parse_cgroup(cut, n, &got);
		free(cut);
		cut = malloc(n + 4);
		memcpy(cut, "0::/", 4);
		memcpy(cut + 4, field[0], n);
		container_parse_cgroup(cut, n + 4, &got);
		assert_true(strlen(got.container_id) < sizeof(got.container_id));
		free(cut);
	}
}

static void a_path_cut_anywhere_is_read_within_bounds(void **state)
{
	assert_true(for_each_row(TEST_DATA "/cgroup/paths.tsv", check_cuts) >= 100);
}

static bool in_own_mounts(int (*body)(const char *), const char *dir)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (unshare(CLONE_NEWNS) < 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
			_exit(100);
		_exit(body(dir));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_not_equal(WEXITSTATUS(status), 100);
	assert_int_equal(WEXITSTATUS(status), 0);
	return true;
}

/* Exit code 0: each layout gives its mode. */
static int mount_layouts(const char *dir)
{
	enum cgroup_mode mode;
	char unified[256];

	if (mount("cgroup2", dir, "cgroup2", 0, NULL) < 0)
		return 1;
	if (cgroup_mode_detect(dir, &mode) != 0 || mode != CGROUP_V2)
		return 2;
	if (mount("tmpfs", dir, "tmpfs", 0, NULL) < 0)
		return 3;
	if (cgroup_mode_detect(dir, &mode) != 0 || mode != CGROUP_V1)
		return 4;
	snprintf(unified, sizeof(unified), "%s/unified", dir);
	if (mkdir(unified, 0755) < 0 || cgroup_mode_detect(dir, &mode) != 0 || mode != CGROUP_V1)
		return 5;
	if (mount("cgroup2", unified, "cgroup2", 0, NULL) < 0)
		return 6;
	if (cgroup_mode_detect(dir, &mode) != 0 || mode != CGROUP_HYBRID)
		return 7;
	return 0;
}

static void the_mode_follows_what_is_mounted(void **state)
{
	char *dir = dir_make();
	enum cgroup_mode mode;

	assert_true(in_own_mounts(mount_layouts, dir));
	assert_int_equal(cgroup_mode_detect("/nonexistent", &mode), -ENOENT);
	assert_int_equal(cgroup_mode_detect("/proc", &mode), -ENOTSUP);
	dir_remove(dir);
	assert_string_equal(cgroup_mode_name(CGROUP_V1), "v1");
	assert_string_equal(cgroup_mode_name(CGROUP_HYBRID), "hybrid");
	assert_string_equal(cgroup_mode_name(CGROUP_V2), "v2");
}

static int make_cgroup(const char *dir)
{
	char path[256];
	struct stat st;
	uint64_t id = 0, root = 0;
	int ret = 0;

	if (mount("cgroup2", dir, "cgroup2", 0, NULL) < 0)
		return 1;
	snprintf(path, sizeof(path), "%s/kiln-test-%d", dir, getpid());
	if (mkdir(path, 0755) < 0)
		return 2;
	/* On 64-bit kernels the id is the inode number of the directory. */
	if (cgroup_id_of(path, &id) != 0 || stat(path, &st) < 0 || id != st.st_ino)
		ret = 3;
	else if (cgroup_id_of(dir, &root) != 0 || root == id || root == 0)
		ret = 4;
	rmdir(path);
	return ret;
}

static void the_id_of_a_cgroup_is_its_inode(void **state)
{
	char *dir = dir_make();
	uint64_t id = 77;

	assert_true(in_own_mounts(make_cgroup, dir));
	assert_int_equal(cgroup_id_of("/nonexistent", &id), -ENOENT);
	/* ext4 has 8-byte handles as well, and tmpfs longer ones. */
	assert_int_equal(cgroup_id_of("/usr", &id), -ENOTSUP);
	assert_int_equal(id, 77);
	dir_remove(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_path_of_the_corpus_is_understood),
	    cmocka_unit_test(every_path_is_understood_inside_a_cgroup_file),
	    cmocka_unit_test(of_a_cgroup_file_the_best_line_counts),
	    cmocka_unit_test(an_empty_cgroup_file_is_no_container),
	    cmocka_unit_test(a_path_cut_anywhere_is_read_within_bounds),
	    cmocka_unit_test(the_mode_follows_what_is_mounted),
	    cmocka_unit_test(the_id_of_a_cgroup_is_its_inode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
