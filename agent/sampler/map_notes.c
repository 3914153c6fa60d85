/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes are kept in the order in which they are read, one CPU's ring after the other's. The notes
 * of a process that moved to another CPU may therefore be out of time order. The mappings of a
 * program are complete if the note of its exec is kept, and no note as late as that exec was
 * dropped or lost (`gone_ns`).
 *
 * The kernel does not report munmap(): where two mappings overlap, the later one counts.
 */
#include "agent/sampler/map_notes.h"

struct note {
	struct sideband_mapping m; /* an exec: only tgid and time */
	char *path;		   /* NULL: an exec */
};

struct map_notes {
	struct note *ring;   /* MAP_NOTES_MAX */
	uint64_t first, end; /* numbers of notes: [first, end) are there */
	size_t bytes;
	uint64_t gone_ns; /* notes up to this time may be missing */
};

int map_notes_new(struct map_notes **ret)
{
	struct map_notes *n = calloc(1, sizeof(*n));

	if (n)
		n->ring = calloc(MAP_NOTES_MAX, sizeof(*n->ring));
	if (!n || !n->ring) {
		free(n);
		return -ENOMEM;
	}
	*ret = n;
	return 0;
}

static struct note *at(const struct map_notes *n, uint64_t number)
{
	return &n->ring[number % MAP_NOTES_MAX];
}

static size_t path_bytes(const struct note *note)
{
	return note->path ? strlen(note->path) + 1 : 0;
}

static void drop_first(struct map_notes *n)
{
	struct note *note = at(n, n->first++);

	n->gone_ns = MAX(n->gone_ns, note->m.time);
	n->bytes -= path_bytes(note);
	free(TAKE_PTR(note->path));
}

struct map_notes *map_notes_free(struct map_notes *n)
{
	if (!n)
		return NULL;
	while (n->first < n->end)
		drop_first(n);
	free(n->ring);
	free(n);
	return NULL;
}

/* Takes NOTE's path. */
static void add(struct map_notes *n, const struct note *note)
{
	n->bytes += path_bytes(note);
	while (n->first < n->end &&
	       (n->end - n->first >= MAP_NOTES_MAX || n->bytes > MAP_NOTES_BYTES_MAX))
		drop_first(n);
	*at(n, n->end++) = *note;
}

void map_notes_mapped(struct map_notes *n, const struct sideband_mapping *m, const char *path)
{
	struct note note = {.m = *m, .path = strdup(path)};

	if (note.path)
		add(n, &note);
	else
		map_notes_lost(n, m->time);
}

void map_notes_executed(struct map_notes *n, uint32_t tgid, uint64_t time_ns)
{
	const struct note note = {.m = {.tgid = tgid, .time = time_ns}};

	add(n, &note);
}

void map_notes_lost(struct map_notes *n, uint64_t now_ns)
{
	n->gone_ns = MAX(n->gone_ns, now_ns);
}

/* The time of the last exec of TGID up to TIME_NS; 0 when there is no note of one. */
static uint64_t last_exec(const struct map_notes *n, uint32_t tgid, uint64_t time_ns)
{
	uint64_t last = 0;

	for (uint64_t i = n->first; i < n->end; i++) {
		const struct note *note = at(n, i);

		if (note->m.tgid == tgid && !note->path && note->m.time <= time_ns)
			last = MAX(last, note->m.time);
	}
	return last;
}

bool map_notes_may_have_executed(const struct map_notes *n, uint32_t tgid, uint64_t since_ns,
				 uint64_t until_ns)
{
	return n->gone_ns > since_ns || last_exec(n, tgid, until_ns) > since_ns;
}

static int compare_time(const void *a, const void *b)
{
	const struct note *const *x = a, *const *y = b;

	return (*x)->m.time < (*y)->m.time ? -1 : (*x)->m.time > (*y)->m.time;
}

/* The mappings of TGID from EXEC_NS to TIME_NS, in the order of time. */
static int find_notes(const struct map_notes *n, uint32_t tgid, uint64_t exec_ns, uint64_t time_ns,
		      const struct note ***ret, size_t *ret_n)
{
	_cleanup_free_ const struct note **found = NULL;
	size_t cap = 0, count = 0;
	int r;

	for (uint64_t i = n->first; i < n->end; i++) {
		const struct note *note = at(n, i);

		if (note->m.tgid != tgid || !note->path || note->m.time < exec_ns ||
		    note->m.time > time_ns)
			continue;
		r = grow_array((void **)&found, &cap, count + 1, sizeof(*found),
			       MAP_NOTES_PROGRAM_MAX);
		if (r < 0)
			return r == -E2BIG ? -ENOENT : r;
		found[count++] = note;
	}
	if (count)
		qsort(found, count, sizeof(*found), compare_time);
	*ret = TAKE_PTR(found);
	*ret_n = count;
	return 0;
}

int map_notes_read(const struct map_notes *n, uint32_t tgid, uint64_t start_ns, uint64_t time_ns,
		   struct maps *ret)
{
	uint64_t exec_ns = last_exec(n, tgid, time_ns);
	_cleanup_free_ const struct note **found = NULL;
	_cleanup_(maps_done) struct maps maps = {0};
	size_t count;
	int r;

	if (!exec_ns || exec_ns < start_ns || exec_ns <= n->gone_ns)
		return -ENOENT;
	r = find_notes(n, tgid, exec_ns, time_ns, &found, &count);
	for (size_t i = 0; i < count && !r; i++) {
		const struct sideband_mapping *m = &found[i]->m;
		const struct map_entry e = {.start = m->start,
					    .end = m->start + m->length,
					    .offset = m->offset,
					    .inode = m->inode,
					    .dev_major = m->dev_major,
					    .dev_minor = m->dev_minor};

		r = maps_add(&maps, &e, found[i]->path);
	}
	if (r < 0)
		return r;
	if (!maps.n)
		return -ENOENT;
	*ret = maps;
	maps = (struct maps){0};
	return 0;
}
