/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading V8's objects in another process's memory. A tagged pointer has its lowest two bits 01 (11
 * when it is weak), a small integer its value in the high half and zeros below (V8
 * include/v8-internal.h, without pointer compression). All of it may be forged, and may change
 * while it is read: every length is capped, every chain counted.
 */
#pragma once

#include "agent/runtime/runtime.h"
#include "agent/runtime/v8/layout.h"

enum {
	V8_STRING_MAX = 1024,	  /* bytes of UTF-8 that are taken of a name */
	V8_STRING_PARTS_MAX = 32, /* of a string that is put together */
	V8_TABLE_MAX = 1 << 20,	  /* bytes of a position table */
	V8_SOURCE_MAX = 8 << 20,  /* characters of a script that are looked at for its lines */
	V8_CHUNK = 4096,	  /* what is read at once */
};

/*
 * Instance types by map, of V8's own kinds of objects and of strings: their maps are in its
 * read-only space (src/roots/roots.h READ_ONLY_ROOT_LIST), so they neither move nor go. An address
 * that belongs to two maps has the last one.
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

/* Where texts go, one behind the other. */
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

/* The word, or less, at OFFSET of OBJECT. 0 or -EFAULT. */
int v8_read(const struct v8_heap *h, uint64_t object, int64_t offset, void *dst, size_t len);
static inline int v8_word(const struct v8_heap *h, uint64_t object, int64_t offset, uint64_t *ret)
{
	return v8_read(h, object, offset, ret, sizeof(*ret));
}
/* The instance type of OBJECT; -EFAULT. */
int v8_type(const struct v8_heap *h, uint64_t object);
/* As v8_word(), for a pointer to an object of TYPE; weak ones become strong. */
int v8_field(const struct v8_heap *h, uint64_t object, int64_t offset, int32_t type, uint64_t *ret);
/* Bytes of the array of bytes OBJECT, at most MAX, in *RET, which the caller frees. */
int v8_bytes(const struct v8_heap *h, uint64_t object, size_t max, uint8_t **ret, size_t *ret_n);

bool v8_is_string(const struct v8_heap *h, uint64_t object);
/* OBJECT's characters as UTF-8, NUL-terminated, in TEXT. -EFAULT, -ENOSPC. */
int v8_string(const struct v8_heap *h, uint64_t object, struct v8_text *text, const char **ret);

/* The characters of a flat string: where they are, of 1 or 2 bytes. */
struct v8_flat {
	uint64_t at;
	uint32_t length, width;
};
int v8_flat(const struct v8_heap *h, uint64_t object, struct v8_flat *ret);

/* Of text: S, NUL-terminated. */
int v8_text_put(struct v8_text *text, const char *s, size_t n, const char **ret);
