/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proto_generation: auto, with receivers that accept one form of OTLP profiles, the other, both or
 * neither. The requests that they accept are compared, byte for byte, with the encoder's output.
 */
#include "agent/export/sender.h"

#include <setjmp.h>
#include <stdarg.h>
#include <zstd.h>
#include <cmocka.h>

#include "agent/profile/otlp_convert.h"
#include "lib/gzip.h"
#include "tests/support/log_capture.h"
#include "tests/support/sample_batch.h"

enum { OLD = 1 << OTLP_G5, NEW = 1 << OTLP_G6, SEEN_MAX = 64 };

/* ---- the receiver ---------------------------------------------------------------------------- */

struct receiver {
	struct transport transport;
	uv_timer_t timer;
	unsigned int takes; /* OLD, NEW */
	bool away, connected;
	bool bound, moved; /* HTTP: stay() was asked for; the next connection is new */
	bool final;	   /* refuses requests for a reason that is not their form */
	enum otlp_generation seen[SEEN_MAX]; /* by attempt */
	size_t n_seen, taken;
	void (*done)(const struct transport_answer *answer, void *arg);
	void *arg;
};

/*
 * By form: as the encoder makes it, and as converted from the other form (fields in another order).
 */
static struct otlp_request expected[2][2];
static const enum otlp_generation forms[] = {OTLP_G5, OTLP_G6};

/* The generation of P, by its bytes. */
static enum otlp_generation generation_of(const struct payload *p)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len = 0;

	if (p->encoding == PAYLOAD_GZIP) {
		assert_int_equal(gzip_expand(p->data, p->len, 1 << 20, &data, &len), 0);
	} else {
		data = malloc(1 << 20);
		assert_non_null(data);
		len = p->len;
		if (p->encoding == PAYLOAD_ZSTD)
			len = ZSTD_decompress(data, 1 << 20, p->data, p->len);
		else
			memcpy(data, p->data, p->len);
	}
	for (size_t i = 0; i < 4; i++) {
		const struct otlp_request *e = &expected[i / 2][i % 2];

		if (len == e->len && memcmp(data, e->data, len) == 0)
			return forms[i / 2];
	}
	fail_msg("a request of no generation");
	return OTLP_G4;
}

static void answer_now(uv_timer_t *timer)
{
	struct receiver *r = container_of(timer, struct receiver, timer);
	struct transport_answer a = {.message = ""};

	if (r->moved && r->bound) {
		a.result = TRANSPORT_RETRY;
		a.elsewhere = true;
		r->n_seen--;
	} else if (r->away) {
		a.result = TRANSPORT_RETRY;
		a.away = true;
	} else if (r->takes & (1U << r->seen[r->n_seen - 1])) {
		a.result = TRANSPORT_SENT;
		r->taken++;
	} else {
		a.result = TRANSPORT_REJECTED;
		a.maybe_form = !r->final;
		a.message = "cannot be parsed";
	}
	r->moved = false;
	r->done(&a, r->arg);
}

static int receiver_send(struct transport *t, const struct payload *p, uint64_t timeout_ms,
			 void (*done)(const struct transport_answer *, void *), void *arg)
{
	struct receiver *r = container_of(t, struct receiver, transport);

	r->done = done;
	r->arg = arg;
	assert_true(r->n_seen < SEEN_MAX);
	r->seen[r->n_seen++] = generation_of(p);
	uv_timer_start(&r->timer, answer_now, 0, 0);
	return 0;
}

static bool receiver_cancel(struct transport *t)
{
	struct receiver *r = container_of(t, struct receiver, transport);

	uv_timer_stop(&r->timer);
	return false;
}

static bool receiver_connected(struct transport *t)
{
	return container_of(t, struct receiver, transport)->connected;
}

static void receiver_stay(struct transport *t, bool stay)
{
	container_of(t, struct receiver, transport)->bound = stay;
}

static struct transport *receiver_destroy(struct transport *t)
{
	struct receiver *r = container_of(t, struct receiver, transport);

	uv_close((uv_handle_t *)&r->timer, NULL);
	return NULL;
}

/* ---- a bench --------------------------------------------------------------------------------- */

static struct {
	uv_loop_t loop;
	struct receiver r, other;
	struct batch *batch;
	struct sender *sender;
	struct sender_stats stats;
	struct exporter_config config;
	struct sender_options options;
	char dir[64];
	int64_t samples; /* of a request */
} t;

static int expect(size_t i)
{
	struct otlp_options o = {.generation = forms[i]};
	struct otlp_request *requests, *made = &expected[i][0], *other = &expected[!i][1];
	struct error err;
	size_t n;

	if (otlp_encode(t.batch, &o, &requests, &n, &err) < 0 || n != 1)
		return -1;
	*made = *other = requests[0];
	free(requests);
	t.samples = made->samples;
	other->data = malloc(made->len);
	if (!other->data)
		return -1;
	memcpy(other->data, made->data, made->len);
	return otlp_convert(other->data, other->len, forms[i], forms[!i]);
}

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	uv_loop_init(&t.loop);
	t.config = (struct exporter_config){
	    .id = (char *)"otlp",
	    .endpoint = (char *)"host:1",
	    .timeout_ms = 1000,
	    .retry = {.enabled = true,
		      .initial_interval_ms = 1,
		      .multiplier = 1.0,
		      .max_interval_ms = 1},
	    .queue = {.enabled = true,
		      .queue_size = 100,
		      .max_bytes = 1 << 20,
		      .storage_max_bytes = 1 << 20},
	};
	t.options = (struct sender_options){
	    .config = &t.config,
	    .otlp.generation = OTLP_G6,
	    .generation_auto = true,
	    .encoding = PAYLOAD_PLAIN,
	    .encodings = 1u << PAYLOAD_PLAIN | 1u << PAYLOAD_GZIP | 1u << PAYLOAD_ZSTD,
	    .encode = otlp_encode,
	};
	if (sample_batch_build(&t.batch) < 0)
		return -1;
	for (size_t i = 0; i < 2; i++)
		if (expect(i) < 0)
			return -1;
	snprintf(t.dir, sizeof(t.dir), "/tmp/kiln-generation-XXXXXX");
	return mkdtemp(t.dir) ? 0 : -1;
}

static void begin(struct receiver *r, unsigned int takes)
{
	static const struct transport_ops ops = {.send = receiver_send,
						 .cancel = receiver_cancel,
						 .connected = receiver_connected,
						 .stay = receiver_stay,
						 .destroy = receiver_destroy};

	*r = (struct receiver){.transport.ops = &ops, .takes = takes, .connected = true};
	uv_timer_init(&t.loop, &r->timer);
}

static void start(unsigned int takes)
{
	struct error err;

	begin(&t.r, takes);
	assert_int_equal(sender_new(&t.options, &t.r.transport, &t.loop, &t.sender, &err), 0);
}

static void stop(void)
{
	t.sender = sender_free(t.sender);
	uv_run(&t.loop, UV_RUN_DEFAULT);
}

static int teardown(void **state)
{
	char command[128];

	if (t.sender)
		stop();
	assert_int_equal(uv_loop_close(&t.loop), 0);
	batch_unref(t.batch);
	for (size_t i = 0; i < 4; i++)
		free(expected[i / 2][i % 2].data);
	snprintf(command, sizeof(command), "rm -r %s", t.dir);
	return system(command) != 0;
}

static uint64_t done(void)
{
	sender_get_stats(t.sender, &t.stats);
	return t.stats.sent_requests + t.stats.dropped_requests[DROP_REJECTED] +
	       t.stats.dropped_requests[DROP_ENCODING];
}

/* Sends N requests, one after the other; each ends as sent or dropped. */
static void send_all(size_t n)
{
	for (uint64_t end = done() + n; done() < end;) {
		uint64_t before = done();

		sender_consume(t.sender, t.batch);
		while (done() == before)
			uv_run(&t.loop, UV_RUN_ONCE);
	}
}

static void assert_seen(const struct receiver *r, const char *generations)
{
	assert_int_equal(r->n_seen, strlen(generations));
	for (size_t i = 0; i < r->n_seen; i++)
		assert_int_equal(r->seen[i], OTLP_G4 + generations[i] - '4');
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_receiver_of_the_newest_form_is_sent_no_other(void **state)
{
	start(NEW);
	send_all(3);
	assert_seen(&t.r, "666");
	assert_int_equal(t.r.taken, 3);
}

/* A receiver of both forms may answer the older form with success and store nothing. */
static void one_that_takes_both_is_sent_the_newest(void **state)
{
	start(OLD | NEW);
	send_all(2);
	assert_seen(&t.r, "66");
}

static void the_first_line_tells_the_form_that_is_taken(void **state)
{
	char words[64];

	for (size_t i = 0; i < 2; i++) {
		log_capture_clear();
		start(i ? NEW : OLD);
		send_all(2);
		stop();
		snprintf(words, sizeof(words), "takes profiles: %lld samples, as OTLP %s",
			 (long long)t.samples, i ? "v1.10 and v1.11" : "v1.8 and v1.9");
		assert_int_equal(log_capture_count(words), 1);
	}
}

static void a_receiver_of_the_older_form_loses_nothing(void **state)
{
	for (enum payload_encoding e = PAYLOAD_PLAIN; e < PAYLOAD_ENCODINGS; e++) {
		t.options.encoding = e;
		start(OLD);
		send_all(4);
		assert_seen(&t.r, "65555");
		assert_int_equal(t.r.taken, 4);
		assert_int_equal(t.stats.sent_samples, 4 * t.samples);
		assert_int_equal(t.stats.dropped_requests[DROP_REJECTED], 0);
		assert_int_equal(t.stats.queue_requests, 0);
		stop();
	}
}

static void what_waited_is_sent_in_the_form_that_is_taken(void **state)
{
	start(OLD);
	t.r.away = true;
	for (int i = 0; i < 5; i++)
		sender_consume(t.sender, t.batch);
	while (t.r.n_seen < 3 || t.stats.queue_requests < 5) {
		uv_run(&t.loop, UV_RUN_ONCE);
		(void)done();
	}
	t.r.away = false;
	t.r.n_seen = 0;
	while (done() < 5)
		uv_run(&t.loop, UV_RUN_ONCE);
	assert_seen(&t.r, "655555");
	assert_int_equal(t.r.taken, 5);
}

static void one_that_takes_neither_is_not_asked_twice_for_each(void **state)
{
	start(0);
	send_all(5);
	assert_seen(&t.r, "656666");
	assert_int_equal(t.stats.dropped_requests[DROP_REJECTED], 5);
	assert_int_equal(t.stats.dropped_samples[DROP_REJECTED], 5 * t.samples);
	assert_false(sender_healthy(t.sender, (char[64]){}, 64));
	assert_true(sender_refused(t.sender, (char[64]){}, 64));
	t.r.takes = NEW;
	send_all(1);
	assert_false(sender_refused(t.sender, (char[64]){}, 64));
}

static const char *refusal(void)
{
	static char words[1024];

	assert_false(sender_healthy(t.sender, words, sizeof(words)));
	return words;
}

static void a_refusal_tells_in_which_form_it_was_sent(void **state)
{
	log_capture_clear();
	start(0);
	for (int i = 0; i < 2; i++) { /* the second is sent in one form only */
		send_all(1);
		assert_string_equal(refusal(), "rejects: cannot be parsed (refused in both forms "
					       "of OTLP profiles: v1.10 and v1.11, v1.8 and v1.9)");
	}
	assert_int_equal(log_capture_count(": cannot be parsed (refused in both forms of OTLP"), 1);
	t.r.final = true;
	send_all(1);
	assert_string_equal(refusal(), "rejects: cannot be parsed");
	stop();
	t.options.generation_auto = false;
	start(0);
	send_all(1);
	assert_string_equal(refusal(),
			    "rejects: cannot be parsed (sent as OTLP v1.10 and v1.11, as "
			    "proto_generation says; with auto the agent finds out which form is "
			    "taken)");
	stop();
	t.options.otlp.generation = OTLP_G5;
	start(0);
	send_all(1);
	assert_non_null(strstr(refusal(), "(sent as OTLP v1.8 and v1.9, as proto_generation says"));
}

/* E.g. no permission. */
static void a_refusal_that_is_not_for_the_form_is_final(void **state)
{
	start(OLD);
	t.r.final = true;
	send_all(2);
	assert_seen(&t.r, "66");
	assert_int_equal(t.stats.dropped_requests[DROP_REJECTED], 2);
}

static void a_generation_that_was_asked_for_is_kept(void **state)
{
	t.options.generation_auto = false;
	start(OLD);
	send_all(2);
	assert_seen(&t.r, "66");
	stop();
	t.options.otlp.generation = OTLP_G5;
	start(OLD);
	send_all(2);
	assert_seen(&t.r, "55");
}

static void another_receiver_is_asked_for_the_newest_again(void **state)
{
	start(OLD);
	send_all(2);
	begin(&t.other, NEW);
	sender_set_transport(t.sender, &t.other.transport);
	send_all(2);
	assert_seen(&t.r, "655");
	assert_seen(&t.other, "66");
}

static void one_that_was_away_may_be_a_newer_one(void **state)
{
	start(OLD);
	send_all(1);
	t.r.away = true;
	t.r.n_seen = 0;
	sender_consume(t.sender, t.batch);
	while (t.r.n_seen == 0 || !t.stats.down) {
		uv_run(&t.loop, UV_RUN_ONCE);
		(void)done();
	}
	t.r.away = false;
	t.r.takes = NEW;
	t.r.n_seen = 0;
	while (done() < 2)
		uv_run(&t.loop, UV_RUN_ONCE);
	assert_int_equal(t.r.seen[t.r.n_seen - 1], OTLP_G6);
	assert_int_equal(t.stats.sent_requests, 2);
}

/* A rolling update breaks the connection between two requests. */
static void a_new_connection_may_be_to_a_newer_one(void **state)
{
	start(OLD);
	send_all(2);
	t.r.connected = false;
	send_all(1);
	assert_seen(&t.r, "65565");
	t.r.takes = OLD | NEW;
	send_all(1);
	t.r.connected = true;
	send_all(1);
	assert_seen(&t.r, "6556566");
}

/* With HTTP a new connection is noticed only when a request is about to be sent: that request is
 * held back. */
static void a_request_of_the_older_form_goes_over_no_new_connection(void **state)
{
	start(OLD);
	send_all(2);
	assert_true(t.r.bound);
	t.r.moved = true;
	t.r.takes = OLD | NEW;
	send_all(2);
	assert_seen(&t.r, "65566");
	assert_false(t.r.bound);
	assert_int_equal(t.stats.retries, 0);
	assert_int_equal(t.stats.dropped_requests[DROP_REJECTED], 0);
}

/* A server that keeps no connection is not asked for the newest form each time. */
static void one_that_keeps_no_connection_is_asked_once(void **state)
{
	start(OLD);
	send_all(1);
	for (int i = 0; i < 4; i++) {
		t.r.moved = true;
		send_all(1);
	}
	assert_seen(&t.r, "6565555");
	assert_int_equal(t.stats.sent_requests, 5);
}

static void what_is_on_disk_has_its_generation(void **state)
{
	t.config.queue.storage = t.dir;
	start(OLD);
	t.r.away = true;
	sender_consume(t.sender, t.batch);
	while (t.r.n_seen < 1)
		uv_run(&t.loop, UV_RUN_ONCE);
	sender_flush(t.sender, 0, (void (*)(void *))(void *)uv_stop, &t.loop);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	stop();
	/* The configuration has changed meanwhile. */
	t.options.generation_auto = false;
	t.options.otlp.generation = OTLP_G5;
	start(OLD);
	while (done() < 1 || t.stats.spool_requests)
		uv_run(&t.loop, UV_RUN_ONCE);
	assert_seen(&t.r, "5");
	assert_int_equal(t.stats.sent_requests, 1);
}

static void the_end_may_come_at_any_turn(void **state)
{
	for (int turns = 0; turns < 20; turns++) {
		start(OLD);
		sender_consume(t.sender, t.batch);
		for (int i = 0; i < turns; i++)
			uv_run(&t.loop, UV_RUN_NOWAIT);
		stop();
	}
}

/* E.g. a request that is read from a damaged file. */
static void what_is_damaged_is_not_converted(void **state)
{
	struct payload p;

	for (enum payload_encoding e = PAYLOAD_PLAIN; e < PAYLOAD_ENCODINGS; e++) {
		assert_int_equal(
		    payload_compress(e, expected[1][0].data, expected[1][0].len, t.samples, &p), 0);
		p.generation = OTLP_G6;
		for (size_t len = p.len; len-- > 0;) {
			struct payload cut = p;
			uint8_t *data = malloc(len + 1);

			assert_non_null(data);
			memcpy(data, p.data, len);
			cut.data = data;
			cut.len = len;
			/* Uncompressed data that is cut between two fields is valid. */
			if (payload_convert(&cut, OTLP_G5) < 0)
				assert_ptr_equal(cut.data, data);
			else
				assert_int_equal(e, PAYLOAD_PLAIN);
			payload_done(&cut);
		}
		payload_done(&p);
	}
}

/* The sizes in gzip and zstd headers are not trusted. */
static void what_claims_to_be_huge_is_not_expanded(void **state)
{
	size_t n = PAYLOAD_EXPANDED_MAX + 1, room = gzip_bound(n);
	_cleanup_free_ uint8_t *zeros = calloc(1, n), *out = malloc(room);
	struct payload p = {.data = out, .encoding = PAYLOAD_GZIP, .generation = OTLP_G6};

	assert_true(zeros && out);
	assert_int_equal(gzip_compress(1, zeros, n, out, room, &p.len), 0);
	assert_int_equal(payload_convert(&p, OTLP_G5), -E2BIG);
	p.encoding = PAYLOAD_ZSTD;
	p.len = ZSTD_compress(out, room, zeros, n, 1);
	assert_int_equal(payload_convert(&p, OTLP_G5), -E2BIG);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_receiver_of_the_newest_form_is_sent_no_other),
	    TEST(one_that_takes_both_is_sent_the_newest),
	    TEST(the_first_line_tells_the_form_that_is_taken),
	    TEST(a_receiver_of_the_older_form_loses_nothing),
	    TEST(what_waited_is_sent_in_the_form_that_is_taken),
	    TEST(one_that_takes_neither_is_not_asked_twice_for_each),
	    TEST(a_refusal_tells_in_which_form_it_was_sent),
	    TEST(a_refusal_that_is_not_for_the_form_is_final),
	    TEST(a_generation_that_was_asked_for_is_kept),
	    TEST(another_receiver_is_asked_for_the_newest_again),
	    TEST(one_that_was_away_may_be_a_newer_one),
	    TEST(a_new_connection_may_be_to_a_newer_one),
	    TEST(a_request_of_the_older_form_goes_over_no_new_connection),
	    TEST(one_that_keeps_no_connection_is_asked_once),
	    TEST(what_is_on_disk_has_its_generation),
	    TEST(the_end_may_come_at_any_turn),
	    TEST(what_is_damaged_is_not_converted),
	    TEST(what_claims_to_be_huge_is_not_expanded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
