/* SPDX-License-Identifier: Apache-2.0 */
/* The store: files on filesystems that may stop answering are copied. */
#include "store_fixture.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "agent/elf/content.h"
#include "agent/elf/unwind.h"
#include "lib/metrics.h"

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
 * Writes to FILE a copy of cat with one more section, NAME, of SIZE bytes, which is not loaded into
 * memory. The text "debug" stands at its start, in its middle and at its end. *RET_AT: the
 * section's offset in the file.
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    STORE_TEST(of_a_remote_file_there_is_a_copy_and_no_descriptor),
	    STORE_TEST(a_remote_file_that_was_rewritten_gets_a_new_copy),
	    STORE_TEST(of_a_remote_file_without_room_for_a_copy_there_are_the_headers_only),
	    STORE_TEST(a_remote_file_is_copied_once_there_is_room),
	    STORE_TEST(of_a_remote_file_debug_information_is_not_copied),
	    STORE_TEST(any_other_section_of_a_remote_file_is_copied),
	    STORE_TEST(a_remote_file_with_unusable_section_headers_is_copied_whole),
	    STORE_TEST(only_bytes_that_are_copied_take_room),
	    STORE_TEST(one_filesystem_does_not_take_all_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
