/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slow path of varints, and the envelope around every protobuf object: the magic "k8s\0", then
 * runtime.Unknown{1 typeMeta{1 apiVersion 2 kind} 2 raw 3 contentEncoding 4 contentType} (read off
 * servers; k8s.io/apimachinery v0.37.2 pkg/runtime/generated.proto has the same numbers). Pure
 * functions, any thread.
 */
#include "operator/kube/wire.h"

uint64_t wire_varint_rest(struct cursor *c, uint8_t first)
{
	uint64_t v = first & 0x7f;
	uint8_t b;

	for (unsigned int shift = 7; shift < 70; shift += 7) {
		b = cursor_u8(c);
		v |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80)
			return v;
	}
	c->bad = true; /* more than ten bytes */
	return 0;
}

bool wire_is_magic(const uint8_t *p)
{
	return memcmp(p, "k8s", WIRE_MAGIC_SIZE) == 0;
}

struct slice wire_kind(struct cursor *c, const struct wire_field *f)
{
	struct cursor m = wire_message(c, f);
	struct wire_field sub;
	struct slice kind = {0};

	while (wire_next(&m, &sub)) {
		if (sub.number == 2)
			kind = wire_text(&m, &sub);
	}
	c->bad |= m.bad;
	return kind;
}

int wire_open_unknown(const uint8_t *p, size_t n, struct wire_unknown *ret)
{
	struct cursor c = cursor_of(p, n);
	const uint8_t *magic = cursor_bytes(&c, WIRE_MAGIC_SIZE);
	struct wire_unknown u = {0};
	struct wire_field f;
	struct slice raw;

	if (!magic || !wire_is_magic(magic))
		return -EBADMSG;
	while (wire_next(&c, &f)) {
		switch (f.number) {
		case 1:
			u.kind = wire_kind(&c, &f);
			break;
		case 2:
			raw = wire_slice(&c, &f);
			u.raw = (const uint8_t *)raw.p;
			u.len = raw.n;
			break;
		case 3:
			if (wire_slice(&c, &f).n)
				c.bad = true;
			break;
		case 4:
			u.content_type = wire_text(&c, &f);
			break;
		}
	}
	if (c.bad || !u.raw)
		return -EBADMSG;
	*ret = u;
	return 0;
}
