/* SPDX-License-Identifier: Apache-2.0 */
#include "store_fixture.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

static void count_drop(struct stored_image *image, void *arg)
{
	struct fixture *f = arg;

	f->drops++;
	f->last_drop = image;
}

struct image *open_image(const char *path)
{
	struct image *image = NULL;

	assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image, NULL), 0);
	return image;
}

int store_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->procfd = proc_open();
	f->dir = dir_make();
	f->cat = open_image("/bin/cat");
	f->ls = open_image("/bin/ls");
	*state = f;
	return image_store_new(8, count_drop, f, &f->store);
}

int store_teardown(void **state)
{
	struct fixture *f = *state;

	caps_restore();
	victim_end(&f->victim);
	image_store_free(f->store);
	image_unref(f->cat);
	image_unref(f->ls);
	maps_done(&f->maps);
	close(f->procfd);
	dir_remove(f->dir);
	free(f);
	return 0;
}

char *path_in(const struct fixture *f, const char *name)
{
	static char path[4][512];
	static unsigned int next;
	char *p = path[next++ % ARRAY_SIZE(path)];

	snprintf(p, sizeof(path[0]), "%s/%s", f->dir, name);
	return p;
}

const struct map_entry *mapping(struct fixture *f, const char *suffix)
{
	const struct map_entry *e;

	maps_done(&f->maps);
	e = find_mapping(f->procfd, f->victim.pid, suffix, &f->maps);
	assert_non_null(e);
	return e;
}

struct stored_image *get(struct fixture *f, const struct map_entry *e, uint64_t now)
{
	struct stored_image *image = NULL;

	assert_int_equal(
	    image_store_get(f->store, f->procfd, (uint32_t)f->victim.pid, e, now, &image), 0);
	assert_non_null(image);
	return image;
}

void assert_same_build(const struct image *a, const struct image *b)
{
	assert_non_null(a);
	assert_true(a->build_id_len > 0);
	assert_int_equal(a->build_id_len, b->build_id_len);
	assert_memory_equal(a->build_id, b->build_id, b->build_id_len);
}

void start_copy(struct fixture *f, const char *from, const char *name)
{
	assert_int_equal(file_copy(from, path_in(f, name)), 0);
	assert_int_equal(victim_start(path_in(f, name), NULL, NULL, &f->victim), 0);
}

int hide_in_namespace(char *path, size_t size, void *fixture)
{
	struct fixture *f = fixture;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", f->dir, "tmpfs", 0, NULL) < 0)
		return 1;
	snprintf(path, size, "%s", path_in(f, "hidden"));
	return file_copy("/bin/cat", path);
}
