/* SPDX-License-Identifier: Apache-2.0 */
/* A stream against a server of nghttp2 on loopback: what arrives, in which order it ends. */
#include "lib/grpc_stream.h"

#include <sys/stat.h>

#include "tests/support/grpc_fake.h"
#include "tests/support/test.h"

enum { WAIT_S = 30 };

struct client {
	uv_loop_t loop;
	struct grpc_stream *stream;
	struct fake_server *server;
	unsigned int writable, closed;
	struct {
		char data[64];
		size_t len;
	} messages[64];
	size_t n;
	int status;
	char words[256];
	bool free_on_message, disconnect_on_message;
	const struct grpc_stream_options *again; /* connect from closed() */
};

static void on_writable(void *arg)
{
	((struct client *)arg)->writable++;
}

static void on_message(const uint8_t *data, size_t len, void *arg)
{
	struct client *c = arg;

	assert_true(c->n < ARRAY_SIZE(c->messages));
	assert_int_equal(c->closed, 0);
	c->messages[c->n].len = len;
	memcpy(c->messages[c->n++].data, data, MIN(len, sizeof(c->messages[0].data)));
	if (c->disconnect_on_message)
		grpc_stream_disconnect(c->stream);
	if (c->free_on_message)
		c->stream = grpc_stream_free(c->stream);
}

static void on_closed(int status, const char *message, void *arg)
{
	struct client *c = arg;
	struct error err;

	c->closed++;
	c->status = status;
	snprintf(c->words, sizeof(c->words), "%s", message);
	if (c->again)
		assert_int_equal(grpc_stream_connect(c->stream, c->again, &err), 0);
	c->again = NULL;
}

static void client_start(struct client *c, const struct fake_options *o)
{
	struct grpc_stream_events events = {
	    .writable = on_writable, .message = on_message, .closed = on_closed, .arg = c};
	struct error err;

	*c = (struct client){0};
	uv_loop_init(&c->loop);
	assert_int_equal(fake_server_start(o, &c->server), 0);
	assert_int_equal(grpc_stream_new(&events, &c->loop, &c->stream, &err), 0);
}

static void client_end(struct client *c)
{
	c->stream = grpc_stream_free(c->stream);
	uv_run(&c->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&c->loop), 0);
	c->server = fake_server_stop(c->server);
}

static const char *endpoint_of(struct fake_server *s)
{
	static char text[64];

	snprintf(text, sizeof(text), "127.0.0.1:%d", fake_server_port(s));
	return text;
}

static struct grpc_stream_options plain(struct client *c)
{
	return (struct grpc_stream_options){
	    .client = {.endpoint = endpoint_of(c->server), .tls = {.insecure = true}},
	    .method = "/a.B/C",
	    .message_max = 1000,
	    .keepalive_ms = 60000};
}

static bool is_writable(void *arg)
{
	struct client *c = arg;

	return (c->writable && fake_server_calls(c->server) > 0) || c->closed;
}

static bool is_closed(void *arg)
{
	return ((struct client *)arg)->closed;
}

static bool has_message(void *arg)
{
	return ((struct client *)arg)->n || is_closed(arg);
}

static bool server_has_three(void *arg)
{
	struct client *c = arg;
	struct fake_call *call = fake_server_call(c->server, 0);

	if (c->writable && call && call->n_messages < 3 &&
	    grpc_stream_send(c->stream, "ping", 4) == 0)
		assert_int_equal(grpc_stream_send(c->stream, "x", 1), -EAGAIN);
	return call && call->n_messages >= 3;
}

static void connect_plain(struct client *c)
{
	struct grpc_stream_options o = plain(c);
	struct error err;

	assert_int_equal(grpc_stream_connect(c->stream, &o, &err), 0);
	assert_int_equal(grpc_stream_connect(c->stream, &o, &err), -EBUSY);
	assert_true(fake_pump(c->server, &c->loop, is_writable, c, WAIT_S));
	assert_int_equal(c->closed, 0);
}

static void test_messages_go_both_ways_and_arrive_before_the_end(void **state)
{
	struct fake_options o = {0};
	struct fake_call *call;
	struct client c;
	int i;

	client_start(&c, &o);
	assert_int_equal(grpc_stream_send(c.stream, "x", 1), -ENOTCONN);
	connect_plain(&c);
	assert_true(fake_pump(c.server, &c.loop, server_has_three, &c, WAIT_S));
	call = fake_server_call(c.server, 0);
	assert_string_equal(call->method, "/a.B/C");
	assert_memory_equal(call->messages[2].data, "ping", 4);
	for (i = 0; i < 20; i++)
		fake_send(call, &i, sizeof(i));
	fake_finish(call, 9, "enough");
	assert_true(fake_pump(c.server, &c.loop, is_closed, &c, WAIT_S));
	assert_int_equal(c.n, 20);
	for (i = 0; i < 20; i++)
		assert_memory_equal(c.messages[i].data, &i, sizeof(i));
	assert_int_equal(c.status, 9);
	assert_string_equal(c.words, "enough");
	assert_false(grpc_stream_busy(c.stream));
	client_end(&c);
}

static bool two_calls(void *arg)
{
	return fake_server_calls(((struct client *)arg)->server) == 2;
}

static void test_connects_again_from_closed(void **state)
{
	struct fake_options o = {0};
	struct grpc_stream_options again;
	struct client c;

	client_start(&c, &o);
	connect_plain(&c);
	again = plain(&c);
	c.again = &again;
	fake_finish(fake_server_call(c.server, 0), RPC_UNAVAILABLE, "moving");
	assert_true(fake_pump(c.server, &c.loop, two_calls, &c, WAIT_S));
	assert_int_equal(c.closed, 1);
	assert_true(grpc_stream_busy(c.stream));
	client_end(&c);
}

static void test_a_message_above_the_limit_ends_it(void **state)
{
	static const char large[1001];
	struct fake_options o = {0};
	struct client c;

	client_start(&c, &o);
	connect_plain(&c);
	fake_send(fake_server_call(c.server, 0), large, 1000);
	fake_send(fake_server_call(c.server, 0), large, 1001);
	assert_true(fake_pump(c.server, &c.loop, is_closed, &c, WAIT_S));
	assert_int_equal(c.n, 1);
	assert_int_equal(c.messages[0].len, 1000);
	assert_int_equal(c.status, RPC_RESOURCE_EXHAUSTED);
	client_end(&c);
}

static void test_a_killed_server_is_noticed(void **state)
{
	struct fake_options o = {0};
	struct client c;

	client_start(&c, &o);
	connect_plain(&c);
	c.server = fake_server_stop(c.server);
	assert_true(fake_pump(NULL, &c.loop, is_closed, &c, WAIT_S));
	assert_int_not_equal(c.status, RPC_OK);
	client_end(&c);
}

static void test_nobody_there(void **state)
{
	struct fake_options o = {0};
	struct grpc_stream_options s;
	struct error err;
	struct client c;

	client_start(&c, &o);
	s = plain(&c);
	c.server = fake_server_stop(c.server);
	assert_int_equal(grpc_stream_connect(c.stream, &s, &err), 0);
	assert_true(fake_pump(NULL, &c.loop, is_closed, &c, WAIT_S));
	assert_int_equal(c.status, RPC_UNAVAILABLE);
	assert_int_equal(c.writable, 0);
	client_end(&c);
}

static void test_after_disconnect_nothing_but_the_end(void **state)
{
	struct fake_options o = {0};
	struct client c;
	int i;

	client_start(&c, &o);
	connect_plain(&c);
	c.disconnect_on_message = true;
	for (i = 0; i < 20; i++)
		fake_send(fake_server_call(c.server, 0), "x", 1);
	assert_true(fake_pump(c.server, &c.loop, is_closed, &c, WAIT_S));
	assert_int_equal(c.n, 1);
	assert_int_equal(c.status, RPC_CANCELLED);
	client_end(&c);
}

static bool later(void *arg)
{
	return uv_hrtime() >= *(uint64_t *)arg;
}

static void test_a_message_that_waits_for_the_loop_is_dropped_by_disconnect(void **state)
{
	uint64_t until;
	struct fake_options o = {0};
	uv_loop_t other;
	struct client c;

	client_start(&c, &o);
	connect_plain(&c);
	fake_send(fake_server_call(c.server, 0), "x", 1);
	/* The message arrives while the client's loop does not run. */
	uv_loop_init(&other);
	until = uv_hrtime() + 300000000;
	assert_true(fake_pump(c.server, &other, later, &until, WAIT_S));
	assert_int_equal(uv_loop_close(&other), 0);
	grpc_stream_disconnect(c.stream);
	assert_true(fake_pump(c.server, &c.loop, is_closed, &c, WAIT_S));
	assert_int_equal(c.n, 0);
	client_end(&c);
}

static void test_freed_from_a_callback(void **state)
{
	struct fake_options o = {0};
	struct client c;
	int i;

	client_start(&c, &o);
	connect_plain(&c);
	c.free_on_message = true;
	for (i = 0; i < 20; i++)
		fake_send(fake_server_call(c.server, 0), "x", 1);
	assert_true(fake_pump(c.server, &c.loop, has_message, &c, WAIT_S));
	assert_int_equal(c.n, 1);
	assert_int_equal(c.closed, 0);
	client_end(&c);
}

static void write_file(const char *path, const char *text)
{
	_cleanup_fclose_ FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
}

static void test_tls_by_ca_and_name(void **state)
{
	static const struct {
		const char *name;
		bool other_ca, works;
	} rows[] = {{"kiln.example", false, true},
		    {"other.example", false, false},
		    {"kiln.example", true, false}};
	char path[] = "/tmp/kiln-test-ca-XXXXXX";
	struct fake_pki pki, other;
	struct grpc_stream_options s;
	struct error err;
	struct client c;
	size_t i;

	assert_int_equal(fake_pki_make("kiln.example", &pki), 0);
	assert_int_equal(fake_pki_make("kiln.example", &other), 0);
	close(mkstemp(path));
	client_start(&c, &(struct fake_options){.cert_pem = pki.cert_pem, .key_pem = pki.key_pem});
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		/* The file is read again for each connection. */
		write_file(path, rows[i].other_ca ? other.ca_pem : pki.ca_pem);
		s = plain(&c);
		s.client.tls = (struct tls_options){.ca_file = path, .server_name = rows[i].name};
		c.writable = c.closed = 0;
		assert_int_equal(grpc_stream_connect(c.stream, &s, &err), 0);
		assert_true(fake_pump(c.server, &c.loop, is_writable, &c, WAIT_S));
		assert_int_equal(c.closed, !rows[i].works);
		grpc_stream_disconnect(c.stream);
		assert_true(fake_pump(c.server, &c.loop, is_closed, &c, WAIT_S));
	}
	write_file(path, "no certificate");
	assert_int_equal(grpc_stream_connect(c.stream, &s, &err), -EINVAL);
	assert_non_null(strstr(err.message, "tls.ca_file: /tmp/kiln-test-ca-"));
	unlink(path);
	assert_int_equal(grpc_stream_connect(c.stream, &s, &err), -EINVAL);
	assert_false(grpc_stream_busy(c.stream));
	client_end(&c);
	fake_pki_done(&pki);
	fake_pki_done(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_messages_go_both_ways_and_arrive_before_the_end),
	    cmocka_unit_test(test_connects_again_from_closed),
	    cmocka_unit_test(test_a_message_above_the_limit_ends_it),
	    cmocka_unit_test(test_a_killed_server_is_noticed),
	    cmocka_unit_test(test_nobody_there),
	    cmocka_unit_test(test_after_disconnect_nothing_but_the_end),
	    cmocka_unit_test(test_a_message_that_waits_for_the_loop_is_dropped_by_disconnect),
	    cmocka_unit_test(test_freed_from_a_callback),
	    cmocka_unit_test(test_tls_by_ca_and_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
