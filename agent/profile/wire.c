/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf fields and tables; no state but the caller's buffers. */
#include "agent/profile/wire.h"

enum { TYPE_VARINT = 0, TYPE_FIXED64 = 1, TYPE_BYTES = 2, TABLE_MAX = 1 << 24 };

static size_t put_varint(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

void wire_varint(struct buf *out, uint64_t v)
{
	uint8_t bytes[10];

	buf_append(out, bytes, put_varint(bytes, v));
}

size_t wire_varint_len(uint64_t v)
{
	uint8_t bytes[10];

	return put_varint(bytes, v);
}

static void tag(struct buf *out, unsigned int field, unsigned int type)
{
	wire_varint(out, (uint64_t)field << 3 | type);
}

void wire_uint(struct buf *out, unsigned int field, uint64_t v)
{
	if (!v)
		return;
	tag(out, field, TYPE_VARINT);
	wire_varint(out, v);
}

void wire_fixed64(struct buf *out, unsigned int field, uint64_t v)
{
	if (!v)
		return;
	tag(out, field, TYPE_FIXED64);
	buf_append(out, &v, sizeof(v));
}

void wire_bytes(struct buf *out, unsigned int field, const void *data, size_t len)
{
	tag(out, field, TYPE_BYTES);
	wire_varint(out, len);
	buf_append(out, data, len);
}

void wire_str(struct buf *out, unsigned int field, const char *s)
{
	if (s[0])
		wire_bytes(out, field, s, strlen(s));
}

void wire_packed(struct buf *out, unsigned int field, const uint32_t *v, size_t n)
{
	size_t len = 0;
	uint8_t *to;

	if (!n)
		return;
	for (size_t i = 0; i < n; i++)
		len += wire_varint_len(v[i]);
	tag(out, field, TYPE_BYTES);
	wire_varint(out, len);
	to = buf_extend(out, len);
	for (size_t i = 0; to && i < n; i++)
		to += put_varint(to, v[i]);
}

void wire_packed_fixed64(struct buf *out, unsigned int field, const uint64_t *v, size_t n)
{
	if (n)
		wire_bytes(out, field, v, n * sizeof(*v));
}

void wire_table_init(struct wire_table *t, unsigned int field, bool ids, size_t max_bytes)
{
	*t = (struct wire_table){.field = field, .ids = ids};
	buf_init(&t->bytes, max_bytes);
}

void wire_table_done(struct wire_table *t)
{
	buf_done(&t->bytes);
	free(t->entries);
	ref_table_done(&t->index);
	wire_table_init(t, t->field, t->ids, t->bytes.max);
}

void wire_table_reset(struct wire_table *t)
{
	buf_reset(&t->bytes);
	ref_table_clear(&t->index);
	t->n = 0;
}

struct key {
	const void *data;
	size_t len;
};

static bool equal(const void *owner, uint32_t index, const void *key)
{
	const struct wire_table *t = owner;
	const struct key *k = key;

	return t->entries[index].len == k->len &&
	       (!k->len || !memcmp(t->bytes.data + t->entries[index].at, k->data, k->len));
}

uint32_t wire_table_add(struct wire_table *t, const void *message, size_t len)
{
	struct key key = {message, len};
	uint64_t hash = len ? hash_bytes(message, len, 0) : 0;
	uint32_t index = ref_table_index(&t->index, hash, equal, t, &key);
	uint8_t id[11];
	size_t id_len = 0;
	int r;

	if (index != REF_TABLE_NONE || t->sealed || t->bytes.error)
		return index;
	r = grow_array((void **)&t->entries, &t->cap, (size_t)t->n + 1, sizeof(*t->entries),
		       TABLE_MAX);
	if (!r)
		r = ref_table_reserve(&t->index, 1);
	if (r < 0) {
		t->bytes.error = r;
		return REF_TABLE_NONE;
	}
	if (t->ids) {
		id[0] = 1 << 3 | TYPE_VARINT;
		id_len = 1 + put_varint(id + 1, (uint64_t)t->n + 1);
	}
	tag(&t->bytes, t->field, TYPE_BYTES);
	wire_varint(&t->bytes, id_len + len);
	buf_append(&t->bytes, id, id_len);
	buf_append(&t->bytes, message, len);
	if (t->bytes.error)
		return REF_TABLE_NONE;
	t->entries[t->n] = (struct wire_entry){.at = t->bytes.len - len, .len = len};
	ref_table_insert(&t->index, hash, t->n + 1);
	return t->n++;
}

uint32_t wire_table_add_buf(struct wire_table *t, const struct buf *message)
{
	if (message->error && !t->bytes.error)
		t->bytes.error = message->error;
	if (t->bytes.error)
		return REF_TABLE_NONE;
	return wire_table_add(t, message->data, message->len);
}

uint32_t wire_table_append(struct wire_table *t, const struct buf *message)
{
	if (message->error && !t->bytes.error)
		t->bytes.error = message->error;
	if (!t->bytes.error && t->n == TABLE_MAX)
		t->bytes.error = -E2BIG;
	if (t->bytes.error)
		return REF_TABLE_NONE;
	wire_bytes(&t->bytes, t->field, message->data, message->len);
	return t->bytes.error ? REF_TABLE_NONE : t->n++;
}

uint32_t wire_table_add_str(struct wire_table *t, const char *s)
{
	return wire_table_add(t, s, strlen(s));
}

void wire_table_repair(struct wire_table *t)
{
	const struct wire_entry *last = t->n ? &t->entries[t->n - 1] : NULL;

	if (!t->bytes.error)
		return;
	t->bytes.error = 0;
	t->bytes.len = last ? last->at + last->len : 0;
}

const char *wire_table_get(const struct wire_table *t, uint32_t index, size_t *ret_len)
{
	*ret_len = t->entries[index].len;
	return t->bytes.data + t->entries[index].at;
}
