/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments on disk and an index of them in memory, sorted by number.
 *
 * A segment: header of 48 bytes, then the payload; little-endian.
 *   0 "KILNSPL1"   8 crc32 of bytes 12..47   12 crc32 of the payload   16 number   24 payload bytes
 *   32 samples (signed)   40 encoding   44 generation of OTLP plus 1; 0 is the newest
 * Headers are checked at start (with name and size of the file), payloads when they are read.
 * Segments that the sender also holds in memory are marked `held`: removing them to make room for
 * newer ones is not counted as a loss.
 */
#include "agent/export/spool.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <zlib.h>

#include "lib/cursor.h"

static const char magic[8] = "KILNSPL1";
enum { NAME_BYTES = 24, HEADER_CHECKED_FROM = 12 };

struct segment {
	uint64_t seq;
	uint64_t bytes; /* of the file */
	int64_t samples;
	bool held; /* the sender has read it and still has it in memory */
};

struct spool {
	int dirfd, lockfd;
	uint64_t max_bytes, bytes;
	struct segment *segments; /* ascending seq */
	size_t n, cap;
};

struct header {
	uint32_t payload_crc, encoding, generation;
	uint64_t seq, len;
	int64_t samples;
};

/* ---- index ----------------------------------------------------------------------------------- */

/* The first segment above AFTER. */
static size_t find_after(const struct spool *s, uint64_t after)
{
	size_t low = 0, high = s->n, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (s->segments[mid].seq > after)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static struct segment *find(const struct spool *s, uint64_t seq)
{
	size_t i = seq ? find_after(s, seq - 1) : 0;

	return i < s->n && s->segments[i].seq == seq ? &s->segments[i] : NULL;
}

static int index_add(struct spool *s, const struct segment *segment)
{
	size_t at = find_after(s, segment->seq);
	int r;

	r = grow_array((void **)&s->segments, &s->cap, s->n + 1, sizeof(*s->segments),
		       SPOOL_FILES_MAX);
	if (r < 0)
		return r;
	memmove(&s->segments[at + 1], &s->segments[at], (s->n - at) * sizeof(*s->segments));
	s->segments[at] = *segment;
	s->n++;
	s->bytes += segment->bytes;
	return 0;
}

static void name_of(uint64_t seq, const char *suffix, char ret[NAME_BYTES])
{
	snprintf(ret, NAME_BYTES, "%016llx.%s", (unsigned long long)seq, suffix);
}

static void remove_at(struct spool *s, size_t i)
{
	char name[NAME_BYTES];

	name_of(s->segments[i].seq, "seg", name);
	unlinkat(s->dirfd, name, 0);
	s->bytes -= s->segments[i].bytes;
	s->n--;
	memmove(&s->segments[i], &s->segments[i + 1], (s->n - i) * sizeof(*s->segments));
}

static void make_room(struct spool *s, uint64_t bytes, struct spool_loss *loss)
{
	while (s->n > 0 && (s->bytes + bytes > s->max_bytes || s->n >= SPOOL_FILES_MAX)) {
		if (!s->segments[0].held) {
			loss->requests++;
			loss->samples += s->segments[0].samples;
		}
		remove_at(s, 0);
	}
}

/* ---- segments -------------------------------------------------------------------------------- */

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

static void header_write(const struct header *h, uint8_t out[SPOOL_HEADER_BYTES])
{
	memset(out, 0, SPOOL_HEADER_BYTES);
	memcpy(out, magic, sizeof(magic));
	put32(out + 12, h->payload_crc);
	put64(out + 16, h->seq);
	put64(out + 24, h->len);
	put64(out + 32, (uint64_t)h->samples);
	put32(out + 40, h->encoding);
	put32(out + 44, h->generation);
	put32(out + 8, (uint32_t)crc32(0, out + HEADER_CHECKED_FROM,
				       SPOOL_HEADER_BYTES - HEADER_CHECKED_FROM));
}

static int header_read(const uint8_t *data, size_t size, struct header *ret)
{
	struct cursor c = cursor_of(data, size);
	const uint8_t *m = cursor_bytes(&c, sizeof(magic));
	uint32_t crc = cursor_u32(&c);
	struct header h;

	h.payload_crc = cursor_u32(&c);
	h.seq = cursor_u64(&c);
	h.len = cursor_u64(&c);
	h.samples = cursor_i64(&c);
	h.encoding = cursor_u32(&c);
	h.generation = cursor_u32(&c);
	if (c.bad || memcmp(m, magic, sizeof(magic)) != 0 ||
	    crc != crc32(0, data + HEADER_CHECKED_FROM, SPOOL_HEADER_BYTES - HEADER_CHECKED_FROM) ||
	    h.len > PAYLOAD_MAX || h.encoding >= PAYLOAD_ENCODINGS || h.generation > OTLP_G6 + 1 ||
	    h.seq == 0 || h.samples < 0)
		return -EBADMSG;
	*ret = h;
	return 0;
}

static int write_all(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;
	ssize_t n;

	while (len > 0) {
		n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int read_all(int fd, void *data, size_t len)
{
	uint8_t *p = data;
	ssize_t n;

	while (len > 0) {
		n = read(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The file must be exactly what its header says. After any failure that is not a shortage it must
 * not be used. */
static int segment_open(const struct spool *s, uint64_t seq, int *ret_fd, struct header *ret)
{
	uint8_t bytes[SPOOL_HEADER_BYTES];
	_cleanup_close_ int fd = -1;
	char name[NAME_BYTES];
	struct header h;
	struct stat st;
	int r;

	name_of(seq, "seg", name);
	fd = openat(s->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EBADMSG;
	r = read_all(fd, bytes, sizeof(bytes));
	if (r == 0)
		r = header_read(bytes, sizeof(bytes), &h);
	if (r < 0)
		return r;
	if (h.seq != seq || (uint64_t)st.st_size != h.len + SPOOL_HEADER_BYTES)
		return -EBADMSG;
	*ret = h;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int segment_write(const struct spool *s, const char *name, const struct header *h,
			 const uint8_t *data)
{
	uint8_t bytes[SPOOL_HEADER_BYTES];
	_cleanup_close_ int fd = -1;
	int r;

	header_write(h, bytes);
	fd = openat(s->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, bytes, sizeof(bytes));
	if (r == 0)
		r = write_all(fd, data, h->len);
	if (r == 0 && fdatasync(fd) < 0)
		r = -errno;
	return r;
}

int spool_put(struct spool *s, uint64_t seq, const struct payload *p, struct spool_loss *loss)
{
	struct header h = {.seq = seq,
			   .len = p->len,
			   .samples = p->samples,
			   .encoding = (uint32_t)p->encoding,
			   .generation = (uint32_t)p->generation + 1,
			   .payload_crc = (uint32_t)crc32(0, p->data, (uInt)p->len)};
	struct segment segment = {
	    .seq = seq, .bytes = p->len + SPOOL_HEADER_BYTES, .samples = p->samples};
	char part[NAME_BYTES], name[NAME_BYTES];
	int r;

	if (segment.bytes > s->max_bytes || p->len > PAYLOAD_MAX)
		return -EFBIG;
	if (find(s, seq))
		return -EEXIST;
	make_room(s, segment.bytes, loss);
	name_of(seq, "tmp", part);
	name_of(seq, "seg", name);
	r = segment_write(s, part, &h, p->data);
	if (r == 0)
		r = index_add(s, &segment);
	if (r < 0) {
		unlinkat(s->dirfd, part, 0);
		return r;
	}
	if (renameat(s->dirfd, part, s->dirfd, name) < 0) {
		r = -errno;
		remove_at(s, find_after(s, seq - 1));
		unlinkat(s->dirfd, part, 0);
		return r;
	}
	return 0;
}

static int segment_load(const struct spool *s, uint64_t seq, struct payload *ret)
{
	_cleanup_free_ uint8_t *data = NULL;
	_cleanup_close_ int fd = -1;
	struct header h;
	int r;

	r = segment_open(s, seq, &fd, &h);
	if (r < 0)
		return r;
	data = malloc(h.len + 1);
	if (!data)
		return -ENOMEM;
	r = read_all(fd, data, h.len);
	if (r < 0)
		return r;
	if (crc32(0, data, (uInt)h.len) != h.payload_crc)
		return -EBADMSG;
	*ret = (struct payload){
	    .data = TAKE_PTR(data),
	    .len = h.len,
	    .samples = h.samples,
	    .encoding = (enum payload_encoding)h.encoding,
	    .generation = h.generation ? (enum otlp_generation)(h.generation - 1) : OTLP_G6};
	return 0;
}

int spool_next(struct spool *s, uint64_t after, uint64_t *ret_seq, struct payload *ret,
	       struct spool_loss *loss)
{
	size_t i;
	int r;

	for (;;) {
		i = find_after(s, after);
		if (i == s->n)
			return -ENOENT;
		r = segment_load(s, s->segments[i].seq, ret);
		if (is_shortage(r))
			return r;
		if (r == 0) {
			s->segments[i].held = true;
			*ret_seq = s->segments[i].seq;
			return 0;
		}
		loss->corrupt++;
		remove_at(s, i);
	}
}

void spool_remove(struct spool *s, uint64_t seq)
{
	struct segment *segment = find(s, seq);

	if (segment)
		remove_at(s, (size_t)(segment - s->segments));
}

bool spool_keep(struct spool *s, uint64_t seq)
{
	struct segment *segment = find(s, seq);

	if (segment)
		segment->held = false;
	return segment;
}

uint64_t spool_last(const struct spool *s)
{
	return s->n ? s->segments[s->n - 1].seq : 0;
}

size_t spool_count_after(const struct spool *s, uint64_t after)
{
	return s->n - find_after(s, after);
}

size_t spool_count(const struct spool *s)
{
	return s->n;
}

uint64_t spool_bytes(const struct spool *s)
{
	return s->bytes;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* "00000000000000ff.seg" -> 255; false for every other name. */
static bool name_parse(const char *name, const char *suffix, uint64_t *ret)
{
	char again[NAME_BYTES];
	uint64_t seq;

	if (strlen(name) != 20)
		return false;
	seq = strtoull(name, NULL, 16);
	name_of(seq, suffix, again);
	if (!streq(name, again) || seq == 0)
		return false;
	*ret = seq;
	return true;
}

static int compare_segments(const void *a, const void *b)
{
	uint64_t x = ((const struct segment *)a)->seq, y = ((const struct segment *)b)->seq;

	return (x > y) - (x < y);
}

static int scan(struct spool *s, struct spool_loss *loss)
{
	int fd = openat(s->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		r = -errno;
		closep(&fd);
		return r;
	}
	while (r == 0 && (entry = readdir(dir))) {
		_cleanup_close_ int segment_fd = -1;
		struct segment segment = {0};
		struct header h;

		if (name_parse(entry->d_name, "tmp", &segment.seq)) {
			unlinkat(s->dirfd, entry->d_name, 0); /* a write that was cut off */
			continue;
		}
		if (!name_parse(entry->d_name, "seg", &segment.seq))
			continue;
		r = segment_open(s, segment.seq, &segment_fd, &h);
		if (is_shortage(r))
			break;
		if (r < 0) {
			r = 0;
			loss->corrupt++;
			unlinkat(s->dirfd, entry->d_name, 0);
			continue;
		}
		r = grow_array((void **)&s->segments, &s->cap, s->n + 1, sizeof(segment),
			       SPOOL_FILES_MAX);
		if (r ==
		    -E2BIG) { /* more than Kiln ever writes: the rest is read at the next start */
			r = 0;
			break;
		}
		if (r < 0)
			break;
		segment.bytes = h.len + SPOOL_HEADER_BYTES;
		segment.samples = h.samples;
		s->segments[s->n++] = segment;
		s->bytes += segment.bytes;
	}
	closedir(dir);
	if (s->n > 0)
		qsort(s->segments, s->n, sizeof(*s->segments), compare_segments);
	return r;
}

static int make_directories(const char *path)
{
	_cleanup_free_ char *copy = strdup(path);
	char *p;

	if (!copy)
		return -ENOMEM;
	for (p = copy + 1; *copy && *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(copy, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static int spool_init(struct spool *s, const char *dir, struct spool_loss *loss, struct error *err)
{
	int r;

	r = make_directories(dir);
	if (r < 0)
		return error_set(err, r, "%s: %s", dir, strerror(-r));
	s->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0)
		return error_set(err, -errno, "%s: %s", dir, strerror(errno));
	s->lockfd = openat(s->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lockfd < 0)
		return error_set(err, -errno, "%s/lock: %s", dir, strerror(errno));
	if (flock(s->lockfd, LOCK_EX | LOCK_NB) < 0)
		return error_set(err, errno == EWOULDBLOCK ? -EBUSY : -errno,
				 "%s: another agent or exporter uses this directory", dir);
	r = scan(s, loss);
	if (r < 0)
		return error_set(err, r, "%s: %s", dir, strerror(-r));
	make_room(s, 0, loss); /* the cap may be smaller than in the last run */
	return 0;
}

int spool_open(const char *dir, uint64_t max_bytes, struct spool **ret, struct spool_loss *loss,
	       struct error *err)
{
	struct spool *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	s->dirfd = s->lockfd = -1;
	s->max_bytes = max_bytes;
	r = spool_init(s, dir, loss, err);
	if (r < 0) {
		spool_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct spool *spool_free(struct spool *s)
{
	if (!s)
		return NULL;
	closep(&s->dirfd);
	closep(&s->lockfd);
	free(s->segments);
	free(s);
	return NULL;
}
