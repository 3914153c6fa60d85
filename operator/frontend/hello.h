/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the length of a ClientHello in its first bytes (RFC 8446 §4, §5.1; the same in TLS 1.2):
 * the headers of the record and of the handshake message. The rest is not read before the
 * connection's turn. The ClientHello must be in one record, as all TLS libraries send it. Plain
 * functions, any thread.
 */
#pragma once

#include "lib/base.h"

enum {
	HELLO_START = 9,     /* bytes that hello_length() needs */
	HELLO_MAX = 8 << 10, /* of record and header; real ones have 200 to 2,000 */
};

/*
 * *RET is the length of the record with its header. -EBADMSG: not a ClientHello in one record;
 * -EMSGSIZE: longer than HELLO_MAX.
 */
int hello_length(const uint8_t start[HELLO_START], size_t *ret) _must_check_;
