/* SPDX-License-Identifier: Apache-2.0 */
/* The server alone, in plaintext, with lib/grpc_stream as its peer. */
#include "lib/grpc_server.h"

#include <stdatomic.h>
#include <sys/socket.h>

#include "lib/grpc_stream.h"
#include "lib/listen.h"
#include "tests/support/test.h"

#define METHOD "/x.Y/Z"

static const char *const methods[] = {METHOD, "/x.Y/W", NULL};

enum { DEADLINE_MS = 20000, LARGE = 200000 };

struct scene {
	uv_loop_t loop;
	uv_timer_t alarm;
	uv_poll_t listener;
	int listen_fd, last_fd;
	uint16_t port;
	struct stream_server *server;
	struct server_stream *served;
	struct grpc_stream *client;
	bool echoes, reads, timed_out, writable;
	unsigned int opened, sent, server_closed, client_closed;
	bool half_closed;
	size_t received, echoed, method;
	char authorization[64];
	int status;
	char message[128];
};

static void *on_opened(void *arg, struct server_stream *stream,
		       const struct stream_request *request)
{
	struct scene *s = arg;

	assert_int_equal(request->fd, s->last_fd);
	s->method = request->method;
	s->opened++;
	s->served = stream;
	snprintf(s->authorization, sizeof(s->authorization), "%s", request->authorization);
	if (s->reads)
		server_stream_read(stream);
	return s;
}

static void on_received(void *arg, const uint8_t *data, size_t len)
{
	struct scene *s = arg;

	s->received += len;
	s->half_closed = !data;
	if (data && s->echoes)
		assert_int_equal(server_stream_send(s->served, data, len), 0);
	if (data && s->reads)
		server_stream_read(s->served);
}

static void on_sent(void *arg)
{
	((struct scene *)arg)->sent++;
}

static void on_server_closed(void *arg)
{
	struct scene *s = arg;

	s->server_closed++;
	s->served = NULL;
}

static void on_writable(void *arg)
{
	((struct scene *)arg)->writable = true;
}

static void on_message(const uint8_t *data, size_t len, void *arg)
{
	((struct scene *)arg)->echoed += len;
}

static void on_client_closed(int status, const char *message, void *arg)
{
	struct scene *s = arg;

	s->client_closed++;
	s->status = status;
	snprintf(s->message, sizeof(s->message), "%s", message);
}

static void on_alarm(uv_timer_t *timer)
{
	((struct scene *)timer->data)->timed_out = true;
}

#define UNTIL(s, condition)                                                                        \
	do {                                                                                       \
		uv_update_time(&(s)->loop);                                                        \
		uv_timer_start(&(s)->alarm, on_alarm, DEADLINE_MS, 0);                             \
		while (!(condition) && !(s)->timed_out)                                            \
			uv_run(&(s)->loop, UV_RUN_ONCE);                                           \
		uv_timer_stop(&(s)->alarm);                                                        \
		assert_true(condition);                                                            \
	} while (0)

static void on_listener(uv_poll_t *poll, int status, int events)
{
	struct scene *s = poll->data;

	s->last_fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(s->last_fd >= 0);
	if (s->server)
		stream_server_add(s->server, s->last_fd);
	else
		close(s->last_fd);
}

static void start_listening(struct scene *s)
{
	struct error err = {0};
	char address[64];
	bool loopback;

	assert_int_equal(
	    listen_tcp(NULL, 0, &s->listen_fd, address, sizeof(address), &s->port, &loopback, &err),
	    0);
	uv_poll_init(&s->loop, &s->listener, s->listen_fd);
	s->listener.data = s;
	uv_poll_start(&s->listener, UV_READABLE, on_listener);
	uv_unref((uv_handle_t *)&s->listener);
}

static void begin(struct scene *s, size_t max_streams)
{
	struct stream_server_options o = {.methods = methods,
					  .max_streams = max_streams,
					  .max_message = 300000,
					  .idle_ms = 60000,
					  .keepalive_ms = 30000,
					  .ping_min_ms = 5000};
	struct stream_server_events server = {on_opened, on_received, on_sent, on_server_closed, s};
	struct grpc_stream_events client = {on_writable, on_message, on_client_closed, s};
	struct error err = {0};

	uv_loop_init(&s->loop);
	uv_timer_init(&s->loop, &s->alarm);
	s->alarm.data = s;
	if (stream_server_new(&o, &server, &s->loop, &s->server, &err) < 0)
		fail_msg("%s", err.message);
	start_listening(s);
	assert_int_equal(grpc_stream_new(&client, &s->loop, &s->client, &err), 0);
}

static void connect_to(struct scene *s, const char *method)
{
	struct grpc_header header = {"authorization", "Bearer abc"};
	struct grpc_stream_options o = {.method = method, .message_max = 1 << 20};
	struct error err = {0};
	char endpoint[64];

	snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", s->port);
	o.client = (struct grpc_client_options){
	    .endpoint = endpoint, .tls = {.insecure = true}, .headers = &header, .n_headers = 1};
	s->writable = false;
	if (grpc_stream_connect(s->client, &o, &err) < 0)
		fail_msg("%s", err.message);
	UNTIL(s, s->writable || s->client_closed);
}

static void end(struct scene *s)
{
	if (s->client)
		grpc_stream_free(s->client);
	stream_server_free(s->server);
	uv_close((uv_handle_t *)&s->alarm, NULL);
	uv_close((uv_handle_t *)&s->listener, NULL);
	close(s->listen_fd);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&s->loop), 0);
}

static void test_messages_go_both_ways_and_the_status_arrives(void **state)
{
	struct scene s = {.echoes = true, .reads = true};
	char *large = calloc(1, LARGE);

	begin(&s, 10);
	connect_to(&s, METHOD);
	assert_int_equal(grpc_stream_send(s.client, large, LARGE), 0);
	UNTIL(&s, s.echoed == LARGE);
	assert_int_equal(s.received, LARGE);
	assert_string_equal(s.authorization, "Bearer abc");
	UNTIL(&s, s.sent == 1);
	server_stream_finish(s.served, RPC_ABORTED, "enough");
	server_stream_finish(s.served, RPC_OK, "the first call counts");
	UNTIL(&s, s.client_closed && s.server_closed);
	assert_int_equal(s.status, RPC_ABORTED);
	assert_string_equal(s.message, "enough");
	free(large);
	end(&s);
}

static void test_a_status_has_words_of_any_bytes(void **state)
{
	struct scene s = {0};

	begin(&s, 10);
	connect_to(&s, METHOD);
	UNTIL(&s, s.opened);
	server_stream_finish(s.served, RPC_UNAVAILABLE, "100 % \xc3\xa4\n");
	UNTIL(&s, s.client_closed && s.server_closed);
	assert_int_equal(s.status, RPC_UNAVAILABLE);
	assert_string_equal(s.message, "100 % \xc3\xa4\n");
	end(&s);
}

/* explicit_bzero() of the server, which is linked to this. */
static atomic_size_t wiped;
void __wrap_explicit_bzero(void *p, size_t n);
void __wrap_explicit_bzero(void *p, size_t n)
{
	memset(p, 0, n);
	__asm__ volatile("" : : "r"(p) : "memory");
	atomic_fetch_add(&wiped, n);
}

static void test_what_was_sent_is_wiped(void **state)
{
	struct scene s = {0};
	size_t before;

	begin(&s, 10);
	connect_to(&s, METHOD);
	UNTIL(&s, s.opened);
	before = atomic_load(&wiped);
	assert_int_equal(server_stream_send(s.served, "a secret", 8), 0);
	UNTIL(&s, s.sent == 1 && s.echoed == 8 && atomic_load(&wiped) >= before + 8);
	end(&s);
}

static void test_nothing_is_read_before_it_is_asked_for(void **state)
{
	struct scene s = {0};

	begin(&s, 10);
	connect_to(&s, METHOD);
	assert_int_equal(grpc_stream_send(s.client, "abc", 3), 0);
	UNTIL(&s, s.opened);
	for (unsigned int i = 0; i < 20; i++) {
		uv_run(&s.loop, UV_RUN_NOWAIT);
		usleep(2000);
	}
	assert_int_equal(s.received, 0);
	server_stream_read(s.served);
	server_stream_read(s.served); /* once */
	UNTIL(&s, s.received == 3);
	end(&s);
}

static void test_a_peer_that_goes_away_closes_its_stream(void **state)
{
	struct scene s = {.reads = true};

	begin(&s, 10);
	connect_to(&s, METHOD);
	UNTIL(&s, s.opened);
	grpc_stream_disconnect(s.client);
	UNTIL(&s, s.server_closed && s.client_closed); /* in either order */
	assert_int_equal(s.client_closed, 1);
	end(&s);
}

static void test_one_message_is_under_way_at_most(void **state)
{
	struct scene s = {0};

	begin(&s, 10);
	connect_to(&s, METHOD);
	UNTIL(&s, s.opened);
	assert_int_equal(server_stream_send(s.served, "a", 1), 0);
	assert_int_equal(server_stream_send(s.served, "b", 1), -EBUSY);
	UNTIL(&s, s.sent == 1);
	assert_int_equal(server_stream_send(s.served, "b", 1), 0);
	server_stream_finish(s.served, RPC_OK, "");
	assert_int_equal(server_stream_send(s.served, "c", 1), -ENOTCONN);
	UNTIL(&s, s.client_closed);
	assert_int_equal(s.echoed, 2); /* what was under way came before the end */
	assert_int_equal(s.status, RPC_OK);
	end(&s);
}

static void test_other_methods_and_too_many_streams_are_refused(void **state)
{
	struct stream_server_counts counts;
	struct scene s = {0};

	begin(&s, 0);
	connect_to(&s, "/x.Y/Other");
	UNTIL(&s, s.client_closed == 1);
	assert_int_equal(s.status, RPC_UNIMPLEMENTED);
	connect_to(&s, METHOD);
	UNTIL(&s, s.client_closed == 2);
	assert_int_equal(s.status, RPC_RESOURCE_EXHAUSTED);
	assert_int_equal(s.opened, 0);
	stream_server_read(s.server, &counts);
	assert_int_equal(counts.unknown_method, 1);
	assert_int_equal(counts.refused, 1);
	end(&s);
}

/* Its callbacks never come, its client hears of it. */
static void test_a_server_is_freed_with_streams_in_every_state(void **state)
{
	struct scene s = {.reads = true};
	char *large = calloc(1, LARGE);

	begin(&s, 10);
	connect_to(&s, METHOD);
	UNTIL(&s, s.opened);
	assert_int_equal(server_stream_send(s.served, large, LARGE), 0);
	assert_int_equal(grpc_stream_send(s.client, large, LARGE), 0);
	s.server = stream_server_free(s.server);
	UNTIL(&s, s.client_closed);
	assert_int_equal(s.server_closed, 0);
	free(large);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_messages_go_both_ways_and_the_status_arrives),
	    cmocka_unit_test(test_a_status_has_words_of_any_bytes),
	    cmocka_unit_test(test_what_was_sent_is_wiped),
	    cmocka_unit_test(test_nothing_is_read_before_it_is_asked_for),
	    cmocka_unit_test(test_a_peer_that_goes_away_closes_its_stream),
	    cmocka_unit_test(test_one_message_is_under_way_at_most),
	    cmocka_unit_test(test_other_methods_and_too_many_streams_are_refused),
	    cmocka_unit_test(test_a_server_is_freed_with_streams_in_every_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
