/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store over real processes: references, eviction, rewritten files, files that cannot be used.
 */
#include "store_fixture.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void one_file_of_two_processes_is_one_image(void **state)
{
	struct fixture *f = *state;
	struct stored_image *first, *second;
	struct victim other;

	assert_int_equal(victim_exec("/bin/cat", &f->victim), 0);
	first = get(f, mapping(f, "/cat"), 0);
	assert_same_build(first->image, f->cat);
	other = f->victim;
	assert_int_equal(victim_exec("/bin/cat", &f->victim), 0);
	second = get(f, mapping(f, "/cat"), 1);
	assert_ptr_equal(first, second);
	assert_int_equal(second->refs, 2);
	assert_int_equal(image_store_count(f->store), 1);
	victim_end(&other);
}

static void a_deleted_file_is_opened(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image;

	start_copy(f, "/bin/cat", "gone");
	assert_int_equal(unlink(path_in(f, "gone")), 0);
	image = get(f, mapping(f, "/gone"), 0);
	assert_same_build(image->image, f->cat);
	assert_string_equal(image->path, path_in(f, "gone"));
}

static int become_nobody(char *path, size_t size, void *arg)
{
	return setresuid(65534, 65534, 65534);
}

static void an_unreadable_file_is_tried_again_after_a_minute(void **state)
{
	static const unsigned int caps[] = {CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, CAP_SYS_PTRACE,
					    CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE};
	struct fixture *f = *state;
	const struct map_entry *e;
	struct stored_image *image;

	assert_int_equal(file_copy("/bin/cat", path_in(f, "prog")), 0);
	assert_int_equal(chmod(f->dir, 0755), 0);
	assert_int_equal(victim_start(path_in(f, "prog"), become_nobody, NULL, &f->victim), 0);
	e = mapping(f, "/prog");
	assert_int_equal(chmod(path_in(f, "prog"), 0), 0);
	caps_drop(caps, ARRAY_SIZE(caps));
	image = get(f, e, 5000);
	caps_restore();
	assert_null(image->image);
	assert_true(image->error == -EACCES || image->error == -EPERM);
	assert_ptr_equal(get(f, e, 5000 + 59999), image);
	assert_null(image->image);
	assert_same_build(get(f, e, 5000 + 60000)->image, f->cat);
	/* Users of the failed image keep it; the later attempt made a new image. */
	assert_null(image->image);
	assert_int_equal(image_store_count(f->store), 2);
	image_store_put(f->store, image, 5000 + 60000);
	image_store_put(f->store, image, 5000 + 60000);
}

static void a_file_that_is_no_elf_is_remembered_with_the_reason(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image;

	assert_int_equal(file_write(path_in(f, "text"), "no code at all\n"), 0);
	assert_int_equal(victim_start(path_in(f, "text"), NULL, NULL, &f->victim), 0);
	image = get(f, mapping(f, "/text"), 0);
	assert_null(image->image);
	assert_int_equal(image->error, -ENOEXEC);
	assert_int_equal(image_store_count(f->store), 1);
}

static void a_rewritten_file_gets_a_new_image(void **state)
{
	struct fixture *f = *state;
	struct stored_image *old, *new;
	const struct map_entry *e;

	start_copy(f, "/bin/cat", "prog");
	e = mapping(f, "/prog");
	old = get(f, e, 0);
	assert_same_build(old->image, f->cat);
	assert_int_equal(file_copy("/bin/ls", path_in(f, "prog")), 0);
	new = get(f, e, 1);
	assert_ptr_not_equal(new, old);
	assert_same_build(new->image, f->ls);
	assert_ptr_equal(get(f, e, 2), new);
	assert_int_equal(image_store_count(f->store), 2);
	/* The old image stays while it has users. */
	assert_int_equal(old->refs, 1);
	assert_int_equal(f->drops, 0);
	image_store_put(f->store, old, 3);
	assert_int_equal(f->drops, 1);
	assert_ptr_equal(f->last_drop, old);
	assert_int_equal(image_store_count(f->store), 1);
}

static void a_rewritten_file_that_nobody_uses_is_dropped(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image;
	const struct map_entry *e;

	start_copy(f, "/bin/cat", "prog");
	e = mapping(f, "/prog");
	image_store_put(f->store, get(f, e, 0), 0);
	assert_int_equal(file_copy("/bin/ls", path_in(f, "prog")), 0);
	image = get(f, e, 1);
	assert_same_build(image->image, f->ls);
	image_store_reap(f->store);
	assert_int_equal(f->drops, 1);
	assert_int_equal(image_store_count(f->store), 1);
}

static void the_vdso_is_one_image(void **state)
{
	struct fixture *f = *state;
	struct stored_image *first;
	struct victim other;

	assert_int_equal(victim_exec("/bin/cat", &f->victim), 0);
	first = get(f, mapping(f, "[vdso]"), 0);
	assert_non_null(first->image);
	assert_string_equal(first->path, "[vdso]");
	other = f->victim;
	assert_int_equal(victim_exec("/bin/cat", &f->victim), 0);
	assert_ptr_equal(get(f, mapping(f, "[vdso]"), 0), first);
	victim_end(&other);
}

static void memory_without_a_file_is_refused(void **state)
{
	struct fixture *f = *state;
	struct map_entry e = {.start = 0x1000, .end = 0x2000, .kind = MAPPING_ANON};
	struct stored_image *image = NULL;

	assert_int_equal(image_store_get(f->store, f->procfd, 1, &e, 0, &image), -EINVAL);
	e.kind = MAPPING_OTHER;
	assert_int_equal(image_store_get(f->store, f->procfd, 1, &e, 0, &image), -EINVAL);
	assert_null(image);
}

/* Adds image N: a copy of cat that a process maps. The process ends later, the image stays. */
static struct stored_image *add_copy(struct fixture *f, unsigned int n, uint64_t now)
{
	char name[16], suffix[17];
	struct stored_image *image;

	snprintf(name, sizeof(name), "copy%u", n);
	snprintf(suffix, sizeof(suffix), "/%s", name);
	victim_end(&f->victim);
	start_copy(f, "/bin/cat", name);
	image = get(f, mapping(f, suffix), now);
	assert_non_null(image->image);
	return image;
}

static void the_longest_idle_makes_room(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image[8], *refused = NULL;
	const struct map_entry *e;

	for (unsigned int i = 0; i < 8; i++)
		image[i] = add_copy(f, i, i);
	/* All images are in use: none can be evicted. */
	victim_end(&f->victim);
	start_copy(f, "/bin/cat", "one more");
	e = mapping(f, "/one more");
	assert_int_equal(
	    image_store_get(f->store, f->procfd, (uint32_t)f->victim.pid, e, 10, &refused),
	    -ENOSPC);
	assert_null(refused);
	image_store_put(f->store, image[5], 20);
	image_store_put(f->store, image[2], 21);
	image_store_put(f->store, image[7], 22);
	get(f, e, 30);
	image_store_reap(f->store);
	assert_int_equal(f->drops, 1);
	assert_ptr_equal(f->last_drop, image[5]);
	assert_int_equal(image_store_count(f->store), 8);
	add_copy(f, 20, 31);
	image_store_reap(f->store);
	assert_ptr_equal(f->last_drop, image[2]);
	assert_int_equal(image_store_count(f->store), 8);
}

static void the_sweep_takes_what_was_idle_long_enough(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image[4];

	for (unsigned int i = 0; i < 4; i++)
		image[i] = add_copy(f, i, 0);
	image_store_put(f->store, image[0], 100);
	image_store_put(f->store, image[1], 200);
	image_store_put(f->store, image[3], 300);
	image_store_sweep(f->store, 1099, 1000);
	assert_int_equal(f->drops, 0);
	image_store_sweep(f->store, 1200, 1000);
	assert_int_equal(f->drops, 2);
	assert_int_equal(image_store_count(f->store), 2);
	/* The image is used again in time: it stays. */
	assert_ptr_equal(get(f, mapping(f, "/copy3"), 1250), image[3]);
	image_store_sweep(f->store, 9999, 1000);
	assert_int_equal(f->drops, 2);
	image_store_put(f->store, image[3], 9999);
	image_store_sweep(f->store, 10999, 1000);
	assert_int_equal(f->drops, 3);
	assert_int_equal(image_store_count(f->store), 1);
}

static void an_idle_image_gives_its_descriptor(void **state)
{
	struct fixture *f = *state;
	struct rlimit before, low;
	struct stored_image *image;
	const struct map_entry *e;
	int highest;

	image_store_put(f->store, add_copy(f, 0, 0), 0);
	victim_end(&f->victim);
	start_copy(f, "/bin/cat", "next");
	e = mapping(f, "/next");
	/*
	 * Reopening needs two descriptors, and none is free: the idle image's is closed to get one.
	 */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	highest = open("/dev/null", O_RDONLY | O_CLOEXEC);
	low = before;
	low.rlim_cur = (rlim_t)highest + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	image = get(f, e, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	close(highest);
	image_store_reap(f->store);
	assert_int_equal(f->drops, 1);
	assert_null(image->image);
	assert_int_equal(image->error, -EMFILE);
	assert_same_build(get(f, e, 2)->image, f->cat);
	image_store_put(f->store, image, 2);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    STORE_TEST(one_file_of_two_processes_is_one_image),
	    STORE_TEST(a_deleted_file_is_opened),
	    STORE_TEST(an_unreadable_file_is_tried_again_after_a_minute),
	    STORE_TEST(a_file_that_is_no_elf_is_remembered_with_the_reason),
	    STORE_TEST(a_rewritten_file_gets_a_new_image),
	    STORE_TEST(a_rewritten_file_that_nobody_uses_is_dropped),
	    STORE_TEST(the_vdso_is_one_image),
	    STORE_TEST(memory_without_a_file_is_refused),
	    STORE_TEST(the_longest_idle_makes_room),
	    STORE_TEST(the_sweep_takes_what_was_idle_long_enough),
	    STORE_TEST(an_idle_image_gives_its_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
