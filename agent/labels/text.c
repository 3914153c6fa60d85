/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. Stateless. */
#include "agent/labels/text.h"

/* Bytes of the character that begins with LEAD; 0: none does. *RET_LOW, *RET_HIGH: the range of its
 * second byte. */
static size_t length_of(uint8_t lead, uint8_t *ret_low, uint8_t *ret_high)
{
	*ret_low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	*ret_high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
	if (lead < 0x80)
		return lead ? 1 : 0;
	if (lead >= 0xc2 && lead <= 0xdf)
		return 2;
	if (lead >= 0xe0 && lead <= 0xef)
		return 3;
	return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

/* How many leading bytes of the character of N bytes at P are there and valid; N: all of them. */
static size_t count_right(const uint8_t *p, size_t n, size_t left, uint8_t low, uint8_t high)
{
	size_t i;

	for (i = 1; i < n && i < left; i++) {
		if (p[i] < (i == 1 ? low : 0x80) || p[i] > (i == 1 ? high : 0xbf))
			break;
	}
	return i;
}

void label_text_copy(char *dst, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;
	uint8_t low, high;

	for (size_t i = 0; i < len;) {
		size_t n = length_of(p[i], &low, &high);
		size_t right = n ? count_right(p + i, n, len - i, low, high) : 0;

		if (n && right == n) {
			memcpy(dst, p + i, n);
			dst += n;
			i += n;
		} else if (n && i + right == len) {
			break;
		} else {
			*dst++ = '?';
			i++;
		}
	}
	*dst = '\0';
}
