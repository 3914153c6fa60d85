/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf-c with an allocator that stops at a limit. Blocks are malloc()ed one by one, so that
 * ASan sees what reads past them; freeing needs no count, so it is protobuf-c's own.
 */
#include "agent/meta/node_message.h"

static void *limited_alloc(void *arg, size_t size)
{
	size_t *left = arg;

	if (size > *left)
		return NULL;
	*left -= size;
	return malloc(size ? size : 1);
}

static void limited_free(void *arg, void *p)
{
	free(p);
}

int node_message_decode(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
			ProtobufCMessage **ret)
{
	size_t left = NODE_MESSAGE_MEMORY_MAX;
	ProtobufCAllocator allocator = {
	    .alloc = limited_alloc, .free = limited_free, .allocator_data = &left};
	ProtobufCMessage *m;

	if (len > NODE_MESSAGE_MAX)
		return -EBADMSG;
	m = protobuf_c_message_unpack(type, &allocator, len, data);
	if (!m)
		return -EBADMSG;
	*ret = m;
	return 0;
}

ProtobufCMessage *node_message_free(ProtobufCMessage *m)
{
	ProtobufCAllocator allocator = {.alloc = limited_alloc, .free = limited_free};

	if (m)
		protobuf_c_message_free_unpacked(m, &allocator);
	return NULL;
}
