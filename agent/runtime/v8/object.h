/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads V8's objects in another process's memory. The lowest two bits of a tagged pointer are 01
 * (11 when it is weak). A small integer has its value in the high half and zeros in the low half
 * (V8 include/v8-internal.h, without pointer compression). All of it may be forged, and may change
 * while it is read: every length is capped, every chain counted.
 */
#pragma once

#include "agent/runtime/runtime.h"
#include "agent/runtime/v8/layout.h"

enum {
	V8_STRING_MAX = 1024,	  /* bytes of UTF-8 of a name; the rest is cut off */
	V8_STRING_PARTS_MAX = 32, /* strings that one string is put together from */
	V8_TABLE_MAX = 1 << 20,	  /* bytes of a position table */
	V8_SOURCE_MAX = 8 << 20,  /* characters of a script that are looked at for its lines */
	V8_CHUNK = 4096,	  /* bytes that are read at once */
};

/*
 * A cache from maps to instance types, for V8's own kinds of objects and for strings. Their maps
 * are in read-only space (src/roots/roots.h READ_ONLY_ROOT_LIST), so they neither move nor go. Of
 * two maps that share an entry, the last one has it.
 */
struct v8_types {
	struct {
		uint64_t map; /* 0: free */
		uint16_t type;
	} known[64];
};

/* The objects of one process. */
struct v8_heap {
	const struct target_memory *memory;
	const struct v8_layout *layout;
	struct v8_types *types; /* NULL: none are kept */
};

/* A buffer that texts are put into, one behind the other. */
struct v8_text {
	char *at;
	size_t left;
};

static inline bool v8_is_pointer(uint64_t v)
{
	return (v & 1) != 0;
}

static inline bool v8_is_smi(uint64_t v)
{
	return (v & 0xffffffff) == 0;
}

static inline int32_t v8_smi(uint64_t v)
{
	return (int32_t)(v >> 32);
}

/* Reads LEN bytes at OFFSET of OBJECT, a tagged pointer. 0 or -EFAULT. */
int v8_read(const struct v8_heap *h, uint64_t object, int64_t offset, void *dst, size_t len);
static inline int v8_word(const struct v8_heap *h, uint64_t object, int64_t offset, uint64_t *ret)
{
	return v8_read(h, object, offset, ret, sizeof(*ret));
}
/* The instance type of OBJECT; -EFAULT. */
int v8_type(const struct v8_heap *h, uint64_t object);
/* As v8_word(), for a pointer to an object of TYPE; a weak pointer is returned as a strong one. */
int v8_field(const struct v8_heap *h, uint64_t object, int64_t offset, int32_t type, uint64_t *ret);
/* Reads the byte array OBJECT, at most MAX bytes, to *RET, which the caller frees. */
int v8_bytes(const struct v8_heap *h, uint64_t object, size_t max, uint8_t **ret, size_t *ret_n);

bool v8_is_string(const struct v8_heap *h, uint64_t object);
/* Puts OBJECT's characters into TEXT as UTF-8 with a NUL. -EFAULT, -ENOSPC. */
int v8_string(const struct v8_heap *h, uint64_t object, struct v8_text *text, const char **ret);

/*
 * The characters of a flat string: where they are, how many, and how many bytes (1 or 2) each has.
 */
struct v8_flat {
	uint64_t at;
	uint32_t length, width;
};
int v8_flat(const struct v8_heap *h, uint64_t object, struct v8_flat *ret);

/* Puts the N bytes at S and a NUL into TEXT. *RET points to them. -ENOSPC: TEXT is full. */
int v8_text_put(struct v8_text *text, const char *s, size_t n, const char **ret);
