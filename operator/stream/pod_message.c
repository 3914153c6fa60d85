/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long strings are cut off, at the start of a character. Lengths are known before bytes are
 * written, so each attribute takes room in the buffer once.
 */
#include "operator/stream/pod_message.h"

#include "operator/stream/frame.h"

enum {
	/* Fields of node.proto. */
	POD_UID = 1,
	POD_CONFIG_HASH = 2,
	POD_NAMESPACE = 3,
	POD_NAME = 4,
	POD_ATTRIBUTES = 6,
	POD_CONTAINERS = 7,
	CONTAINER_NAME = 1,
	CONTAINER_ID = 2,
	CONTAINER_PREVIOUS_ID = 3,
	CONTAINER_ATTRIBUTES = 4,
	ATTRIBUTE_KEY = 1,
	ATTRIBUTE_VALUE = 2,
	ATTRIBUTE_VALUES = 3,
};

/* The length of VALUE after the cut. */
static size_t limited(const char *value)
{
	size_t n = strnlen(value, VIEW_VALUE_MAX + 1);

	if (n <= VIEW_VALUE_MAX)
		return n;
	n = VIEW_VALUE_MAX;
	while (n && ((unsigned char)value[n] & 0xc0) == 0x80)
		n--;
	return n;
}

/* Lengths here take two bytes at most. */
_Static_assert(VIEW_KEY_MAX + VIEW_VALUE_MAX + 8 < 1 << 14, "an attribute's length");
static size_t length_size(size_t n)
{
	return n < 0x80 ? 1 : 2;
}

static uint8_t *put_length(uint8_t *p, size_t n)
{
	if (n >= 0x80)
		*p++ = (uint8_t)(n | 0x80);
	*p++ = (uint8_t)(n < 0x80 ? n : n >> 7);
	return p;
}

static uint8_t *put_tag(uint8_t *p, unsigned int field, size_t len)
{
	*p++ = (uint8_t)(field << 3 | 2);
	return put_length(p, len);
}

static void attribute(struct buf *out, unsigned int field, const struct attribute *a, size_t n_key)
{
	size_t n_value = limited(a->value);
	size_t inner = 1 + length_size(n_key) + n_key + 1 + length_size(n_value) + n_value;
	uint8_t *p = buf_extend(out, 1 + length_size(inner) + inner);

	if (!p)
		return;
	p = put_tag(p, field, inner);
	p = put_tag(p, ATTRIBUTE_KEY, n_key);
	memcpy(p, a->key, n_key);
	p = put_tag(p + n_key, a->list ? ATTRIBUTE_VALUES : ATTRIBUTE_VALUE, n_value);
	memcpy(p, a->value, n_value);
}

static void attributes(struct buf *out, unsigned int field, const struct identity *identity,
		       uint64_t *cut)
{
	size_t told = 0, n_key;

	*cut += identity->cut;
	for (size_t i = 0; i < identity->n; i++) {
		n_key = strlen(identity->attributes[i].key);
		if (told == VIEW_ATTRIBUTES_MAX || n_key > VIEW_KEY_MAX) {
			(*cut)++;
			continue;
		}
		told++;
		attribute(out, field, &identity->attributes[i], n_key);
	}
}

static void text(struct buf *out, unsigned int field, const char *s)
{
	if (*s)
		frame_bytes(out, field, s, strlen(s));
}

static void container_id(struct buf *out, unsigned int field, const uint8_t id[32])
{
	static const uint8_t none[32];

	if (memcmp(id, none, sizeof(none)) != 0)
		frame_bytes(out, field, id, sizeof(none));
}

/*
 * The config hash of a static pod, which names its cgroups. Users who may create pods can write the
 * annotation, but not a status: it counts only when a kubelet has reported the pod's containers.
 */
static const char *config_hash(const struct pod_info *pod)
{
	static const uint8_t none[32];
	bool runs = false;

	for (size_t i = 0; i < pod->n_containers && !runs; i++)
		runs = memcmp(pod->containers[i].id, none, sizeof(none)) != 0;
	for (size_t i = 0; i < pod->n_annotations && runs; i++)
		if (streq(pod->annotations[i].key, "kubernetes.io/config.mirror") &&
		    strlen(pod->annotations[i].value) <= VIEW_KEY_MAX)
			return pod->annotations[i].value;
	return "";
}

void pod_message_head(struct buf *out, const struct pod_info *pod, const struct identity *identity,
		      uint64_t *cut)
{
	text(out, POD_UID, pod->uid_text);
	text(out, POD_CONFIG_HASH, config_hash(pod));
	text(out, POD_NAMESPACE, pod->ns);
	text(out, POD_NAME, pod->name);
	attributes(out, POD_ATTRIBUTES, identity, cut);
}

void pod_message_container(struct buf *out, const char *name, const struct pod_container *c,
			   const struct identity *identity, uint64_t *cut)
{
	text(out, CONTAINER_NAME, name);
	container_id(out, CONTAINER_ID, c->id);
	container_id(out, CONTAINER_PREVIOUS_ID, c->previous_id);
	if (identity)
		attributes(out, CONTAINER_ATTRIBUTES, identity, cut);
}

void pod_message_add(struct buf *out, const struct buf *container)
{
	frame_bytes(out, POD_CONTAINERS, container->data, container->len);
}
