/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/operator/frontend/rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

enum { AMPLE_MS = 60000, AMPLE = 100 };

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static void on_join(void *arg, int fd)
{
	const struct timeval limit = {.tv_sec = RIG_WAIT_S};
	struct frontend_rig *rig = arg;

	fcntl(fd, F_SETFL, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	pthread_mutex_lock(&rig->lock);
	assert_true(rig->n_joined < RIG_JOINED_MAX);
	rig->joined[rig->n_joined++] = fd;
	pthread_mutex_unlock(&rig->lock);
}

#define AMPLY(field, value) (l->field = l->field ? l->field : (value))

static void be_ample(struct frontend_limits *l)
{
	AMPLY(outside, AMPLE);
	AMPLY(opened, AMPLE);
	AMPLY(hello_ms, AMPLE_MS);
	AMPLY(turn_ms, AMPLE_MS);
	AMPLY(grant_ms, AMPLE_MS);
	AMPLY(spare_ms, AMPLE_MS);
}

void rig_init(struct frontend_rig *rig, const struct frontend_limits *limits)
{
	static const char *const names[] = {"127.0.0.1", NULL};
	struct frontend_options o = {.address = "127.0.0.1:0", .join = on_join, .arg = rig};
	struct error err = {0};

	signal(SIGPIPE, SIG_IGN);
	memset(rig, 0, sizeof(*rig));
	pthread_mutex_init(&rig->lock, NULL);
	assert_int_equal(stream_tls_make(names, (int64_t)time(NULL), &rig->tls, &err), 0);
	o.cert_pem = rig->tls.cert_pem;
	o.key_pem = rig->tls.key_pem;
	if (limits)
		o.limits = *limits;
	be_ample(&o.limits);
	if (frontend_new(&o, &rig->frontend, &err) < 0)
		fail_msg("%s", err.message);
}

void rig_done(struct frontend_rig *rig)
{
	rig->frontend = frontend_free(rig->frontend);
	for (size_t i = 0; i < rig->n_joined; i++)
		close(rig->joined[i]);
	pthread_mutex_destroy(&rig->lock);
	stream_tls_done(&rig->tls);
}

struct frontend_stats rig_stats(struct frontend_rig *rig)
{
	struct frontend_stats stats;

	frontend_read(rig->frontend, &stats);
	return stats;
}

void rig_until_at(struct frontend_rig *rig, size_t offset, uint64_t value)
{
	uint64_t is = 0;

	for (unsigned int i = 0; i < RIG_WAIT_S * 1000; i++) {
		struct frontend_stats stats = rig_stats(rig);

		memcpy(&is, (const char *)&stats + offset, sizeof(is));
		if (is == value)
			return;
		usleep(1000);
	}
	fail_msg("the count at %zu is %llu, not %llu", offset, (unsigned long long)is,
		 (unsigned long long)value);
}

int rig_joined(struct frontend_rig *rig, size_t n)
{
	for (unsigned int i = 0; i < RIG_WAIT_S * 1000; i++) {
		int fd = -1;

		pthread_mutex_lock(&rig->lock);
		if (rig->n_joined > n)
			fd = rig->joined[n];
		pthread_mutex_unlock(&rig->lock);
		if (fd >= 0)
			return fd;
		usleep(1000);
	}
	fail_msg("connection %zu was not joined", n);
	return -1;
}

void rig_judge(struct frontend_rig *rig, size_t n, enum frontend_auth was, enum frontend_auth is)
{
	struct frontend_ref ref = frontend_find(rig->frontend, rig_joined(rig, n));

	assert_true(ref.id > 0);
	frontend_report_auth(rig->frontend, &ref, was, is);
}

/* ---- clients --------------------------------------------------------------------------------- */

void client_connect(struct frontend_rig *rig, struct client *c, unsigned int source)
{
	struct sockaddr_in from = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + source)},
			   to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)frontend_port(rig->frontend)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timeval limit = {.tv_sec = RIG_WAIT_S};

	*c = (struct client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	assert_true(c->fd >= 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	assert_int_equal(bind(c->fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(c->fd, (struct sockaddr *)&to, sizeof(to)), 0);
	c->context = SSL_CTX_new(TLS_client_method());
	c->ssl = SSL_new(c->context);
	SSL_set_connect_state(c->ssl);
}

size_t client_hello(struct client *c, uint8_t *ret, size_t size)
{
	int n;

	SSL_set_bio(c->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	assert_true(SSL_do_handshake(c->ssl) < 0);
	n = BIO_read(SSL_get_wbio(c->ssl), ret, (int)size);
	assert_true(n > 0 && (size_t)n < size);
	return (size_t)n;
}

void client_send_raw(struct client *c, const void *bytes, size_t len)
{
	assert_int_equal(send(c->fd, bytes, len, MSG_NOSIGNAL), len);
}

bool client_shake(struct client *c)
{
	ERR_clear_error();
	SSL_set_fd(c->ssl, c->fd);
	return SSL_do_handshake(c->ssl) == 1;
}

void client_open(struct frontend_rig *rig, struct client *c, unsigned int source)
{
	client_connect(rig, c, source);
	assert_true(client_shake(c));
}

void client_join(struct frontend_rig *rig, struct client *c, unsigned int source)
{
	char got[sizeof(preface)];
	size_t n;

	pthread_mutex_lock(&rig->lock);
	n = rig->n_joined;
	pthread_mutex_unlock(&rig->lock);
	client_open(rig, c, source);
	assert_int_equal(SSL_write(c->ssl, preface, FRAMES_PREFACE), FRAMES_PREFACE);
	assert_int_equal(read(rig_joined(rig, n), got, sizeof(got)), FRAMES_PREFACE);
	assert_memory_equal(got, preface, FRAMES_PREFACE);
}

void frame_header(uint8_t ret[FRAMES_HEADER], size_t len, uint8_t type)
{
	memset(ret, 0, FRAMES_HEADER);
	ret[0] = (uint8_t)(len >> 16);
	ret[1] = (uint8_t)(len >> 8);
	ret[2] = (uint8_t)len;
	ret[3] = type;
}

bool client_send_frame(struct client *c, uint8_t type, const void *payload, size_t len)
{
	_cleanup_free_ uint8_t *bytes = malloc(FRAMES_HEADER + len);
	int n = (int)(FRAMES_HEADER + len);

	frame_header(bytes, len, type);
	memcpy(bytes + FRAMES_HEADER, payload, len);
	ERR_clear_error();
	return SSL_write(c->ssl, bytes, n) == n;
}

void client_until_closed(struct client *c)
{
	char bytes[4096];
	ssize_t n;

	while ((n = recv(c->fd, bytes, sizeof(bytes), 0)) > 0)
		;
	assert_true(n == 0 || errno == ECONNRESET);
}

bool client_is_open(struct client *c)
{
	char byte;

	return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void client_done(struct client *c)
{
	SSL_free(c->ssl);
	SSL_CTX_free(c->context);
	close(c->fd);
}
