/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what the operator sends: a sequence of messages, each with its length (2 bytes)
 * before it, with time going on between them. Then the table as a snapshot and back.
 */
#include "agent/meta/node_message.h"
#include "agent/meta/snapshot.h"
#include "lib/cursor.h"
#include "tests/fuzz/node_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void feed(struct pod_table *t, const uint8_t *data, size_t len, uint64_t now_ms)
{
	_cleanup_(node_message_freep) ProtobufCMessage *m = NULL;
	const Kiln__Node__V1__OperatorMessage *o;
	struct error err;

	if (node_message_decode(&kiln__node__v1__operator_message__descriptor, data, len, &m) < 0)
		return;
	o = (const Kiln__Node__V1__OperatorMessage *)m;
	if (o->message_case == KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_BEGIN)
		pod_table_snapshot_begin(t, o->snapshot_begin->epoch);
	else if (o->message_case == KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_UPDATE)
		(void)!pod_table_apply(t, o->update, now_ms, &err);
	else if (o->message_case == KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_END)
		(void)!pod_table_snapshot_end(t, o->snapshot_end->epoch, o->snapshot_end->revision,
					      now_ms, &err);
}

static void round_trip(const struct pod_table *t)
{
	struct pod_events events = {0};
	_cleanup_(pod_table_freep) struct pod_table *again = NULL;
	_cleanup_(buf_done) struct buf bytes;
	struct error err;

	buf_init(&bytes, SNAPSHOT_MAX);
	if (snapshot_encode(t, &bytes) < 0 || pod_table_new(&events, &again) < 0)
		return;
	if (snapshot_decode(bytes.data, bytes.len, again, 0, &err) < 0 ||
	    pod_table_count(again) != pod_table_count(t))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pod_events events = {0};
	_cleanup_(pod_table_freep) struct pod_table *t = NULL;
	struct cursor c = cursor_of(data, size);
	uint64_t now_ms = 1000;

	if (pod_table_new(&events, &t) < 0)
		return 0;
	while (cursor_left(&c) > 2) {
		size_t len = cursor_u16(&c);
		const uint8_t *message;

		len = MIN(len, cursor_left(&c));
		message = cursor_bytes(&c, len);
		feed(t, message, len, now_ms);
		check_table(t);
		now_ms += 40000;
		pod_table_expire(t, now_ms);
	}
	check_table(t);
	round_trip(t);
	return 0;
}
