// SPDX-License-Identifier: Apache-2.0
/*
 * Reads zend_strings. A zend_string has its length and, once something was looked up by it, the
 * hash of its text. A freed string may keep its hash for long, but not its text: so the text must
 * have that hash. Lengths are capped.
 *
 * Source: PHP 7.4 and 8.2, Zend/zend_types.h (struct _zend_string), the same in the headers of 8.6.
 */
#include "agent/runtime/php/strings.h"

int php_read_word(const struct target_memory *memory, uint64_t address, uint64_t *ret)
{
	return target_read(memory, address, ret, sizeof(*ret));
}

const char *php_begin(struct php_room *room)
{
	if (room->size)
		*room->at = '\0';
	return room->size ? room->at : "";
}

void php_append(struct php_room *room, const char *text)
{
	size_t n = strnlen(text, room->size ? room->size - 1 : 0);

	if (!room->size)
		return;
	memcpy(room->at, text, n);
	room->at[n] = '\0';
	room->at += n;
	room->size -= n;
}

void php_end(struct php_room *room)
{
	if (room->size) {
		room->at++;
		room->size--;
	}
}

/* Reads up to PHP_STRING_MAX bytes of the string at ADDRESS. *RET_LEN: the bytes read, among which
 * may be NULs. */
static int read_string(const struct target_memory *memory, uint64_t address,
		       char ret[PHP_STRING_MAX + 1], uint64_t *ret_len)
{
	uint64_t head[2]; /* hash, length */
	int r = target_read(memory, address + PHP_STRING_HASH, head, sizeof(head));

	if (r < 0)
		return r;
	if (head[1] > PHP_STRING_SANE)
		return -EFAULT;
	*ret_len = MIN(head[1], (uint64_t)PHP_STRING_MAX);
	ret[*ret_len] = '\0';
	r = *ret_len ? target_read(memory, address + PHP_STRING_TEXT, ret, *ret_len) : 0;
	if (r < 0)
		return r;
	if (head[0] && *ret_len == head[1] && php_hash(ret, *ret_len) != head[0])
		return -EFAULT;
	return 0;
}

int php_append_string(const struct target_memory *memory, uint64_t address, struct php_room *room)
{
	char text[PHP_STRING_MAX + 1];
	uint64_t len;
	int r = read_string(memory, address, text, &len);

	if (r == 0)
		php_append(room, text);
	return r;
}

int php_read_key(const struct target_memory *memory, uint64_t address, uint64_t *ret)
{
	char text[PHP_STRING_MAX + 1];
	uint64_t len;
	int r = read_string(memory, address, text, &len);

	if (r < 0)
		return r;
	for (uint64_t i = 0; i < len; i++)
		if (text[i] >= 'A' && text[i] <= 'Z')
			text[i] += 'a' - 'A';
	*ret = php_hash(text, len);
	return 0;
}
