// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of values of API objects, and their packed forms.
 *
 * A set of pairs is, for each pair, the lengths of key and value in two bytes each, then both with
 * a NUL, so that readers get C strings without copying. An owner is its uid (16 bytes), then 'c'
 * when kept_uid_text() gives the uid's text or 't' when it does not, then kind and name, each with
 * a NUL, and after 't' the uid's text. Nothing here keeps state; loop thread only, because struct
 * intern is.
 */
#include "operator/cache/kept.h"

#include "operator/cache/pod_store.h"
#include "operator/kube/json_scan.h"

#define MODE_ANNOTATION "profiling.kiln.dev/mode" /* POLICY_MODE_ANNOTATION */

static const char *const always[] = {
    MODE_ANNOTATION,
    "resource.opentelemetry.io/",
    "kubernetes.io/config.mirror",
};

bool kept_is_name(struct slice s)
{
	if (!s.p || !s.n || s.n > KEPT_NAME_MAX)
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] <= ' ' || s.p[i] >= 0x7f || s.p[i] == '/')
			return false;
	return true;
}

/* The length of the UTF-8 sequence at P; 0: not valid (RFC 3629: surrogates, overlong forms). */
static size_t utf8_sequence(const uint8_t *p, size_t left)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = *p < 0x80   ? 1
		   : *p < 0xc2 ? 0
		   : *p < 0xe0 ? 2
		   : *p < 0xf0 ? 3
		   : *p < 0xf5 ? 4
			       : 0;
	uint32_t c;

	if (n <= 1)
		return n;
	if (n > left)
		return 0;
	c = *p & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

/* True when the eight bytes at P are ASCII and none of them is 0. */
static bool plain_word(const uint8_t *p)
{
	const uint64_t ones = 0x0101010101010101, highs = ones << 7;
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return !((w | (w - ones)) & highs);
}

bool kept_is_text(struct slice s, size_t max)
{
	const uint8_t *p = (const uint8_t *)s.p;
	size_t n;

	if (s.n > max)
		return false;
	for (size_t i = 0; i < s.n; i += n) {
		if (s.n - i >= 8 && plain_word(p + i))
			n = 8;
		else
			n = p[i] ? utf8_sequence(p + i, s.n - i) : 0;
		if (!n)
			return false;
	}
	return true;
}

int kept_annotations_init(struct kept_annotations *a, const char *const *keys)
{
	*a = (struct kept_annotations){0};
	for (; keys && *keys; keys++) {
		if (a->n == KEPT_ANNOTATIONS_MAX) {
			kept_annotations_done(a);
			return -E2BIG;
		}
		a->keys[a->n] = strdup(*keys);
		if (!a->keys[a->n]) {
			kept_annotations_done(a);
			return -ENOMEM;
		}
		a->n++;
	}
	return 0;
}

int kept_annotations_set(struct kept_annotations *a, const char *const *keys)
{
	struct kept_annotations now;
	bool same;
	int r = kept_annotations_init(&now, keys);

	if (r)
		return r;
	same = now.n == a->n;
	for (size_t i = 0; same && i < now.n; i++)
		same = streq(now.keys[i], a->keys[i]);
	kept_annotations_done(a);
	*a = now;
	return !same;
}

void kept_annotations_done(struct kept_annotations *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->keys[i]);
	a->n = 0;
}

static bool key_matches(const char *pattern, struct slice key)
{
	size_t n = strlen(pattern);

	if (!n || key.n < n || !same_bytes(key.p, pattern, n))
		return false;
	return key.n == n || pattern[n - 1] == '/';
}

bool kept_annotation(const struct kept_annotations *a, struct slice key)
{
	for (size_t i = 0; i < ARRAY_SIZE(always); i++)
		if (key_matches(always[i], key))
			return true;
	for (size_t i = 0; i < a->n; i++)
		if (key_matches(a->keys[i], key))
			return true;
	return false;
}

static int compare_slices(struct slice a, struct slice b)
{
	size_t n = MIN(a.n, b.n);
	int c = n ? memcmp(a.p, b.p, n) : 0;

	return c ? c : (a.n > b.n) - (a.n < b.n);
}

/* Sorts the pairs by key, and keeps only the last of equal keys. Returns how many are left. Servers
 * send them sorted, so this is one pass. */
static size_t sort_pairs(const struct slice_pair **order, size_t n)
{
	size_t out = 0;

	for (size_t i = 1; i < n; i++) {
		const struct slice_pair *p = order[i];
		size_t j = i;

		for (; j && compare_slices(order[j - 1]->key, p->key) > 0; j--)
			order[j] = order[j - 1];
		order[j] = p;
	}
	for (size_t i = 0; i < n; i++)
		if (i + 1 == n || compare_slices(order[i]->key, order[i + 1]->key))
			order[out++] = order[i];
	return out;
}

/* The number of bytes that a pair takes in the packed set. */
static size_t packed_size(const struct slice_pair *p)
{
	return 2 * sizeof(uint16_t) + p->key.n + 1 + p->value.n + 1;
}

static char *pack_slice(char *out, struct slice s)
{
	if (s.n)
		memcpy(out, s.p, s.n);
	out[s.n] = 0;
	return out + s.n + 1;
}

int kept_pairs(struct intern *in, struct buf *scratch, const struct slice_pair *pairs, size_t n,
	       const struct kept_annotations *only, size_t max, uint64_t *cut, interned *ret)
{
	const struct slice_pair *order[VIEW_PAIRS_MAX];
	size_t n_order = 0, used = 0, size = 0;
	char *out;

	for (size_t i = 0; i < MIN(n, (size_t)VIEW_PAIRS_MAX); i++) {
		if (only && !kept_annotation(only, pairs[i].key))
			continue;
		if (!pairs[i].key.n || !kept_is_text(pairs[i].key, KEPT_KEY_MAX) ||
		    !kept_is_text(pairs[i].value, KEPT_VALUE_MAX))
			++*cut;
		else
			order[n_order++] = &pairs[i];
	}
	n_order = sort_pairs(order, n_order);
	/* The mode annotation is never cut: it may be an opt-out. */
	for (size_t i = max; i < n_order; i++)
		if (SLICE_IS(order[i]->key, MODE_ANNOTATION))
			order[max - 1] = order[i];
	while (used < MIN(n_order, max) && size + packed_size(order[used]) <= KEPT_PAIRS_BYTES_MAX)
		size += packed_size(order[used++]);
	*cut += n_order - used;
	if (!used) {
		*ret = 0;
		return 0;
	}
	buf_reset(scratch);
	out = buf_extend(scratch, size);
	if (!out)
		return buf_error(scratch);
	for (size_t i = 0; i < used; i++) {
		const uint16_t lengths[] = {(uint16_t)order[i]->key.n, (uint16_t)order[i]->value.n};

		memcpy(out, lengths, sizeof(lengths));
		out = pack_slice(out + sizeof(lengths), order[i]->key);
		out = pack_slice(out, order[i]->value);
	}
	return intern_get(in, scratch->data, scratch->len, ret);
}

size_t kept_pairs_unpack(const struct intern *in, interned set, struct pod_label *ret, size_t max)
{
	size_t len, n = 0;
	const char *p = intern_text(in, set, &len), *end = p + len;
	uint16_t lengths[2];

	for (; p < end && n < max; n++) {
		memcpy(lengths, p, sizeof(lengths));
		p += sizeof(lengths);
		ret[n].key = p;
		p += lengths[0] + 1;
		ret[n].value = p;
		p += lengths[1] + 1;
	}
	return n;
}

int kept_owner(struct intern *in, struct buf *scratch, const struct owner_view *owners, size_t n,
	       interned *ret)
{
	const struct owner_view *owner = NULL;
	uint8_t uid[16];
	bool canonical;

	for (size_t i = 0; i < n && !owner; i++)
		if (owners[i].controller)
			owner = &owners[i];
	if (!owner || !kept_is_name(owner->kind) || !kept_is_name(owner->name)) {
		*ret = 0;
		return 0;
	}
	canonical = kept_uid(owner->uid, uid);
	buf_reset(scratch);
	(void)buf_append(scratch, uid, sizeof(uid));
	(void)buf_append(scratch, canonical ? "c" : "t", 1);
	(void)buf_append(scratch, owner->kind.p, owner->kind.n);
	(void)buf_append(scratch, "", 1);
	(void)buf_append(scratch, owner->name.p, owner->name.n);
	(void)buf_append(scratch, "", 1);
	if (!canonical && kept_is_name(owner->uid))
		(void)buf_append(scratch, owner->uid.p, owner->uid.n);
	if (buf_error(scratch))
		return buf_error(scratch);
	return intern_get(in, scratch->data, scratch->len, ret);
}

void kept_owner_unpack(const struct intern *in, interned owner, struct kept_owner_fields *ret)
{
	const char *p = intern_text(in, owner, NULL);

	*ret = (struct kept_owner_fields){.kind = "", .name = ""};
	if (!owner)
		return;
	memcpy(ret->uid, p, sizeof(ret->uid));
	ret->kind = p + sizeof(ret->uid) + 1;
	ret->name = ret->kind + strlen(ret->kind) + 1;
	if (p[sizeof(ret->uid)] == 'c')
		kept_uid_text(ret->uid, ret->uid_text);
	else
		(void)snprintf(ret->uid_text, sizeof(ret->uid_text), "%s",
			       ret->name + strlen(ret->name) + 1);
}

/* Parses eight hexadecimal digits at once: each pod of a list has about three ids of 64 digits. */
static bool hex_word(const char *text, uint8_t ret[4])
{
	const uint64_t ones = 0x0101010101010101;
	uint64_t w, letters, v, back;
	uint32_t out;

	memcpy(&w, text, sizeof(w));
	w = le64toh(w);
	letters = w >> 6 & ones;
	v = (w & 15 * ones) + 9 * letters;
	/*
	 * BACK: the digits of V in ASCII. W is valid when it is equal, apart from the letters'
	 * case.
	 */
	back = v + '0' * ones + ('a' - '0' - 10) * (((v + 6 * ones) >> 4) & ones);
	if ((v & 0xf0 * ones) || back != (w | 0x20 * ones) || ((w >> 5 | letters) & ones) != ones)
		return false;
	v = (v << 4 | v >> 8) & 0x00ff00ff00ff00ff;
	v = (v | v >> 8) & 0x0000ffff0000ffff;
	out = htole32((uint32_t)(v | v >> 16));
	memcpy(ret, &out, sizeof(out));
	return true;
}

bool kept_hex(const char *text, size_t n, uint8_t *ret)
{
	for (size_t i = 0; i < n; i += 4)
		if (!hex_word(text + 2 * i, ret + i))
			return false;
	return true;
}

/* Parses a UUID. *RET_CANONICAL: all separators are '-', and all letters are lower case. */
static bool parse_uuid(const char *p, uint8_t ret[16], bool *ret_canonical)
{
	static const uint8_t groups[] = {8, 4, 4, 4, 12};
	unsigned int dashes = 0, capitals = 0;
	char hex[32];
	size_t out = 0;

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		if (i) {
			if (*p != '-' && *p != '_')
				return false;
			dashes += *p++ == '-';
		}
		memcpy(hex + out, p, groups[i]);
		out += groups[i];
		p += groups[i];
	}
	for (size_t i = 0; i < sizeof(hex); i++)
		capitals |= (hex[i] & 0x60) == 0x40;
	*ret_canonical = dashes == 4 && !capitals;
	return kept_hex(hex, 16, ret);
}

bool kept_uid(struct slice text, uint8_t ret[16])
{
	uint8_t uid[16];
	bool canonical;
	uint64_t h[2];

	if (text.n == 36 && parse_uuid(text.p, uid, &canonical)) {
		memcpy(ret, uid, sizeof(uid));
		return canonical;
	}
	if (text.n == 32 && kept_hex(text.p, 16, uid)) {
		memcpy(ret, uid, sizeof(uid));
		return false;
	}
	h[0] = hash_bytes(text.p ? text.p : "", text.n, 0x6b696c6e);
	h[1] = hash_bytes(text.p ? text.p : "", text.n, h[0] ^ 0x756964);
	memcpy(ret, h, sizeof(h));
	return false;
}

void kept_uid_text(const uint8_t uid[16], char ret[37])
{
	static const char digits[] = "0123456789abcdef";
	char *p = ret;

	for (size_t i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = digits[uid[i] >> 4];
		*p++ = digits[uid[i] & 15];
	}
	*p = 0;
}
