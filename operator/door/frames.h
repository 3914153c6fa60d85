/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct frames: what a peer sends as HTTP/2 frames (RFC 9113 §3.4, §4.1), as far as it can be
 * bounded without understanding it: that it is HTTP/2, that no frame is longer than 16 KiB, and how
 * many there are. Only headers of frames are looked at. A zeroed one is at the beginning of a
 * connection. Plain functions, any thread.
 */
#pragma once

#include "lib/base.h"

enum {
	FRAMES_HEADER = 9,
	FRAMES_PREFACE = 24,
	FRAMES_LENGTH_MAX =
	    16384, /* of a payload; the server does not allow more by its SETTINGS */
};

struct frames {
	size_t preface; /* bytes of it that have come */
	uint8_t header[FRAMES_HEADER];
	size_t n_header; /* bytes of the next frame's header that have come */
	size_t left;	 /* bytes of this frame's payload that have not come */
	uint64_t all;	 /* frames that have begun */
	uint64_t calls;	 /* of those: HEADERS and CONTINUATION */
};

/* -EPROTO: not HTTP/2, or a frame that is too long; the rest of the connection means nothing. */
int frames_read(struct frames *f, const uint8_t *bytes, size_t len) _must_check_;
