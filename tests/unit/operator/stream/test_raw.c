/* SPDX-License-Identifier: Apache-2.0 */
/* The node stream's server with an agent that writes HTTP/2 byte by byte over TLS. */
#include "tests/unit/operator/stream/rig.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "lib/grpc_wire.h"
#include "operator/stream/server_internal.h"
#include "tests/support/h2_bytes.h"

struct peer {
	struct rig *rig;
	SSL_CTX *context;
	SSL *ssl;
	int fd;
	uint8_t out[16384], in[1 << 20];
	size_t n_out, n_in;
};

/* Looks at the server's loop while it waits. */
static void wait_for_tls(struct peer *p, int result)
{
	int why = SSL_get_error(p->ssl, result);

	assert_true(why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE);
	rig_turns(p->rig, 1);
}

static void peer_connect(struct peer *p, struct rig *rig)
{
	static const unsigned char alpn[] = "\x02h2";
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				.sin_port = htons((uint16_t)node_server_port(rig->server))};
	int r;

	p->rig = rig;
	p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(p->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(fcntl(p->fd, F_SETFL, O_NONBLOCK), 0);
	p->context = SSL_CTX_new(TLS_client_method());
	p->ssl = SSL_new(p->context);
	assert_int_equal(SSL_set_alpn_protos(p->ssl, alpn, sizeof(alpn) - 1), 0);
	SSL_set_fd(p->ssl, p->fd);
	while ((r = SSL_connect(p->ssl)) != 1)
		wait_for_tls(p, r);
}

static void peer_done(struct peer *p)
{
	SSL_free(p->ssl);
	SSL_CTX_free(p->context);
	close(p->fd);
	free(p);
}

static void put(struct peer *p, const void *bytes, size_t len)
{
	assert_true(p->n_out + len <= sizeof(p->out));
	if (len)
		memcpy(p->out + p->n_out, bytes, len);
	p->n_out += len;
}

static void put_frame(struct peer *p, int type, int flags, uint32_t id, const void *payload,
		      size_t len)
{
	uint8_t header[H2_FRAME];

	h2_frame(header, type, flags, id, len);
	put(p, header, sizeof(header));
	put(p, payload, len);
}

static void put_call(struct peer *p, uint32_t id, const char *token)
{
	char authorization[1024];
	uint8_t block[2048];
	size_t n = h2_field(block, ":method", "POST");

	agent_token(token, authorization);
	n += h2_field(block + n, ":scheme", "https");
	n += h2_field(block + n, ":path", STREAM_METHOD);
	n += h2_field(block + n, ":authority", "x");
	n += h2_field(block + n, "te", "trailers");
	n += h2_field(block + n, "content-type", "application/grpc");
	n += h2_field(block + n, "authorization", authorization);
	put_frame(p, H2_HEADERS, H2_END_HEADERS, id, block, n);
}

static void put_message(struct peer *p, uint32_t id, const Kiln__Node__V1__AgentMessage *m)
{
	uint8_t bytes[GRPC_PREFIX + 512];
	size_t len = kiln__node__v1__agent_message__get_packed_size(m);

	assert_true(len <= 512);
	grpc_prefix_write(bytes, false, len);
	(void)kiln__node__v1__agent_message__pack(m, bytes + GRPC_PREFIX);
	put_frame(p, H2_DATA, 0, id, bytes, GRPC_PREFIX + len);
}

static void put_hello(struct peer *p, uint32_t id)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Hello hello = KILN__NODE__V1__HELLO__INIT;

	hello.protocol = 1;
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_HELLO;
	m.hello = &hello;
	put_message(p, id, &m);
}

static void put_report(struct peer *p, uint32_t id)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Report report = KILN__NODE__V1__REPORT__INIT;

	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_REPORT;
	m.report = &report;
	put_message(p, id, &m);
}

/* All that was put, in one record of TLS. */
static void say(struct peer *p)
{
	int r;

	while ((r = SSL_write(p->ssl, p->out, (int)p->n_out)) <= 0)
		wait_for_tls(p, r);
	p->n_out = 0;
	rig_turns(p->rig, 2);
}

static void hear(struct peer *p)
{
	int n;

	assert_true(p->n_in < sizeof(p->in));
	while ((n = SSL_read(p->ssl, p->in + p->n_in, (int)(sizeof(p->in) - p->n_in))) > 0)
		p->n_in += (size_t)n;
}

/* How many DATA frames of the stream ID the server has sent. */
static unsigned int data_of(struct peer *p, uint32_t id)
{
	unsigned int found = 0;
	size_t at = 0;

	hear(p);
	while (at + H2_FRAME <= p->n_in) {
		found += p->in[at + 3] == H2_DATA && h2_stream(p->in + at) == id;
		at += H2_FRAME + h2_length(p->in + at);
	}
	return found;
}

/*
 * nghttp2 ends a stream whose message is not allowed. In the same bytes the next stream of the node
 * says Hello: it takes over the place of the first stream, and keeps it when the end of the first
 * is reported afterwards.
 */
static void test_the_place_of_a_stream_that_was_ended_is_the_nexts(void **state)
{
	static const uint8_t compressed[GRPC_PREFIX] = {1};
	struct rig *rig = calloc(1, sizeof(*rig));
	struct peer *p = calloc(1, sizeof(*p));

	(void)state;
	rig_init(rig, &(struct node_server_limits){.keep_ms = 300});
	rig_pod(rig, "prod", "one", 1, "n1", 'a');
	peer_connect(p, rig);
	put(p, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
	put_frame(p, H2_SETTINGS, 0, 0, NULL, 0);
	put_call(p, 1, "node:n1");
	put_hello(p, 1);
	say(p);
	while (!data_of(p, 1))
		rig_turns(rig, 1);
	put_frame(p, H2_DATA, 0, 1, compressed, sizeof(compressed));
	put_call(p, 3, "node:n1"); /* the token is known: it is granted at once */
	put_hello(p, 3);
	say(p);
	for (unsigned int i = 0; i < 400 && !data_of(p, 3); i++)
		rig_turns(rig, 1);
	assert_true(data_of(p, 3) > 0);
	assert_int_equal(rig_stats(rig).live, 1);
	rig_turns(rig, 300); /* longer than a node without a stream is kept */
	put_report(p, 3);
	say(p);
	rig_turns(rig, 10);
	assert_int_equal(rig_stats(rig).live, 1);
	assert_int_equal(rig_stats(rig).nodes, 1);
	peer_done(p);
	rig_done(rig);
	free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_place_of_a_stream_that_was_ended_is_the_nexts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
