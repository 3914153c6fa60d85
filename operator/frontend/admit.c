/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepts connections, gives them their turn, and closes them to make room. A connection is in
 * exactly one of three lists (outside, opened, granted); unauthenticated connections are also in
 * their source's list, the oldest first. Sources with a waiting connection are in a ring: the first
 * source gets the turn and moves to the end of the ring.
 *
 * The front end's thread.
 */
#include <sys/socket.h>
#include <utlist.h>

#include "operator/frontend/hello.h"
#include "operator/frontend/internal.h"

enum {
	ACCEPTS = 64, /* per event of the listener */
	TURNS = 8,    /* handshakes per event: open connections wait at most 4 ms for them */
	TURN_AGAIN_MS = 1,
	MILLI = 1000,
	REFUSED_MS = 1000, /* a refused connection stays open this long: its status has to arrive */
};

/* ---- lists ----------------------------------------------------------------------------------- */

static uint64_t now_ms(const struct frontend *frontend)
{
	return uv_now(&frontend->loop);
}

static bool is_outside(const struct frontend_conn *c)
{
	return c->state == CONN_HELLO || c->state == CONN_WAITS;
}

static struct frontend_conn **list_of(struct frontend *frontend, enum conn_state state,
				      size_t **ret_n)
{
	switch (state) {
	case CONN_OPENED:
		*ret_n = &frontend->n_opened;
		return &frontend->opened;
	case CONN_GRANTED:
		*ret_n = &frontend->n_granted;
		return &frontend->granted;
	default:
		*ret_n = &frontend->n_outside;
		return &frontend->outside;
	}
}

static void list_remove(struct frontend_conn *c)
{
	size_t *n;
	struct frontend_conn **list = list_of(c->frontend, c->state, &n);

	DL_DELETE(*list, c);
	--*n;
}

static void list_add(struct frontend_conn *c, enum conn_state state)
{
	size_t *n;
	struct frontend_conn **list = list_of(c->frontend, state, &n);

	c->state = state;
	c->since_ms = now_ms(c->frontend);
	DL_APPEND(*list, c);
	++*n;
	if (state == CONN_OPENED)
		c->source->opened++;
}

static void take_turns_soon(struct frontend *frontend)
{
	if (frontend->turns && !uv_is_active((uv_handle_t *)&frontend->turn))
		uv_timer_start(&frontend->turn, frontend_on_turn, 0, 0);
}

static void stop_waiting(struct frontend_conn *c)
{
	struct frontend *frontend = c->frontend;
	struct source *s = c->source;

	DL_DELETE2(s->waiting, c, wait_prev, wait_next);
	frontend->n_waiting--;
	if (!s->waiting)
		DL_DELETE2(frontend->turns, s, turn_prev, turn_next);
}

/* Adds C to the unauthenticated connections of its source; false when out of memory. */
static bool enlist(struct frontend_conn *c)
{
	c->source = source_add(&c->frontend->sources, c->key);
	if (c->source)
		DL_APPEND2(c->source->conns, c, source_prev, source_next);
	return c->source != NULL;
}

static void delist(struct frontend_conn *c)
{
	if (!c->source)
		return;
	if (c->state == CONN_WAITS)
		stop_waiting(c);
	if (c->state == CONN_OPENED)
		c->source->opened--;
	DL_DELETE2(c->source->conns, c, source_prev, source_next);
	source_remove(&c->frontend->sources, TAKE_PTR(c->source));
}

void frontend_forget(struct frontend_conn *c)
{
	if (!c->prev) /* in no list yet */
		return;
	delist(c);
	list_remove(c);
	take_turns_soon(c->frontend);
}

void frontend_publish_sizes(struct frontend *frontend)
{
	atomic_store_explicit(&frontend->now[0], frontend->n_outside, memory_order_relaxed);
	atomic_store_explicit(&frontend->now[1], frontend->n_opened, memory_order_relaxed);
	atomic_store_explicit(&frontend->now[2], frontend->n_granted, memory_order_relaxed);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/*
 * A trusted source goes before others until it has more than a quarter of the opened or the outside
 * places.
 */
static bool goes_first(const struct frontend *frontend, const struct source *s)
{
	return s->is_trusted && s->opened <= frontend->o.limits.opened / 4 &&
	       s->unauthenticated <= frontend->o.limits.outside / 4 + 1;
}

void frontend_wait_for_turn(struct frontend_conn *c)
{
	struct source *s = c->source;

	if (!s->waiting && goes_first(c->frontend, s))
		DL_PREPEND2(c->frontend->turns, s, turn_prev, turn_next);
	else if (!s->waiting)
		DL_APPEND2(c->frontend->turns, s, turn_prev, turn_next);
	DL_APPEND2(s->waiting, c, wait_prev, wait_next);
	c->frontend->n_waiting++;
	c->state = CONN_WAITS; /* the list is the same */
	c->since_ms = now_ms(c->frontend);
	take_turns_soon(c->frontend);
}

static bool take_token(struct frontend *frontend)
{
	uint64_t now = now_ms(frontend), rate = frontend->o.limits.handshakes_per_s;

	frontend->tokens =
	    MIN(frontend->tokens + (now - frontend->tokens_ms) * rate, (uint64_t)TURNS * 4 * MILLI);
	frontend->tokens_ms = now;
	if (frontend->tokens < MILLI)
		return false;
	frontend->tokens -= MILLI;
	return true;
}

/* May it be closed to make room? Not while what it claims is being verified. */
static bool is_movable(struct frontend_conn *c)
{
	bool asks;

	pthread_mutex_lock(&c->frontend->lock);
	asks = c->auths[FRONTEND_PENDING] || c->auths[FRONTEND_GRANTED];
	pthread_mutex_unlock(&c->frontend->lock);
	return !asks;
}

/*
 * Closes an opened connection to make a place for NEXT: when NEXT goes first, the oldest connection
 * of a source that is not trusted; otherwise the oldest one of the source with the most opened
 * connections, which must have at least two more than NEXT.
 */
static bool make_place(struct frontend *frontend, const struct source *next)
{
	bool first = goes_first(frontend, next);
	struct frontend_conn *c, *victim = NULL;

	DL_FOREACH (frontend->opened, c) {
		if (first && !victim && !c->source->is_trusted && is_movable(c))
			victim = c;
		if (!first && is_movable(c) &&
		    c->source->opened > (victim ? victim->source->opened : next->opened + 1))
			victim = c;
	}
	if (victim)
		conn_end(victim, FRONTEND_END_DISPLACED);
	return victim != NULL;
}

/* Opens the next waiting connection. False when none waits, or no place could be made for it. */
static bool take_turn(struct frontend *frontend)
{
	struct source *s = frontend->turns;
	struct frontend_conn *c;

	if (!s || (frontend->n_opened >= frontend->o.limits.opened && !make_place(frontend, s)))
		return false;
	s = frontend->turns;
	c = s->waiting;
	stop_waiting(c);
	list_remove(c);
	list_add(c, CONN_OPENED);
	if (s->waiting && !goes_first(frontend, s)) { /* to the end of the ring */
		DL_DELETE2(frontend->turns, s, turn_prev, turn_next);
		DL_APPEND2(frontend->turns, s, turn_prev, turn_next);
	}
	atomic_fetch_add_explicit(&frontend->handshakes, 1, memory_order_relaxed);
	conn_open(c);
	return true;
}

void frontend_on_turn(uv_timer_t *timer)
{
	struct frontend *frontend = container_of(timer, struct frontend, turn);
	bool more = true;

	for (unsigned int i = 0; i < TURNS && more && frontend->turns && take_token(frontend); i++)
		more = take_turn(frontend);
	if (frontend->turns && more)
		uv_timer_start(timer, frontend_on_turn, TURN_AGAIN_MS, 0);
	frontend_publish_sizes(frontend);
}

/* ---- coming in ------------------------------------------------------------------------------- */

/* Closes the oldest connection that has no TLS yet and whose source is not trusted. */
static bool make_room_for_trusted(struct frontend *frontend)
{
	struct frontend_conn *c;

	DL_FOREACH (frontend->outside, c)
		if (!c->source->is_trusted) {
			conn_end(c, FRONTEND_END_DISPLACED);
			return true;
		}
	return false;
}

/*
 * Makes room outside for one more connection of KEY. False when KEY would then have the most
 * unauthenticated connections: the new connection is the one to refuse.
 */
static bool make_room(struct frontend *frontend, const uint8_t key[SOURCE_KEY], bool is_trusted)
{
	struct source *own = source_find(&frontend->sources, key), *most;
	struct frontend_conn *c, *victim = NULL;

	if (own)
		own->is_trusted = is_trusted;

	if (frontend->n_outside < frontend->o.limits.outside)
		return true;
	if (is_trusted && (!own || goes_first(frontend, own)) && make_room_for_trusted(frontend))
		return true;
	most = source_most(&frontend->sources);
	if (!most || most->unauthenticated <= (own ? own->unauthenticated : 0) + 1)
		return false;
	DL_FOREACH2(most->conns, c, source_next)
	if (is_outside(c)) {
		victim = c;
		break;
	}
	/*
	 * All unauthenticated connections of that source are opened: look for an outside one, of
	 * the next largest source.
	 */
	if (!victim)
		DL_FOREACH (frontend->outside, c)
			if (c->source->unauthenticated >
			    (victim ? victim->source->unauthenticated
				    : (own ? own->unauthenticated : 0) + 1))
				victim = c;
	if (victim)
		conn_end(victim, FRONTEND_END_DISPLACED);
	return victim != NULL;
}

static void admit(struct frontend *frontend, int fd, const struct sockaddr *address)
{
	int start = HELLO_START;
	uint8_t key[SOURCE_KEY];
	struct frontend_conn *c;
	bool is_trusted;

	atomic_fetch_add_explicit(&frontend->accepted, 1, memory_order_relaxed);
	source_key(address, key);
	is_trusted = frontend_is_trusted(frontend, key);
	if (!make_room(frontend, key, is_trusted)) {
		close(fd);
		atomic_fetch_add_explicit(&frontend->ended[FRONTEND_END_NO_ROOM], 1,
					  memory_order_relaxed);
		return;
	}
	c = conn_new(frontend, fd);
	if (!c) {
		atomic_fetch_add_explicit(&frontend->ended[FRONTEND_END_NO_MEMORY], 1,
					  memory_order_relaxed);
		return;
	}
	memcpy(c->key, key, sizeof(key));
	if (!enlist(c)) {
		conn_end(c, FRONTEND_END_NO_MEMORY);
		return;
	}
	c->source->is_trusted = is_trusted;
	list_add(c, CONN_HELLO);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &start, sizeof(start));
	conn_watch(c);
}

void frontend_on_listener(uv_poll_t *poll, int status, int events)
{
	struct frontend *frontend = container_of(poll, struct frontend, listener);

	for (unsigned int i = 0; i < ACCEPTS; i++) {
		struct sockaddr_storage address = {0};
		socklen_t len = sizeof(address);
		int fd = accept4(frontend->listen_fd, (struct sockaddr *)&address, &len,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && errno == ECONNABORTED)
			continue;
		if (fd < 0 && errno != EAGAIN && errno != EINTR) {
			/*
			 * Out of descriptors or memory: the listener stays readable, so do not poll
			 * it until the next tick.
			 */
			frontend->paused = true;
			atomic_fetch_add_explicit(&frontend->pauses, 1, memory_order_relaxed);
			uv_poll_stop(poll);
		}
		if (fd < 0)
			break;
		admit(frontend, fd, (struct sockaddr *)&address);
	}
	frontend_publish_sizes(frontend);
}

/* ---- going ----------------------------------------------------------------------------------- */

static void end_late_outside(struct frontend *frontend, uint64_t now)
{
	const struct frontend_limits *l = &frontend->o.limits;
	struct frontend_conn *c, *next;

	DL_FOREACH_SAFE (frontend->outside, c, next) {
		if (c->state == CONN_HELLO && now - c->since_ms >= l->hello_ms)
			conn_end(c, FRONTEND_END_NO_HELLO);
		else if (c->state == CONN_WAITS && now - c->since_ms >= l->turn_ms)
			conn_end(c, FRONTEND_END_NO_TURN);
		c->parked = false;
		conn_watch(c);
	}
}

static void end_late_opened(struct frontend *frontend, uint64_t now)
{
	const struct frontend_limits *l = &frontend->o.limits;
	uint64_t late =
	    frontend->turns && frontend->n_opened >= l->opened ? l->spare_ms : l->grant_ms;
	struct frontend_conn *c, *next;

	DL_FOREACH_SAFE (frontend->opened, c, next) {
		if (c->refused_ms && now - c->refused_ms >= REFUSED_MS)
			conn_end(c, FRONTEND_END_REFUSED);
		else if (now - c->since_ms >= late && is_movable(c))
			conn_end(c, FRONTEND_END_NOT_GRANTED);
	}
}

void frontend_on_tick(uv_timer_t *timer)
{
	struct frontend *frontend = container_of(timer, struct frontend, tick);
	uint64_t now = now_ms(frontend);

	if (frontend->paused) {
		frontend->paused = false;
		uv_poll_start(&frontend->listener, UV_READABLE, frontend_on_listener);
	}
	end_late_outside(frontend, now);
	end_late_opened(frontend, now);
	take_turns_soon(frontend);
	frontend_publish_sizes(frontend);
}

void frontend_apply(struct frontend_conn *c, bool granted, bool refused)
{
	if (refused && !c->refused_ms)
		c->refused_ms = now_ms(c->frontend);
	if (granted && c->state == CONN_OPENED) {
		delist(c);
		list_remove(c);
		list_add(c, CONN_GRANTED);
		c->calls_before = c->frames.calls;
		frontend_add_trusted(c->frontend, c->key);
		take_turns_soon(c->frontend);
	} else if (!granted && c->state == CONN_GRANTED) {
		if (!enlist(c)) {
			conn_end(c, FRONTEND_END_NO_MEMORY);
			return;
		}
		c->source->is_trusted = frontend_is_trusted(c->frontend, c->key);
		c->bytes_before = BIO_number_read(SSL_get_rbio(c->ssl));
		c->frames_before = c->frames.all;
		c->calls_before = c->frames.calls;
		c->refused_ms = refused ? now_ms(c->frontend) : 0;
		list_remove(c);
		list_add(c, CONN_OPENED);
	}
	frontend_publish_sizes(c->frontend);
}
