/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the stores check and pack values of API objects: names are checked, sets of labels and owners
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
/*
 * Replaces the keys. 1: they differ from the old ones; 0: they are the same. -E2BIG, -ENOMEM: A is
 * untouched.
 */
int kept_annotations_set(struct kept_annotations *a, const char *const *keys);
/* KEYS ends with NULL and may be NULL. -E2BIG, -ENOMEM. */
int kept_annotations_init(struct kept_annotations *a, const char *const *keys) _must_check_;
void kept_annotations_done(struct kept_annotations *a);
bool kept_annotation(const struct kept_annotations *a, struct slice key);

/*
 * Packs PAIRS into one string, sorted by key; of equal keys the last one. *RET is 0 when no pair is
 * left. ONLY: the keys to take, NULL for all. MAX: how many pairs to take at most. Adds to *CUT the
 * number of pairs that were refused. SCRATCH is emptied first.
 */
int kept_pairs(struct intern *in, struct buf *scratch, const struct slice_pair *pairs, size_t n,
	       const struct kept_annotations *only, size_t max, uint64_t *cut,
	       interned *ret) _must_check_;
struct pod_label;
/* Returns the number of pairs; RET points into the interned string. */
size_t kept_pairs_unpack(const struct intern *in, interned set, struct pod_label *ret, size_t max);

/* Packs the controller among OWNERS into one string; *RET is 0 when there is none. */
int kept_owner(struct intern *in, struct buf *scratch, const struct owner_view *owners, size_t n,
	       interned *ret) _must_check_;
struct kept_owner_fields {
	const char *kind, *name; /* "" without */
	uint8_t uid[16];
	char uid_text[37]; /* as the API had it, cut when longer; "" without */
};
void kept_owner_unpack(const struct intern *in, interned owner, struct kept_owner_fields *ret);

/*
 * Converts a uid to 16 bytes: those of a UUID (either case, '-' or '_'), those of 32 hexadecimal
 * digits (static pods), else a hash of TEXT. True when kept_uid_text() returns the same text.
 */
bool kept_uid(struct slice text, uint8_t ret[16]);
void kept_uid_text(const uint8_t uid[16], char ret[37]);
/* Parses 2 * N hexadecimal digits; N is a multiple of 4. On failure RET is undefined. */
bool kept_hex(const char *text, size_t n, uint8_t *ret);
