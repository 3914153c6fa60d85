/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses an image reference: [registry[:port]/]path[:tag][@digest]. Nothing is normalized: "nginx"
 * stays "nginx". The grammar is that of distribution/reference (v0.6, reference.go). A scheme in
 * front ("docker-pullable://", in the image ids of old kubelets) is no part of it and is dropped.
 * Pure function.
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

/* -EINVAL: not a reference. A digest alone ("sha256:...") is a reference without a name. */
int image_ref_parse(const char *text, struct image_ref *ret) _must_check_;
