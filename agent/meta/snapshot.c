/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file: a header of 48 bytes, then records; little-endian.
 *   0 "KILNPOD1"   8 crc32 of everything from 12 on   12 number of records   16 bytes of records
 *   24 epoch   32 revision   40 CPU budget, millionths   44 memory budget, MiB (0: none)
 * A record: its kind (1 destination, 2 policy, 3 pod, 4 default policy), 3 zero bytes, its length
 * (4 bytes), the message of node.proto as the operator encoded it, without what is secret.
 *
 * A file is believed whole or not at all: the checksum counts first, then each record is decoded
 * like a message of the stream, into a snapshot of the table that takes its place at the end.
 */
#include "agent/meta/snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include "agent/meta/node_message.h"
#include "agent/meta/pods_update.h"
#include "lib/cursor.h"

static const char magic[8] = "KILNPOD1";
enum { CHECKED_FROM = 12, RECORD_HEADER_BYTES = 8 };
enum record_kind { RECORD_DESTINATION = 1, RECORD_POLICY, RECORD_POD, RECORD_DEFAULT_POLICY };

/* ---- to bytes -------------------------------------------------------------------------------- */

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

struct encoding {
	struct buf *out;
	uint32_t n;
};

static enum record_kind record_kind_of(const struct pod_object *o, bool is_default)
{
	switch (o->kind) {
	case POD_OBJECT_DESTINATION:
		return RECORD_DESTINATION;
	case POD_OBJECT_POLICY:
		return is_default ? RECORD_DEFAULT_POLICY : RECORD_POLICY;
	case POD_OBJECT_POD:
	default:
		return RECORD_POD;
	}
}

static bool encode_record(const struct pod_object *o, bool is_default, void *arg)
{
	uint8_t header[RECORD_HEADER_BYTES] = {(uint8_t)record_kind_of(o, is_default)};
	struct encoding *e = arg;

	put32(header + 4, (uint32_t)o->wire_len);
	e->n++;
	return buf_append(e->out, header, sizeof(header)) == 0 &&
	       buf_append(e->out, o->wire, o->wire_len) == 0;
}

int snapshot_encode(const struct pod_table *t, struct buf *out)
{
	uint8_t header[SNAPSHOT_HEADER_BYTES] = {0};
	struct encoding e = {.out = out};
	const struct pod_table_budget budget = pod_table_budget(t);
	uint64_t epoch, revision;
	uint8_t *whole;

	pod_table_state(t, &epoch, &revision);
	if (!epoch)
		return -ENODATA;
	if (buf_append(out, header, sizeof(header)) < 0 || !pod_table_objects(t, encode_record, &e))
		return buf_error(out);
	whole = (uint8_t *)out->data;
	memcpy(whole, magic, sizeof(magic));
	put32(whole + 12, e.n);
	put64(whole + 16, out->len - SNAPSHOT_HEADER_BYTES);
	put64(whole + 24, epoch);
	put64(whole + 32, revision);
	put32(whole + 40, budget.cpu);
	put32(whole + 44, (uint32_t)MIN(budget.memory >> 20, UINT32_MAX));
	put32(whole + 8, (uint32_t)crc32(0, whole + CHECKED_FROM, (uInt)(out->len - CHECKED_FROM)));
	return 0;
}

/* ---- to disk --------------------------------------------------------------------------------- */

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

/* A rename is on disk when its directory is. */
static int sync_directory(const char *path)
{
	_cleanup_free_ char *dir = strdup(path);
	_cleanup_close_ int fd = -1;
	char *slash;

	if (!dir)
		return -ENOMEM;
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = 0;
	fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int snapshot_write(const char *path, const void *data, size_t len)
{
	_cleanup_free_ char *part = NULL;
	_cleanup_close_ int fd = -1;
	int r;

	if (asprintf(&part, "%s.tmp", path) < 0) {
		part = NULL;
		return -ENOMEM;
	}
	unlink(part); /* a write that was cut off, or somebody's link */
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, data, len);
	if (r == 0 && fdatasync(fd) < 0)
		r = -errno;
	if (r == 0 && rename(part, path) < 0)
		r = -errno;
	if (r < 0) {
		unlink(part);
		return r;
	}
	return sync_directory(path);
}

/* ---- from bytes ------------------------------------------------------------------------------ */

struct header {
	uint32_t records;
	uint64_t epoch, revision;
	struct pod_table_budget budget;
};

static bool header_read(struct cursor *c, struct header *ret)
{
	const uint8_t *m = cursor_bytes(c, sizeof(magic));
	uint32_t crc = cursor_u32(c);
	uint64_t bytes;

	if (c->bad || memcmp(m, magic, sizeof(magic)) != 0 ||
	    crc != crc32(0, c->data + CHECKED_FROM, (uInt)(c->size - CHECKED_FROM)))
		return false;
	ret->records = cursor_u32(c);
	bytes = cursor_u64(c);
	ret->epoch = cursor_u64(c);
	ret->revision = cursor_u64(c);
	ret->budget.cpu = cursor_u32(c);
	ret->budget.memory = (uint64_t)cursor_u32(c) << 20;
	return !c->bad && bytes == cursor_left(c) && ret->epoch;
}

static const ProtobufCMessageDescriptor *record_type(uint8_t kind)
{
	switch (kind) {
	case RECORD_DESTINATION:
		return &kiln__node__v1__destination__descriptor;
	case RECORD_POLICY:
	case RECORD_DEFAULT_POLICY:
		return &kiln__node__v1__policy__descriptor;
	case RECORD_POD:
		return &kiln__node__v1__pod__descriptor;
	default:
		return NULL;
	}
}

static int record_object(uint8_t kind, const ProtobufCMessage *m, struct pod_counters *counters,
			 struct pod_object **ret)
{
	if (kind == RECORD_DESTINATION)
		return pod_object_destination((const Kiln__Node__V1__Destination *)m, true,
					      counters, ret);
	if (kind == RECORD_POD)
		return pod_object_pod((const Kiln__Node__V1__Pod *)m, counters, ret);
	return pod_object_policy((const Kiln__Node__V1__Policy *)m, counters, ret);
}

/* What the table refuses is left out; what is no record makes the whole file unusable. */
static int record_load(struct cursor *c, struct pod_table *t)
{
	_cleanup_(node_message_freep) ProtobufCMessage *m = NULL;
	const ProtobufCMessageDescriptor *type;
	struct pod_object *o;
	uint8_t kind = cursor_u8(c);
	const uint8_t *data;
	uint32_t len;
	int r;

	cursor_skip(c, 3);
	len = cursor_u32(c);
	data = cursor_bytes(c, len);
	type = record_type(kind);
	if (c->bad || !type)
		return -EBADMSG;
	r = node_message_decode(type, data, len, &m);
	if (r < 0)
		return r;
	r = record_object(kind, m, pod_table_counting(t), &o);
	if (r == 0)
		r = pod_table_load(t, o, kind == RECORD_DEFAULT_POLICY);
	return r == -EINVAL ? 0 : r;
}

int snapshot_decode(const void *data, size_t len, struct pod_table *t, uint64_t now_ms,
		    struct error *err)
{
	struct cursor c = cursor_of(data, len);
	struct header h;
	uint32_t i;
	int r = 0;

	if (len > SNAPSHOT_MAX || !header_read(&c, &h))
		return error_set(err, -EBADMSG, "the snapshot is damaged or of another version");
	pod_table_snapshot_begin(t, h.epoch);
	for (i = 0; i < h.records && r == 0; i++)
		r = record_load(&c, t);
	if (r == 0 && cursor_left(&c) > 0)
		r = -EBADMSG;
	if (r < 0) {
		pod_table_snapshot_abort(t);
		return error_set(err, r, "the snapshot's record %u cannot be used: %s", i,
				 strerror(-r));
	}
	pod_table_set_budget(t, &h.budget);
	return pod_table_snapshot_end(t, h.epoch, h.revision, now_ms, err);
}

static int read_all(int fd, uint8_t *p, size_t len)
{
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

int snapshot_load(const char *path, struct pod_table *t, uint64_t now_ms, struct error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	_cleanup_free_ uint8_t *data = NULL;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(err, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size > SNAPSHOT_MAX)
		return error_set(err, -EBADMSG, "%s: no snapshot, or larger than 32 MiB", path);
	/* It decides what is profiled and where profiles go. */
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return error_set(err, -EPERM, "%s: others could have written it", path);
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return error_set(err, -ENOMEM, "out of memory");
	r = read_all(fd, data, (size_t)st.st_size);
	if (r < 0)
		return error_set(err, r, "%s: %s", path, strerror(-r));
	r = snapshot_decode(data, (size_t)st.st_size, t, now_ms, err);
	return r < 0 ? error_wrap(err, r, "%s", path) : 0;
}
