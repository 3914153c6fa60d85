/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a token expires, read from the token itself. Nothing here says that the token is good; the
 * API server does. It saves asking for what has expired, and what is kept of the answer does not
 * outlive the token.
 */
#include <cjson/cJSON.h>

#include "operator/stream/auth.h"

enum { CLAIMS_MAX = 12 << 10 };

/* base64url without padding (RFC 7515 §2). Returns the length; -EBADMSG. */
static int decode_base64url(const char *s, size_t n, char *out)
{
	uint32_t bits = 0;
	int len = 0, have = 0;

	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		int v = c >= 'A' && c <= 'Z'   ? c - 'A'
			: c >= 'a' && c <= 'z' ? c - 'a' + 26
			: c >= '0' && c <= '9' ? c - '0' + 52
			: c == '-'	       ? 62
			: c == '_'	       ? 63
					       : -1;

		if (v < 0)
			return -EBADMSG;
		bits = (bits << 6 | (uint32_t)v) & 0xffffff;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[len++] = (char)(bits >> have);
		}
	}
	return len;
}

int stream_token_expiry(const char *token, int64_t *ret)
{
	const char *first = strchr(token, '.'), *second = first ? strchr(first + 1, '.') : NULL;
	char claims[CLAIMS_MAX];
	const cJSON *exp;
	cJSON *root;
	size_t n;
	int len, r = -EBADMSG;

	if (!second || first == token || !second[1] || strchr(second + 1, '.'))
		return -EBADMSG;
	n = (size_t)(second - first - 1);
	if (n == 0 || n / 4 * 3 + 3 > sizeof(claims))
		return -EBADMSG;
	len = decode_base64url(first + 1, n, claims);
	if (len < 0)
		return len;
	root = cJSON_ParseWithLength(claims, (size_t)len);
	exp = cJSON_GetObjectItemCaseSensitive(root, "exp");
	if (cJSON_IsNumber(exp) && exp->valuedouble > 0 && exp->valuedouble < 1e15) {
		*ret = (int64_t)exp->valuedouble;
		r = 0;
	}
	cJSON_Delete(root);
	return r;
}
