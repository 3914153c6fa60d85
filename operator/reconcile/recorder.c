/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring `said` holds the hash and the time of the events that were sent; a new one replaces the
 * oldest. Limits use the loop's clock; the wall clock is only for the event's time.
 */
#include "operator/reconcile/recorder.h"

#include <time.h>

enum { REPEAT_MS = 600000, MINUTE_MS = 60000 };

struct recorder {
	uv_loop_t *loop;
	struct kube_client *client;
	char *instance;
	bool (*may_write)(void *);
	void *arg;
	struct {
		uint64_t hash, said_ms;
	} said[RECORDER_REMEMBERED];
	size_t next;
	uint64_t minute_start_ms, in_minute;
	uint64_t sent, dropped;
};

static uint64_t hash_text(const char *text, uint64_t seed)
{
	return hash_bytes(text ? text : "", text ? strlen(text) : 0, seed);
}

static bool said_already(const struct recorder *r, uint64_t hash, uint64_t now)
{
	for (size_t i = 0; i < RECORDER_REMEMBERED; i++)
		if (r->said[i].hash == hash && now - r->said[i].said_ms < REPEAT_MS)
			return true;
	return false;
}

static void remember(struct recorder *r, uint64_t hash, uint64_t now)
{
	r->said[r->next].hash = hash;
	r->said[r->next].said_ms = now;
	r->next = (r->next + 1) % RECORDER_REMEMBERED;
}

void recorder_emit(struct recorder *r, struct kube_event event)
{
	uint64_t now = uv_now(r->loop), hash;
	struct timespec t;

	if (!r->may_write(r->arg))
		return;
	hash = hash_text(event.note, hash_text(event.reason, hash_text(event.uid, event.kind)));
	if (said_already(r, hash, now))
		return;
	if (now - r->minute_start_ms >= MINUTE_MS) {
		r->minute_start_ms = now;
		r->in_minute = 0;
	}
	event.instance = r->instance;
	clock_gettime(CLOCK_REALTIME, &t);
	if (r->in_minute >= RECORDER_PER_MINUTE ||
	    kube_emit_event(r->client, &event, t.tv_sec * 1000000LL + t.tv_nsec / 1000) < 0) {
		r->dropped++;
		return;
	}
	remember(r, hash, now);
	r->in_minute++;
	r->sent++;
}

uint64_t recorder_sent(const struct recorder *r)
{
	return r->sent;
}

uint64_t recorder_dropped(const struct recorder *r)
{
	return r->dropped;
}

int recorder_new(uv_loop_t *loop, struct kube_client *client, const char *instance,
		 bool (*may_write)(void *arg), void *arg, struct recorder **ret)
{
	_cleanup_(recorder_freep) struct recorder *r = calloc(1, sizeof(*r));

	if (!r || !(r->instance = strdup(instance)))
		return -ENOMEM;
	r->loop = loop;
	r->client = client;
	r->may_write = may_write;
	r->arg = arg;
	*ret = TAKE_PTR(r);
	return 0;
}

struct recorder *recorder_free(struct recorder *r)
{
	if (!r)
		return NULL;
	free(r->instance);
	free(r);
	return NULL;
}
