/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sender on a loop of its own, with a transport whose answers the test scripts and an encoder
 * that writes the batch's number. The loop is real; retry intervals are 1 ms.
 */
#pragma once

#include "agent/export/sender.h"
#include "tests/support/test.h"

enum { SEEN_MAX = 4096, TURNS_MAX = 200000, SAMPLES = 3, WAIT_S = 60 };

extern const struct transport_answer answer_sent, answer_busy, answer_away, answer_rejected;

struct fake {
	struct transport transport;
	uv_timer_t timer;
	const struct transport_answer **script; /* NULL-terminated; then SENT for ever */
	bool silent;				/* never answers */
	int refuse;				/* this many sends fail to begin */
	uint64_t seen[SEEN_MAX];		/* batch numbers */
	size_t n_seen;
	int under_way, cancels, destroyed;
	const struct payload *payload; /* of the request in progress: must not change */
	void (*done)(const struct transport_answer *answer, void *arg);
	void *arg;
};

extern const struct transport_ops fake_ops;

/*
 * Each batch becomes bench_encode_requests requests of bench_encode_len bytes, or encoding fails.
 */
extern _Atomic size_t bench_encoded; /* batches, counted on the pool's threads */
extern int bench_encode_result;
extern size_t bench_encode_len, bench_encode_requests;
int fake_encode(const struct batch *b, const struct otlp_options *options,
		struct otlp_request **ret, size_t *ret_n, struct error *err);

struct bench {
	uv_loop_t loop;
	struct fake fake;
	struct exporter_config config;
	struct sender *sender;
	struct sender_stats st; /* as run_until() read them last */
	int flushed;
	bool free_when_flushed;
	char dir[64]; /* for a spool */
};

int bench_setup(void **state);
int bench_teardown(void **state);
int bench_start(struct bench *b);
void bench_stop(struct bench *b);
void bench_answer(struct bench *b); /* answers the request in progress */
struct batch *bench_batch(uint64_t number);
void bench_consume(struct bench *b, uint64_t first, size_t n);
void bench_flushed(void *bench); /* the callback of sender_flush() */
void bench_flush(struct bench *b, uint64_t deadline_ms);
/* Asserts that batches FIRST to FIRST + N - 1 were sent, each once and in order. */
void bench_assert_seen(const struct bench *b, uint64_t first, size_t n);
int64_t bench_dropped(const struct bench *b); /* samples, for any reason */

/* Runs the event loop until CONDITION is true; fails after WAIT_S seconds. */
#define run_until(b, condition)                                                                    \
	do {                                                                                       \
		uint64_t until_ = uv_hrtime() + WAIT_S * 1000000000ULL;                            \
		int turns_;                                                                        \
		for (turns_ = 0; uv_hrtime() < until_; turns_++) {                                 \
			sender_get_stats((b)->sender, &(b)->st);                                   \
			if (condition)                                                             \
				break;                                                             \
			uv_run(&(b)->loop, UV_RUN_NOWAIT);                                         \
			if (turns_ % 64 == 63)                                                     \
				usleep(1000);                                                      \
		}                                                                                  \
		assert_true(condition);                                                            \
	} while (0)
