/* SPDX-License-Identifier: Apache-2.0 */
/* The record's header { type 22; version 3.x; length:16 } is followed by the handshake message's
 * header { type 1; length:24 }. */
#include "operator/frontend/hello.h"

enum { RECORD_HEADER = 5, MESSAGE_HEADER = 4, HANDSHAKE = 22, CLIENT_HELLO = 1, MAJOR = 3 };

int hello_length(const uint8_t b[HELLO_START], size_t *ret)
{
	size_t record = (size_t)b[3] << 8 | b[4];
	size_t message = (size_t)b[6] << 16 | (size_t)b[7] << 8 | b[8];

	if (b[0] != HANDSHAKE || b[1] != MAJOR || b[5] != CLIENT_HELLO)
		return -EBADMSG;
	if (message > HELLO_MAX || RECORD_HEADER + record > HELLO_MAX)
		return -EMSGSIZE;
	if (record != MESSAGE_HEADER + message)
		return -EBADMSG;
	*ret = RECORD_HEADER + record;
	return 0;
}
