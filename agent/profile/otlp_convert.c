/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Kiln sends differs between G6 and the older generations in the numbers of three fields of
 * Sample (opentelemetry-proto v1.9.0 and v1.10.0, profiles/v1development/profiles.proto):
 *
 *                      G4, G5   G6
 *   values                2      4
 *   attribute_indices     3      2
 *   link_index            4      3
 *
 * All of them have tags of one byte, so they are replaced where they stand. A request may come from
 * a file on disk, which may be damaged: every length is checked.
 */
#include "agent/profile/otlp_convert.h"

#include "lib/cursor.h"

/* The field numbers that lead from the request down to its samples. */
static const uint32_t path[] = {
    1, /* ExportProfilesServiceRequest.resource_profiles */
    2, /* ResourceProfiles.scope_profiles */
    2, /* ScopeProfiles.profiles */
    2, /* Profile.samples */
};

/* The field's number in the other generation. Numbers above 4 are the same in both. */
static uint32_t renumber(uint32_t number, bool to_g6)
{
	static const uint32_t g5_to_g6[] = {0, 1, 4, 2, 3}, g6_to_g5[] = {0, 1, 3, 4, 2};

	if (number >= ARRAY_SIZE(g5_to_g6))
		return number;
	return to_g6 ? g5_to_g6[number] : g6_to_g5[number];
}

static int convert_sample(struct cursor c, uint8_t *base, bool to_g6)
{
	while (cursor_left(&c)) {
		uint8_t *tag = base + c.pos;
		uint64_t key = cursor_uleb(&c);
		struct cursor ignored;

		cursor_protobuf_value(&c, key & 7, &ignored);
		if (c.bad || !(key >> 3))
			return -EBADMSG;
		if (key < 0x80)
			*tag = (uint8_t)(renumber((uint32_t)(key >> 3), to_g6) << 3 | (key & 7));
	}
	return 0;
}

/* BASE: where the bytes that C reads begin. */
static int convert_level(struct cursor c, uint8_t *base, size_t level, bool to_g6)
{
	int r = 0;

	if (level == ARRAY_SIZE(path))
		return convert_sample(c, base, to_g6);
	while (cursor_left(&c) && r == 0) {
		uint64_t key = cursor_uleb(&c);
		struct cursor message = {0};

		cursor_protobuf_value(&c, key & 7, &message);
		if (c.bad || !(key >> 3))
			return -EBADMSG;
		if ((key & 7) == 2 && key >> 3 == path[level])
			r = convert_level(message, base + (message.data - c.data), level + 1,
					  to_g6);
	}
	return r;
}

int otlp_convert(uint8_t *data, size_t len, enum otlp_generation from, enum otlp_generation to)
{
	if ((from == OTLP_G6) == (to == OTLP_G6))
		return 0;
	return convert_level(cursor_of(data, len), data, 0, to == OTLP_G6);
}
