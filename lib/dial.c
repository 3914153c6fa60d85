/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An address is `fresh` until it is tried, `tried` while the kernel connects, and `spent`
 * afterwards. When another address connects first, those that are still connecting become `fresh`
 * again, for dial_again(). The timer starts the next attempt: 250 ms after the last one, or at once
 * when the last one has failed.
 *
 * A lookup cannot be cancelled once a thread works on it (glibc's resolver takes up to half a
 * minute when no server answers), so the memory stays until it ends. libuv runs such requests on at
 * most half of its threads.
 */
#include "lib/dial.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/watch.h"

enum { HEAD_START_MS = 250 /* RFC 8305 §8 */, USER_TIMEOUT_MS = 20000 };

struct attempt {
	struct dial *dial;
	enum { ATTEMPT_FRESH, ATTEMPT_TRIED, ATTEMPT_SPENT } state;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
	} to;
	socklen_t len;
	int fd;
	struct watch *watch;
};

struct dial {
	uv_loop_t *loop;
	uv_timer_t next;
	uv_getaddrinfo_t lookup;
	unsigned int busy; /* open users of the memory: the timer's handle, the lookup */
	bool freed, looking;
	struct dial_events events;
	char *host;
	char port[8];
	struct attempt *attempts;
	size_t n;
	char words[DIAL_WORDS_MAX];
};

static void done(struct dial *d)
{
	if (--d->busy)
		return;
	free(d->attempts);
	free(d->host);
	free(d);
}

static void on_timer_closed(uv_handle_t *handle)
{
	done(container_of((uv_timer_t *)handle, struct dial, next));
}

/* ---- words -------------------------------------------------------------------------------------
 */

static void describe(const struct attempt *a, char *out, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";

	switch (a->to.sa.sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &a->to.in.sin_addr, host, sizeof(host));
		snprintf(out, size, "%s:%s", host, a->dial->port);
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &a->to.in6.sin6_addr, host, sizeof(host));
		snprintf(out, size, "[%s]:%s", host, a->dial->port);
		break;
	default:
		snprintf(out, size, "%s", a->to.un.sun_path);
	}
}

static void add_words(struct dial *d, const char *where, const char *words)
{
	size_t n = strlen(d->words);

	/* The text is cut when it is too long. */
	(void)!snprintf(d->words + n, sizeof(d->words) - n, "%s%s%s%s", n ? "; " : "", where,
			*where ? ": " : "", words);
}

static void spend(struct attempt *a, int error)
{
	char address[sizeof(a->to.un.sun_path) + 1];

	describe(a, address, sizeof(address));
	add_words(a->dial, address, strerror(error));
	a->state = ATTEMPT_SPENT;
}

/* ---- attempts ----------------------------------------------------------------------------------
 */

static void retract(struct attempt *a)
{
	if (a->state != ATTEMPT_TRIED)
		return;
	a->watch = watch_free(a->watch);
	close(a->fd);
	a->state = ATTEMPT_FRESH;
}

static void win(struct attempt *a)
{
	char address[sizeof(a->to.un.sun_path) + 1];
	struct dial *d = a->dial;

	a->watch = watch_free(a->watch);
	a->state = ATTEMPT_SPENT;
	for (size_t i = 0; i < d->n; i++)
		retract(&d->attempts[i]);
	(void)uv_timer_stop(&d->next);
	describe(a, address, sizeof(address));
	d->events.connected(d->events.arg, a->fd, address);
}

static void on_next(uv_timer_t *timer);

static void go_on(struct dial *d, uint64_t after_ms)
{
	(void)uv_timer_start(&d->next, on_next, after_ms, 0);
}

static void on_ready(void *arg, int events)
{
	struct attempt *a = arg;
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (!error) {
		win(a);
		return;
	}
	a->watch = watch_free(a->watch);
	close(a->fd);
	spend(a, error);
	go_on(a->dial, 0);
}

static void set_options(int fd)
{
	int one = 1, ms = USER_TIMEOUT_MS;

	/* TCP_USER_TIMEOUT: detects that the peer's machine or network has gone while data is
	 * unacknowledged. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

/* 0: the connection attempt is under way. */
static int try(struct attempt *a)
{
	int r;

	a->fd = socket(a->to.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (a->fd < 0)
		return -errno;
	if (a->to.sa.sa_family != AF_UNIX)
		set_options(a->fd);
	r = connect(a->fd, &a->to.sa, a->len) < 0 && errno != EINPROGRESS ? -errno : 0;
	if (r == 0)
		r = watch_new(a->dial->loop, a->fd, on_ready, a, &a->watch);
	if (r == 0)
		r = watch_for(a->watch, UV_WRITABLE);
	if (r < 0) {
		a->watch = watch_free(a->watch);
		close(a->fd);
		return r;
	}
	a->state = ATTEMPT_TRIED;
	return 0;
}

static void on_next(uv_timer_t *timer)
{
	struct dial *d = container_of(timer, struct dial, next);
	bool under_way = d->looking;
	int r;

	for (size_t i = 0; i < d->n; i++) {
		struct attempt *a = &d->attempts[i];

		under_way |= a->state == ATTEMPT_TRIED;
		if (a->state != ATTEMPT_FRESH)
			continue;
		r = try(a);
		if (r == 0) {
			go_on(d, HEAD_START_MS);
			return;
		}
		spend(a, -r);
	}
	if (!under_way)
		d->events.failed(d->events.arg, d->words);
}

/* ---- addresses ---------------------------------------------------------------------------------
 */

/* Allocates N attempts; the caller fills in their addresses. */
static int make_attempts(struct dial *d, size_t n)
{
	d->attempts = calloc(n, sizeof(*d->attempts));
	if (!d->attempts)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		d->attempts[i].dial = d;
	return 0;
}

static const struct addrinfo *next_of(const struct addrinfo *ai, int family)
{
	while (ai && ai->ai_family != family)
		ai = ai->ai_next;
	return ai;
}

static void add_address(struct dial *d, const struct addrinfo *ai)
{
	struct attempt *a = &d->attempts[d->n];

	if (d->n == DIAL_ADDRESSES_MAX || ai->ai_addrlen > sizeof(a->to))
		return;
	memcpy(&a->to, ai->ai_addr, ai->ai_addrlen);
	a->len = ai->ai_addrlen;
	d->n++;
}

/* In the order of RFC 6724, which is getaddrinfo()'s, but families take turns (RFC 8305 §4). */
static int add_addresses(struct dial *d, const struct addrinfo *list)
{
	const int first = list->ai_family, second = first == AF_INET ? AF_INET6 : AF_INET;
	const struct addrinfo *a = next_of(list, first), *b = next_of(list, second);

	if (make_attempts(d, DIAL_ADDRESSES_MAX) < 0)
		return -ENOMEM;
	while (a || b) {
		if (a) {
			add_address(d, a);
			a = next_of(a->ai_next, first);
		}
		if (b) {
			add_address(d, b);
			b = next_of(b->ai_next, second);
		}
	}
	return 0;
}

static void on_lookup(uv_getaddrinfo_t *lookup, int status, struct addrinfo *list)
{
	struct dial *d = container_of(lookup, struct dial, lookup);

	d->looking = false;
	if (!d->freed) {
		if (status == 0 && list && add_addresses(d, list) < 0)
			status = UV_ENOMEM;
		if (status != 0)
			add_words(d, d->host, uv_strerror(status));
		go_on(d, 0);
	}
	uv_freeaddrinfo(list);
	done(d);
}

static int look_up(struct dial *d)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	int r = uv_getaddrinfo(d->loop, &d->lookup, on_lookup, d->host, d->port, &hints);

	if (r < 0)
		return r;
	d->looking = true;
	d->busy++;
	return 0;
}

/* Takes a Unix socket path or a numeric address, which need no lookup. 0 without an attempt (d->n
 * is 0): HOST is a name. */
static int use_literal(struct dial *d, const char *host, uint16_t port, const char *path)
{
	struct attempt *a;

	if (make_attempts(d, 1) < 0)
		return -ENOMEM;
	a = d->attempts;
	if (path) {
		a->to.un.sun_family = AF_UNIX;
		snprintf(a->to.un.sun_path, sizeof(a->to.un.sun_path), "%s", path);
		a->len = sizeof(a->to.un);
	} else if (uv_ip4_addr(host, port, &a->to.in) == 0) {
		a->len = sizeof(a->to.in);
	} else if (uv_ip6_addr(host, port, &a->to.in6) == 0) {
		a->len = sizeof(a->to.in6);
	} else {
		free(TAKE_PTR(d->attempts));
		return 0;
	}
	d->n = 1;
	go_on(d, 0);
	return 0;
}

int dial_new(uv_loop_t *loop, const char *host, uint16_t port, const char *path,
	     const struct dial_events *events, struct dial **ret)
{
	struct dial *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	(void)uv_timer_init(loop, &d->next);
	uv_unref((uv_handle_t *)&d->next);
	d->busy = 1;
	d->loop = loop;
	d->events = *events;
	d->host = host ? strdup(host) : NULL;
	snprintf(d->port, sizeof(d->port), "%u", port);
	r = host && !d->host ? -ENOMEM : use_literal(d, host, port, path);
	if (r == 0 && !d->n)
		r = look_up(d);
	if (r < 0) {
		dial_free(d);
		return r;
	}
	*ret = d;
	return 0;
}

void dial_again(struct dial *d, const char *words)
{
	add_words(d, "", words);
	go_on(d, 0);
}

struct dial *dial_free(struct dial *d)
{
	if (!d)
		return NULL;
	d->freed = true;
	for (size_t i = 0; i < d->n; i++)
		retract(&d->attempts[i]);
	if (d->looking)
		(void)uv_cancel((uv_req_t *)&d->lookup);
	uv_close((uv_handle_t *)&d->next, on_timer_closed);
	return NULL;
}
