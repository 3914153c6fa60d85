/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct intern: one copy of each string (any bytes), counted, so that 150,000 pods of a few
 * thousand workloads share their names, labels and images. A handle is 32 bits; 0 is "absent".
 * Loop thread only.
 */
#pragma once

#include "lib/base.h"

struct intern;
typedef uint32_t interned;

int intern_new(size_t max_bytes, struct intern **ret) _must_check_;
struct intern *intern_free(struct intern *in);
DEFINE_CLEANUP(struct intern *, intern_free)
/* Takes a reference. -ENOSPC at the cap, which is counted. LEN 0 gives the empty string, not 0. */
int intern_get(struct intern *in, const void *bytes, size_t len, interned *ret) _must_check_;
/* The handle if it is known, else 0; no reference is taken. */
interned intern_find(const struct intern *in, const void *bytes, size_t len);
interned intern_ref(struct intern *in, interned s);
void intern_unref(struct intern *in, interned s);
/* NUL-terminated; *RET_LEN is without the NUL. Valid while referenced. "" for 0. */
const char *intern_text(const struct intern *in, interned s, size_t *ret_len);
size_t intern_bytes(const struct intern *in); /* all memory it takes */
size_t intern_count(const struct intern *in);
uint64_t intern_refused(const struct intern *in); /* at the cap */
/*
 * The number of references. For strings whose bytes are handles: a count of 1 after intern_get()
 * means that the string is new, a count of 1 before intern_unref() that its handles must be
 * released, too.
 */
uint32_t intern_refs(const struct intern *in, interned s);
