/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the protobuf wire format (protobuf.dev/programming-guides/encoding): fields appended to a
 * struct buf, and tables of unique sub-messages. A field with the default value is left out, as
 * proto3 asks; failures stick in the buffer.
 */
#pragma once

#include "lib/ref_table.h"
#include "lib/buf.h"

void wire_varint(struct buf *out, uint64_t v);
void wire_uint(struct buf *out, unsigned int field, uint64_t v); /* also int32, int64, bool */
void wire_fixed64(struct buf *out, unsigned int field, uint64_t v);
void wire_bytes(struct buf *out, unsigned int field, const void *data,
		size_t len); /* even if empty */
void wire_str(struct buf *out, unsigned int field, const char *s);
void wire_packed(struct buf *out, unsigned int field, const uint32_t *v, size_t n);
void wire_packed_fixed64(struct buf *out, unsigned int field, const uint64_t *v, size_t n);
size_t wire_varint_len(uint64_t v);

/*
 * A repeated field of unique messages (or strings). `bytes` is the field as it goes on the wire.
 * With `ids`, each message starts with field 1 = its index + 1, as pprof's tables have it.
 */
struct wire_table {
	unsigned int field;
	bool ids;
	bool sealed; /* nothing new is taken: wire_table_add() then gives REF_TABLE_NONE */
	struct buf bytes;
	struct wire_entry {
		size_t at, len; /* in bytes, without tag, length and id */
	} * entries;
	size_t cap;
	uint32_t n;
	struct ref_table index;
};

void wire_table_init(struct wire_table *t, unsigned int field, bool ids, size_t max_bytes);
void wire_table_done(struct wire_table *t);
void wire_table_reset(struct wire_table *t);
/* The index of the message, added when new. On failure REF_TABLE_NONE, and bytes.error is set. */
uint32_t wire_table_add(struct wire_table *t, const void *message, size_t len);
uint32_t wire_table_add_buf(struct wire_table *t, const struct buf *message);
uint32_t wire_table_add_str(struct wire_table *t, const char *s);
/*
 * Adds MESSAGE without looking whether the table has it already; the caller knows that it has not.
 * Faster than wire_table_add_buf(), but wire_table_add() will not find the message, and
 * wire_table_get() cannot read it. Returns its index; on failure as wire_table_add(). After the
 * first call nothing but this function may add to the table, until it is reset.
 */
uint32_t wire_table_append(struct wire_table *t, const struct buf *message);
/* After a failure: cuts off what is left of the entry that failed, and clears the error. */
void wire_table_repair(struct wire_table *t);
const char *wire_table_get(const struct wire_table *t, uint32_t index, size_t *ret_len);
