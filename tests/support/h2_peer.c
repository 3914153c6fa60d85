/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "tests/support/h2_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void on_alarm(uv_timer_t *timer)
{
	((struct h2_peer *)timer->data)->timed_out = true;
}

void h2_peer_begin_waiting(struct h2_peer *p)
{
	uv_update_time(&p->loop);
	uv_timer_start(&p->alarm, on_alarm, H2_PEER_DEADLINE_MS, 0);
}

void h2_peer_start(struct h2_peer *p)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(to);

	*p = (struct h2_peer){0};
	uv_loop_init(&p->loop);
	uv_timer_init(&p->loop, &p->alarm);
	p->alarm.data = p;
	p->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (p->fd < 0 || bind(p->fd, (struct sockaddr *)&to, len) < 0 ||
	    listen(p->fd, H2_PEER_CONNECTIONS) < 0 ||
	    getsockname(p->fd, (struct sockaddr *)&to, &len) < 0)
		abort();
	p->port = ntohs(to.sin_port);
	snprintf(p->endpoint, sizeof(p->endpoint), "127.0.0.1:%u", p->port);
}

void h2_peer_close(struct h2_peer *p, size_t i)
{
	if (p->c[i].fd >= 0)
		close(p->c[i].fd);
	p->c[i].fd = -1;
}

void h2_peer_finish(struct h2_peer *p, size_t i)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	shutdown(p->c[i].fd, SHUT_WR);
	while (getsockopt(p->c[i].fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       info.tcpi_state != TCP_FIN_WAIT2 && info.tcpi_state != TCP_CLOSE)
		usleep(1000);
}

void h2_peer_stop(struct h2_peer *p)
{
	uv_close((uv_handle_t *)&p->alarm, NULL);
	uv_run(&p->loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&p->loop) < 0)
		abort();
	for (size_t i = 0; i < p->n; i++) {
		h2_peer_close(p, i);
		free(p->c[i].in);
	}
	close(p->fd);
}

static void hear_connection(struct h2_peer *p, size_t i)
{
	uint8_t bytes[65536];
	ssize_t n;

	while ((n = recv(p->c[i].fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
		p->c[i].in = realloc(p->c[i].in, p->c[i].n_in + (size_t)n);
		memcpy(p->c[i].in + p->c[i].n_in, bytes, (size_t)n);
		p->c[i].n_in += (size_t)n;
	}
	p->c[i].over |= n == 0 || (n < 0 && errno == ECONNRESET);
}

void h2_peer_hear(struct h2_peer *p)
{
	int fd = accept4(p->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;

	if (fd >= 0) {
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (p->n == H2_PEER_CONNECTIONS)
			abort();
		p->c[p->n++].fd = fd;
	}
	for (size_t i = 0; i < p->n && !p->deaf; i++)
		if (p->c[i].fd >= 0 && !p->c[i].over)
			hear_connection(p, i);
}

void h2_peer_say(struct h2_peer *p, size_t i, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len && p->c[i].fd >= 0) {
		ssize_t n = send(p->c[i].fd, at, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			at += n;
			len -= (size_t)n;
			continue;
		}
		if (n < 0 && errno != EAGAIN)
			return;
		h2_peer_hear(p);
		uv_run(&p->loop, UV_RUN_NOWAIT);
	}
}

void h2_peer_frame(struct h2_peer *p, size_t i, int type, int flags, uint32_t id,
		   const void *payload, size_t len)
{
	uint8_t header[H2_FRAME];

	h2_frame(header, type, flags, id, len);
	h2_peer_say(p, i, header, sizeof(header));
	h2_peer_say(p, i, payload, len);
}

void h2_peer_headers(struct h2_peer *p, size_t i, int flags, uint32_t id, const char *const *fields)
{
	uint8_t block[16384];
	size_t n = 0;

	for (; *fields; fields += 2) {
		if (n + strlen(fields[0]) + strlen(fields[1]) + 16 > sizeof(block))
			abort();
		n += h2_field(block + n, fields[0], fields[1]);
	}
	h2_peer_frame(p, i, H2_HEADERS, flags | H2_END_HEADERS, id, block, n);
}

void h2_peer_greet(struct h2_peer *p, size_t i)
{
	h2_peer_frame(p, i, H2_SETTINGS, 0, 0, NULL, 0);
}

unsigned int h2_peer_heard(const struct h2_peer *p, size_t i, int type, int flags,
			   const uint8_t **ret_last)
{
	if (i >= p->n || p->c[i].n_in < H2_PEER_PREFACE)
		return 0;
	return h2_count(p->c[i].in + H2_PEER_PREFACE, p->c[i].n_in - H2_PEER_PREFACE, type, flags,
			ret_last);
}
