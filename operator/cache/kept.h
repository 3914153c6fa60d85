/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stores keep of foreign values, and how: names are checked, sets of labels and owners
 * become one interned string each, uids become 16 bytes.
 *
 * Names that no API server would accept (empty, longer than 253 bytes, with blanks, control
 * characters, '/' or bytes beyond ASCII) make an object undecodable; other values that are not
 * UTF-8, hold a NUL or are too long are left out and counted.
 */
#pragma once

#include "lib/buf.h"
#include "operator/cache/intern.h"
#include "operator/kube/decode.h"

enum {
	KEPT_NAME_MAX = 253, /* RFC 1123 subdomain, as Kubernetes limits names */
	KEPT_KEY_MAX = 317,  /* prefix of 253, '/', name of 63 */
	KEPT_VALUE_MAX = 4096,
	KEPT_PAIRS_BYTES_MAX = 256 << 10, /* of one set */
	KEPT_ANNOTATIONS_MAX = 64,	  /* keys asked for */
};

bool kept_is_name(struct slice s);
bool kept_is_text(struct slice s, size_t max);

/* Which annotations are kept: Kiln's own, OpenTelemetry's, static pods', and those asked for. */
struct kept_annotations {
	char *keys[KEPT_ANNOTATIONS_MAX]; /* exact, or a prefix that ends with '/' */
	size_t n;
};
/* 1: they are others than before; 0: the same. -E2BIG, -ENOMEM: untouched. */
int kept_annotations_set(struct kept_annotations *a, const char *const *keys);
/* KEYS ends with NULL and may be NULL. -E2BIG, -ENOMEM. */
int kept_annotations_init(struct kept_annotations *a, const char *const *keys) _must_check_;
void kept_annotations_done(struct kept_annotations *a);
bool kept_annotation(const struct kept_annotations *a, struct slice key);

/*
 * The set as one string, sorted by key, the last of equal keys; 0 when nothing is left of it. ONLY
 * NULL: all keys. MAX: pairs. *CUT goes up by each pair that was refused. SCRATCH is emptied first.
 */
int kept_pairs(struct intern *in, struct buf *scratch, const struct slice_pair *pairs, size_t n,
	       const struct kept_annotations *only, size_t max, uint64_t *cut,
	       interned *ret) _must_check_;
struct pod_label;
/* Pointers into the interned string. */
size_t kept_pairs_unpack(const struct intern *in, interned set, struct pod_label *ret, size_t max);

/* The controller among OWNERS as one string; 0 without. */
int kept_owner(struct intern *in, struct buf *scratch, const struct owner_view *owners, size_t n,
	       interned *ret) _must_check_;
struct kept_owner_fields {
	const char *kind, *name; /* "" without */
	uint8_t uid[16];
	char uid_text[37]; /* as the API had it, cut when longer; "" without */
};
void kept_owner_unpack(const struct intern *in, interned owner, struct kept_owner_fields *ret);

/*
 * 16 bytes for any text: those of a UUID (either case, '-' or '_'), those of 32 hexadecimal digits
 * (static pods), else a hash. True when kept_uid_text() gives the same text back.
 */
bool kept_uid(struct slice text, uint8_t ret[16]);
void kept_uid_text(const uint8_t uid[16], char ret[37]);
/* 2 * N hexadecimal digits; N is a multiple of 4. What is in RET is of no use when it fails. */
bool kept_hex(const char *text, size_t n, uint8_t *ret);
