/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream: its encoding, the memory of one object, and the calls of its ops.
 *
 * An object that is contiguous in one piece of input is passed on in place. Otherwise its parts are
 * copied to `object`, which, like the scratch, is freed when it has grown past STREAM_KEEP. The
 * first error ends the stream: every later call returns it. Owned by the loop's thread.
 */
#include "operator/kube/stream_internal.h"

#include <strings.h>

enum { LIST_TEXT_MAX = 4096 }; /* a resource version or a continue token, with its NUL */

int kube_stream_new(enum kube_stream_mode mode, const struct kube_stream_ops *ops, void *arg,
		    struct kube_stream **ret)
{
	struct kube_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->mode = mode;
	s->ops = *ops;
	s->arg = arg;
	s->proto.at = mode == KUBE_LIST ? PROTO_MAGIC : PROTO_FRAME;
	buf_init(&s->object, KUBE_OBJECT_MAX + STREAM_ENVELOPE_MAX);
	buf_init(&s->json.head, STREAM_HEAD_MAX);
	*ret = s;
	return 0;
}

struct kube_stream *kube_stream_free(struct kube_stream *s)
{
	if (!s)
		return NULL;
	buf_done(&s->object);
	buf_done(&s->json.head);
	free(s->scratch);
	free(s);
	return NULL;
}

static int encoding_of(const char *content_type, enum kube_encoding *ret)
{
	static const char json[] = "application/json",
			  proto[] = "application/vnd.kubernetes.protobuf";

	if (content_type && strncasecmp(content_type, proto, sizeof(proto) - 1) == 0)
		*ret = KUBE_PROTOBUF;
	else if (content_type && strncasecmp(content_type, json, sizeof(json) - 1) == 0)
		*ret = KUBE_JSON;
	else
		return -EBADMSG;
	return 0;
}

int kube_stream_feed(struct kube_stream *s, const char *content_type, const void *bytes, size_t len)
{
	struct cursor in = cursor_of(bytes, len);

	if (s->error || len == 0)
		return s->error;
	if (!s->started) {
		s->error = encoding_of(content_type, &s->encoding);
		s->started = true;
	}
	if (s->error == 0)
		s->error =
		    s->encoding == KUBE_JSON ? json_stream_feed(s, &in) : proto_stream_feed(s, &in);
	return s->error;
}

int kube_stream_end(struct kube_stream *s)
{
	bool may;

	if (s->error)
		return s->error;
	may = s->encoding == KUBE_JSON ? json_stream_may_end(s) : proto_stream_may_end(s);
	if (!s->started)
		may = s->mode == KUBE_WATCH;
	else if (s->mode == KUBE_LIST && !s->meta_told)
		may = false;
	return may ? 0 : -EBADMSG;
}

int stream_take(struct kube_stream *s, struct cursor *in, size_t want, const uint8_t **ret)
{
	size_t n = MIN(want - s->object.len, cursor_left(in));
	int r;

	if (n == want) {
		*ret = cursor_bytes(in, want);
		return 1;
	}
	r = buf_append(&s->object, cursor_bytes(in, n), n);
	if (r < 0)
		return r;
	if (s->object.len < want)
		return 0;
	*ret = (const uint8_t *)s->object.data;
	return 1;
}

void stream_taken(struct kube_stream *s)
{
	if (s->object.cap > STREAM_KEEP)
		buf_done(&s->object);
	else
		buf_reset(&s->object);
	if (s->scratch_size > STREAM_KEEP) {
		free(TAKE_PTR(s->scratch));
		s->scratch_size = 0;
	}
}

int stream_scratch(struct kube_stream *s, size_t n)
{
	size_t size = MAX(s->scratch_size, (size_t)16 << 10);

	if (n <= s->scratch_size)
		return 0;
	while (size < n)
		size *= 2;
	free(s->scratch); /* its content is not needed */
	s->scratch = malloc(size);
	s->scratch_size = s->scratch ? size : 0;
	return s->scratch ? 0 : -ENOMEM;
}

int stream_too_large(struct kube_stream *s)
{
	if (s->mode != KUBE_LIST || !s->ops.too_large)
		return -E2BIG;
	s->ops.too_large(s->arg);
	return 0;
}

int stream_item(struct kube_stream *s, enum kube_event_type type, enum kube_encoding encoding,
		const uint8_t *p, size_t n, bool escapes)
{
	struct kube_item item = {.type = type, .encoding = encoding, .bytes = p, .len = n};
	int r;

	if (n > KUBE_OBJECT_MAX)
		return stream_too_large(s);
	if (encoding == KUBE_JSON && escapes) {
		r = stream_scratch(s, n);
		if (r < 0)
			return r;
		item.scratch = s->scratch;
	}
	r = s->ops.item(s->arg, &item);
	return MIN(r, 0);
}

/* Copies S as a C string. -EBADMSG: too long, or with a NUL inside. */
static int to_text(struct slice s, char text[static LIST_TEXT_MAX])
{
	if (s.n >= LIST_TEXT_MAX || (s.n && memchr(s.p, 0, s.n)))
		return -EBADMSG;
	if (s.n)
		memcpy(text, s.p, s.n);
	text[s.n] = 0;
	return 0;
}

int stream_list_meta(struct kube_stream *s, struct slice resource_version,
		     struct slice continue_token)
{
	char rv[LIST_TEXT_MAX], token[LIST_TEXT_MAX];
	int r;

	if (s->meta_told || to_text(resource_version, rv) < 0 || to_text(continue_token, token) < 0)
		return -EBADMSG;
	s->meta_told = true;
	r = s->ops.list_meta ? s->ops.list_meta(s->arg, rv, token) : 0;
	return MIN(r, 0);
}

int stream_event_type(struct slice name, enum kube_event_type *ret)
{
	static const char *const names[] = {
	    [KUBE_ADDED] = "ADDED",	  [KUBE_MODIFIED] = "MODIFIED", [KUBE_DELETED] = "DELETED",
	    [KUBE_BOOKMARK] = "BOOKMARK", [KUBE_ERROR] = "ERROR",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (slice_is(name, names[i], strlen(names[i]))) {
			*ret = (enum kube_event_type)i;
			return 0;
		}
	}
	return -EBADMSG;
}

int stream_check_kind(struct slice kind, bool *ret_is_status)
{
	bool is_status = SLICE_IS(kind, "Status");

	if (!is_status && (kind.n < 4 || memcmp(kind.p + kind.n - 4, "List", 4) != 0))
		return -EBADMSG;
	*ret_is_status = is_status;
	return 0;
}

int kube_item_of(const char *content_type, const uint8_t *bytes, size_t len, uint8_t *scratch,
		 struct kube_item *ret)
{
	struct kube_item item = {
	    .type = KUBE_ADDED, .bytes = bytes, .len = len, .scratch = scratch};
	struct wire_unknown u;
	int r = encoding_of(content_type, &item.encoding);

	if (r < 0)
		return r;
	if (item.encoding == KUBE_PROTOBUF) {
		r = wire_open_unknown(bytes, len, &u);
		if (r < 0)
			return r;
		item.bytes = u.raw;
		item.len = u.len;
	}
	*ret = item;
	return 0;
}
