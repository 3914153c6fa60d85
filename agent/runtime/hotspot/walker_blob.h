/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds the code at an address of the code cache; a part of walker.h. The code cache is cut into
 * segments, and a byte for each of them says how far back its blob begins. The name in a blob's
 * header tells what kind of code it holds; the header also has the size of a frame of that code.
 */
#pragma once

/* What the blob at a pc is. */
enum hotspot_blob {
	HOTSPOT_NONE, /* nothing, or it cannot be read */
	HOTSPOT_NMETHOD,
	HOTSPOT_WRAPPER, /* of a native method */
	HOTSPOT_ADAPTER, /* between compiled and interpreted code */
	HOTSPOT_BARE,	 /* has no frame of its own */
	HOTSPOT_INTERPRETER,
	HOTSPOT_STUB,
};

/* Words of w->scratch: code around the program counter, a blob's header, and behind that: */
enum {
	HOTSPOT_AT_BYTES = 0,
	HOTSPOT_AT_HEADER = 16,
	HOTSPOT_AT_BLOB = 29, /* where it begins */
	HOTSPOT_AT_CODE = 30,
	HOTSPOT_AT_COMPLETE = 31, /* from where on the frame is complete */
	HOTSPOT_AT_CROWDED = 32,  /* the place in the rule cache is another frame's too */
	HOTSPOT_AT_FRAME = 33,	  /* bytes from rsp to the caller's */
};

enum {
	HOTSPOT_BACKWARDS_MAX = 32, /* steps from a segment to the first one of its blob */
	HOTSPOT_SEGMENT_FREE = 0xff,
};

KILN_INLINE const struct kiln_hotspot *hotspot_data(const struct kiln_walk *w)
{
	return (const struct kiln_hotspot *)w->runtime.data;
}

KILN_INLINE int hotspot_is_code(const struct kiln_hotspot *v, uint64_t pc)
{
	return pc - v->low < v->high - v->low;
}

/*
 * Returns the word of the header in w->scratch that has byte OFFSET, shifted so that this byte is
 * the lowest.
 */
KILN_INLINE uint64_t hotspot_header(const struct kiln_walk *w, uint32_t offset)
{
	uint32_t i = offset >> 3 & 15;

	asm volatile("" : "+r"(i));
	return w->scratch[HOTSPOT_AT_HEADER + (i & 15)] >> ((offset & 7) * 8);
}

/* The frame size in bytes that the header in w->scratch has. */
KILN_INLINE uint32_t hotspot_frame_size(const struct kiln_walk *w)
{
	return (uint32_t)hotspot_header(w, hotspot_data(w)->blob_frame_size) * 8;
}

/* Finds the first segment of the blob that SEGMENT is a part of: into w->value. 0, or -1. */
KILN_GLOBAL int hotspot_first_segment(uint32_t slot, uint64_t segmap, uint64_t segment)
{
	struct kiln_walk *w = env_walk(slot);

	if (!w)
		return -1;
	for (int i = 0; i < HOTSPOT_BACKWARDS_MAX; i++) {
		uint8_t back = 0;

		if (env_read(&back, 1, segmap + segment))
			return -1;
		if (!back) {
			w->value = segment;
			return 0;
		}
		if (back == HOTSPOT_SEGMENT_FREE || back > segment)
			return -1;
		segment -= back;
	}
	return -1;
}

/* The kind of the blob whose header is in w->scratch, by how its name begins. */
KILN_INLINE int hotspot_kind(const struct kiln_walk *w)
{
	uint32_t name = 0;

	if (env_read(&name, 4, hotspot_header(w, hotspot_data(w)->blob_name)))
		return HOTSPOT_NONE;
	switch (name) {
	case 0x74656d6e: /* nmet(hod) */
		return HOTSPOT_NMETHOD;
	case 0x6974616e: /* nati(ve nmethod), and native signature handlers */
		return hotspot_frame_size(w) ? HOTSPOT_WRAPPER : HOTSPOT_BARE;
	case 0x2f433249: /* I2C/(C2I adapters) */
		return HOTSPOT_ADAPTER;
	case 0x62617476: /* vtab(le chunks) */
	case 0x696c6e49: /* Inli(neCacheBuffer) */
		return HOTSPOT_BARE;
	case 0x65746e49: /* Inte(rpreter) */
		return HOTSPOT_INTERPRETER;
	default:
		return HOTSPOT_STUB;
	}
}

/* Finds the blob at PC; its header is in w->scratch then. Returns enum hotspot_blob. */
KILN_GLOBAL int hotspot_find(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_hotspot *v;
	uint64_t low = 0, segmap = 0, blob, code, complete;

	if (!w)
		return HOTSPOT_NONE;
	v = hotspot_data(w);
	for (int i = 0; i < KILN_HOTSPOT_HEAPS; i++) {
		if (pc - v->heaps[i].low < v->heaps[i].size) {
			low = v->heaps[i].low;
			segmap = v->heaps[i].segmap;
		}
	}
	if (!low || hotspot_first_segment(slot, segmap, (pc - low) >> (v->log2_segment & 31)))
		return HOTSPOT_NONE;
	blob = low + (w->value << (v->log2_segment & 31)) + v->block_header;
	if (env_read(w->scratch + HOTSPOT_AT_HEADER, KILN_HOTSPOT_BLOB_BYTES, blob))
		return HOTSPOT_NONE;
	code = hotspot_header(w, v->blob_code);
	if (!(v->flags & KILN_HOTSPOT_CODE_POINTER))
		code = blob + (uint32_t)code;
	complete = hotspot_header(w, v->blob_complete);
	complete =
	    code + (uint64_t)(v->flags & KILN_HOTSPOT_COMPLETE_16 ? (int64_t)(int16_t)complete
								  : (int64_t)(int32_t)complete);
	w->scratch[HOTSPOT_AT_BLOB] = blob;
	w->scratch[HOTSPOT_AT_CODE] = code;
	w->scratch[HOTSPOT_AT_COMPLETE] = complete;
	return hotspot_kind(w);
}
