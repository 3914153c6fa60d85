/* SPDX-License-Identifier: Apache-2.0 */
/* Pure but for reading the token's file. No answer depends on how much of a token was right. */
#include "agent/live/access.h"

#include <fcntl.h>
#include <strings.h>

int access_read_token(const char *path, struct access *ret, struct error *err)
{
	char text[ACCESS_TOKEN_MAX + 2];
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	size_t len;

	if (n < 0)
		return error_set(err, -EINVAL, "token_file: %.256s: %s", path, strerror(errno));
	text[n] = 0;
	len = strcspn(text, "\r\n");
	text[len] = 0;
	if (len < ACCESS_TOKEN_MIN || len > ACCESS_TOKEN_MAX)
		return error_set(err, -EINVAL,
				 "token_file: %.256s: want %d to %d characters on its first line",
				 path, ACCESS_TOKEN_MIN, ACCESS_TOKEN_MAX);
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return error_set(err, -EINVAL,
					 "token_file: %.256s: want printable characters without "
					 "blanks",
					 path);
	memcpy(ret->token, text, len + 1);
	return 0;
}

/* An origin is scheme://host[:port]; the page's own has the host that it was asked for by. */
static bool same_origin(const char *host, const char *origin)
{
	const char *rest = NULL;

	if (strncasecmp(origin, "http://", 7) == 0)
		rest = origin + 7;
	else if (strncasecmp(origin, "https://", 8) == 0)
		rest = origin + 8;
	return rest && host && host[0] && strcasecmp(rest, host) == 0;
}

/* Compares in a time that depends only on the length of GIVEN. */
static bool same_token(const char *want, const char *given)
{
	size_t n = strlen(want), m = strlen(given);
	unsigned int differs = n != m;

	for (size_t i = 0; i < m; i++)
		differs |= (unsigned int)((unsigned char)given[i] ^ (unsigned char)want[i % n]);
	return !differs;
}

/*
 * Browsers say with each request who made it. An image or script tag of another site's page sends
 * no Origin, but it sends "cross-site" or "same-site" here. "none" is the user: an address that was
 * typed, a bookmark.
 */
static bool from_other_site(const char *fetch_site)
{
	return fetch_site && strcasecmp(fetch_site, "same-origin") != 0 &&
	       strcasecmp(fetch_site, "none") != 0;
}

unsigned int access_check(const struct access *a, const struct access_request *req)
{
	if (req->origin && !same_origin(req->host, req->origin))
		return 403;
	if (from_other_site(req->fetch_site))
		return 403;
	if (!a->token[0])
		return 0;
	if (!req->authorization || strncasecmp(req->authorization, "Bearer ", 7) != 0)
		return 401;
	return same_token(a->token, req->authorization + 7) ? 0 : 401;
}
