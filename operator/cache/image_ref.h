/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An image reference taken apart: [registry[:port]/]path[:tag][@digest]. Nothing is normalized:
 * "nginx" stays "nginx". The grammar is that of distribution/reference (v0.6, reference.go), of
 * which a scheme before it ("docker-pullable://", as old kubelets write image ids) is no part and
 * is dropped. Pure function.
 */
#pragma once

#include "lib/base.h"

struct image_part {
	const char *p; /* into the text; NULL: absent */
	size_t n;
};
struct image_ref {
	struct image_part name, tag, digest;
};

/* -EINVAL: no reference. A digest alone ("sha256:...") is one, without a name. */
int image_ref_parse(const char *text, struct image_ref *ret) _must_check_;
