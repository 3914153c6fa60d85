/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/maps, line by line:
 *
 *   55d1c0a00000-55d1c0a45000 r-xp 0002f000 fd:01 1835421      /usr/bin/bash
 *
 * The path is the text of another process, so it may hold blanks, brackets and escapes; the kernel
 * writes a newline in it as \012 and escapes nothing else (fs/proc/task_mmu.c, show_map_vma). The
 * result is sorted and its ranges do not overlap, whatever the text says: lookups rely on it.
 * No state; any thread.
 */
#include "agent/process/maps.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>

#include "agent/process/proc_file.h"
#include "agent/process/text.h"

static const char deleted_suffix[] = " (deleted)";

/* Files that only back anonymous memory: code in them was made by the process itself. */
static const char *const anonymous_files[] = {
    "/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage", "//anon", "anon_inode:",
};

bool maps_is_memory(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(anonymous_files); i++)
		if (has_prefix(path, anonymous_files[i]))
			return true;
	return false;
}

static enum map_kind kind_of(const char *path)
{
	if (path[0] == 0)
		return MAPPING_ANON;
	if (streq(path, "[vdso]"))
		return MAPPING_VDSO;
	if (streq(path, "[heap]") || has_prefix(path, "[stack") || has_prefix(path, "[anon:") ||
	    has_prefix(path, "[anon_shmem:"))
		return MAPPING_ANON;
	if (path[0] == '[')
		return MAPPING_OTHER;
	return maps_is_memory(path) ? MAPPING_ANON : MAPPING_FILE;
}

/*
 * Cuts " (deleted)" off the end of PATH; true when it was there. The kernel writes no NUL; anything
 * behind one is ignored.
 */
static bool cut_deleted(char *path)
{
	size_t n = strlen(path), suffix = sizeof(deleted_suffix) - 1;

	if (n <= suffix || !streq(path + n - suffix, deleted_suffix))
		return false;
	path[n - suffix] = 0;
	return true;
}

/* The rest of LINE as a path: \012 becomes a newline, " (deleted)" goes. NULL when out of memory.
 */
static char *parse_path(struct cursor *line, bool *ret_deleted)
{
	size_t left = cursor_left(line), n = 0;
	char *path = malloc(left + 1);

	if (!path)
		return NULL;
	while (cursor_left(line) > 0) {
		if (text_prefix(line, "\\012"))
			path[n++] = '\n';
		else
			path[n++] = (char)cursor_u8(line);
	}
	path[n] = 0;
	*ret_deleted = cut_deleted(path);
	return path;
}

enum line_result { LINE_MALFORMED, LINE_OTHER, LINE_EXECUTABLE };

/* Parses the fields before the path; those after the permissions only if they say executable. */
static enum line_result parse_fields(struct cursor *line, struct map_entry *ret)
{
	struct map_entry e = {0};
	const uint8_t *perms;
	uint64_t major, minor;

	if (!text_number(line, 16, &e.start) || !text_char(line, '-') ||
	    !text_number(line, 16, &e.end) || !text_char(line, ' '))
		return LINE_MALFORMED;
	perms = cursor_bytes(line, 4);
	if (!perms || !text_char(line, ' ') || e.start >= e.end)
		return LINE_MALFORMED;
	if (perms[2] != 'x')
		return LINE_OTHER;
	if (!text_number(line, 16, &e.offset) || !text_char(line, ' ') ||
	    !text_number(line, 16, &major) || !text_char(line, ':') ||
	    !text_number(line, 16, &minor) || !text_char(line, ' ') ||
	    !text_number(line, 10, &e.inode) || major > UINT32_MAX || minor > UINT32_MAX)
		return LINE_MALFORMED;
	if (cursor_left(line) > 0 && !text_char(line, ' '))
		return LINE_MALFORMED;
	e.dev_major = (uint32_t)major;
	e.dev_minor = (uint32_t)minor;
	text_skip_blanks(line);
	*ret = e;
	return LINE_EXECUTABLE;
}

/* Is OTEL_CTX in the rest of LINE, which ends with the mapping's name? */
static bool names_context(const struct cursor *line)
{
	static const char name[] = "OTEL_CTX";
	struct cursor rest = *line;
	size_t n = cursor_left(&rest);

	return memmem(cursor_bytes(&rest, n), n, name, sizeof(name) - 1) != NULL;
}

static int parse_line(struct maps *maps, struct cursor *line)
{
	struct map_entry e;
	enum line_result result = parse_fields(line, &e);
	int ret;

	if (result == LINE_MALFORMED)
		maps->malformed++;
	if (result == LINE_OTHER && names_context(line))
		maps->has_context = true;
	if (result != LINE_EXECUTABLE)
		return 0;
	ret = grow_array((void **)&maps->entries, &maps->cap, maps->n + 1, sizeof(e),
			 MAPS_ENTRIES_MAX);
	if (ret == -E2BIG) {
		maps->dropped++;
		return 0;
	}
	if (ret < 0)
		return ret;
	e.path = parse_path(line, &e.deleted);
	if (!e.path)
		return -ENOMEM;
	e.kind = kind_of(e.path);
	maps->entries[maps->n++] = e;
	return 0;
}

static int compare_start(const void *a, const void *b)
{
	const struct map_entry *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/*
 * Sorts the entries and drops those that overlap. Texts of the kernel are sorted and have no
 * overlaps.
 */
static void sort_disjoint(struct maps *maps)
{
	size_t kept = 0;

	if (maps->n == 0)
		return;
	qsort(maps->entries, maps->n, sizeof(*maps->entries), compare_start);
	for (size_t i = 0; i < maps->n; i++) {
		if (kept > 0 && maps->entries[i].start < maps->entries[kept - 1].end) {
			free(maps->entries[i].path);
			maps->malformed++;
		} else {
			maps->entries[kept++] = maps->entries[i];
		}
	}
	maps->n = kept;
}

int maps_parse(const char *text, size_t len, struct maps *ret)
{
	struct cursor c = cursor_of(text, len), line;
	_cleanup_(maps_done) struct maps maps = {0};
	int r;

	while (text_line(&c, &line)) {
		r = parse_line(&maps, &line);
		if (r < 0)
			return r;
	}
	sort_disjoint(&maps);
	*ret = maps;
	maps = (struct maps){0};
	return 0;
}

/* Removes the mappings that overlap [START, END). Returns the index for a new one at START. */
static size_t make_place(struct maps *maps, uint64_t start, uint64_t end)
{
	size_t first = maps->n, last;

	while (first > 0 && maps->entries[first - 1].end > start)
		first--;
	for (last = first; last < maps->n && maps->entries[last].start < end; last++)
		free(maps->entries[last].path);
	memmove(maps->entries + first, maps->entries + last,
		(maps->n - last) * sizeof(*maps->entries));
	maps->n -= last - first;
	return first;
}

int maps_add(struct maps *maps, const struct map_entry *at, const char *path)
{
	struct map_entry e = *at;
	size_t place;
	int r;

	if (e.start >= e.end) {
		maps->malformed++;
		return 0;
	}
	r = grow_array((void **)&maps->entries, &maps->cap, maps->n + 1, sizeof(e),
		       MAPS_ENTRIES_MAX);
	if (r == -E2BIG)
		maps->dropped++;
	if (r < 0)
		return r == -E2BIG ? 0 : r;
	e.path = strdup(path);
	if (!e.path)
		return -ENOMEM;
	e.deleted = cut_deleted(e.path);
	e.kind = kind_of(e.path);
	place = make_place(maps, e.start, e.end);
	memmove(maps->entries + place + 1, maps->entries + place,
		(maps->n - place) * sizeof(*maps->entries));
	maps->entries[place] = e;
	maps->n++;
	return 0;
}

int maps_read(int proc_dirfd, uint32_t pid, struct maps *ret)
{
	char path[32];
	_cleanup_(buf_done) struct buf text;
	bool cut;
	int r;

	buf_init(&text, MAPS_FILE_MAX);
	snprintf(path, sizeof(path), "%u/maps", pid);
	r = proc_file_read(proc_dirfd, path, &text);
	cut = r == -E2BIG;
	if (r < 0 && !cut)
		return r;
	/* Kernel threads and processes that are about to end have an empty file. */
	if (text.len == 0)
		return -ESRCH;
	/* The last line of a cut text may be incomplete and still look well-formed. */
	while (cut && text.len > 0 && text.data[text.len - 1] != '\n')
		text.len--;
	r = maps_parse(text.data, text.len, ret);
	if (r == 0 && cut)
		ret->dropped++;
	return r;
}

/* struct procmap_query and its ioctl: Linux 6.11, include/uapi/linux/fs.h. */
struct procmap_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor;
	uint32_t vma_name_size, build_id_size; /* in: bytes at the address; out: bytes written */
	uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
enum { VMA_EXECUTABLE = 0x04, COVERING_OR_NEXT_VMA = 0x10 };

/* Adds the first executable mapping that ends after *AT, and sets *AT to its end. -ENOENT: there is
 * none. */
static int query_next(int fd, struct maps *maps, uint64_t *at, char name[PATH_MAX])
{
	struct procmap_query q = {
	    .size = sizeof(q),
	    .query_flags = COVERING_OR_NEXT_VMA | VMA_EXECUTABLE,
	    .query_addr = *at,
	    .vma_name_addr = (uintptr_t)name,
	    .vma_name_size = PATH_MAX,
	};
	struct map_entry e;

	if (ioctl(fd, PROCMAP_QUERY, &q) < 0)
		return -errno;
	if (q.vma_end <= *at)
		return -ENOENT;
	*at = q.vma_end;
	name[q.vma_name_size ? PATH_MAX - 1 : 0] = 0;
	e = (struct map_entry){
	    .start = q.vma_start,
	    .end = q.vma_end,
	    .offset = q.vma_offset,
	    .inode = q.inode,
	    .dev_major = q.dev_major,
	    .dev_minor = q.dev_minor,
	};
	return maps_add(maps, &e, name);
}

int maps_query(int proc_dirfd, uint32_t pid, struct maps *ret)
{
	_cleanup_(maps_done) struct maps maps = {0};
	_cleanup_close_ int fd = -1;
	char path[32], name[PATH_MAX];
	uint64_t at = 0;
	int r;

	snprintf(path, sizeof(path), "%u/maps", pid);
	fd = openat(proc_dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	do {
		r = query_next(fd, &maps, &at, name);
	} while (r == 0 && !maps.dropped);
	if (r < 0 && r != -ENOENT)
		return r;
	if (maps.n == 0)
		return -ESRCH;
	*ret = maps;
	maps = (struct maps){0};
	return 0;
}

int maps_find(int proc_dirfd, uint32_t pid, uint64_t address, uint64_t *ret_start,
	      uint64_t *ret_end)
{
	char path[32];
	_cleanup_(buf_done) struct buf text;
	struct cursor c, line;
	uint64_t start, end;
	int r;

	buf_init(&text, MAPS_FILE_MAX);
	snprintf(path, sizeof(path), "%u/maps", pid);
	r = proc_file_read(proc_dirfd, path, &text);
	if (r < 0 && r != -E2BIG)
		return r;
	if (text.len == 0)
		return -ESRCH;
	c = cursor_of(text.data, text.len);
	while (text_line(&c, &line)) {
		if (!text_number(&line, 16, &start) || !text_char(&line, '-') ||
		    !text_number(&line, 16, &end) || address < start || address >= end)
			continue;
		*ret_start = start;
		*ret_end = end;
		return 0;
	}
	return -ENOENT;
}

void maps_done(struct maps *maps)
{
	for (size_t i = 0; i < maps->n; i++)
		free(maps->entries[i].path);
	free(maps->entries);
	*maps = (struct maps){0};
}
