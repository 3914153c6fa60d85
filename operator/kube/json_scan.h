/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON without a tree. struct json_cut finds where an object ends while its bytes arrive; struct
 * json walks an object that is in memory: keys are compared in place, and values that are not
 * needed are skipped by counting brackets. Nothing recurses and nothing is allocated, so depth
 * costs nothing.
 *
 * It reads the JSON that Kubernetes writes (RFC 8259) and is no validator: of a skipped value only
 * strings and brackets are checked for their ends.
 */
#pragma once

#include "lib/cursor.h"
#include "operator/kube/decode.h"

struct json_cut {
	uint32_t depth;	    /* of brackets, of either kind */
	bool in_string;	    /* the piece ended inside one */
	bool backslash;	    /* the piece ended behind one */
	bool any_backslash; /* the object has escapes */
};

/*
 * Takes bytes up to and including the bracket that brings depth to 0; the first byte of an object
 * must be its bracket. Returns the number of bytes taken: the object is complete when that is less
 * than N or k->depth is 0.
 */
size_t json_cut(struct json_cut *k, const uint8_t *p, size_t n);

enum json_type {
	JSON_BAD,
	JSON_NULL,
	JSON_BOOL,
	JSON_NUMBER,
	JSON_STRING,
	JSON_OBJECT,
	JSON_ARRAY,
};

struct json {
	struct cursor c;
	uint8_t *scratch; /* as kube_item.scratch */
	bool first;	  /* no comma is due */
	bool no_scratch;  /* it is bad because SCRATCH is NULL */
};

static inline struct json json_of(const uint8_t *p, size_t n, uint8_t *scratch)
{
	return (struct json){.c = cursor_of(p, n), .scratch = scratch};
}

static inline int json_error(const struct json *j)
{
	return !j->c.bad ? 0 : j->no_scratch ? -ENOBUFS : -EBADMSG;
}

static inline bool slice_is(struct slice s, const char *literal, size_t n)
{
	return s.n == n && memcmp(s.p, literal, n) == 0;
}
#define SLICE_IS(s, literal) slice_is(s, literal, sizeof(literal) - 1)

/* The type of the next value, after blanks. */
enum json_type json_peek(struct json *j);
/*
 * Enters an object or array. False when it is null, which is skipped. A value of another type is
 * bad.
 */
bool json_enter(struct json *j, enum json_type type);
/* The next member's key: its value must be read or skipped. False at the end and when bad. */
bool json_key(struct json *j, struct slice *ret);
/* True when there is another element, which must be read or skipped. */
bool json_element(struct json *j);
void json_skip(struct json *j);

/* null is 0, false, absent. json_string() gives "" as a slice that is not NULL. */
struct slice json_string(struct json *j);
int64_t json_int(struct json *j);
bool json_bool(struct json *j);

static inline struct slice json_text(struct json *j)
{
	struct slice s = json_string(j);

	return s.n ? s : (struct slice){0};
}
