/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes messages of the node stream, with a limit on the memory they take. Plain functions. */
#pragma once

#include "lib/base.h"

#include "kiln/node/v1/node.pb-c.h"

enum {
	NODE_MESSAGE_MAX = 1 << 20,	    /* bytes on the wire */
	NODE_MESSAGE_MEMORY_MAX = 16 << 20, /* of its decoded form: empty messages take 2 bytes on
					       the wire and 100 here */
};

/* -EBADMSG: not this message, or larger than the limits; freed by node_message_free(). */
int node_message_decode(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
			ProtobufCMessage **ret) _must_check_;
ProtobufCMessage *node_message_free(ProtobufCMessage *m);
DEFINE_CLEANUP(ProtobufCMessage *, node_message_free)
