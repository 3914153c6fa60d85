/* SPDX-License-Identifier: Apache-2.0 */
/* The costs that unauthenticated connections may cause, and which connections are closed first. */
#include <sys/socket.h>
#include <time.h>

#include "operator/frontend/hello.h"
#include "tests/unit/operator/frontend/rig.h"

enum { BRIEF_MS = 300, MANY = 8 };

struct scene {
	struct frontend_rig rig;
	struct client a, b, many[MANY];
};

static struct scene *scene_new(const struct frontend_limits *limits)
{
	struct scene *s = calloc(1, sizeof(*s));

	rig_init(&s->rig, limits);
	return s;
}

static void scene_end(struct scene *s)
{
	struct client *clients[MANY + 2] = {&s->a, &s->b};

	for (size_t i = 0; i < MANY; i++)
		clients[i + 2] = &s->many[i];
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
		if (clients[i]->ssl)
			client_done(clients[i]);
	rig_done(&s->rig);
	free(s);
}

/* ---- the ClientHello ------------------------------------------------------------------------- */

static void who_sends_no_client_hello_is_closed(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.hello_ms = BRIEF_MS});
	uint8_t hello[4096];

	client_connect(&s->rig, &s->a, 1);
	client_connect(&s->rig, &s->b, 1);
	assert_true(client_hello(&s->b, hello, sizeof(hello)) > 100);
	client_send_raw(&s->b, hello, 100); /* not all of it */
	client_until_closed(&s->a);
	client_until_closed(&s->b);
	rig_until_ended(&s->rig, NO_HELLO, 2);
	rig_until(&s->rig, outside, 0);
	scene_end(s);
}

static void who_sends_something_else_is_closed_at_once(void **state)
{
	static const uint8_t large[HELLO_START] = {22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb};
	struct scene *s = scene_new(NULL);

	client_connect(&s->rig, &s->a, 1);
	client_send_raw(&s->a, "GET / HTTP/1.1\r\n", 16);
	client_until_closed(&s->a);
	client_connect(&s->rig, &s->b, 1);
	client_send_raw(&s->b, large, sizeof(large));
	client_until_closed(&s->b);
	rig_until_ended(&s->rig, BAD_HELLO, 2);
	assert_int_equal(rig_stats(&s->rig).handshakes, 0);
	scene_end(s);
}

/* Client a is open, and there is no room for more; b has sent its ClientHello and waits. */
static struct scene *scene_with_one_waiting(void)
{
	struct scene *s = scene_new(&(struct frontend_limits){.opened = 1});
	uint8_t hello[4096];
	size_t n;

	client_open(&s->rig, &s->a, 1);
	client_connect(&s->rig, &s->b, 1);
	n = client_hello(&s->b, hello, sizeof(hello));
	client_send_raw(&s->b, hello, n);
	rig_until(&s->rig, outside, 1);
	return s;
}

static void who_sends_on_before_its_turn_is_closed(void **state)
{
	struct scene *s = scene_with_one_waiting();

	client_send_raw(&s->b, "x", 1);
	client_until_closed(&s->b);
	rig_until_ended(&s->rig, BAD_HELLO, 1);
	assert_true(client_is_open(&s->a));
	scene_end(s);
}

static void who_leaves_before_its_turn_leaves_nothing(void **state)
{
	struct scene *s = scene_with_one_waiting();

	shutdown(s->b.fd, SHUT_RDWR);
	rig_until(&s->rig, outside, 0);
	rig_until_ended(&s->rig, PEER, 1);
	scene_end(s);
}

/* ---- time and bytes -------------------------------------------------------------------------- */

static void who_is_not_granted_in_time_is_closed(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.grant_ms = BRIEF_MS});

	client_open(&s->rig, &s->a, 1);
	client_join(&s->rig, &s->b, 1);
	client_until_closed(&s->a);
	client_until_closed(&s->b);
	rig_until_ended(&s->rig, NOT_GRANTED, 2);
	rig_until(&s->rig, opened, 0);
	scene_end(s);
}

static void who_is_granted_stays_until_its_stream_ends(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.grant_ms = BRIEF_MS});

	client_join(&s->rig, &s->a, 1);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_PENDING);
	rig_judge(&s->rig, 0, FRONTEND_PENDING, FRONTEND_GRANTED);
	rig_until(&s->rig, granted, 1);
	usleep(3000 * BRIEF_MS);
	assert_true(client_is_open(&s->a));
	rig_judge(&s->rig, 0, FRONTEND_GRANTED, FRONTEND_UNAUTHENTICATED);
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, NOT_GRANTED, 1);
	scene_end(s);
}

static void of_two_streams_one_that_is_granted_is_enough(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.grant_ms = BRIEF_MS});

	client_join(&s->rig, &s->a, 1);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_REFUSED);
	rig_judge(&s->rig, 0, FRONTEND_GRANTED, FRONTEND_UNAUTHENTICATED);
	usleep(3000 * BRIEF_MS);
	assert_true(client_is_open(&s->a));
	assert_int_equal(rig_stats(&s->rig).granted, 1);
	scene_end(s);
}

static void who_is_being_verified_is_not_cut(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.grant_ms = BRIEF_MS});

	client_join(&s->rig, &s->a, 1);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_PENDING);
	usleep(3000 * BRIEF_MS);
	assert_true(client_is_open(&s->a));
	rig_judge(&s->rig, 0, FRONTEND_PENDING, FRONTEND_UNAUTHENTICATED);
	client_until_closed(&s->a);
	scene_end(s);
}

static void who_is_refused_is_closed(void **state)
{
	struct scene *s = scene_new(NULL);

	client_join(&s->rig, &s->a, 1);
	client_join(&s->rig, &s->b, 1);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_REFUSED);
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, REFUSED, 1);
	assert_true(client_is_open(&s->b));
	scene_end(s);
}

static void unauthenticated_connections_may_send_little(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.unauthenticated_bytes = 10000});
	char bytes[6000] = "";

	client_join(&s->rig, &s->a, 1);
	client_join(&s->rig, &s->b, 1);
	rig_judge(&s->rig, 1, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
	rig_until(&s->rig, granted, 1);
	assert_true(client_send_frame(&s->a, FRAME_DATA, bytes, sizeof(bytes)));
	for (int i = 0; i < 4; i++)
		assert_true(client_send_frame(&s->b, FRAME_DATA, bytes, sizeof(bytes)));
	(void)client_send_frame(&s->a, FRAME_DATA, bytes, sizeof(bytes));
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, TOO_MUCH, 1);
	assert_true(client_is_open(&s->b));
	scene_end(s);
}

static void unauthenticated_connections_may_send_few_frames(void **state)
{
	struct scene *s = scene_new(NULL);

	client_join(&s->rig, &s->a, 1);
	for (int i = 0; i < 100; i++)
		assert_true(client_send_frame(&s->a, FRAME_PING, "12345678", 8));
	usleep(20000);
	assert_true(client_is_open(&s->a));
	(void)client_send_frame(&s->a, FRAME_PING, "12345678", 8);
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, TOO_MUCH, 1);
	scene_end(s);
}

/* HTTP/2 rapid reset and endless CONTINUATION begin with many such frames. */
static void unauthenticated_connections_may_call_a_few_times(void **state)
{
	static const uint8_t types[] = {FRAME_HEADERS, FRAME_CONTINUATION};
	struct scene *s = scene_new(NULL);

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		client_join(&s->rig, &s->many[i], 1);
		for (int n = 0; n < 4; n++)
			assert_true(client_send_frame(&s->many[i], types[i], "x", 1));
		usleep(20000);
		assert_true(client_is_open(&s->many[i]));
		(void)client_send_frame(&s->many[i], types[i], "x", 1);
		client_until_closed(&s->many[i]);
		rig_until_ended(&s->rig, TOO_MUCH, i + 1);
	}
	scene_end(s);
}

static void the_granted_may_call_once_a_second_in_the_long_run(void **state)
{
	struct scene *s = scene_new(NULL);
	int n = 0;

	client_join(&s->rig, &s->a, 1);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
	rig_until(&s->rig, granted, 1);
	while (n < 1000 && client_send_frame(&s->a, FRAME_HEADERS, "x", 1) && ++n < 32)
		;
	usleep(20000);
	assert_true(client_is_open(&s->a));
	while (n < 1000 && client_send_frame(&s->a, FRAME_HEADERS, "x", 1))
		n++;
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, TOO_MUCH, 1);
	scene_end(s);
}

static void what_is_not_http2_is_closed(void **state)
{
	uint8_t header[FRAMES_HEADER];
	struct scene *s = scene_new(NULL);

	client_open(&s->rig, &s->a, 1);
	assert_int_equal(SSL_write(s->a.ssl, "GET / HTTP/1.1\r\n", 16), 16);
	client_until_closed(&s->a);
	client_join(&s->rig, &s->b, 1);
	frame_header(header, FRAMES_LENGTH_MAX + 1, FRAME_DATA);
	assert_int_equal(SSL_write(s->b.ssl, header, sizeof(header)), sizeof(header));
	client_until_closed(&s->b);
	rig_until_ended(&s->rig, BAD_FRAMES, 2);
	assert_int_equal(s->rig.n_joined, 1);
	scene_end(s);
}

/* ---- room ------------------------------------------------------------------------------------ */

static void when_the_outside_is_full_the_address_that_has_most_goes_first(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.outside = MANY});

	for (size_t i = 0; i < MANY; i++)
		client_connect(&s->rig, &s->many[i], 1);
	rig_until(&s->rig, outside, MANY);
	client_connect(&s->rig, &s->a, 1); /* one more from the same address */
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, NO_ROOM, 1);
	client_connect(&s->rig, &s->b, 2);
	client_until_closed(&s->many[0]); /* the oldest from its address */
	rig_until_ended(&s->rig, DISPLACED, 1);
	for (size_t i = 1; i < MANY; i++)
		assert_true(client_is_open(&s->many[i]));
	assert_true(client_shake(&s->b));
	scene_end(s);
}

static void an_address_may_have_all_the_room_that_no_other_wants(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.outside = MANY, .opened = MANY});

	for (size_t i = 0; i < MANY; i++)
		client_open(&s->rig, &s->many[i], 1);
	rig_until(&s->rig, opened, MANY);
	assert_int_equal(rig_stats(&s->rig).ended[FRONTEND_END_DISPLACED], 0);
	scene_end(s);
}

static void when_all_places_are_taken_the_address_that_has_most_goes_first(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.opened = MANY});

	client_join(&s->rig, &s->many[0], 1);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_PENDING);
	for (size_t i = 1; i < MANY; i++)
		client_open(&s->rig, &s->many[i], 1);
	rig_until(&s->rig, opened, MANY);
	client_open(&s->rig, &s->a, 2);
	client_until_closed(&s->many[1]); /* the oldest that is not being verified */
	rig_until_ended(&s->rig, DISPLACED, 1);
	assert_true(client_is_open(&s->many[0]));
	for (size_t i = 2; i < MANY; i++)
		assert_true(client_is_open(&s->many[i]));
	scene_end(s);
}

static void who_is_granted_takes_no_place_and_is_kept_when_all_are_taken(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.outside = 2, .opened = 2});

	for (size_t i = 0; i < MANY; i++) {
		client_join(&s->rig, &s->many[i], 1);
		rig_judge(&s->rig, i, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
		rig_until(&s->rig, granted, i + 1);
	}
	client_open(&s->rig, &s->a, 1);
	client_open(&s->rig, &s->b, 2);
	for (size_t i = 0; i < MANY; i++)
		assert_true(client_is_open(&s->many[i]));
	assert_int_equal(rig_stats(&s->rig).ended[FRONTEND_END_DISPLACED], 0);
	scene_end(s);
}

/* Idle connections lose their places sooner while others wait. */
static void places_are_given_on_sooner_while_others_wait(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.opened = 1, .spare_ms = BRIEF_MS});

	client_open(&s->rig, &s->a, 1);
	client_open(&s->rig, &s->b, 2);
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, NOT_GRANTED, 1);
	assert_true(client_is_open(&s->b));
	scene_end(s);
}

static void trusted_addresses_go_before_all_others(void **state)
{
	struct scene *s =
	    scene_new(&(struct frontend_limits){.outside = MANY / 2, .opened = MANY / 2});

	frontend_trust(s->rig.frontend, "127.0.0.200");
	/* One connection of each address: nobody has most. */
	for (unsigned int i = 0; i < MANY / 2; i++)
		client_open(&s->rig, &s->many[i], 1 + i);
	for (unsigned int i = MANY / 2; i < MANY; i++)
		client_connect(&s->rig, &s->many[i], 1 + i);
	rig_until(&s->rig, outside, MANY / 2);
	client_connect(&s->rig, &s->a, 100);
	client_until_closed(&s->a);
	rig_until_ended(&s->rig, NO_ROOM, 1);
	client_open(&s->rig, &s->b, 200);
	client_until_closed(&s->many[MANY / 2]); /* the oldest outside */
	client_until_closed(&s->many[0]);	 /* the oldest that was open */
	rig_until_ended(&s->rig, DISPLACED, 2);
	scene_end(s);
}

static void an_address_that_was_granted_is_trusted(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.outside = 2, .opened = 2});

	client_join(&s->rig, &s->a, 200);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
	rig_until(&s->rig, granted, 1);
	for (unsigned int i = 0; i < 2; i++)
		client_open(&s->rig, &s->many[i], 1 + i);
	for (unsigned int i = 2; i < 4; i++)
		client_connect(&s->rig, &s->many[i], 1 + i);
	rig_until(&s->rig, outside, 2);
	client_open(&s->rig, &s->b, 200);
	client_until_closed(&s->many[2]); /* the oldest outside */
	client_until_closed(&s->many[0]); /* the oldest that was open */
	rig_until_ended(&s->rig, DISPLACED, 2);
	assert_true(client_is_open(&s->a));
	scene_end(s);
}

/* An address from which an agent was granted cannot take all places. */
static void a_trusted_address_that_has_a_quarter_is_one_of_all(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.opened = MANY, .outside = MANY});

	frontend_trust(s->rig.frontend, "127.0.0.200");
	for (unsigned int i = 0; i < 3; i++)
		client_open(&s->rig, &s->many[i], 200);
	for (unsigned int i = 3; i < MANY; i++)
		client_open(&s->rig, &s->many[i], 1 + i);
	client_connect(&s->rig, &s->a, 200);
	client_open(&s->rig, &s->b, 1);
	client_until_closed(&s->many[0]);
	for (unsigned int i = 3; i < MANY; i++)
		assert_true(client_is_open(&s->many[i]));
	scene_end(s);
}

static void handshakes_have_a_rate(void **state)
{
	enum { CLIENTS = 60, BURST = 32 };
	struct scene *s =
	    scene_new(&(struct frontend_limits){.handshakes_per_s = 1, .turn_ms = 500});
	struct client clients[CLIENTS];
	time_t began = time(NULL);
	struct frontend_stats stats;
	uint8_t hello[4096];

	for (size_t i = 0; i < CLIENTS; i++) {
		client_connect(&s->rig, &clients[i], 1);
		client_send_raw(&clients[i], hello,
				client_hello(&clients[i], hello, sizeof(hello)));
	}
	rig_until(&s->rig, outside, 0);
	stats = rig_stats(&s->rig);
	assert_in_range(stats.handshakes, BURST, BURST + 1 + (size_t)(time(NULL) - began));
	assert_int_equal(stats.ended[FRONTEND_END_NO_TURN], CLIENTS - stats.handshakes);
	for (size_t i = 0; i < CLIENTS; i++)
		client_done(&clients[i]);
	scene_end(s);
}

static void connections_that_are_gone_are_not_found(void **state)
{
	struct scene *s = scene_new(NULL);
	struct frontend_ref ref;

	client_join(&s->rig, &s->a, 1);
	ref = frontend_find(s->rig.frontend, rig_joined(&s->rig, 0));
	assert_true(ref.id > 0);
	shutdown(s->a.fd, SHUT_RDWR);
	shutdown(rig_joined(&s->rig, 0), SHUT_RDWR);
	rig_until(&s->rig, opened, 0);
	assert_int_equal(frontend_find(s->rig.frontend, ref.fd).id, 0);
	assert_int_equal(frontend_find(s->rig.frontend, -1).id, 0);
	assert_int_equal(frontend_find(s->rig.frontend, 1 << 20).id, 0);
	/*
	 * The descriptor's number is used again: the old connection's report must not grant the new
	 * connection.
	 */
	frontend_report_auth(s->rig.frontend, &ref, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
	client_join(&s->rig, &s->b, 1);
	rig_until(&s->rig, opened, 1);
	assert_int_equal(rig_stats(&s->rig).granted, 0);
	scene_end(s);
}

static void a_frontend_is_closed_with_connections_in_every_state(void **state)
{
	struct scene *s = scene_new(&(struct frontend_limits){.opened = 2});
	uint8_t hello[4096];
	size_t n;

	client_join(&s->rig, &s->many[0], 1);
	rig_judge(&s->rig, 0, FRONTEND_UNAUTHENTICATED, FRONTEND_GRANTED);
	rig_until(&s->rig, granted, 1);
	client_open(&s->rig, &s->many[1], 1);
	client_join(&s->rig, &s->many[2], 1);
	client_connect(&s->rig, &s->a, 1);
	n = client_hello(&s->a, hello, sizeof(hello));
	client_send_raw(&s->a, hello, n);
	client_connect(&s->rig, &s->b, 1);
	rig_until(&s->rig, outside, 2);
	s->rig.frontend = frontend_free(s->rig.frontend);
	client_until_closed(&s->a);
	client_until_closed(&s->b);
	for (size_t i = 0; i < 3; i++)
		client_until_closed(&s->many[i]);
	scene_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(who_sends_no_client_hello_is_closed),
	    cmocka_unit_test(who_sends_something_else_is_closed_at_once),
	    cmocka_unit_test(who_sends_on_before_its_turn_is_closed),
	    cmocka_unit_test(who_leaves_before_its_turn_leaves_nothing),
	    cmocka_unit_test(who_is_not_granted_in_time_is_closed),
	    cmocka_unit_test(who_is_granted_stays_until_its_stream_ends),
	    cmocka_unit_test(of_two_streams_one_that_is_granted_is_enough),
	    cmocka_unit_test(who_is_being_verified_is_not_cut),
	    cmocka_unit_test(who_is_refused_is_closed),
	    cmocka_unit_test(unauthenticated_connections_may_send_little),
	    cmocka_unit_test(unauthenticated_connections_may_send_few_frames),
	    cmocka_unit_test(unauthenticated_connections_may_call_a_few_times),
	    cmocka_unit_test(the_granted_may_call_once_a_second_in_the_long_run),
	    cmocka_unit_test(what_is_not_http2_is_closed),
	    cmocka_unit_test(when_the_outside_is_full_the_address_that_has_most_goes_first),
	    cmocka_unit_test(an_address_may_have_all_the_room_that_no_other_wants),
	    cmocka_unit_test(when_all_places_are_taken_the_address_that_has_most_goes_first),
	    cmocka_unit_test(who_is_granted_takes_no_place_and_is_kept_when_all_are_taken),
	    cmocka_unit_test(places_are_given_on_sooner_while_others_wait),
	    cmocka_unit_test(trusted_addresses_go_before_all_others),
	    cmocka_unit_test(an_address_that_was_granted_is_trusted),
	    cmocka_unit_test(a_trusted_address_that_has_a_quarter_is_one_of_all),
	    cmocka_unit_test(handshakes_have_a_rate),
	    cmocka_unit_test(connections_that_are_gone_are_not_found),
	    cmocka_unit_test(a_frontend_is_closed_with_connections_in_every_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
