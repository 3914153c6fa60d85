/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims of a token (Kubernetes pkg/serviceaccount/claims.go). Nothing here verifies the token;
 * the API server does that. The claims save reviews of expired tokens, limit how long an answer is
 * kept to the life of the token, and let tokens that claim to be an agent's be reviewed before
 * others.
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

static void copy_text(const cJSON *item, char *out, size_t size)
{
	const char *text = cJSON_GetStringValue(item);

	if (text && strlen(text) < size)
		memcpy(out, text, strlen(text) + 1);
}

/* One audience is a text, several are a list of them (RFC 7519 section 4.1.3). */
static bool has_audience(const cJSON *aud)
{
	const char *text = cJSON_GetStringValue(aud);
	const cJSON *each;

	if (text)
		return streq(text, STREAM_AUDIENCE);
	cJSON_ArrayForEach(each, aud) if (streq(cJSON_IsString(each) ? each->valuestring : "",
						STREAM_AUDIENCE)) return true;
	return false;
}

static int read_claims(const cJSON *root, struct stream_claims *ret)
{
	const cJSON *exp = cJSON_GetObjectItemCaseSensitive(root, "exp"),
		    *bound = cJSON_GetObjectItemCaseSensitive(root, "kubernetes.io"),
		    *pod = cJSON_GetObjectItemCaseSensitive(bound, "pod");
	struct stream_claims claims = {0};

	if (!cJSON_IsNumber(exp) || exp->valuedouble <= 0 || exp->valuedouble >= 1e15)
		return -EBADMSG;
	claims.expiry = (int64_t)exp->valuedouble;
	claims.for_us = has_audience(cJSON_GetObjectItemCaseSensitive(root, "aud"));
	copy_text(cJSON_GetObjectItemCaseSensitive(root, "sub"), claims.account,
		  sizeof(claims.account));
	copy_text(cJSON_GetObjectItemCaseSensitive(pod, "uid"), claims.pod_uid,
		  sizeof(claims.pod_uid));
	*ret = claims;
	return 0;
}

int stream_token_claims(const char *token, struct stream_claims *ret)
{
	const char *first = strchr(token, '.'), *second = first ? strchr(first + 1, '.') : NULL;
	char text[CLAIMS_MAX];
	cJSON *root;
	size_t n;
	int len, r;

	if (!second || first == token || !second[1] || strchr(second + 1, '.'))
		return -EBADMSG;
	n = (size_t)(second - first - 1);
	if (n == 0 || n / 4 * 3 + 3 > sizeof(text))
		return -EBADMSG;
	len = decode_base64url(first + 1, n, text);
	if (len < 0)
		return len;
	root = cJSON_ParseWithLength(text, (size_t)len);
	r = read_claims(root, ret);
	cJSON_Delete(root);
	return r;
}
