/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources: opentelemetry-specification, oteps/profiles/4719-process-ctx.md ("Header Structure",
 * "Reading Protocol") and 4947-thread-ctx.md ("Thread-Local Reference Data"), both of August 2026;
 * opentelemetry-proto, common/v1/common.proto for KeyValue, AnyValue and ArrayValue. Stateless.
 */
#include "agent/labels/context.h"

#include <fcntl.h>
#include <unistd.h>

#include "agent/labels/text.h"
#include "lib/cursor.h"

enum { VERSION = 2, TRIES = 3, NAME_MAX_BYTES = 127 };

struct header {
	char signature[8]; /* "OTEL_CTX", without a NUL */
	uint32_t version, payload_size;
	uint64_t published_ns; /* 0: being changed */
	uint64_t payload;
};
_Static_assert(sizeof(struct header) == 32, "the layout of OTEP 4719");

void label_context_done(struct label_context *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->keys[i]);
	*c = (struct label_context){};
}

/* ---- the message ------------------------------------------------------------------------------
 */

/* The next field: its number, and its bytes if it is a message or string. False: the end. */
static bool next_field(struct cursor *c, uint64_t *ret_number, struct cursor *ret_bytes)
{
	uint64_t key;

	if (!cursor_left(c))
		return false;
	key = cursor_uleb(c);
	*ret_number = key >> 3;
	*ret_bytes = (struct cursor){0};
	cursor_protobuf_value(c, key & 7, ret_bytes);
	return !c->bad;
}

static bool is_text(const struct cursor *c, const char *text)
{
	return c->data && c->size == strlen(text) && memcmp(c->data, text, c->size) == 0;
}

static int add_key(struct label_context *ret, const struct cursor *name)
{
	size_t len = MIN(name->size, (size_t)NAME_MAX_BYTES);
	char *copy;

	if (ret->n >= LABEL_CONTEXT_KEYS_MAX)
		return 0;
	copy = malloc(len + 1);
	if (!copy)
		return -ENOMEM;
	label_text_copy(copy, name->data ? (const void *)name->data : "", len);
	ret->keys[ret->n++] = copy;
	return 0;
}

/* ArrayValue {1 values {1 string_value}}. A value that is no string takes an index all the same. */
static int read_keys(struct cursor array, struct label_context *ret)
{
	struct cursor value, text, name;
	uint64_t number;
	int r;

	while (next_field(&array, &number, &value)) {
		if (number != 1)
			continue;
		name = (struct cursor){0};
		while (next_field(&value, &number, &text))
			if (number == 1)
				name = text;
		r = value.bad ? -EBADMSG : add_key(ret, &name);
		if (r < 0)
			return r;
	}
	return array.bad ? -EBADMSG : 0;
}

/* KeyValue {1 key, 2 value {1 string_value, 5 array_value}}. */
static int read_attribute(struct cursor attribute, struct label_context *ret, bool *known)
{
	struct cursor bytes, key = {0}, value = {0}, text = {0}, array = {0};
	uint64_t number;

	while (next_field(&attribute, &number, &bytes)) {
		if (number == 1)
			key = bytes;
		if (number == 2)
			value = bytes;
	}
	if (attribute.bad)
		return -EBADMSG;
	while (value.data && next_field(&value, &number, &bytes)) {
		if (number == 1)
			text = bytes;
		if (number == 5)
			array = bytes;
	}
	if (value.bad)
		return -EBADMSG;
	if (is_text(&key, "threadlocal.schema_version"))
		*known = is_text(&text, "tlsdesc_v1_dev") || is_text(&text, "tls_v1");
	if (is_text(&key, "threadlocal.attribute_key_map") && array.data && !ret->n)
		return read_keys(array, ret);
	return 0;
}

int label_context_parse(const void *data, size_t len, struct label_context *ret)
{
	struct cursor c = cursor_of(data, len), bytes;
	bool known = false;
	uint64_t number;
	int r = 0;

	*ret = (struct label_context){};
	/* ProcessContext {1 resource, 2 attributes}. */
	while (r == 0 && next_field(&c, &number, &bytes))
		if (number == 2)
			r = read_attribute(bytes, ret, &known);
	if (r == 0 && c.bad)
		r = -EBADMSG;
	if (r < 0 || !known)
		label_context_done(ret);
	return r;
}

/* ---- the process ------------------------------------------------------------------------------
 */

/* Is LINE of /proc/PID/maps a mapping that may be a context? If so, *RET is its start address. */
static bool read_line(const char *line, uint64_t *ret)
{
	static const char *const names[] = {"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]",
					    "/memfd:OTEL_CTX"};
	const char *name = strstr(line, "OTEL_CTX");
	unsigned long long start;

	if (!name || sscanf(line, "%llx-", &start) != 1)
		return false;
	name = strrchr(line, ' ');
	for (size_t i = 0; name && i < ARRAY_SIZE(names); i++)
		if (strstr(line, names[i])) {
			*ret = start;
			return true;
		}
	return false;
}

static int read_payload(const struct target_memory *memory, uint64_t at, struct header *h,
			struct label_context *ret)
{
	_cleanup_free_ void *payload = NULL;
	struct header again;
	int r;

	if (memcmp(h->signature, "OTEL_CTX", sizeof(h->signature)) != 0 || h->version != VERSION)
		return -ENOENT;
	if (!h->published_ns)
		return -EAGAIN;
	if (!h->payload_size || h->payload_size > LABEL_CONTEXT_BYTES_MAX)
		return -EBADMSG;
	payload = malloc(h->payload_size);
	if (!payload)
		return -ENOMEM;
	r = target_read(memory, h->payload, payload, h->payload_size);
	if (!r)
		r = target_read(memory, at, &again, sizeof(again));
	if (r < 0)
		return r;
	if (again.published_ns != h->published_ns)
		return -EAGAIN;
	r = label_context_parse(payload, h->payload_size, ret);
	if (!r)
		ret->published_ns = h->published_ns;
	return r;
}

static int read_at(const struct target_memory *memory, uint64_t at, struct label_context *ret)
{
	struct header h;
	int r = -EAGAIN;

	for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
		r = target_read(memory, at, &h, sizeof(h));
		if (!r)
			r = read_payload(memory, at, &h, ret);
	}
	return r;
}

int label_context_read(int proc_dirfd, uint32_t tgid, const struct target_memory *memory,
		       struct label_context *ret)
{
	char path[32], line[512];
	size_t bytes = 0;
	int fd, r = -ENOENT;
	uint64_t at;
	FILE *f;

	*ret = (struct label_context){};
	snprintf(path, sizeof(path), "%u/maps", tgid);
	fd = openat(proc_dirfd, path, O_RDONLY | O_CLOEXEC);
	f = fd < 0 ? NULL : fdopen(fd, "r");
	if (!f) {
		if (fd >= 0)
			close(fd);
		return -ESRCH;
	}
	while (r == -ENOENT && bytes < LABEL_CONTEXT_MAPS_MAX && fgets(line, sizeof(line), f)) {
		bytes += strlen(line);
		if (read_line(line, &at))
			r = read_at(memory, at, ret);
	}
	fclose(f);
	return r;
}
