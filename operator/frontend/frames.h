/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct frames: checks the bytes of a peer as HTTP/2 frames (RFC 9113 §3.4, §4.1) without decoding
 * them: that they are HTTP/2, that no frame is longer than 16 KiB, and how many frames there are.
 * Only frame headers are read. A zeroed struct is the beginning of a connection. Plain functions,
 * any thread.
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

/*
 * Reads the next LEN bytes. -EPROTO: not HTTP/2, or a frame is too long; F must not be used again.
 */
int frames_read(struct frames *f, const uint8_t *bytes, size_t len) _must_check_;
