/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. Failures of the harness itself abort: they are no finding about the server. */
#include "tests/unit/lib/httpd/harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>

struct loop_thread {
	uv_loop_t loop;
	uv_thread_t thread;
	uv_async_t wake, quit;
	uv_mutex_t lock;
	uv_cond_t done;
	void (*call)(void *arg); /* under lock, NULL when done */
	void *call_arg;
	void (*stop)(void *user);
	void *user;
};

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "harness: %s failed (errno %d)\n", what, errno);
	abort();
}

static void on_wake(uv_async_t *async)
{
	struct loop_thread *t = async->data;
	void (*call)(void *arg);
	void *arg;

	uv_mutex_lock(&t->lock);
	call = t->call;
	arg = t->call_arg;
	uv_mutex_unlock(&t->lock);
	if (!call)
		return;
	call(arg);
	uv_mutex_lock(&t->lock);
	t->call = NULL;
	uv_cond_signal(&t->done);
	uv_mutex_unlock(&t->lock);
}

static void on_quit(uv_async_t *async)
{
	struct loop_thread *t = async->data;

	t->stop(t->user);
	uv_close((uv_handle_t *)&t->wake, NULL);
	uv_close((uv_handle_t *)&t->quit, NULL);
}

static void run(void *arg)
{
	struct loop_thread *t = arg;

	uv_run(&t->loop, UV_RUN_DEFAULT);
}

struct loop_thread *loop_thread_new(void (*init)(uv_loop_t *loop, void *user),
				    void (*stop)(void *user), void *user)
{
	struct loop_thread *t = calloc(1, sizeof(*t));

	check(t, "calloc");
	t->stop = stop;
	t->user = user;
	check(uv_loop_init(&t->loop) == 0, "uv_loop_init");
	check(uv_async_init(&t->loop, &t->wake, on_wake) == 0, "uv_async_init");
	check(uv_async_init(&t->loop, &t->quit, on_quit) == 0, "uv_async_init");
	t->wake.data = t->quit.data = t;
	check(uv_mutex_init(&t->lock) == 0, "uv_mutex_init");
	check(uv_cond_init(&t->done) == 0, "uv_cond_init");
	init(&t->loop, user);
	check(uv_thread_create(&t->thread, run, t) == 0, "uv_thread_create");
	return t;
}

void loop_thread_call(struct loop_thread *t, void (*fn)(void *arg), void *arg)
{
	uv_mutex_lock(&t->lock);
	t->call = fn;
	t->call_arg = arg;
	uv_async_send(&t->wake);
	while (t->call)
		uv_cond_wait(&t->done, &t->lock);
	uv_mutex_unlock(&t->lock);
}

void loop_thread_free(struct loop_thread *t)
{
	uv_async_send(&t->quit);
	uv_thread_join(&t->thread);
	check(uv_loop_close(&t->loop) == 0, "uv_loop_close: handles are left");
	uv_mutex_destroy(&t->lock);
	uv_cond_destroy(&t->done);
	free(t);
}

int client_connect(uint16_t port)
{
	struct sockaddr_in sin = {
	    .sin_family = AF_INET,
	    .sin_port = htons(port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	check(fd >= 0, "socket");
	check(connect(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0, "connect");
	return fd;
}

void client_send(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0)
			return; /* the server closed: what it answered tells */
		p += n;
		len -= (size_t)n;
	}
}

bool client_read(int fd, struct buf *out)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		char chunk[65536];
		ssize_t n;

		if (poll(&p, 1, 60000) <= 0)
			return false;
		n = recv(fd, chunk, sizeof(chunk), 0);
		if (n <= 0)
			return n == 0;
		check(buf_append(out, chunk, (size_t)n) == 0, "buf_append");
	}
}

void reply_parse(struct reply *reply)
{
	const char *end;

	if (!reply->raw.data || sscanf(reply->raw.data, "HTTP/1.%*1d %d", &reply->status) != 1)
		return;
	end = strstr(reply->raw.data, "\r\n\r\n");
	if (!end) {
		reply->status = 0;
		return;
	}
	reply->body = end + 4;
	reply->body_len = reply->raw.len - (size_t)(reply->body - reply->raw.data);
}

void client_ask(uint16_t port, const char *request, struct reply *reply)
{
	_cleanup_close_ int fd = client_connect(port);

	*reply = (struct reply){0};
	buf_init(&reply->raw, 512UL << 20);
	client_send(fd, request, strlen(request));
	if (client_read(fd, &reply->raw))
		reply_parse(reply);
}

void client_get(uint16_t port, const char *target, struct reply *reply)
{
	struct buf b;

	buf_init(&b, 1 << 20);
	buf_printf(&b, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target);
	client_ask(port, b.data, reply);
	buf_done(&b);
}

void reply_done(struct reply *reply)
{
	buf_done(&reply->raw);
	*reply = (struct reply){0};
}

const char *reply_header(const struct reply *reply, const char *name, char *out, size_t size)
{
	const char *line = reply->raw.data;
	size_t n = strlen(name);

	out[0] = 0;
	while (reply->body && (line = strstr(line, "\r\n")) && line + 2 < reply->body) {
		line += 2;
		if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
			line += n + 1 + strspn(line + n + 1, " ");
			snprintf(out, size, "%.*s", (int)strcspn(line, "\r"), line);
			return out;
		}
	}
	return out;
}
