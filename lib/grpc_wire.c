/* SPDX-License-Identifier: Apache-2.0 */
/* See the header: no state. */
#include "lib/grpc_wire.h"

#include <ctype.h>
#include <nghttp2/nghttp2.h>

void grpc_prefix_write(uint8_t out[static GRPC_PREFIX], bool compressed, size_t len)
{
	out[0] = compressed;
	for (size_t i = 0; i < 4; i++)
		out[1 + i] = (uint8_t)(len >> (24 - 8 * i));
}

/* ---- received messages -------------------------------------------------------------------------
 */

void grpc_inbox_init(struct grpc_inbox *in, size_t message_max, size_t room)
{
	buf_init(&in->bytes, GRPC_PREFIX + message_max + room);
	in->at = 0;
}

void grpc_inbox_clear(struct grpc_inbox *in)
{
	buf_done(&in->bytes);
	in->at = 0;
}

int grpc_inbox_add(struct grpc_inbox *in, const uint8_t *bytes, size_t len)
{
	size_t left = grpc_inbox_left(in);

	/* At most the beginning of one message is moved, if the caller takes messages out as they
	 * come. */
	if (in->at && left)
		memmove(in->bytes.data, in->bytes.data + in->at, left);
	if (in->at)
		in->bytes.len = left;
	in->at = 0;
	return buf_append(&in->bytes, bytes, len);
}

int grpc_inbox_next(struct grpc_inbox *in, size_t message_max, struct grpc_received *ret)
{
	size_t left = grpc_inbox_left(in), len = 0;
	const uint8_t *prefix;

	*ret = (struct grpc_received){0};
	if (left < GRPC_PREFIX)
		return 0;
	prefix = (const uint8_t *)in->bytes.data + in->at;
	ret->compressed = prefix[0] != 0;
	for (size_t i = 1; i < GRPC_PREFIX; i++)
		len = len << 8 | prefix[i];
	if (len > message_max)
		return -E2BIG;
	if (left < GRPC_PREFIX + len)
		return 0;
	in->at += GRPC_PREFIX + len;
	ret->data = prefix + GRPC_PREFIX;
	ret->len = len;
	return 1;
}

/* ---- status ------------------------------------------------------------------------------------
 */

const char *rpc_status_name(int status)
{
	static const char *const names[] = {
	    "OK",
	    "CANCELLED",
	    "UNKNOWN",
	    "INVALID_ARGUMENT",
	    "DEADLINE_EXCEEDED",
	    "NOT_FOUND",
	    "ALREADY_EXISTS",
	    "PERMISSION_DENIED",
	    "RESOURCE_EXHAUSTED",
	    "FAILED_PRECONDITION",
	    "ABORTED",
	    "OUT_OF_RANGE",
	    "UNIMPLEMENTED",
	    "INTERNAL",
	    "UNAVAILABLE",
	    "DATA_LOSS",
	    "UNAUTHENTICATED",
	};

	return status >= 0 && (size_t)status < ARRAY_SIZE(names) ? names[status] : "UNKNOWN";
}

int grpc_status_parse(const uint8_t *text, size_t len)
{
	int status = 0;

	if (len == 0 || len > 9)
		return RPC_UNKNOWN;
	for (size_t i = 0; i < len; i++) {
		if (!isdigit(text[i]))
			return RPC_UNKNOWN;
		status = status * 10 + (text[i] - '0');
	}
	return status;
}

int grpc_status_of_http(int http_status)
{
	switch (http_status) {
	case 400:
	case 431:
		return RPC_INTERNAL;
	case 401:
		return RPC_UNAUTHENTICATED;
	case 403:
		return RPC_PERMISSION_DENIED;
	case 404:
		return RPC_UNIMPLEMENTED;
	case 429:
	case 502:
	case 503:
	case 504:
		return RPC_UNAVAILABLE;
	default:
		return RPC_UNKNOWN;
	}
}

int grpc_status_of_reset(uint32_t code)
{
	switch (code) {
	case NGHTTP2_REFUSED_STREAM:
		return RPC_UNAVAILABLE;
	case NGHTTP2_CANCEL:
		return RPC_CANCELLED;
	case NGHTTP2_ENHANCE_YOUR_CALM:
		return RPC_RESOURCE_EXHAUSTED;
	case NGHTTP2_INADEQUATE_SECURITY:
		return RPC_PERMISSION_DENIED;
	default:
		return RPC_INTERNAL;
	}
}

static int hex_digit(uint8_t c)
{
	if (isdigit(c))
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *grpc_text_decode(const uint8_t *text, size_t len)
{
	char *out = malloc(len + 1), *end = out;

	for (size_t i = 0; out && i < len; i++) {
		uint8_t c = text[i];

		if (c == '%' && len - i > 2 && hex_digit(text[i + 1]) >= 0 &&
		    hex_digit(text[i + 2]) >= 0) {
			c = (uint8_t)(hex_digit(text[i + 1]) << 4 | hex_digit(text[i + 2]));
			i += 2;
		}
		*end++ = (char)(c ? c : ' ');
	}
	if (out)
		*end = 0;
	return out;
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int grpc_base64_decode(const uint8_t *text, size_t len, uint8_t *out, size_t *ret_len)
{
	uint32_t bits = 0;
	size_t n = 0, i;

	if (len % 4 == 0 && len && text[len - 1] == '=')
		len -= text[len - 2] == '=' ? 2 : 1;
	if (len % 4 == 1)
		return -EINVAL;
	for (i = 0; i < len; i++) {
		const char *digit = memchr(digits, text[i], sizeof(digits) - 1);

		if (!digit)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)(digit - digits);
		/* Every character but the first of each four completes a byte. */
		if (i % 4)
			out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
	}
	*ret_len = n;
	return 0;
}

char *grpc_base64_encode(const void *data, size_t len)
{
	const uint8_t *bytes = data;
	char *out = malloc((len * 8 + 5) / 6 + 1), *end = out;
	uint32_t bits = 0;
	unsigned int have = 0;

	if (!out)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		bits = bits << 8 | bytes[i];
		for (have += 8; have >= 6; have -= 6)
			*end++ = digits[bits >> (have - 6) & 63];
	}
	if (have)
		*end++ = digits[bits << (6 - have) & 63];
	*end = 0;
	return out;
}
