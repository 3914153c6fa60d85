/* SPDX-License-Identifier: Apache-2.0 */
/* After the preface come frames: { length:24; type:8; flags:8; stream:32 } and LENGTH bytes. */
#include "operator/frontend/frames.h"

enum { HEADERS = 1, CONTINUATION = 9 };

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
_Static_assert(sizeof(preface) - 1 == FRAMES_PREFACE, "the preface of RFC 9113");

static int begin_frame(struct frames *f)
{
	uint8_t type = f->header[3];

	f->n_header = 0;
	f->left = (size_t)f->header[0] << 16 | (size_t)f->header[1] << 8 | f->header[2];
	if (f->left > FRAMES_LENGTH_MAX)
		return -EPROTO;
	f->all++;
	f->calls += type == HEADERS || type == CONTINUATION;
	return 0;
}

int frames_read(struct frames *f, const uint8_t *bytes, size_t len)
{
	for (size_t at = 0, n; at < len; at += n) {
		if (f->preface < FRAMES_PREFACE) {
			n = 1;
			if (bytes[at] != (uint8_t)preface[f->preface++])
				return -EPROTO;
		} else if (f->left) {
			n = MIN(f->left, len - at);
			f->left -= n;
		} else {
			n = MIN(FRAMES_HEADER - f->n_header, len - at);
			memcpy(f->header + f->n_header, bytes + at, n);
			f->n_header += n;
			if (f->n_header == FRAMES_HEADER && begin_frame(f) < 0)
				return -EPROTO;
		}
	}
	return 0;
}
