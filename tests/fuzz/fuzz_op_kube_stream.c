/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the body of a list or a watch. The first byte chooses the kind of body, the encoding
 * and the size of the pieces in which the body is read. The items and the error must be the same as
 * for the body in one piece.
 */
#include "operator/kube/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pod_view pod;

struct seen {
	uint64_t hash;
	int result, metas;
	size_t items;
};

static int on_item(void *arg, const struct kube_item *item)
{
	struct seen *s = arg;

	s->items++;
	s->hash = hash_bytes(item->bytes, item->len, s->hash + item->type + item->encoding);
	if (item->len > KUBE_OBJECT_MAX)
		abort();
	if (item->scratch)
		memset(item->scratch, 0xa5, item->len);
	else if (kube_decode_pod(item, &pod) == -ENOBUFS)
		abort(); /* it was needed */
	return 0;
}

static int on_list_meta(void *arg, const char *resource_version, const char *continue_token)
{
	struct seen *s = arg;

	s->hash = hash_bytes(resource_version, strlen(resource_version), s->hash);
	s->hash = hash_bytes(continue_token, strlen(continue_token), s->hash);
	s->metas++;
	return 0;
}

static struct seen run(enum kube_stream_mode mode, const char *type, const uint8_t *data,
		       size_t size, size_t step)
{
	static const struct kube_stream_ops ops = {.item = on_item, .list_meta = on_list_meta};
	_cleanup_(kube_stream_freep) struct kube_stream *stream = NULL;
	struct seen s = {0};

	if (kube_stream_new(mode, &ops, &s, &stream) < 0)
		return s;
	for (size_t at = 0; at < size && s.result == 0; at += step) {
		size_t n = MIN(step, size - at);
		uint8_t *exact = malloc(n);

		if (!exact)
			abort();
		memcpy(exact, data + at, n);
		s.result = kube_stream_feed(stream, type, exact, n);
		free(exact);
	}
	if (s.result == 0)
		s.result = kube_stream_end(stream);
	if (s.metas > 1 || (s.result == 0 && mode == KUBE_WATCH && s.metas))
		abort();
	return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t steps[] = {1, 2, 3, 5, 16, 100};
	enum kube_stream_mode mode;
	const char *type;
	struct seen whole, pieces;

	if (size < 2)
		return 0;
	mode = data[0] & 1 ? KUBE_WATCH : KUBE_LIST;
	type = data[0] & 2 ? "application/json" : "application/vnd.kubernetes.protobuf";
	whole = run(mode, type, data + 1, size - 1, size);
	pieces = run(mode, type, data + 1, size - 1, steps[(data[0] >> 2) % ARRAY_SIZE(steps)]);
	if (whole.hash != pieces.hash || whole.result != pieces.result ||
	    whole.items != pieces.items || whole.metas != pieces.metas)
		abort();
	return 0;
}
