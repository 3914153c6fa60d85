// SPDX-License-Identifier: Apache-2.0
/* Taking image references apart, from the end: digest, tag, name. */
#include "operator/cache/image_ref.h"

enum { TAG_MAX = 128, IMAGE_NAME_MAX = 255, DIGEST_HEX_MIN = 32 };

static bool is_word(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '_';
}

static bool is_tag(struct image_part s)
{
	if (!s.n || s.n > TAG_MAX || !is_word(s.p[0]))
		return false;
	for (size_t i = 1; i < s.n; i++)
		if (!is_word(s.p[i]) && s.p[i] != '.' && s.p[i] != '-')
			return false;
	return true;
}

static bool is_digest(struct image_part s)
{
	const char *colon = memchr(s.p, ':', s.n);
	size_t algorithm = colon ? (size_t)(colon - s.p) : 0;

	if (!algorithm || s.n - algorithm - 1 < DIGEST_HEX_MIN)
		return false;
	for (size_t i = 0; i < algorithm; i++)
		if (!is_word(s.p[i]) && !strchr("+.-", s.p[i]))
			return false;
	for (size_t i = algorithm + 1; i < s.n; i++)
		if (!strchr("0123456789abcdefABCDEF", s.p[i]))
			return false;
	return true;
}

/* A path, or the host before its first '/', which may have a port and be an address in brackets. */
static bool is_name(struct image_part s)
{
	const char *slash = memchr(s.p, '/', s.n);
	size_t host = slash ? (size_t)(slash - s.p) : 0;

	if (!s.n || s.n > IMAGE_NAME_MAX || s.p[0] == '/' || s.p[s.n - 1] == '/')
		return false;
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '/' && s.p[i - 1] == '/')
			return false;
		if (!is_word(s.p[i]) && !strchr("./-", s.p[i]) &&
		    !(i < host && strchr(":[]", s.p[i])))
			return false;
	}
	return true;
}

int image_ref_parse(const char *text, struct image_ref *ret)
{
	const char *scheme = strstr(text, "://");
	struct image_ref ref = {0};
	const char *at, *colon = NULL;
	struct image_part whole;

	if (scheme)
		text = scheme + 3;
	whole = (struct image_part){text, strlen(text)};
	if (!memchr(text, '/', whole.n) && is_digest(whole)) {
		ref.digest = whole;
		*ret = ref;
		return 0;
	}
	at = strchr(text, '@');
	ref.name = (struct image_part){text, at ? (size_t)(at - text) : whole.n};
	if (at) {
		ref.digest = (struct image_part){at + 1, whole.n - ref.name.n - 1};
		if (!is_digest(ref.digest))
			return -EINVAL;
	}
	for (size_t i = ref.name.n; i && text[i - 1] != '/'; i--)
		if (text[i - 1] == ':')
			colon = text + i - 1;
	if (colon) {
		ref.tag = (struct image_part){colon + 1, ref.name.n - (size_t)(colon + 1 - text)};
		ref.name.n = (size_t)(colon - text);
		if (!is_tag(ref.tag))
			return -EINVAL;
	}
	if (!is_name(ref.name))
		return -EINVAL;
	*ret = ref;
	return 0;
}
