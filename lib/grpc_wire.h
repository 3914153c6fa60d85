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

/* Received bytes that were not taken out yet: at most one message of MESSAGE_MAX and ROOM bytes
 * more. */
struct grpc_inbox {
	struct buf bytes;
	size_t at; /* offset of the first byte that was not taken out */
};

struct grpc_received {
	const uint8_t *data; /* valid until the next grpc_inbox_add() or _clear() */
	size_t len;
	bool compressed;
};

/* MESSAGE_MAX, ROOM: bytes; see struct grpc_inbox. */
void grpc_inbox_init(struct grpc_inbox *in, size_t message_max, size_t room);
void grpc_inbox_clear(struct grpc_inbox *in);
/* -ENOMEM, -E2BIG. */
int grpc_inbox_add(struct grpc_inbox *in, const uint8_t *bytes, size_t len) _must_check_;
/*
 * 1: *RET is the next message, which is taken out. 0: no complete message; RET->compressed is valid
 * if the prefix of the next one is there. -E2BIG: the next message is larger than MESSAGE_MAX.
 */
int grpc_inbox_next(struct grpc_inbox *in, size_t message_max, struct grpc_received *ret);
static inline size_t grpc_inbox_left(const struct grpc_inbox *in)
{
	return in->bytes.len - in->at;
}

/* ---- status ------------------------------------------------------------------------------------
 */

/* Parses grpc-status, decimal digits; RPC_UNKNOWN for anything else. */
int grpc_status_parse(const uint8_t *text, size_t len);
/* The status of a response without grpc-status (doc/http-grpc-status-mapping.md). */
int grpc_status_of_http(int http_status);
/* The status that stands for RST_STREAM's error code. */
int grpc_status_of_reset(uint32_t code);
/*
 * Decodes the percent-encoding of grpc-message; the caller frees the result. Broken escapes stay as
 * they are, and the result may have any byte but NUL. NULL: out of memory.
 */
char *grpc_text_decode(const uint8_t *text, size_t len) _must_check_;
/*
 * Base64 with or without padding. OUT has room for 3 bytes for every 4 characters, rounded up.
 * -EINVAL.
 */
int grpc_base64_decode(const uint8_t *text, size_t len, uint8_t *out, size_t *ret_len) _must_check_;
/* Without padding, to be freed. NULL: out of memory. */
char *grpc_base64_encode(const void *data, size_t len) _must_check_;
