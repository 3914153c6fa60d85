/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct payload: one request as it goes over the wire: encoded, compressed once, and its number of
 * samples, which is counted when it is lost. Plain data, owned by one holder at a time.
 */
#pragma once

#include "agent/profile/otlp.h"
#include "lib/base.h"
#include "lib/error.h"

/* Stored in spool files: values stay as they are. */
enum payload_encoding { PAYLOAD_PLAIN = 0, PAYLOAD_GZIP = 1, PAYLOAD_ZSTD = 2, PAYLOAD_ENCODINGS };

/* Compressed requests are never larger than this; the encoder splits at 3.5 MiB. */
enum { PAYLOAD_MAX = 8 << 20, PAYLOAD_EXPANDED_MAX = 16 << 20 };

struct payload {
	uint8_t *data;
	size_t len;
	int64_t samples; /* sum of CPU values inside */
	enum payload_encoding encoding;
	enum otlp_generation generation;
};

void payload_done(struct payload *p);
/* "gzip", "zstd", "none"; NULL is gzip. -EINVAL for others. */
int payload_encoding_parse(const char *text, enum payload_encoding *ret) _must_check_;
/* HTTP's content-encoding; NULL for PAYLOAD_PLAIN. */
const char *payload_encoding_name(enum payload_encoding encoding);
/* Compresses DATA into *ret; PAYLOAD_PLAIN copies. */
int payload_compress(enum payload_encoding encoding, const void *data, size_t len, int64_t samples,
		     struct payload *ret) _must_check_;
/* Makes P a request of generation TO. -EBADMSG: it is damaged; on failure P is as it was. */
int payload_convert(struct payload *p, enum otlp_generation to) _must_check_;
