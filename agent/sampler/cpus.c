/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds CPUs that went offline or came online by reading a small file once a window, which needs no
 * privilege and no socket. An event may die although two readings are the same: suspend takes every
 * CPU but one offline and back. Such an event is recognized by its enabled time, which does not
 * grow any more.
 */
#include "agent/sampler/cpus.h"

#include <fcntl.h>

#include "lib/cursor.h"

enum { LIST_MAX = 4096 }; /* the kernel gives at most one page */

/* The next byte, without taking it; 0 at the end. */
static uint8_t peek(const struct cursor *c)
{
	return cursor_left(c) ? c->data[c->pos] : 0;
}

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static int read_number(struct cursor *c, size_t *ret)
{
	size_t v = 0;

	if (!is_digit(peek(c)))
		return -EBADMSG;
	while (is_digit(peek(c)) && v < 1000000)
		v = v * 10 + (size_t)(cursor_u8(c) - '0');
	*ret = v;
	return 0;
}

static int read_range(struct cursor *c, bool *online, size_t n, size_t *beyond)
{
	size_t first, last;
	int r = read_number(c, &first);

	last = first;
	if (!r && peek(c) == '-') {
		cursor_skip(c, 1);
		r = read_number(c, &last);
	}
	for (size_t i = first; !r && i <= last && i < n; i++)
		online[i] = true;
	if (!r && last >= MAX(first, n))
		*beyond += last - MAX(first, n) + 1;
	return r;
}

int cpus_read(const char *path, bool *ret_online, size_t n, size_t *ret_beyond)
{
	_cleanup_free_ bool *online = calloc(MAX(n, 1), sizeof(*online));
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[LIST_MAX];
	size_t beyond = 0;
	struct cursor c;
	ssize_t len;
	int r = 0;

	if (!online)
		return -ENOMEM;
	if (fd < 0)
		return -errno;
	len = read(fd, text, sizeof(text));
	if (len < 0)
		return -errno;
	c = cursor_of(text, (size_t)len);
	while (!r && peek(&c) && peek(&c) != '\n') {
		r = read_range(&c, online, n, &beyond);
		if (!r && peek(&c) == ',')
			cursor_skip(&c, 1);
		else if (!r && peek(&c) && peek(&c) != '\n')
			r = -EBADMSG;
	}
	if (r < 0)
		return r;
	memcpy(ret_online, online, n * sizeof(*online));
	if (ret_beyond)
		*ret_beyond = beyond;
	return 0;
}

size_t cpus_room(size_t present, size_t possible)
{
	return MIN(MAX(2 * present, (size_t)CPUS_ROOM_MIN), possible);
}

size_t cpus_expected(const char *path, size_t possible)
{
	_cleanup_free_ bool *present = calloc(MAX(possible, 1), sizeof(*present));
	size_t n = possible;

	if (!present || cpus_read(path, present, possible, NULL) < 0)
		return possible;
	/* CPU numbers are indices: a gap in the list needs room as well. */
	while (n && !present[n - 1])
		n--;
	return cpus_room(n, possible);
}

bool cpus_event_is_alive(int fd, uint64_t *enabled)
{
	uint64_t values[2], before = *enabled; /* value, time enabled */

	if (read(fd, values, sizeof(values)) != sizeof(values))
		return false;
	*enabled = values[1];
	return values[1] != before;
}
