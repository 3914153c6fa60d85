/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/2 byte by byte, for tests that send bytes which no HTTP/2 library would send. */
#pragma once

#include "lib/base.h"

enum {
	H2_DATA = 0,
	H2_HEADERS = 1,
	H2_RST_STREAM = 3,
	H2_SETTINGS = 4,
	H2_PUSH_PROMISE = 5,
	H2_PING = 6,
	H2_GOAWAY = 7,
	H2_WINDOW_UPDATE = 8,
	H2_CONTINUATION = 9,
	H2_END_STREAM = 1,
	H2_ACK = 1,
	H2_END_HEADERS = 4,
	H2_FRAME = 9, /* bytes of a frame's header */
};

/* A frame's header. */
void h2_frame(uint8_t out[static H2_FRAME], int type, int flags, uint32_t id, size_t len);
/*
 * Writes a literal header field without indexing (RFC 7541 §6.2.2); returns its length. VALUE: up
 * to 16 KiB.
 */
size_t h2_field(uint8_t *out, const char *name, const char *value);
/*
 * Counts the whole frames of TYPE, of any stream, that have all of FLAGS. RET_LAST: the header of
 * the last one, or NULL.
 */
unsigned int h2_count(const uint8_t *bytes, size_t len, int type, int flags,
		      const uint8_t **ret_last);
size_t h2_length(const uint8_t *frame); /* of the payload, which follows the header */
uint32_t h2_stream(const uint8_t *frame);
