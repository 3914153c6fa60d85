/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON without a tree. struct json_cut finds where an object ends while its bytes arrive;
 * struct json walks an object that is in memory: keys are compared in place, what nobody asks for
 * is stepped over by its brackets. Nothing recurses and nothing is allocated, so depth costs
 * nothing.
 *
 * It reads what Kubernetes writes (RFC 8259), and is no validator: what is stepped over is only
 * checked for strings and brackets that close.
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
 * Takes bytes up to and with the bracket that brings depth to 0: the first byte of an object must
 * be its bracket. Returns how many; when fewer than N or k->depth is 0, the object is whole.
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
	bool no_scratch;  /* why it is bad */
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

/* What comes next, past blanks. */
enum json_type json_peek(struct json *j);
/* Enters an object or array: false, and past it, when it is null; bad when it is something else. */
bool json_enter(struct json *j, enum json_type type);
/* The next member's key: its value must be read or skipped. False at the end and when bad. */
bool json_key(struct json *j, struct slice *ret);
/* Whether there is another element, to be read or skipped. */
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
