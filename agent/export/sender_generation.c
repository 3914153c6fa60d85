/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proto_generation: auto. Receivers speak one of two forms of OTLP profiles: that of
 * opentelemetry-proto v1.10 and later, or that of v1.8 and v1.9. A receiver of the older form
 * refuses the newer with an error; one of the newer form may accept the older with success and
 * store nothing (Pyroscope 2.2.1). So the newer form is always tried first: at the start, after the
 * receiver was away (it may have been replaced), for another address, over a new connection (the
 * receiver may have been upgraded between two requests), and every ten minutes. A request that was
 * refused in one form is sent again in the other; the form that worked is used from then on. Loop
 * thread.
 */
#include "agent/export/sender_internal.h"

enum {
	/* How often the newest form is tried with a receiver of the older one. */
	TRY_NEWEST_MS = 10 * 60 * 1000,
	BOTH_REFUSED_MS = 60 * 1000, /* how long only one form is tried after both were refused */
	/* How often a new connection makes the newest form be tried: some servers close each
	 * one. */
	MOVED_MS = 60 * 1000,
};

static bool is_newest(enum otlp_generation g)
{
	return g == OTLP_G6;
}

const char *generation_versions(enum otlp_generation g)
{
	return is_newest(g) ? "v1.10 and v1.11" : "v1.8 and v1.9";
}

static enum otlp_generation other(enum otlp_generation g)
{
	return is_newest(g) ? OTLP_G5 : OTLP_G6;
}

enum otlp_generation generation_wanted(const struct sender *s, const struct item *head)
{
	if (!s->options.generation_auto)
		return s->options.otlp.generation;
	if (head->refused)
		return other(head->refused_as);
	return uv_now(s->loop) >= s->try_newest_ms ? OTLP_G6 : s->options.otlp.generation;
}

bool generation_differs(enum otlp_generation a, enum otlp_generation b)
{
	return is_newest(a) != is_newest(b);
}

bool generation_refused(struct sender *s, struct item *head)
{
	uint64_t now = uv_now(s->loop);

	if (!s->options.generation_auto)
		return false;
	if (head->refused) {
		s->both_refused_until_ms = now + BOTH_REFUSED_MS;
		return false;
	}
	if (now < s->both_refused_until_ms)
		return false;
	head->refused = true;
	head->refused_as = head->payload.generation;
	return true;
}

const char *generation_advice(const struct sender *s)
{
	if (s->options.generation_auto)
		return " (refused in both forms of OTLP profiles: v1.10 and v1.11, v1.8 and v1.9)";
	return is_newest(s->options.otlp.generation)
		   ? " (sent as OTLP v1.10 and v1.11, as proto_generation says; with auto the "
		     "agent finds out which form is taken)"
		   : " (sent as OTLP v1.8 and v1.9, as proto_generation says; with auto the agent "
		     "finds out which form is taken)";
}

void generation_taken(struct sender *s, const struct item *head)
{
	enum otlp_generation g = head->payload.generation;

	if (!s->options.generation_auto)
		return;
	s->both_refused_until_ms = 0;
	if (generation_differs(g, s->options.otlp.generation))
		log_info("export",
			 "%s: %s takes OTLP profiles as opentelemetry-proto %s has them, and not "
			 "those of %s: they are sent so from now on (proto_generation: auto)",
			 s->name, s->endpoint, generation_versions(g),
			 generation_versions(other(g)));
	s->options.otlp.generation = g;
	/* The newest form was accepted, or refused just now: no need to try it soon. */
	if (is_newest(g))
		s->try_newest_ms = UINT64_MAX;
	else if (head->refused)
		s->try_newest_ms = uv_now(s->loop) + TRY_NEWEST_MS;
}

void generation_check_connection(struct sender *s)
{
	if (s->options.generation_auto && s->transport->ops->connected &&
	    !s->transport->ops->connected(s->transport))
		s->try_newest_ms = 0;
}

void generation_bind(struct sender *s, const struct item *head)
{
	if (s->transport->ops->stay)
		s->transport->ops->stay(s->transport, s->options.generation_auto &&
							  !head->refused &&
							  !is_newest(head->payload.generation) &&
							  uv_now(s->loop) >= s->may_move_until_ms);
}

void generation_moved(struct sender *s)
{
	generation_ask_again(s);
	s->may_move_until_ms = uv_now(s->loop) + MOVED_MS;
}

void generation_ask_again(struct sender *s)
{
	s->try_newest_ms = 0;
	s->both_refused_until_ms = 0;
}
