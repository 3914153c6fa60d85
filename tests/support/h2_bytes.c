/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "tests/support/h2_bytes.h"

void h2_frame(uint8_t out[static H2_FRAME], int type, int flags, uint32_t id, size_t len)
{
	const uint8_t header[H2_FRAME] = {
	    (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len,
	    (uint8_t)type,	  (uint8_t)flags,      (uint8_t)(id >> 24),
	    (uint8_t)(id >> 16),  (uint8_t)(id >> 8),  (uint8_t)id};

	memcpy(out, header, sizeof(header));
}

/* RFC 7541 §5.1 with a prefix of seven bits, and without Huffman's code. */
static size_t string(uint8_t *out, const char *text)
{
	size_t len = strlen(text), left = len - 127, n = 0;

	if (len < 127) {
		out[n++] = (uint8_t)len;
	} else {
		out[n++] = 127;
		for (; left >= 128; left >>= 7)
			out[n++] = (uint8_t)(128 | (left & 127));
		out[n++] = (uint8_t)left;
	}
	memcpy(out + n, text, len);
	return n + len;
}

size_t h2_field(uint8_t *out, const char *name, const char *value)
{
	size_t n = 1;

	out[0] = 0;
	n += string(out + n, name);
	return n + string(out + n, value);
}

size_t h2_length(const uint8_t *frame)
{
	return (size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2];
}

uint32_t h2_stream(const uint8_t *frame)
{
	return ((uint32_t)frame[5] << 24 | (uint32_t)frame[6] << 16 | (uint32_t)frame[7] << 8 |
		frame[8]) &
	       INT32_MAX;
}

unsigned int h2_count(const uint8_t *bytes, size_t len, int type, int flags,
		      const uint8_t **ret_last)
{
	unsigned int found = 0;

	for (size_t at = 0; at + H2_FRAME <= len; at += H2_FRAME + h2_length(bytes + at)) {
		const uint8_t *h = bytes + at;

		if (at + H2_FRAME + h2_length(h) > len)
			break;
		if (h[3] != type || (h[4] & flags) != flags)
			continue;
		found++;
		if (ret_last)
			*ret_last = h;
	}
	return found;
}
