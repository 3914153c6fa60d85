/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a ClientHello ends, told by its first bytes (RFC 8446 §4, §5.1; the same in TLS 1.2): a
 * record's header and a handshake message's. No more of it is read before its turn, and it must be
 * in one record, as all TLS libraries send it. Plain functions, any thread.
 */
#pragma once

#include "lib/base.h"

enum {
	HELLO_START = 9,     /* bytes that tell */
	HELLO_MAX = 8 << 10, /* of record and header; real ones have 200 to 2,000 */
};

/* How long the record is. -EBADMSG: no ClientHello in one record; -EMSGSIZE: a larger one. */
int hello_length(const uint8_t start[HELLO_START], size_t *ret) _must_check_;
