/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store over real processes: deleted, replaced, hidden and rewritten files; references and
 * eviction.
 */
#include "cm.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "agent/elf/content.h"
#include "agent/elf/unwind.h"
#include "agent/process/image_store.h"
#include "agent/process/map_file.h"
#include "lib/metrics.h"
#include "victim.h"

/* Reading map_files needs one of these; without them files are opened by their paths. */
static const unsigned int map_files_caps[] = {CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN};

struct fixture {
	int procfd;
	char *dir;
	struct image_store *store;
	struct maps maps;
	struct victim victim;
	struct image *cat, *ls; /* expected contents of the copies */
	unsigned int drops;
	struct stored_image *last_drop;
};

static void count_drop(struct stored_image *image, void *arg)
{
	struct fixture *f = arg;

	f->drops++;
	f->last_drop = image;
}

static struct image *open_image(const char *path)
{
	struct image *image = NULL;

	assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image, NULL), 0);
	return image;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->procfd = proc_open();
	f->dir = dir_make();
	f->cat = open_image("/bin/cat");
	f->ls = open_image("/bin/ls");
	*state = f;
	return image_store_new(8, count_drop, f, &f->store);
}

static int teardown(void **state)
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

static char *path_in(const struct fixture *f, const char *name)
{
	static char path[4][512];
	static unsigned int next;
	char *p = path[next++ % ARRAY_SIZE(path)];

	snprintf(p, sizeof(path[0]), "%s/%s", f->dir, name);
	return p;
}

static const struct map_entry *mapping(struct fixture *f, const char *suffix)
{
	const struct map_entry *e;

	maps_done(&f->maps);
	e = find_mapping(f->procfd, f->victim.pid, suffix, &f->maps);
	assert_non_null(e);
	return e;
}

static struct stored_image *get(struct fixture *f, const struct map_entry *e, uint64_t now)
{
	struct stored_image *image = NULL;

	assert_int_equal(
	    image_store_get(f->store, f->procfd, (uint32_t)f->victim.pid, e, now, &image), 0);
	assert_non_null(image);
	return image;
}

static void assert_same_build(const struct image *a, const struct image *b)
{
	assert_non_null(a);
	assert_true(a->build_id_len > 0);
	assert_int_equal(a->build_id_len, b->build_id_len);
	assert_memory_equal(a->build_id, b->build_id, b->build_id_len);
}

static void start_copy(struct fixture *f, const char *from, const char *name)
{
	assert_int_equal(file_copy(from, path_in(f, name)), 0);
	assert_int_equal(victim_start(path_in(f, name), NULL, NULL, &f->victim), 0);
}

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

static bool every_file_is_remote(int fd)
{
	return true;
}

static bool is_open_here(const char *path)
{
	char link[64], target[512];
	bool found = false;
	ssize_t n;

	for (int fd = 0; fd < 256 && !found; fd++) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, target, sizeof(target) - 1);
		found = n > 0 && (size_t)n == strlen(path) && memcmp(target, path, (size_t)n) == 0;
	}
	return found;
}

static void of_a_remote_file_there_is_a_copy_and_no_descriptor(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image;

	image_store_set_remote(f->store, every_file_is_remote);
	start_copy(f, "/bin/cat", "prog");
	image = get(f, mapping(f, "/prog"), 0);
	assert_same_build(image->image, f->cat);
	assert_int_equal(image->image->size, f->cat->size);
	assert_memory_equal(image->image->data, f->cat->data, f->cat->size);
	assert_false(is_open_here(path_in(f, "prog")));
	assert_ptr_equal(get(f, mapping(f, "/prog"), 1), image);
}

static void a_remote_file_that_was_rewritten_gets_a_new_copy(void **state)
{
	const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	struct fixture *f = *state;
	struct stored_image *image;

	image_store_set_remote(f->store, every_file_is_remote);
	start_copy(f, "/bin/cat", "prog");
	image = get(f, mapping(f, "/prog"), 0);
	assert_int_equal(utimensat(AT_FDCWD, path_in(f, "prog"), times, 0), 0);
	assert_ptr_not_equal(get(f, mapping(f, "/prog"), 1), image);
	image_store_put(f->store, image, 2); /* only this reference keeps the old image */
}

/* Starts a copy of cat that is SIZE bytes large. */
static void start_large(struct fixture *f, const char *name, off_t size)
{
	assert_int_equal(file_copy("/bin/cat", path_in(f, name)), 0);
	assert_int_equal(truncate(path_in(f, name), size), 0);
	assert_int_equal(victim_start(path_in(f, name), NULL, NULL, &f->victim), 0);
}

/* The file is larger than all copies together may be. */
static void of_a_remote_file_without_room_for_a_copy_there_are_the_headers_only(void **state)
{
	int64_t before = metric_get(M_IMAGES_REMOTE_HEADERS);
	_cleanup_(unwind_table_freep) struct unwind_table *table = NULL;
	_cleanup_(image_unrefp) struct image *whole = NULL;
	struct fixture *f = *state;
	struct image *image;
	const struct image_segment *code;
	uint64_t vaddr;

	image_store_set_remote(f->store, every_file_is_remote);
	start_large(f, "prog", (64 << 20) + 1);
	image = get(f, mapping(f, "/prog"), 0)->image;
	assert_same_build(image, f->cat);
	assert_false(is_open_here(path_in(f, "prog")));
	assert_int_equal(metric_get(M_IMAGES_REMOTE_HEADERS), before + 1);

	whole = open_image(path_in(f, "prog"));
	assert_true(image->is_headers);
	assert_int_equal(image->size, 0);
	assert_int_equal(image->fd, -1);
	assert_int_equal(image->n_sections, 0);
	assert_string_equal(image->htlhash, whole->htlhash);
	assert_int_equal(image->n_segments, whole->n_segments);
	assert_non_null(image_content(image));

	/* It has code, for which there is no rule. */
	code = whole->segments;
	while (!(code->flags & 1)) /* PF_X */
		code++;
	assert_true(image_offset_to_vaddr(image, code->offset, &vaddr));
	assert_int_equal(vaddr, code->vaddr);
	assert_true(image_at_vaddr(image, vaddr).bad);
	assert_int_equal(unwind_compile(image, &table, NULL), 0);
	assert_int_equal(unwind_lookup(table, vaddr)->kind, KILN_RULE_INVALID);
}

static void a_remote_file_is_copied_once_there_is_room(void **state)
{
	struct fixture *f = *state;
	struct stored_image *large, *headers, *copy;
	struct victim other;

	image_store_set_remote(f->store, every_file_is_remote);
	start_large(f, "large", 60 << 20);
	large = get(f, mapping(f, "/large"), 0);
	assert_false(large->image->is_headers);
	other = f->victim;
	start_large(f, "prog", 5 << 20);
	headers = get(f, mapping(f, "/prog"), 0);
	assert_true(headers->image->is_headers);
	assert_ptr_equal(get(f, mapping(f, "/prog"), 1), headers);

	image_store_put(f->store, large, 2);
	image_store_sweep(f->store, 2, 0);
	copy = get(f, mapping(f, "/prog"), 3);
	assert_ptr_not_equal(copy, headers);
	assert_false(copy->image->is_headers);
	assert_same_build(copy->image, f->cat);
	image_store_put(f->store, headers, 4); /* only these references keep the old image */
	image_store_put(f->store, headers, 4);
	victim_end(&other);
}

/*
 * Writes a copy of cat with one more section, NAME, of SIZE bytes. The section is in no segment and
 * has "debug" at its start, middle and end. Its offset is *RET_AT.
 */
static void write_with_section(struct fixture *f, const char *file, const char *name, size_t size,
			       size_t *ret_at)
{
	_cleanup_free_ Elf64_Shdr *sections = NULL;
	size_t n, at = ALIGN_UP(f->cat->size, 64), end = at + size;
	_cleanup_close_ int fd = -1;
	char names[1024];
	Elf64_Shdr *s;
	Elf64_Ehdr h;

	assert_int_equal(file_copy("/bin/cat", path_in(f, file)), 0);
	fd = open(path_in(f, file), O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	n = h.e_shnum;
	sections = calloc(n + 1, sizeof(*sections));
	assert_int_equal(pread(fd, sections, n * sizeof(*s), (off_t)h.e_shoff), n * sizeof(*s));
	s = &sections[h.e_shstrndx];
	assert_in_range(s->sh_size, 1, sizeof(names) - strlen(name) - 1);
	assert_int_equal(pread(fd, names, s->sh_size, (off_t)s->sh_offset), s->sh_size);
	memcpy(names + s->sh_size, name, strlen(name) + 1);
	sections[n] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
				   .sh_name = (Elf64_Word)s->sh_size,
				   .sh_offset = at,
				   .sh_size = size};
	s->sh_offset = end;
	s->sh_size += strlen(name) + 1;
	h.e_shoff = ALIGN_UP(end + s->sh_size, 64);
	h.e_shnum++;
	assert_int_equal(pwrite(fd, "debug", 5, (off_t)at), 5);
	assert_int_equal(pwrite(fd, "debug", 5, (off_t)(at + size / 2)), 5);
	assert_int_equal(pwrite(fd, "debug", 5, (off_t)(end - 5)), 5);
	assert_int_equal(pwrite(fd, names, s->sh_size, (off_t)end), s->sh_size);
	assert_int_equal(pwrite(fd, sections, (n + 1) * sizeof(*s), (off_t)h.e_shoff),
			 (n + 1) * sizeof(*s));
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	*ret_at = at;
}

static void start_with_section(struct fixture *f, const char *file, const char *name, size_t size,
			       size_t *ret_at)
{
	write_with_section(f, file, name, size, ret_at);
	assert_int_equal(victim_start(path_in(f, file), NULL, NULL, &f->victim), 0);
}

static void assert_same_sections(const struct image *a, const struct image *b)
{
	assert_int_equal(a->n_sections, b->n_sections);
	for (size_t i = 0; i < a->n_sections; i++) {
		struct cursor x = image_section_data(a, &a->sections[i]),
			      y = image_section_data(b, &b->sections[i]);

		assert_string_equal(a->sections[i].name, b->sections[i].name);
		assert_int_equal(x.bad, y.bad);
		assert_int_equal(x.size, y.size);
		if (!x.bad && x.size && !has_prefix(a->sections[i].name, ".debug_"))
			assert_memory_equal(x.data, y.data, x.size);
	}
}

static size_t bytes_in_memory(const struct image *image)
{
	struct stat st;

	assert_int_equal(fstat(image->fd, &st), 0);
	return (size_t)st.st_blocks * 512;
}

static void of_a_remote_file_debug_information_is_not_copied(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *table = NULL, *want = NULL;
	_cleanup_(image_unrefp) struct image *whole = NULL;
	struct image_content content, other;
	struct fixture *f = *state;
	struct image *image;
	size_t at;

	image_store_set_remote(f->store, every_file_is_remote);
	start_with_section(f, "prog", ".debug_info", 80 << 20, &at);
	image = get(f, mapping(f, "/prog"), 0)->image;
	assert_non_null(image);
	assert_false(image->is_headers);
	assert_same_build(image, f->cat);
	assert_in_range(bytes_in_memory(image), f->cat->size, f->cat->size + (1 << 20));

	whole = open_image(path_in(f, "prog"));
	assert_int_equal(image->size, whole->size);
	assert_string_equal(image->htlhash, whole->htlhash);
	assert_memory_equal(image->data, whole->data, at + 5);
	assert_memory_equal(image->data + at + (40 << 20), "\0\0\0\0\0", 5);
	assert_memory_equal(image->data + at + (80 << 20) - 5, "debug", 5);
	assert_same_sections(image, whole);
	assert_int_equal(unwind_compile(image, &table, NULL), 0);
	assert_int_equal(unwind_compile(whole, &want, NULL), 0);
	assert_true(table->n_rows > 100);
	assert_int_equal(table->n_rows, want->n_rows);
	assert_memory_equal(table->rows, want->rows, want->n_rows * sizeof(*want->rows));
	/* So what is made of it is shared with a process that has it from a local filesystem. */
	assert_int_equal(image_content_read(image, &content), 0);
	assert_int_equal(image_content_read(whole, &other), 0);
	assert_memory_equal(&content, &other, sizeof(content));
}

static void any_other_section_of_a_remote_file_is_copied(void **state)
{
	_cleanup_(image_unrefp) struct image *whole = NULL;
	struct fixture *f = *state;
	struct victim other;
	struct image *image;
	size_t at;

	image_store_set_remote(f->store, every_file_is_remote);
	start_with_section(f, "small", ".debug_frame", 3 << 20, &at);
	image = get(f, mapping(f, "/small"), 0)->image;
	whole = open_image(path_in(f, "small"));
	assert_int_equal(image->size, whole->size);
	assert_memory_equal(image->data, whole->data, whole->size);
	other = f->victim;
	start_with_section(f, "large", ".debug_frame", 80 << 20, &at);
	assert_true(get(f, mapping(f, "/large"), 0)->image->is_headers);
	victim_end(&other);
}

/* Makes the section headers of the file at PATH unusable. False: there is no such way. */
static bool ruin_sections(const char *path, int how)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
	Elf64_Shdr first = {0}, names;
	uint64_t at;
	Elf64_Ehdr h;

	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	at = h.e_shoff + h.e_shstrndx * sizeof(names);
	assert_int_equal(pread(fd, &names, sizeof(names), (off_t)at), sizeof(names));
	switch (how) {
	case 0:
		h.e_shoff = UINT64_MAX - 1;
		break;
	case 1: /* before the file's end, but not all of them */
		h.e_shoff += sizeof(first);
		break;
	case 2:
		h.e_shnum = 0;
		first.sh_size = UINT64_MAX;
		break;
	case 3:
		h.e_shnum = 0xff00;
		break;
	case 4:
		h.e_shstrndx = SHN_XINDEX;
		first.sh_link = UINT32_MAX;
		break;
	case 5:
		names.sh_offset = UINT64_MAX;
		break;
	case 6:
		names.sh_size = UINT64_MAX - names.sh_offset;
		break;
	default:
		return false;
	}
	assert_int_equal(pwrite(fd, &names, sizeof(names), (off_t)at), sizeof(names));
	if (h.e_shoff < UINT32_MAX)
		assert_int_equal(pwrite(fd, &first, sizeof(first), (off_t)h.e_shoff),
				 sizeof(first));
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	return true;
}

static void a_remote_file_with_unusable_section_headers_is_copied_whole(void **state)
{
	struct fixture *f = *state;
	size_t at;

	image_store_set_remote(f->store, every_file_is_remote);
	for (int how = 0;; how++) {
		_cleanup_(image_unrefp) struct image *whole = NULL;
		struct stored_image *image;
		char name[32];

		snprintf(name, sizeof(name), "/prog-%d", how);
		write_with_section(f, name + 1, ".debug_info", 1 << 20, &at);
		if (!ruin_sections(path_in(f, name + 1), how))
			break;
		assert_int_equal(victim_start(path_in(f, name + 1), NULL, NULL, &f->victim), 0);
		image = get(f, mapping(f, name), 0);
		whole = open_image(path_in(f, name + 1));
		assert_non_null(image->image);
		assert_int_equal(image->image->size, whole->size);
		assert_memory_equal(image->image->data, whole->data, whole->size);
		image_store_put(f->store, image, 0);
		victim_end(&f->victim);
	}
}

/* Each file is larger than all copies together may be, and takes less than 1 MiB. */
static void only_bytes_that_are_copied_take_room(void **state)
{
	struct stored_image *images[2], *large;
	struct victim victims[3];
	struct fixture *f = *state;
	size_t at;

	image_store_set_remote(f->store, every_file_is_remote);
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "/b" : "/a";

		start_with_section(f, name + 1, ".debug_info", 80 << 20, &at);
		images[i] = get(f, mapping(f, name), 0);
		assert_false(images[i]->image->is_headers);
		victims[i] = f->victim;
	}
	start_large(f, "prog", 62 << 20);
	large = get(f, mapping(f, "/prog"), 0);
	assert_false(large->image->is_headers);
	image_store_put(f->store, large, 1);
	for (int i = 0; i < 2; i++)
		image_store_put(f->store, images[i], 1);
	image_store_sweep(f->store, 1, 0);
	victims[2] = f->victim;
	/* All that was taken was given back, and no more. */
	start_large(f, "whole", 64 << 20);
	large = get(f, mapping(f, "/whole"), 2);
	assert_false(large->image->is_headers);
	for (int i = 0; i < 3; i++)
		victim_end(&victims[i]);
	victims[0] = f->victim;
	start_copy(f, "/bin/cat", "none");
	assert_true(get(f, mapping(f, "/none"), 2)->image->is_headers);
	victim_end(&victims[0]);
}

/* A tmpfs that only the child sees, with a copy of cat in it. */
static int hide_in_namespace(char *path, size_t size, void *arg)
{
	struct fixture *f = arg;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", f->dir, "tmpfs", 0, NULL) < 0)
		return 1;
	snprintf(path, size, "%s", path_in(f, "hidden"));
	return file_copy("/bin/cat", path);
}

/* A tmpfs that only the child sees, with a file of 32 MiB in it. */
static int start_in_tmpfs(char *path, size_t size, void *arg)
{
	int r = hide_in_namespace(path, size, arg);

	return r ? r : truncate(path, 32 << 20) < 0;
}

static void one_filesystem_does_not_take_all_room(void **state)
{
	struct fixture *f = *state;
	struct victim victims[2];

	image_store_set_remote(f->store, every_file_is_remote);
	start_large(f, "first", 32 << 20);
	assert_false(get(f, mapping(f, "/first"), 0)->image->is_headers);
	victims[0] = f->victim;
	start_copy(f, "/bin/cat", "second");
	assert_true(get(f, mapping(f, "/second"), 0)->image->is_headers);
	victims[1] = f->victim;
	assert_int_equal(victim_start("", start_in_tmpfs, f, &f->victim), 0);
	assert_false(get(f, mapping(f, "/hidden"), 0)->image->is_headers);
	for (int i = 0; i < 2; i++)
		victim_end(&victims[i]);
}

static void a_replaced_file_is_the_one_that_was_mapped(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image;

	start_copy(f, "/bin/cat", "prog");
	assert_int_equal(file_copy("/bin/ls", path_in(f, "new")), 0);
	assert_int_equal(rename(path_in(f, "new"), path_in(f, "prog")), 0);
	image = get(f, mapping(f, "/prog"), 0);
	assert_same_build(image->image, f->cat);
}

static void a_replaced_file_is_never_mistaken_by_its_path(void **state)
{
	struct fixture *f = *state;
	struct stored_image *image;

	start_copy(f, "/bin/cat", "prog");
	assert_int_equal(file_copy("/bin/ls", path_in(f, "new")), 0);
	assert_int_equal(rename(path_in(f, "new"), path_in(f, "prog")), 0);
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	static const struct CMUnitTest tests[] = {
	    TEST(one_file_of_two_processes_is_one_image),
	    TEST(a_deleted_file_is_opened),
	    TEST(of_a_remote_file_there_is_a_copy_and_no_descriptor),
	    TEST(a_remote_file_that_was_rewritten_gets_a_new_copy),
	    TEST(of_a_remote_file_without_room_for_a_copy_there_are_the_headers_only),
	    TEST(a_remote_file_is_copied_once_there_is_room),
	    TEST(of_a_remote_file_debug_information_is_not_copied),
	    TEST(any_other_section_of_a_remote_file_is_copied),
	    TEST(a_remote_file_with_unusable_section_headers_is_copied_whole),
	    TEST(only_bytes_that_are_copied_take_room),
	    TEST(one_filesystem_does_not_take_all_room),
	    TEST(a_replaced_file_is_the_one_that_was_mapped),
	    TEST(a_replaced_file_is_never_mistaken_by_its_path),
	    TEST(without_map_files_the_path_does),
	    TEST(a_file_of_another_mount_namespace_is_opened),
	    TEST(a_file_inside_a_chroot_is_opened),
	    TEST(a_file_on_an_overlay_is_opened),
	    TEST(the_inode_alone_is_not_enough_elsewhere),
	    TEST(who_puts_a_file_under_anothers_name_changes_nothing_for_others),
	    TEST(a_path_that_became_a_fifo_does_not_hang),
	    TEST(a_symbolic_link_does_not_lead_to_another_file),
	    TEST(a_file_of_a_process_that_is_gone_is_known_by_its_path),
	    TEST(a_mapping_that_is_gone_is_tried_again_at_once),
	    TEST(an_unreadable_file_is_tried_again_after_a_minute),
	    TEST(a_file_that_is_no_elf_is_remembered_with_the_reason),
	    TEST(a_rewritten_file_gets_a_new_image),
	    TEST(a_rewritten_file_that_nobody_uses_is_dropped),
	    TEST(the_vdso_is_one_image),
	    TEST(memory_without_a_file_is_refused),
	    TEST(the_longest_idle_makes_room),
	    TEST(the_sweep_takes_what_was_idle_long_enough),
	    TEST(an_idle_image_gives_its_descriptor),
	};
#undef TEST

	return cmocka_run_group_tests(tests, NULL, NULL);
}
