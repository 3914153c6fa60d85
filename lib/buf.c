/* SPDX-License-Identifier: Apache-2.0 */
/* Capped byte buffer; see the header for the sticky error. */
#include "lib/buf.h"

#include <stdarg.h>

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){.max = max};
}

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){.max = b->max};
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->error = 0;
	if (b->data)
		b->data[0] = 0;
}

void *buf_extend(struct buf *b, size_t len)
{
	size_t want, cap;
	char *p;

	if (b->error)
		return NULL;
	if (len > b->max || b->len > b->max - len) {
		b->error = -E2BIG;
		return NULL;
	}
	want = b->len + len + 1;
	if (want > b->cap) {
		cap = b->cap ? b->cap : 256;
		while (cap < want)
			cap *= 2;
		p = realloc(b->data, cap);
		if (!p) {
			b->error = -ENOMEM;
			return NULL;
		}
		b->data = p;
		b->cap = cap;
	}
	p = b->data + b->len;
	b->len += len;
	b->data[b->len] = 0;
	return p;
}

int buf_append(struct buf *b, const void *data, size_t len)
{
	void *p = buf_extend(b, len);

	if (!p)
		return b->error;
	if (len)
		memcpy(p, data, len);
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_append(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *format, ...)
{
	char small[512];
	va_list ap;
	int n;
	char *p;

	va_start(ap, format);
	n = vsnprintf(small, sizeof(small), format, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n < sizeof(small))
		return buf_append(b, small, (size_t)n);
	p = buf_extend(b, (size_t)n);
	if (!p)
		return b->error;
	va_start(ap, format);
	vsnprintf(p, (size_t)n + 1, format, ap);
	va_end(ap);
	return 0;
}

char *buf_take(struct buf *b)
{
	char *p = b->error ? NULL : TAKE_PTR(b->data);

	buf_done(b);
	return p;
}
