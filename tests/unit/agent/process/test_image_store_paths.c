/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store opens the file that a process maps: replaced files, and files of other mount namespaces
 * and roots.
 */
#include "store_fixture.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "agent/process/map_file.h"

/* Reading map_files needs one of these; without them files are opened by their paths. */
static const unsigned int map_files_caps[] = {CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN};

/* Runs a copy of cat, prog, then replaces the file by a copy of ls. */
static void start_replaced(struct fixture *f)
{
	start_copy(f, "/bin/cat", "prog");
	assert_int_equal(file_copy("/bin/ls", path_in(f, "new")), 0);
	assert_int_equal(rename(path_in(f, "new"), path_in(f, "prog")), 0);
}

static void a_replaced_file_is_the_one_that_was_mapped(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image;

	start_replaced(f);
	image = get(f, mapping(f, "/prog"), 0);
	assert_same_build(image->image, f->cat);
}

static void a_replaced_file_is_never_mistaken_by_its_path(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image;

	start_replaced(f);
	mapping(f, "/prog");
	caps_drop(map_files_caps, ARRAY_SIZE(map_files_caps));
	image = get(f, mapping(f, "/prog"), 0);
	assert_null(image->image);
	assert_int_equal(image->error, -EPERM);
}

static void without_map_files_the_path_does(void **state)
{
	struct fixture *f = *state;
	const struct map_entry *e;

	start_copy(f, "/bin/cat", "prog");
	e = mapping(f, "/prog");
	caps_drop(map_files_caps, ARRAY_SIZE(map_files_caps));
	assert_same_build(get(f, e, 0)->image, f->cat);
}

static void a_file_of_another_mount_namespace_is_opened(void **state)
{
	struct fixture *f = *state;
	const struct map_entry *e;
	struct stored_image *image;

	assert_int_equal(victim_start("", hide_in_namespace, f, &f->victim), 0);
	assert_int_not_equal(access(path_in(f, "hidden"), F_OK), 0);
	e = mapping(f, "/hidden");
	image = get(f, e, 0);
	assert_same_build(image->image, f->cat);
	image_store_put(f->store, image, 0);
	image_store_sweep(f->store, 0, 0);
	assert_int_equal(image_store_count(f->store), 0);
	/* Without map_files: through /proc/PID/root. */
	caps_drop(map_files_caps, ARRAY_SIZE(map_files_caps));
	assert_same_build(get(f, e, 0)->image, f->cat);
}

static int enter_chroot(char *path, size_t size, void *arg)
{
	struct fixture *f = arg;

	if (chroot(f->dir) < 0 || chdir("/") < 0)
		return 1;
	snprintf(path, size, "/jailed");
	return 0;
}

static void a_file_inside_a_chroot_is_opened(void **state)
{
	struct fixture *f = *state;
	const struct map_entry *e;
	struct stored_image *image;

	assert_int_equal(file_copy("/bin/cat", path_in(f, "jailed")), 0);
	assert_int_equal(victim_start("", enter_chroot, f, &f->victim), 0);
	e = mapping(f, "/jailed");
	image = get(f, e, 0);
	assert_same_build(image->image, f->cat);
	image_store_put(f->store, image, 0);
	image_store_sweep(f->store, 0, 0);
	/* The path in maps starts at our root, so it does not exist inside of the chroot. */
	caps_drop(map_files_caps, ARRAY_SIZE(map_files_caps));
	assert_same_build(get(f, e, 0)->image, f->cat);
}

static int enter_overlay(char *path, size_t size, void *arg)
{
	struct fixture *f = arg;
	char options[1200];

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	snprintf(options, sizeof(options), "lowerdir=%s", path_in(f, "low:"));
	/* A read-only overlay wants two lower layers. */
	snprintf(options + strlen(options) - 1, sizeof(options) - strlen(options), ":%s",
		 path_in(f, "low2"));
	if (mount("overlay", path_in(f, "merged"), "overlay", MS_RDONLY, options) < 0)
		return 1;
	snprintf(path, size, "%s", path_in(f, "merged/layered"));
	return 0;
}

static void a_file_on_an_overlay_is_opened(void **state)
{
	struct fixture *f = *state;
	const struct map_entry *e;
	struct stored_image *image;
	struct map_entry below;
	int fd = -1;
	bool ambiguous;

	mkdir(path_in(f, "low"), 0755);
	mkdir(path_in(f, "low2"), 0755);
	mkdir(path_in(f, "merged"), 0755);
	assert_int_equal(file_copy("/bin/cat", path_in(f, "low/layered")), 0);
	if (victim_start("", enter_overlay, f, &f->victim) < 0)
		skip(); /* a kernel without overlayfs */
	e = mapping(f, "/layered");
	image = get(f, e, 0);
	assert_same_build(image->image, f->cat);
	image_store_put(f->store, image, 0);
	image_store_sweep(f->store, 0, 0);
	caps_drop(map_files_caps, ARRAY_SIZE(map_files_caps));
	assert_same_build(get(f, e, 0)->image, f->cat);
	/* Some kernels show the device below the overlay in maps. */
	below = *e;
	below.dev_minor++;
	assert_int_equal(map_file_open(f->procfd, (uint32_t)f->victim.pid, &below, &fd, &ambiguous),
			 0);
	/* Whoever can write there could have put another file with that inode number there. */
	assert_true(ambiguous);
	close(fd);
	below.inode++;
	assert_int_not_equal(
	    map_file_open(f->procfd, (uint32_t)f->victim.pid, &below, &fd, &ambiguous), 0);
}

static void the_inode_alone_is_not_enough_elsewhere(void **state)
{
	struct fixture *f = *state;
	struct map_entry other;
	int fd = -1;
	bool ambiguous;

	start_copy(f, "/bin/cat", "prog");
	other = *mapping(f, "/prog");
	other.dev_minor++;
	caps_drop(map_files_caps, ARRAY_SIZE(map_files_caps));
	assert_int_equal(map_file_open(f->procfd, (uint32_t)f->victim.pid, &other, &fd, &ambiguous),
			 -EPERM);
	assert_int_equal(fd, -1);
}

/*
 * Only the text of its path says that the opened file is the mapped one. So its image is stored
 * under the opened file's own identity, not under the one in maps.
 */
static void who_puts_a_file_under_anothers_name_changes_nothing_for_others(void **state)
{
	struct fixture *f = *state;
	struct stored_image *by_name, *again, *of_libc;
	struct map_entry libc, other;
	bool ambiguous = false;
	int fd = -1;

	start_copy(f, "/bin/cat", "prog");
	libc = *mapping(f, "/libc.so.6"); /* a copy: the next mapping() frees its path */
	other = *mapping(f, "/prog");
	other.dev_major = libc.dev_major;
	other.dev_minor = libc.dev_minor;
	other.inode = libc.inode;
	assert_int_equal(map_file_open(f->procfd, (uint32_t)f->victim.pid, &other, &fd, &ambiguous),
			 0);
	assert_true(ambiguous);
	close(fd);
	by_name = get(f, &other, 0);
	again = get(f, &other, 0);
	assert_ptr_equal(by_name, again); /* all processes that map it share one image */
	of_libc = get(f, mapping(f, "/libc.so.6"), 0);
	assert_ptr_not_equal(by_name, of_libc);
	assert_non_null(strstr(of_libc->image->path, "libc"));
	image_store_put(f->store, by_name, 0);
	image_store_put(f->store, again, 0);
	image_store_put(f->store, of_libc, 0);
}

static void a_path_that_became_a_fifo_does_not_hang(void **state)
{
	struct fixture *f = *state;
	const struct map_entry *e;

	start_copy(f, "/bin/cat", "prog");
	e = mapping(f, "/prog");
	assert_int_equal(unlink(path_in(f, "prog")), 0);
	assert_int_equal(mkfifo(path_in(f, "prog"), 0666), 0);
	caps_drop(map_files_caps, ARRAY_SIZE(map_files_caps));
	assert_null(get(f, e, 0)->image);
}

static void a_symbolic_link_does_not_lead_to_another_file(void **state)
{
	struct fixture *f = *state;
	const struct map_entry *e;

	start_copy(f, "/bin/cat", "prog");
	e = mapping(f, "/prog");
	assert_int_equal(unlink(path_in(f, "prog")), 0);
	assert_int_equal(symlink("/bin/ls", path_in(f, "prog")), 0);
	caps_drop(map_files_caps, ARRAY_SIZE(map_files_caps));
	assert_null(get(f, e, 0)->image);
}

static void a_file_of_a_process_that_is_gone_is_known_by_its_path(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image = NULL;
	struct map_entry e;
	uint32_t pid;

	start_copy(f, "/bin/cat", "prog");
	e = *mapping(f, "/prog");
	pid = (uint32_t)f->victim.pid;
	victim_end(&f->victim);
	/* Remove the file: it would be found by its path. */
	assert_int_equal(unlink(path_in(f, "prog")), 0);
	assert_int_equal(image_store_get(f->store, f->procfd, pid, &e, 0, &image), 0);
	assert_null(image->image);
	assert_int_equal(image->error, -ESRCH);
	assert_string_equal(image->path, e.path);
}

static void a_mapping_that_is_gone_is_tried_again_at_once(void **state)
{
	struct fixture *f = *state;
	struct map_entry gone;
	struct stored_image *image;

	start_copy(f, "/bin/cat", "prog");
	assert_int_equal(unlink(path_in(f, "prog")), 0);
	gone = *mapping(f, "/prog");
	gone.start -= 4096;
	image = get(f, &gone, 1000);
	assert_null(image->image);
	assert_int_equal(image->error, -ESTALE);
	image_store_put(f->store, image, 1000);
	image = get(f, mapping(f, "/prog"), 1001);
	assert_same_build(image->image, f->cat);
	assert_int_equal(image->error, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    STORE_TEST(a_replaced_file_is_the_one_that_was_mapped),
	    STORE_TEST(a_replaced_file_is_never_mistaken_by_its_path),
	    STORE_TEST(without_map_files_the_path_does),
	    STORE_TEST(a_file_of_another_mount_namespace_is_opened),
	    STORE_TEST(a_file_inside_a_chroot_is_opened),
	    STORE_TEST(a_file_on_an_overlay_is_opened),
	    STORE_TEST(the_inode_alone_is_not_enough_elsewhere),
	    STORE_TEST(who_puts_a_file_under_anothers_name_changes_nothing_for_others),
	    STORE_TEST(a_path_that_became_a_fifo_does_not_hang),
	    STORE_TEST(a_symbolic_link_does_not_lead_to_another_file),
	    STORE_TEST(a_file_of_a_process_that_is_gone_is_known_by_its_path),
	    STORE_TEST(a_mapping_that_is_gone_is_tried_again_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
