/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a peer sends to the gRPC server, after HTTP/2's preface: the first byte says in pieces of
 * which length, the second what the application does with its streams. Each stream that was opened
 * is closed, no message is larger than allowed, and none comes that was not asked for.
 */
#include "lib/grpc_server.h"

#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGE_MAX = 1000, DOES_READ = 1, DOES_SEND = 2, DOES_FINISH = 4 };

struct app {
	struct server_stream *last;
	int does;
	unsigned int opened, closed, asked, got;
};

static void *on_opened(void *arg, struct server_stream *stream,
		       const struct stream_request *request)
{
	struct app *a = arg;

	a->opened++;
	a->last = stream;
	if (request->method > 0 || !request->authorization)
		abort();
	if (a->does & DOES_READ) {
		server_stream_read(stream);
		a->asked++;
	}
	return a;
}

static void on_received(void *arg, const uint8_t *data, size_t len)
{
	struct app *a = arg;
	uint8_t sum = 0;

	if (++a->got > a->asked || len > MESSAGE_MAX)
		abort();
	for (size_t i = 0; i < len; i++)
		sum ^= data[i];
	if (!a->last)
		return;
	if (a->does & DOES_SEND)
		(void)!server_stream_send(a->last, &sum, 1);
	if (a->does & DOES_FINISH && sum == 'f')
		server_stream_finish(a->last, RPC_ABORTED, "f\xff%");
	server_stream_read(a->last);
	a->asked += 2; /* of another stream, too */
}

static void on_sent(void *arg)
{
}

static void on_closed(void *arg)
{
	struct app *a = arg;

	a->closed++;
	a->last = NULL;
}

static void run(uv_loop_t *loop, int fd)
{
	uint8_t answer[4096];

	for (unsigned int i = 0; i < 4; i++) {
		uv_run(loop, UV_RUN_NOWAIT);
		while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT) > 0)
			;
	}
}

static void talk(uv_loop_t *loop, int fd, const uint8_t *data, size_t size, size_t step)
{
	(void)!send(fd, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, MSG_NOSIGNAL);
	run(loop, fd);
	for (size_t at = 0; at < size; at += step) {
		if (send(fd, data + at, MIN(step, size - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		run(loop, fd);
	}
	shutdown(fd, SHUT_WR);
	run(loop, fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const methods[] = {"/m", NULL};
	const struct stream_server_options o = {.methods = methods,
						.max_streams = 3,
						.max_message = MESSAGE_MAX,
						.idle_ms = 60000,
						.keepalive_ms = 60000,
						.ping_min_ms = 1000};
	struct app app = {0};
	const struct stream_server_events events = {on_opened, on_received, on_sent, on_closed,
						    &app};
	struct stream_server *server;
	struct error err = {0};
	uv_loop_t loop;
	int pair[2];

	if (size < 2)
		return 0;
	app.does = data[1];
	if (uv_loop_init(&loop) < 0 || stream_server_new(&o, &events, &loop, &server, &err) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
		abort();
	stream_server_add(server, pair[0]);
	talk(&loop, pair[1], data + 2, size - 2, 1 + data[0] * 16U);
	if (app.opened != app.closed)
		abort();
	stream_server_free(server);
	uv_run(&loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&loop) < 0)
		abort();
	close(pair[1]);
	return 0;
}
