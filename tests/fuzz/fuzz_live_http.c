/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a client to the live page's server, with a token, over a real socket: request lines,
 * headers, bodies, upgrades, several requests. The first byte says after which part of them the
 * client pauses. Each answer is an HTTP response; a response has data only if the client sent the
 * token.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <uv.h>

#include "agent/live/live.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKEN "0123456789abcdef"

enum { TURNS = 40, ANSWER_MAX = 1 << 18 };

static struct {
	uv_loop_t loop;
	struct live *live;
} f;

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

static void start(void)
{
	char path[] = "/tmp/kiln-fuzz-XXXXXX", host[] = "127.0.0.1";
	const struct http_config config = {.enabled = true, .host = host, .token_file = path};
	struct error err = {0};
	_cleanup_close_ int fd = mkstemp(path);

	check(fd >= 0 && write(fd, TOKEN "\n", sizeof(TOKEN)) == sizeof(TOKEN), "no token file");
	uv_loop_init(&f.loop);
	check(live_new(&f.loop, &config, 1000, &f.live, &err) == 0, err.message);
	unlink(path);
}

static int connect_client(void)
{
	const struct linger reset = {1, 0};
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(live_port(f.live)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/*
	 * close() resets the connection: otherwise a million inputs leave a million ports in
	 * TIME_WAIT.
	 */
	check(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0 &&
		  connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
		  fcntl(fd, F_SETFL, O_NONBLOCK) == 0,
	      "cannot connect");
	return fd;
}

/* Runs the server's loop and appends its response to ANSWER. False when the server has closed. */
static bool turn(int fd, char *answer, size_t *len)
{
	for (int i = 0; i < TURNS; i++) {
		ssize_t n;

		uv_run(&f.loop, UV_RUN_NOWAIT);
		n = recv(fd, answer + *len, ANSWER_MAX - *len, 0);
		if (n > 0)
			*len += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return false;
	}
	return true;
}

static bool holds(const void *data, size_t len, const char *what)
{
	return memmem(data, len, what, strlen(what)) != NULL;
}

static void check_answer(const char *answer, size_t len, bool knows)
{
	static const char *const kinds[] = {"application/octet-stream", "application/x-protobuf",
					    "image/svg+xml"};
	const char *end = memmem(answer, len, "\r\n\r\n", 4);
	size_t head = end ? (size_t)(end - answer) : len;

	if (!len)
		return;
	check(len >= 12 && has_prefix(answer, "HTTP/1.") && answer[9] >= '1' && answer[9] <= '5',
	      "not an answer of HTTP");
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		check(knows || !holds(answer, head, kinds[i]), "data without the token");
	check(!holds(answer, len, "root:x:0"), "a file of this machine");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char answer[ANSWER_MAX + 1];
	_cleanup_close_ int fd = -1;
	size_t len = 0, first;
	bool open;

	if (!size)
		return 0;
	if (!f.live)
		start();
	fd = connect_client();
	first = (size - 1) * data[0] / 255;
	open = send(fd, data + 1, first, MSG_NOSIGNAL) >= 0 && turn(fd, answer, &len);
	if (open)
		open = send(fd, data + 1 + first, size - 1 - first, MSG_NOSIGNAL) >= 0;
	if (open)
		turn(fd, answer, &len);
	answer[len] = 0;
	check_answer(answer, len, holds(data, size, TOKEN));
	close(TAKE_FD(fd));
	for (int i = 0; i < 4; i++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	return 0;
}
