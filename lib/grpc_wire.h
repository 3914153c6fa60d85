/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that gRPC puts into HTTP/2 (grpc/grpc, doc/PROTOCOL-HTTP2.md): messages with their
 * prefix, and the texts and numbers of a status. Shared by client and server. Plain functions, any
 * thread.
 */
#pragma once

#include "lib/base.h"
#include "lib/buf.h"
#include "lib/rpc_status.h"

enum { GRPC_PREFIX = 5 /* compressed:8, length:32, big endian */ };

void grpc_prefix_write(uint8_t out[static GRPC_PREFIX], bool compressed, size_t len);

/* ---- received messages -------------------------------------------------------------------------
 */

/* Bytes that have come and are not told yet. Not more than one message and what followed it. */
struct grpc_inbox {
	struct buf bytes;
	size_t at; /* of the first one that is not told */
};

struct grpc_received {
	const uint8_t *data; /* valid until the next grpc_inbox_add() or _clear() */
	size_t len;
	bool compressed;
};

/* ROOM: bytes beyond one message of MESSAGE_MAX that may be there. */
void grpc_inbox_init(struct grpc_inbox *in, size_t message_max, size_t room);
void grpc_inbox_clear(struct grpc_inbox *in);
/* -ENOMEM, -E2BIG. */
int grpc_inbox_add(struct grpc_inbox *in, const uint8_t *bytes, size_t len) _must_check_;
/*
 * 1: *RET is the next message, which is taken out. 0: none is whole; of the one that has begun
 * RET->compressed is known. -E2BIG: it is too large.
 */
int grpc_inbox_next(struct grpc_inbox *in, size_t message_max, struct grpc_received *ret);
static inline size_t grpc_inbox_left(const struct grpc_inbox *in)
{
	return in->bytes.len - in->at;
}

/* ---- status ------------------------------------------------------------------------------------
 */

/* grpc-status: decimal digits; what is none is RPC_UNKNOWN. */
int grpc_status_parse(const uint8_t *text, size_t len);
/* Of an answer without grpc-status (doc/http-grpc-status-mapping.md). */
int grpc_status_of_http(int http_status);
/* Of RST_STREAM's error code. */
int grpc_status_of_reset(uint32_t code);
/*
 * grpc-message without its percent-encoding, to be freed; broken escapes stay as they are, and any
 * byte but NUL may be in it. NULL: out of memory.
 */
char *grpc_text_decode(const uint8_t *text, size_t len) _must_check_;
/*
 * Base64 with or without padding. OUT has room for 3 bytes for each 4 that were begun. -EINVAL.
 */
int grpc_base64_decode(const uint8_t *text, size_t len, uint8_t *out, size_t *ret_len) _must_check_;
/* Without padding, to be freed. NULL: out of memory. */
char *grpc_base64_encode(const void *data, size_t len) _must_check_;
