/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the message of an error response: from its Status object, or its text, as one line. */
#pragma once

#include "lib/base.h"

struct kube_status {
	char message[1024], reason[64]; /* printable, cut; "" when not said */
};
void kube_status_read(int http, const char *content_type, const void *body, size_t len,
		      struct kube_status *ret);
