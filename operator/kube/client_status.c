/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status objects of errors, in both encodings. Only message and reason are taken. Field numbers:
 * k8s.io/apimachinery (0.34) pkg/runtime/generated.proto, Unknown.raw = 2, and
 * pkg/apis/meta/v1/generated.proto, Status.message = 3, Status.reason = 4. Bodies that are no
 * Status (proxies answer with pages) give their first line. Pure.
 */
#include "operator/kube/client_status.h"

#include <cjson/cJSON.h>

#include "lib/cursor.h"
#include "lib/parse.h"

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
enum { UNKNOWN_RAW = 2, STATUS_MESSAGE = 3, STATUS_REASON = 4 };

static void keep(char *out, size_t room, const void *text, size_t len)
{
	const uint8_t *t = text;

	if (len >= room) {
		len = room - 1;
		while (len > 0 && (t[len] & 0xc0) == 0x80)
			len--; /* not inside a character */
	}
	memcpy(out, text, len);
	out[len] = 0;
	for (size_t i = 0; i < len; i++)
		if (!out[i])
			out[i] = '?';
	parse_make_printable(out);
}

/* Steps over one field; bytes fields are given as a cursor. False at the end or when it is bad. */
static bool next_field(struct cursor *c, uint64_t *ret_number, struct cursor *ret_bytes)
{
	uint64_t tag;

	if (cursor_left(c) == 0)
		return false;
	tag = cursor_uleb(c);
	*ret_number = tag >> 3;
	*ret_bytes = cursor_of(NULL, 0);
	switch (tag & 7) {
	case WIRE_VARINT:
		cursor_uleb(c);
		break;
	case WIRE_FIXED64:
		cursor_skip(c, 8);
		break;
	case WIRE_FIXED32:
		cursor_skip(c, 4);
		break;
	case WIRE_BYTES:
		*ret_bytes = cursor_sub(c, cursor_uleb(c));
		break;
	default:
		c->bad = true;
	}
	return !c->bad;
}

static void read_protobuf(struct cursor c, struct kube_status *ret)
{
	struct cursor raw = {0}, bytes;
	uint64_t number;

	while (next_field(&c, &number, &bytes))
		if (number == UNKNOWN_RAW && bytes.data)
			raw = bytes;
	while (next_field(&raw, &number, &bytes)) {
		if (!bytes.data)
			continue;
		if (number == STATUS_MESSAGE)
			keep(ret->message, sizeof(ret->message), bytes.data, bytes.size);
		if (number == STATUS_REASON)
			keep(ret->reason, sizeof(ret->reason), bytes.data, bytes.size);
	}
}

static bool read_json(const void *body, size_t len, struct kube_status *ret)
{
	cJSON *root = cJSON_ParseWithLength(body, len);
	const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "kind"));
	const char *message =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "message"));
	const char *reason = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "reason"));
	bool is = kind && streq(kind, "Status");

	if (is && message)
		keep(ret->message, sizeof(ret->message), message, strlen(message));
	if (is && reason)
		keep(ret->reason, sizeof(ret->reason), reason, strlen(reason));
	cJSON_Delete(root);
	return is;
}

void kube_status_read(int http, const char *content_type, const void *body, size_t len,
		      struct kube_status *ret)
{
	static const char magic[4] = {'k', '8', 's', 0};
	const char *text = body;
	size_t n = 0;

	ret->message[0] = ret->reason[0] = 0;
	if (len >= sizeof(magic) && memcmp(body, magic, sizeof(magic)) == 0)
		read_protobuf(cursor_of(text + sizeof(magic), len - sizeof(magic)), ret);
	else if (len == 0 || !read_json(body, len, ret)) {
		while (n < len && n < 256 && text[n] != '\n' && text[n] != '\r')
			n++;
		/* A line of other JSON or of an HTML page tells nothing. */
		if (n > 0 && text[0] != '{' && text[0] != '<' && content_type &&
		    has_prefix(content_type, "text/plain"))
			keep(ret->message, sizeof(ret->message), text, n);
	}
	if (!ret->message[0])
		snprintf(ret->message, sizeof(ret->message), "the API server answered HTTP %d",
			 http);
}
