/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects and strings. A string of V8 is sequential (its characters are in the object), cons (two
 * strings put together), sliced (a part of another string), thin (it has become another string) or
 * external (its characters are outside of the heap) (V8 src/objects/string.tq). Loop thread; keeps
 * nothing.
 */
#include "agent/runtime/v8/object.h"

int v8_read(const struct v8_heap *h, uint64_t object, int64_t offset, void *dst, size_t len)
{
	if (!v8_is_pointer(object))
		return -EFAULT;
	return target_read(h->memory, (object & ~3ULL) + (uint64_t)offset, dst, len) < 0 ? -EFAULT
											 : 0;
}

/* Are maps of this type in read-only space? */
static bool is_own_type(const struct v8_layout *l, int32_t type)
{
	return type < l->first_non_string || type == l->type_bytecode_array ||
	       type == l->type_code || type == l->type_instruction_stream ||
	       type == l->type_scope_info || type == l->type_script || type == l->type_shared ||
	       type == l->type_shared_wrapper;
}

int v8_type(const struct v8_heap *h, uint64_t object)
{
	uint64_t map;
	uint16_t type;
	size_t i;

	if (v8_word(h, object, 0, &map) < 0)
		return -EFAULT;
	i = map >> 3 & (ARRAY_SIZE(h->types->known) - 1);
	if (h->types && map && h->types->known[i].map == map)
		return h->types->known[i].type;
	if (v8_read(h, map, h->layout->map_type, &type, sizeof(type)) < 0)
		return -EFAULT;
	if (h->types && is_own_type(h->layout, type)) {
		h->types->known[i].map = map;
		h->types->known[i].type = type;
	}
	return type;
}

int v8_field(const struct v8_heap *h, uint64_t object, int64_t offset, int32_t type, uint64_t *ret)
{
	uint64_t v;

	if (v8_word(h, object, offset, &v) < 0 || v8_type(h, v) != type)
		return -EFAULT;
	*ret = (v & ~3ULL) | 1;
	return 0;
}

int v8_bytes(const struct v8_heap *h, uint64_t object, size_t max, uint8_t **ret, size_t *ret_n)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	uint64_t length;

	if (v8_word(h, object, h->layout->array_length, &length) < 0 || !v8_is_smi(length) ||
	    v8_smi(length) < 0 || (size_t)v8_smi(length) > max)
		return -EFAULT;
	length >>= 32;
	bytes = malloc(length + 1);
	if (!bytes)
		return -ENOMEM;
	if (length && v8_read(h, object, h->layout->array_data, bytes, length) < 0)
		return -EFAULT;
	*ret = TAKE_PTR(bytes);
	*ret_n = length;
	return 0;
}

/* ---- text ------------------------------------------------------------------------------------
 */

int v8_text_put(struct v8_text *text, const char *s, size_t n, const char **ret)
{
	char *at = text->at;

	if (n + 1 > text->left)
		return -ENOSPC;
	memcpy(at, s, n);
	at[n] = 0;
	text->at += n + 1;
	text->left -= n + 1;
	*ret = at;
	return 0;
}

/* Puts the character C at AT as UTF-8, 4 bytes at most. Returns how many. */
static size_t put_utf8(char *at, uint32_t c)
{
	if (c < 0x80) {
		at[0] = (char)(c < ' ' || c == 0x7f ? ' ' : c);
		return 1;
	}
	if (c < 0x800) {
		at[0] = (char)(0xc0 | c >> 6);
		at[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		at[0] = (char)(0xe0 | c >> 12);
		at[1] = (char)(0x80 | (c >> 6 & 0x3f));
		at[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	at[0] = (char)(0xf0 | c >> 18);
	at[1] = (char)(0x80 | (c >> 12 & 0x3f));
	at[2] = (char)(0x80 | (c >> 6 & 0x3f));
	at[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* ---- strings ---------------------------------------------------------------------------------
 */

bool v8_is_string(const struct v8_heap *h, uint64_t object)
{
	int type = v8_is_pointer(object) ? v8_type(h, object) : -1;

	return type >= 0 && type < h->layout->first_non_string;
}

static int string_type(const struct v8_heap *h, uint64_t s, int *ret_shape, uint32_t *ret_length)
{
	int type = v8_type(h, s);

	if (type < 0 || type >= h->layout->first_non_string ||
	    v8_read(h, s, h->layout->string_length, ret_length, sizeof(*ret_length)) < 0)
		return -EFAULT;
	*ret_shape = type & h->layout->representation_mask;
	return type;
}

/*
 * Follows a thin string to the string that it has become, and a cons string whose second part is
 * empty to the first part. *S becomes the string found. Returns its instance type; negative: an
 * error.
 */
static int settle(const struct v8_heap *h, uint64_t *s, int *ret_shape, uint32_t *ret_length)
{
	const struct v8_layout *l = h->layout;

	for (int i = 0; i < V8_STRING_PARTS_MAX; i++) {
		int type = string_type(h, *s, ret_shape, ret_length);
		uint32_t rest;
		uint64_t second;
		int shape;

		if (type < 0)
			return type;
		if (*ret_shape == l->thin) {
			if (v8_word(h, *s, l->thin_actual, s) < 0)
				return -EFAULT;
			continue;
		}
		if (*ret_shape == l->cons && v8_word(h, *s, l->cons_second, &second) == 0 &&
		    string_type(h, second, &shape, &rest) >= 0 && rest == 0) {
			if (v8_word(h, *s, l->cons_first, s) < 0)
				return -EFAULT;
			continue;
		}
		return type;
	}
	return -ELOOP;
}

int v8_flat(const struct v8_heap *h, uint64_t object, struct v8_flat *ret)
{
	const struct v8_layout *l = h->layout;
	uint32_t length, skip = 0, all;
	int shape, type = settle(h, &object, &shape, &length);
	uint64_t offset;

	if (type < 0)
		return type;
	all = length;
	if (shape == l->sliced) {
		if (v8_word(h, object, l->sliced_offset, &offset) < 0 || !v8_is_smi(offset) ||
		    v8_word(h, object, l->sliced_parent, &object) < 0)
			return -EFAULT;
		type = settle(h, &object, &shape, &all);
		skip = (uint32_t)v8_smi(offset);
		if (type < 0 || skip > all || length > all - skip)
			return -EFAULT;
	}
	ret->length = length;
	ret->width = (type & l->encoding_mask) == l->one_byte ? 1 : 2;
	if (shape == l->sequential)
		ret->at = (object & ~3ULL) +
			  (uint64_t)(ret->width == 1 ? l->one_byte_chars : l->two_byte_chars);
	else if (shape != l->external || v8_word(h, object, l->external_data, &ret->at) < 0)
		return -EFAULT;
	ret->at += (uint64_t)skip * ret->width;
	return 0;
}

/* Appends the flat string's characters. -ENOSPC when the text is full, which is no failure. */
static int put_flat(const struct v8_heap *h, const struct v8_flat *flat, char *out, size_t *n)
{
	uint8_t chunk[256];

	for (uint32_t done = 0; done < flat->length;) {
		uint32_t part = MIN(flat->length - done, (uint32_t)sizeof(chunk) / flat->width);

		if (target_read(h->memory, flat->at + (uint64_t)done * flat->width, chunk,
				(size_t)part * flat->width) < 0)
			return -EFAULT;
		for (uint32_t i = 0; i < part; i++) {
			uint32_t c = flat->width == 1
					 ? chunk[i]
					 : chunk[2 * i] | (uint32_t)chunk[2 * i + 1] << 8;

			if (*n + 4 > V8_STRING_MAX)
				return -ENOSPC;
			/* A pair of surrogates is one character, if it does not cross the end of
			 * the chunk. A lone one is none. */
			if (c >= 0xd800 && c < 0xdc00 && i + 1 < part) {
				uint32_t low = chunk[2 * i + 2] | (uint32_t)chunk[2 * i + 3] << 8;

				if (low >= 0xdc00 && low < 0xe000) {
					c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
					i++;
				}
			}
			if (c >= 0xd800 && c < 0xe000)
				c = 0xfffd;
			*n += put_utf8(out + *n, c);
		}
		done += part;
	}
	return 0;
}

int v8_string(const struct v8_heap *h, uint64_t object, struct v8_text *text, const char **ret)
{
	const struct v8_layout *l = h->layout;
	uint64_t todo[V8_STRING_PARTS_MAX];
	char out[V8_STRING_MAX];
	size_t n = 0, depth = 1;
	int r = 0;

	todo[0] = object;
	for (int part = 0; depth && part < V8_STRING_PARTS_MAX && r == 0; part++) {
		struct v8_flat flat;
		uint64_t s = todo[--depth];
		uint32_t length;
		int shape, type = settle(h, &s, &shape, &length);

		if (type < 0)
			return -EFAULT;
		if (shape == l->cons) {
			if (depth + 2 > ARRAY_SIZE(todo) ||
			    v8_word(h, s, l->cons_second, &todo[depth]) < 0 ||
			    v8_word(h, s, l->cons_first, &todo[depth + 1]) < 0)
				return -EFAULT;
			depth += 2;
			continue;
		}
		r = v8_flat(h, s, &flat);
		if (r == 0)
			r = put_flat(h, &flat, out, &n);
	}
	if (r < 0 && r != -ENOSPC)
		return r;
	return v8_text_put(text, out, n, ret);
}
