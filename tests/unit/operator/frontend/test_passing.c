/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes both ways through the front end. */
#include <sys/socket.h>

#include "tests/unit/operator/frontend/rig.h"

enum { LARGE = 512 * (FRAMES_HEADER + FRAMES_LENGTH_MAX), CHUNK = 16 << 10, HELD_MAX = 5 << 20 };

struct scene {
	struct frontend_rig rig;
	struct client a;
};

static int setup(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));

	rig_init(&s->rig, NULL);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct scene *s = *state;

	client_done(&s->a);
	rig_done(&s->rig);
	free(s);
	return 0;
}

static void what_one_end_sends_the_other_gets(void **state)
{
	struct scene *s = *state;
	char got[16] = "";

	client_join(&s->rig, &s->a, 1);
	assert_true(client_send_frame(&s->a, FRAME_DATA, "ping", 4));
	assert_int_equal(read(rig_joined(&s->rig, 0), got, sizeof(got)), FRAMES_HEADER + 4);
	assert_string_equal(got + FRAMES_HEADER, "ping");
	assert_int_equal(write(rig_joined(&s->rig, 0), "pong!", 5), 5);
	assert_int_equal(SSL_read(s->a.ssl, got, sizeof(got)), 5);
	assert_memory_equal(got, "pong!", 5);
	rig_until(&s->rig, opened, 1);
}

static void a_client_hello_in_pieces_is_whole_in_the_end(void **state)
{
	struct scene *s = *state;
	uint8_t hello[4096];
	size_t n;

	client_connect(&s->rig, &s->a, 1);
	n = client_hello(&s->a, hello, sizeof(hello));
	for (size_t at = 0; at < n; at++) {
		client_send_raw(&s->a, hello + at, 1);
		if (at < 12 || at % 64 == 0)
			usleep(2000);
		assert_int_equal(rig_stats(&s->rig).handshakes, 0);
	}
	assert_true(client_shake(&s->a));
	assert_int_equal(rig_stats(&s->rig).handshakes, 1);
}

/* No connection to the server is made either: the client costs a TLS handshake and no more. */
static void who_says_nothing_after_the_handshake_is_not_joined(void **state)
{
	struct scene *s = *state;

	client_open(&s->rig, &s->a, 1);
	rig_until(&s->rig, opened, 1);
	usleep(20000);
	assert_int_equal(s->rig.n_joined, 0);
}

static uint8_t byte_at(size_t at)
{
	return (uint8_t)(at * 7 + at / 1000);
}

/* The number of bytes that the server can write until it would block. */
static size_t write_until_blocked(int fd, size_t max)
{
	uint8_t chunk[CHUNK];
	size_t sent = 0, blocked = 0;

	while (sent < max && blocked < 100) {
		ssize_t n;

		for (size_t i = 0; i < CHUNK; i++)
			chunk[i] = byte_at(sent + i);
		n = send(fd, chunk, MIN((size_t)CHUNK, max - sent), MSG_DONTWAIT);
		blocked = n < 0 ? blocked + 1 : 0;
		if (n < 0)
			usleep(2000);
		else
			sent += (size_t)n;
	}
	return sent;
}

static void who_does_not_read_holds_the_sender_back_and_gets_all_later(void **state)
{
	struct scene *s = *state;
	uint8_t got[CHUNK];
	size_t sent, at = 0;
	int small = 64 << 10;

	client_join(&s->rig, &s->a, 1);
	setsockopt(s->a.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	sent = write_until_blocked(rig_joined(&s->rig, 0), LARGE);
	assert_in_range(sent, CHUNK, HELD_MAX);
	while (at < sent) {
		int n = SSL_read(s->a.ssl, got, sizeof(got));

		assert_true(n > 0);
		for (int i = 0; i < n; i++, at++)
			if (got[i] != byte_at(at))
				fail_msg("byte %zu is wrong", at);
	}
	assert_int_equal(at, sent);
}

static void a_server_that_does_not_read_holds_the_client_back_and_gets_all_later(void **state)
{
	struct scene *s = *state;
	uint8_t *sent = malloc(LARGE), *got = malloc(LARGE);
	size_t n_sent = 0, n_got = 0;
	const struct timeval limit = {.tv_usec = 300000};

	for (size_t i = 0; i < LARGE; i++)
		sent[i] = byte_at(i);
	for (size_t i = 0; i < LARGE; i += FRAMES_HEADER + FRAMES_LENGTH_MAX)
		frame_header(sent + i, FRAMES_LENGTH_MAX, FRAME_DATA);
	client_join(&s->rig, &s->a, 1);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
	rig_until(&s->rig, granted, 1);
	setsockopt(s->a.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	SSL_set_mode(s->a.ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	for (int n = 1; n > 0 && n_sent<LARGE; n_sent += n> 0 ? (size_t)n : 0)
		n = SSL_write(s->a.ssl, sent + n_sent, (int)MIN((size_t)CHUNK, LARGE - n_sent));
	assert_true(n_sent < LARGE);
	while (n_got < n_sent) {
		ssize_t n = read(rig_joined(&s->rig, 0), got + n_got, LARGE - n_got);

		assert_true(n > 0);
		n_got += (size_t)n;
	}
	assert_memory_equal(sent, got, n_sent);
	free(sent);
	free(got);
}

static void who_has_sent_all_still_gets_the_answer(void **state)
{
	struct scene *s = *state;
	char got[16];
	int fd;

	client_join(&s->rig, &s->a, 1);
	fd = rig_joined(&s->rig, 0);
	assert_true(SSL_shutdown(s->a.ssl) >= 0);
	assert_int_equal(shutdown(s->a.fd, SHUT_WR), 0);
	assert_int_equal(read(fd, got, sizeof(got)), 0);
	assert_int_equal(write(fd, "bye", 3), 3);
	shutdown(fd, SHUT_RDWR);
	assert_int_equal(SSL_read(s->a.ssl, got, sizeof(got)), 3);
	assert_int_equal(SSL_read(s->a.ssl, got, sizeof(got)), 0);
	assert_int_equal(SSL_get_error(s->a.ssl, 0), SSL_ERROR_ZERO_RETURN);
	rig_until_ended(&s->rig, SERVER, 1);
}

static void a_record_that_is_no_tls_ends_the_connection(void **state)
{
	struct scene *s = *state;

	client_join(&s->rig, &s->a, 1);
	client_send_raw(&s->a, "\x17\x03\x03\x00\x20garbage garbage garbage garbage!", 37);
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, TLS, 1);
	rig_until(&s->rig, opened, 0);
}

static void other_protocols_are_refused(void **state)
{
	static const uint8_t http1[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
	struct scene *s = *state;

	client_connect(&s->rig, &s->a, 1);
	assert_int_equal(SSL_set_alpn_protos(s->a.ssl, http1, sizeof(http1)), 0);
	assert_false(client_shake(&s->a));
	rig_until_ended(&s->rig, TLS, 1);
}

static void the_next_connections_see_a_new_certificate(void **state)
{
	static const char *const names[] = {"127.0.0.1", NULL};
	struct scene *s = *state;
	struct stream_tls other = {0};
	struct error err = {0};
	X509 *first, *second;

	assert_int_equal(stream_tls_make(names, 1700000000, &other, &err), 0);
	client_open(&s->rig, &s->a, 1);
	first = SSL_get1_peer_certificate(s->a.ssl);
	client_done(&s->a);
	assert_int_equal(
	    frontend_certificate(s->rig.frontend, other.cert_pem, s->rig.tls.key_pem, &err),
	    -EINVAL);
	assert_int_equal(
	    frontend_certificate(s->rig.frontend, "no certificate", other.key_pem, &err), -EINVAL);
	client_open(&s->rig, &s->a, 1);
	second = SSL_get1_peer_certificate(s->a.ssl);
	assert_int_equal(X509_cmp(first, second), 0);
	X509_free(second);
	client_done(&s->a);
	assert_int_equal(frontend_certificate(s->rig.frontend, other.cert_pem, other.key_pem, &err),
			 0);
	client_open(&s->rig, &s->a, 1);
	second = SSL_get1_peer_certificate(s->a.ssl);
	assert_int_not_equal(X509_cmp(first, second), 0);
	X509_free(second);
	X509_free(first);
	stream_tls_done(&other);
}

static void addresses_and_certificates_that_cannot_work(void **state)
{
	struct scene *s = *state;
	const struct {
		const char *address, *cert;
		int r;
	} rows[] = {{"nowhere", s->rig.tls.cert_pem, -EINVAL},
		    {"127.0.0.1:0", "no certificate", -EINVAL},
		    {"192.0.2.1:1", s->rig.tls.cert_pem, -EADDRNOTAVAIL}};
	struct frontend *frontend;

	client_open(&s->rig, &s->a, 1);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct frontend_options o = {.address = rows[i].address,
						   .cert_pem = rows[i].cert,
						   .key_pem = s->rig.tls.key_pem};
		struct error err = {0};

		assert_int_equal(frontend_new(&o, &frontend, &err), rows[i].r);
		assert_true(err.message[0]);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(what_one_end_sends_the_other_gets),
	    TEST(a_client_hello_in_pieces_is_whole_in_the_end),
	    TEST(who_says_nothing_after_the_handshake_is_not_joined),
	    TEST(who_does_not_read_holds_the_sender_back_and_gets_all_later),
	    TEST(a_server_that_does_not_read_holds_the_client_back_and_gets_all_later),
	    TEST(who_has_sent_all_still_gets_the_answer),
	    TEST(a_record_that_is_no_tls_ends_the_connection),
	    TEST(other_protocols_are_refused),
	    TEST(the_next_connections_see_a_new_certificate),
	    TEST(addresses_and_certificates_that_cannot_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
