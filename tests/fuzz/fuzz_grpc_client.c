/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 bytes from a server to the gRPC client: the first byte is the length of the pieces in
 * which they are sent, the second tells what the application does. Whatever the server sends, each
 * call is answered once, and no answer is larger than allowed.
 */
#include "lib/grpc_client.h"

#include <sys/socket.h>
#include <sys/un.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	CALLS = 3,
	TURNS = 1000,
	BODY_MAX = 4 << 20,
	DOES_CANCEL = 1, /* cancels the second call */
	DOES_FREE = 2,	 /* frees the client in its first answer */
	DOES_HANG_UP = 4 /* the server closes the connection, not only its side of it */
};

struct app {
	uv_loop_t loop;
	struct grpc_client *client;
	int does, listener, fd; /* fd: the server's end of the connection; -1: none yet */
	unsigned int begun, done;
};

static void on_done(const struct grpc_answer *answer, void *arg)
{
	struct app *a = arg;

	if (++a->done > a->begun || answer->body_len > BODY_MAX || !answer->message ||
	    (answer->status != RPC_OK && !answer->message))
		abort();
	if (a->does & DOES_FREE)
		a->client = grpc_client_free(a->client);
}

static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void remove_socket(void)
{
	unlink(address.sun_path);
}

static int listen_here(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/kiln-fuzz-grpc-%d",
		 (int)getpid());
	remove_socket();
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 8) < 0)
		abort();
	(void)atexit(remove_socket);
	return fd;
}

/* Runs the client's loop once, accepts a connection, and drops the bytes that the client sent. */
static void run(struct app *a)
{
	uint8_t heard[4096];
	int fd;

	uv_run(&a->loop, UV_RUN_NOWAIT);
	fd = accept4(a->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0 && a->fd < 0)
		a->fd = fd;
	else if (fd >= 0)
		close(fd);
	while (a->fd >= 0 && recv(a->fd, heard, sizeof(heard), MSG_DONTWAIT) > 0)
		;
}

static void begin_calls(struct app *a)
{
	struct grpc_unary *call;

	for (; a->begun < CALLS; a->begun++) {
		if (grpc_client_call(a->client, "/m", "abc", 3, false, 3600000, on_done, a, &call) <
		    0)
			abort();
		if (a->begun == 1 && a->does & DOES_CANCEL)
			grpc_unary_cancel(call);
	}
}

static void talk(struct app *a, const uint8_t *data, size_t size, size_t step)
{
	while (a->fd < 0 && a->client)
		run(a);
	for (size_t at = 0; at < size; at += step) {
		if (send(a->fd, data + at, MIN(step, size - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		for (unsigned int i = 0; i < 3; i++)
			run(a);
	}
	if (a->does & DOES_HANG_UP)
		close(TAKE_FD(a->fd));
	else
		shutdown(a->fd, SHUT_WR);
	a->fd = a->fd < 0 ? INT32_MAX : a->fd; /* later connections are closed */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char endpoint[sizeof(address.sun_path) + 8];
	static int listener = -1;
	struct grpc_client_options o = {.endpoint = endpoint, .tls = {.insecure = true}};
	struct app a = {.fd = -1};
	struct error err = {0};
	unsigned int turns;

	if (size < 2)
		return 0;
	if (listener < 0)
		listener = listen_here();
	snprintf(endpoint, sizeof(endpoint), "unix:%s", address.sun_path);
	a.listener = listener;
	a.does = data[1];
	if (uv_loop_init(&a.loop) < 0 || grpc_client_new(&o, &a.loop, &a.client, &err) < 0)
		abort();
	begin_calls(&a);
	talk(&a, data + 2, size - 2, 1 + data[0] * 16U);
	for (turns = 0; a.client && a.done < CALLS && turns < TURNS; turns++)
		run(&a);
	if (a.client && a.done != CALLS)
		abort();
	grpc_client_free(a.client);
	uv_run(&a.loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&a.loop) < 0)
		abort();
	if (a.fd != INT32_MAX)
		close(a.fd);
	while ((a.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		close(a.fd);
	return 0;
}
