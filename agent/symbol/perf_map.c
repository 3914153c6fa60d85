// SPDX-License-Identifier: Apache-2.0
/*
 * Settling merges the settled pieces, which are disjoint, and the lines read since then into
 * disjoint pieces: a sweep over the start addresses with a heap of the lines that cover the
 * position, the latest line on top. Names that no piece uses any more are squeezed out, so a map
 * takes as much memory as the code that is live, not as the file is long.
 *
 * The file belongs to the profiled process and may be anything: it is opened without following
 * links or blocking, and every number has a cap. Bytes after the last newline are read again at the
 * next update, with the rest of their line.
 */
#include "agent/symbol/perf_map.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "agent/symbol/foreign.h"
#include "lib/buf.h"
#include "lib/metrics.h"

enum { READ_BUFFER = 64 << 10 };

struct entry {
	uint64_t start;
	uint32_t size, name;
};

struct perf_map {
	struct entry *entries; /* the first n_settled are sorted and disjoint */
	size_t n, n_settled, cap;
	struct buf names;
	bool full;
	dev_t dev;
	ino_t ino;
	uint64_t offset; /* of the file, read so far; at the start of a line */
};

int perf_map_new(struct perf_map **ret)
{
	struct perf_map *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	buf_init(&m->names, PERF_MAP_NAMES_MAX);
	*ret = m;
	return 0;
}

static void clear(struct perf_map *m)
{
	free(m->entries);
	buf_done(&m->names);
	m->entries = NULL;
	m->n = m->n_settled = m->cap = 0;
	m->full = false;
	m->offset = 0;
}

struct perf_map *perf_map_free(struct perf_map *m)
{
	if (!m)
		return NULL;
	clear(m);
	free(m);
	return NULL;
}

/* ---- settling ---------------------------------------------------------------------------------
 */

struct sweep {
	const struct entry *in;
	uint32_t *heap; /* indices into IN, the greatest on top */
	size_t n_heap;
	struct entry *out;
	size_t n_out, cap_out;
};

static int by_start(const void *a, const void *b, void *arg)
{
	const struct entry *in = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (in[x].start != in[y].start)
		return in[x].start < in[y].start ? -1 : 1;
	return x < y ? -1 : 1;
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct entry *in = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return in[x].name < in[y].name ? -1 : in[x].name > in[y].name;
}

static void heap_push(struct sweep *s, uint32_t v)
{
	size_t i = s->n_heap++, up;

	for (; i > 0 && s->heap[up = (i - 1) / 2] < v; i = up)
		s->heap[i] = s->heap[up];
	s->heap[i] = v;
}

static void heap_pop(struct sweep *s)
{
	uint32_t v = s->heap[--s->n_heap];
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < s->n_heap; i = child) {
		if (child + 1 < s->n_heap && s->heap[child + 1] > s->heap[child])
			child++;
		if (s->heap[child] <= v)
			break;
		s->heap[i] = s->heap[child];
	}
	s->heap[i] = v;
}

static int emit(struct sweep *s, uint64_t start, uint64_t end, uint32_t name)
{
	struct entry *last = s->n_out ? &s->out[s->n_out - 1] : NULL;
	int r;

	if (last && last->name == name && last->start + last->size == start &&
	    end - last->start <= UINT32_MAX) {
		last->size = (uint32_t)(end - last->start);
		return 0;
	}
	r = grow_array((void **)&s->out, &s->cap_out, s->n_out + 1, sizeof(*s->out),
		       4 * PERF_MAP_ENTRIES_MAX);
	if (r == 0)
		s->out[s->n_out++] = (struct entry){start, (uint32_t)(end - start), name};
	return r;
}

static int sweep(struct sweep *s, const uint32_t *order, size_t n)
{
	uint64_t pos = 0, end;
	size_t i = 0;
	int r;

	while (i < n || s->n_heap) {
		const struct entry *top;

		if (!s->n_heap)
			pos = s->in[order[i]].start;
		while (i < n && s->in[order[i]].start <= pos)
			heap_push(s, order[i++]);
		top = &s->in[s->heap[0]];
		if (top->start + top->size <= pos) {
			heap_pop(s);
			continue;
		}
		end = top->start + top->size;
		if (i < n)
			end = MIN(end, s->in[order[i]].start);
		r = emit(s, pos, end, top->name);
		if (r < 0)
			return r;
		pos = end;
	}
	return 0;
}

/* Moves the names that are in use to the front; ORDER is scratch. */
static void squeeze_names(struct perf_map *m, uint32_t *order)
{
	uint32_t old = UINT32_MAX, at = 0;
	size_t len = 0;

	for (size_t i = 0; i < m->n; i++)
		order[i] = (uint32_t)i;
	qsort_r(order, m->n, sizeof(*order), by_name, m->entries);
	for (size_t i = 0; i < m->n; i++) {
		struct entry *e = &m->entries[order[i]];
		size_t size;

		if (e->name != old) {
			old = e->name;
			size = strlen(m->names.data + old) + 1;
			memmove(m->names.data + len, m->names.data + old, size);
			at = (uint32_t)len;
			len += size;
		}
		e->name = at;
	}
	m->names.len = len;
}

int perf_map_settle(struct perf_map *m)
{
	_cleanup_free_ uint32_t *order = NULL, *heap = NULL;
	struct sweep s = {.in = m->entries};
	int r;

	if (m->n_settled == m->n)
		return 0;
	/* Twice: squeeze_names() sorts as many pieces as come out of it. */
	order = malloc(2 * m->n * sizeof(*order));
	heap = malloc(m->n * sizeof(*heap));
	if (!order || !heap)
		return -ENOMEM;
	s.heap = heap;
	for (size_t i = 0; i < m->n; i++)
		order[i] = (uint32_t)i;
	qsort_r(order, m->n, sizeof(*order), by_start, m->entries);
	r = sweep(&s, order, m->n);
	if (r < 0) {
		free(s.out);
		return r;
	}
	free(m->entries);
	m->entries = s.out;
	m->cap = s.cap_out;
	m->n = m->n_settled = s.n_out;
	squeeze_names(m, order);
	return 0;
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static const char *parse_hex(const char *p, const char *end, uint64_t *ret)
{
	const char *start;
	uint64_t v = 0;

	if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x')
		p += 2;
	for (start = p; p < end; p++) {
		unsigned int c = (unsigned char)*p, digit = c - '0';

		if (digit > 9) {
			digit = (c | 0x20) - 'a';
			if (digit > 5)
				break;
			digit += 10;
		}
		if (v >> 60)
			return NULL;
		v = v << 4 | digit;
	}
	if (p == start || p >= end || *p != ' ')
		return NULL;
	*ret = v;
	return p + strspn(p, " ");
}

/*
 * Makes room for one more line, if need be by settling the map. Sets m->full when the map stays too
 * large. 0 or a negative errno.
 */
static int make_room(struct perf_map *m)
{
	int r;

	if (m->n < PERF_MAP_ENTRIES_MAX && m->names.len < PERF_MAP_NAMES_MAX - PERF_MAP_NAME_MAX)
		return 0;
	r = perf_map_settle(m);
	if (r < 0)
		return r;
	/* A little more room than one line, or each line would settle the map again. */
	if (m->n > PERF_MAP_ENTRIES_MAX / 8 * 7 || m->names.len > PERF_MAP_NAMES_MAX / 8 * 7) {
		m->full = true;
		metric_add(M_SYMBOLS_CAPPED_PERF_MAP, 1);
	}
	return 0;
}

/* Lines that do not parse are skipped. LINE is followed by its newline. */
static int add_line(struct perf_map *m, const char *line, const char *end)
{
	uint64_t start, size;
	uint32_t at;
	size_t len;
	int r;

	line = parse_hex(line, end, &start);
	line = line ? parse_hex(line, end, &size) : NULL;
	if (!line || line >= end || size == 0 || size > UINT32_MAX || start > UINT64_MAX - size)
		return 0;
	r = make_room(m);
	if (r < 0 || m->full)
		return r;
	len = MIN((size_t)(end - line), (size_t)PERF_MAP_NAME_MAX - 1);
	len = strnlen(line, len);
	at = (uint32_t)m->names.len;
	if (buf_append(&m->names, line, len) < 0 || buf_append(&m->names, "", 1) < 0)
		return buf_error(&m->names);
	r = grow_array((void **)&m->entries, &m->cap, m->n + 1, sizeof(*m->entries),
		       4 * PERF_MAP_ENTRIES_MAX);
	if (r < 0)
		return r;
	m->entries[m->n++] = (struct entry){start, (uint32_t)size, at};
	return 0;
}

/* Whole lines only; *ret_used: bytes up to and with the last newline. */
static int add_lines(struct perf_map *m, const char *data, size_t len, size_t *ret_used)
{
	const char *line = data, *newline;
	int r;

	while (!m->full && (newline = memchr(line, '\n', len - (size_t)(line - data)))) {
		r = add_line(m, line, newline);
		if (r < 0)
			return r;
		line = newline + 1;
	}
	*ret_used = (size_t)(line - data);
	return 0;
}

int perf_map_feed(struct perf_map *m, const char *data, size_t len)
{
	size_t used;

	return add_lines(m, data, len, &used);
}

/* ---- the file ---------------------------------------------------------------------------------
 */

int perf_map_update(struct perf_map *m, int fd)
{
	_cleanup_free_ char *buffer = NULL;
	uint64_t limit;
	struct stat st;
	size_t used;
	ssize_t n;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != m->dev || st.st_ino != m->ino || (uint64_t)st.st_size < m->offset) {
		clear(m);
		m->dev = st.st_dev;
		m->ino = st.st_ino;
	}
	if (m->full || (uint64_t)st.st_size == m->offset)
		return 0;
	buffer = malloc(READ_BUFFER);
	if (!buffer)
		return -ENOMEM;
	limit = MIN(m->offset + PERF_MAP_UPDATE_MAX, (uint64_t)PERF_MAP_FILE_MAX);
	while (!m->full && m->offset < limit) {
		n = pread(fd, buffer, READ_BUFFER, (off_t)m->offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		r = add_lines(m, buffer, (size_t)n, &used);
		if (r < 0)
			return r;
		if (!used && n < READ_BUFFER)
			break;			      /* the rest of this line is not written yet */
		m->offset += used ? used : (size_t)n; /* a line without end is skipped */
	}
	if (!m->full && m->offset >= PERF_MAP_FILE_MAX) {
		m->full = true;
		metric_add(M_SYMBOLS_CAPPED_PERF_MAP, 1);
	}
	return perf_map_settle(m);
}

/*
 * Reads from the process's status file its pid in the innermost pid namespace, and its real and
 * effective user ids.
 */
static int read_status(const char *proc, pid_t pid, pid_t *ret_nspid, uid_t ret_uids[2])
{
	char path[256], text[4096], *line, *last;
	_cleanup_close_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%d/status", proc, (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return n < 0 ? -errno : -ESRCH;
	text[n] = 0;
	line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %u %u", &ret_uids[0], &ret_uids[1]) != 2)
		return -EBADMSG;
	*ret_nspid = pid;
	line = strstr(text, "\nNSpid:");
	if (line) {
		line += strlen("\nNSpid:");
		line[strcspn(line, "\n")] = 0;
		last = strrchr(line, '\t');
		if (!last || sscanf(last, "%d", ret_nspid) != 1)
			return -EBADMSG;
	}
	return 0;
}

int perf_map_open(struct foreign *foreign, const char *proc, pid_t pid)
{
	char root[FOREIGN_ROOT_MAX], path[64];
	_cleanup_close_ int fd = -1;
	struct stat st;
	uid_t uids[2];
	pid_t nspid;
	int r;

	r = read_status(proc, pid, &nspid, uids);
	if (r < 0)
		return r;
	snprintf(root, sizeof(root), "%s/%d/root", proc, (int)pid);
	snprintf(path, sizeof(path), "tmp/perf-%d.map", (int)nspid);
	fd = foreign_open(foreign, root, path, true);
	if (fd == -ENOENT || fd == -EHOSTDOWN || fd == -EREMOTE)
		return fd;
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_nlink != 1 ||
	    (st.st_uid != 0 && st.st_uid != uids[0] && st.st_uid != uids[1])) {
		metric_add(M_PERF_MAPS_REFUSED, 1);
		return -EPERM;
	}
	return TAKE_FD(fd);
}

/* ---- look-up ----------------------------------------------------------------------------------
 */

bool perf_map_find(const struct perf_map *m, uint64_t address, struct perf_map_symbol *ret)
{
	size_t lo = 0, hi = m->n_settled;
	const struct entry *e;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (m->entries[mid].start <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return false;
	e = &m->entries[lo - 1];
	if (address - e->start >= e->size)
		return false;
	*ret = (struct perf_map_symbol){e->start, e->start + e->size, m->names.data + e->name};
	return true;
}

size_t perf_map_count(const struct perf_map *m)
{
	return m->n_settled;
}

size_t perf_map_bytes(const struct perf_map *m)
{
	return sizeof(*m) + m->cap * sizeof(*m->entries) + m->names.cap;
}
