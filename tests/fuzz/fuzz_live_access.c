/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of a request to the live page: host, origin, authorization and Sec-Fetch-Site with NUL
 * bytes between them. A request is refused unless its authorization is "Bearer " and the token, its
 * origin is the page's, and Sec-Fetch-Site is same-origin or none.
 */
#include <strings.h>

#include "agent/live/access.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct access open = {0}, closed = {.token = "0123456789abcdef"};
	_cleanup_free_ char *text = calloc(1, size + 1);
	const char *part[4] = {NULL, NULL, NULL, NULL};
	struct access_request req;
	size_t at = 0;
	unsigned int with, without;

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	for (size_t i = 0; i < ARRAY_SIZE(part) && at <= size; i++) {
		part[i] = text + at;
		at += strlen(text + at) + 1;
	}
	req = (struct access_request){part[0], part[1], part[2], part[3]};
	without = access_check(&open, &req);
	with = access_check(&closed, &req);
	if (without != 0 && without != 403)
		abort();
	if (!with && (!part[2] || strncasecmp(part[2], "Bearer ", 7) != 0 ||
		      !streq(part[2] + 7, closed.token)))
		abort();
	if (!without && part[1] && (!part[0] || strlen(part[1]) <= strlen(part[0])))
		abort();
	if (!without && part[3] && strcasecmp(part[3], "same-origin") != 0 &&
	    strcasecmp(part[3], "none") != 0)
		abort();
	return 0;
}
