/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepts connections, gives them their turn, and closes them to make room. A connection is in
 * exactly one of three lists (outside, opened, granted); strangers are also in their source's list,
 * the oldest first. Sources with a waiting connection are in a ring: the first source gets the turn
 * and moves to the end of the ring.
 *
 * The door's thread.
 */
#include <sys/socket.h>
#include <utlist.h>

#include "operator/door/hello.h"
#include "operator/door/internal.h"

enum {
	ACCEPTS = 64, /* per event of the listener */
	TURNS = 8,    /* handshakes per event: open connections wait at most 4 ms for them */
	TURN_AGAIN_MS = 1,
	MILLI = 1000,
	REFUSED_MS = 1000, /* a refused connection stays open this long: its status has to arrive */
};

/* ---- lists ----------------------------------------------------------------------------------- */

static uint64_t now_ms(const struct door *door)
{
	return uv_now(&door->loop);
}

static bool is_outside(const struct door_conn *c)
{
	return c->state == CONN_HELLO || c->state == CONN_WAITS;
}

static struct door_conn **list_of(struct door *door, enum conn_state state, size_t **ret_n)
{
	switch (state) {
	case CONN_OPENED:
		*ret_n = &door->n_opened;
		return &door->opened;
	case CONN_GRANTED:
		*ret_n = &door->n_granted;
		return &door->granted;
	default:
		*ret_n = &door->n_outside;
		return &door->outside;
	}
}

static void list_remove(struct door_conn *c)
{
	size_t *n;
	struct door_conn **list = list_of(c->door, c->state, &n);

	DL_DELETE(*list, c);
	--*n;
}

static void list_add(struct door_conn *c, enum conn_state state)
{
	size_t *n;
	struct door_conn **list = list_of(c->door, state, &n);

	c->state = state;
	c->since_ms = now_ms(c->door);
	DL_APPEND(*list, c);
	++*n;
	if (state == CONN_OPENED)
		c->source->opened++;
}

static void take_turns_soon(struct door *door)
{
	if (door->turns && !uv_is_active((uv_handle_t *)&door->turn))
		uv_timer_start(&door->turn, door_on_turn, 0, 0);
}

static void stop_waiting(struct door_conn *c)
{
	struct door *door = c->door;
	struct source *s = c->source;

	DL_DELETE2(s->waiting, c, wait_prev, wait_next);
	door->n_waiting--;
	if (!s->waiting)
		DL_DELETE2(door->turns, s, turn_prev, turn_next);
}

/* Adds C to the strangers of its source; false when out of memory. */
static bool enlist(struct door_conn *c)
{
	c->source = source_add(&c->door->sources, c->key);
	if (c->source)
		DL_APPEND2(c->source->conns, c, source_prev, source_next);
	return c->source != NULL;
}

static void delist(struct door_conn *c)
{
	if (!c->source)
		return;
	if (c->state == CONN_WAITS)
		stop_waiting(c);
	if (c->state == CONN_OPENED)
		c->source->opened--;
	DL_DELETE2(c->source->conns, c, source_prev, source_next);
	source_remove(&c->door->sources, TAKE_PTR(c->source));
}

void door_forget(struct door_conn *c)
{
	if (!c->prev) /* in no list yet */
		return;
	delist(c);
	list_remove(c);
	take_turns_soon(c->door);
}

void door_tell_sizes(struct door *door)
{
	atomic_store_explicit(&door->now[0], door->n_outside, memory_order_relaxed);
	atomic_store_explicit(&door->now[1], door->n_opened, memory_order_relaxed);
	atomic_store_explicit(&door->now[2], door->n_granted, memory_order_relaxed);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/*
 * A friend goes before others until it has more than a quarter of the opened or the outside places.
 */
static bool goes_first(const struct door *door, const struct source *s)
{
	return s->is_friend && s->opened <= door->o.limits.opened / 4 &&
	       s->strangers <= door->o.limits.outside / 4 + 1;
}

void door_wait_for_turn(struct door_conn *c)
{
	struct source *s = c->source;

	if (!s->waiting && goes_first(c->door, s))
		DL_PREPEND2(c->door->turns, s, turn_prev, turn_next);
	else if (!s->waiting)
		DL_APPEND2(c->door->turns, s, turn_prev, turn_next);
	DL_APPEND2(s->waiting, c, wait_prev, wait_next);
	c->door->n_waiting++;
	c->state = CONN_WAITS; /* the list is the same */
	c->since_ms = now_ms(c->door);
	take_turns_soon(c->door);
}

static bool take_token(struct door *door)
{
	uint64_t now = now_ms(door), rate = door->o.limits.handshakes_per_s;

	door->tokens =
	    MIN(door->tokens + (now - door->tokens_ms) * rate, (uint64_t)TURNS * 4 * MILLI);
	door->tokens_ms = now;
	if (door->tokens < MILLI)
		return false;
	door->tokens -= MILLI;
	return true;
}

/* May it be closed to make room? Not while what it claims is being verified. */
static bool is_movable(struct door_conn *c)
{
	bool asks;

	pthread_mutex_lock(&c->door->lock);
	asks = c->standings[DOOR_ASKS] || c->standings[DOOR_GRANTED];
	pthread_mutex_unlock(&c->door->lock);
	return !asks;
}

/*
 * Closes an opened connection to make a place for NEXT: when NEXT goes first, the oldest connection
 * of a source that is no friend; otherwise the oldest one of the source with the most opened
 * connections, which must have at least two more than NEXT.
 */
static bool make_place(struct door *door, const struct source *next)
{
	bool first = goes_first(door, next);
	struct door_conn *c, *victim = NULL;

	DL_FOREACH (door->opened, c) {
		if (first && !victim && !c->source->is_friend && is_movable(c))
			victim = c;
		if (!first && is_movable(c) &&
		    c->source->opened > (victim ? victim->source->opened : next->opened + 1))
			victim = c;
	}
	if (victim)
		conn_end(victim, DOOR_END_DISPLACED);
	return victim != NULL;
}

/* Opens the next waiting connection. False when none waits, or no place could be made for it. */
static bool take_turn(struct door *door)
{
	struct source *s = door->turns;
	struct door_conn *c;

	if (!s || (door->n_opened >= door->o.limits.opened && !make_place(door, s)))
		return false;
	s = door->turns;
	c = s->waiting;
	stop_waiting(c);
	list_remove(c);
	list_add(c, CONN_OPENED);
	if (s->waiting && !goes_first(door, s)) { /* to the end of the ring */
		DL_DELETE2(door->turns, s, turn_prev, turn_next);
		DL_APPEND2(door->turns, s, turn_prev, turn_next);
	}
	atomic_fetch_add_explicit(&door->handshakes, 1, memory_order_relaxed);
	conn_open(c);
	return true;
}

void door_on_turn(uv_timer_t *timer)
{
	struct door *door = container_of(timer, struct door, turn);
	bool more = true;

	for (unsigned int i = 0; i < TURNS && more && door->turns && take_token(door); i++)
		more = take_turn(door);
	if (door->turns && more)
		uv_timer_start(timer, door_on_turn, TURN_AGAIN_MS, 0);
	door_tell_sizes(door);
}

/* ---- coming in ------------------------------------------------------------------------------- */

/* Closes the oldest outside connection of a source that is no friend. */
static bool make_room_for_friend(struct door *door)
{
	struct door_conn *c;

	DL_FOREACH (door->outside, c)
		if (!c->source->is_friend) {
			conn_end(c, DOOR_END_DISPLACED);
			return true;
		}
	return false;
}

/*
 * Makes room outside for one more connection of KEY. False when KEY would then have the most
 * strangers: the new connection is the one to refuse.
 */
static bool make_room(struct door *door, const uint8_t key[SOURCE_KEY], bool is_friend)
{
	struct source *own = source_find(&door->sources, key), *most;
	struct door_conn *c, *victim = NULL;

	if (own)
		own->is_friend = is_friend;

	if (door->n_outside < door->o.limits.outside)
		return true;
	if (is_friend && (!own || goes_first(door, own)) && make_room_for_friend(door))
		return true;
	most = source_most(&door->sources);
	if (!most || most->strangers <= (own ? own->strangers : 0) + 1)
		return false;
	DL_FOREACH2(most->conns, c, source_next)
	if (is_outside(c)) {
		victim = c;
		break;
	}
	/*
	 * All strangers of that source are opened: look for an outside one, of the next largest
	 * source.
	 */
	if (!victim)
		DL_FOREACH (door->outside, c)
			if (c->source->strangers >
			    (victim ? victim->source->strangers : (own ? own->strangers : 0) + 1))
				victim = c;
	if (victim)
		conn_end(victim, DOOR_END_DISPLACED);
	return victim != NULL;
}

static void admit(struct door *door, int fd, const struct sockaddr *address)
{
	int start = HELLO_START;
	uint8_t key[SOURCE_KEY];
	struct door_conn *c;
	bool is_friend;

	atomic_fetch_add_explicit(&door->accepted, 1, memory_order_relaxed);
	source_key(address, key);
	is_friend = door_is_friend(door, key);
	if (!make_room(door, key, is_friend)) {
		close(fd);
		atomic_fetch_add_explicit(&door->ended[DOOR_END_NO_ROOM], 1, memory_order_relaxed);
		return;
	}
	c = conn_new(door, fd);
	if (!c) {
		atomic_fetch_add_explicit(&door->ended[DOOR_END_NO_MEMORY], 1,
					  memory_order_relaxed);
		return;
	}
	memcpy(c->key, key, sizeof(key));
	if (!enlist(c)) {
		conn_end(c, DOOR_END_NO_MEMORY);
		return;
	}
	c->source->is_friend = is_friend;
	list_add(c, CONN_HELLO);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &start, sizeof(start));
	conn_watch(c);
}

void door_on_listener(uv_poll_t *poll, int status, int events)
{
	struct door *door = container_of(poll, struct door, listener);

	for (unsigned int i = 0; i < ACCEPTS; i++) {
		struct sockaddr_storage address = {0};
		socklen_t len = sizeof(address);
		int fd = accept4(door->listen_fd, (struct sockaddr *)&address, &len,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && errno == ECONNABORTED)
			continue;
		if (fd < 0 && errno != EAGAIN && errno != EINTR) {
			/*
			 * Out of descriptors or memory: the listener stays readable, so do not poll
			 * it until the next tick.
			 */
			door->paused = true;
			atomic_fetch_add_explicit(&door->pauses, 1, memory_order_relaxed);
			uv_poll_stop(poll);
		}
		if (fd < 0)
			break;
		admit(door, fd, (struct sockaddr *)&address);
	}
	door_tell_sizes(door);
}

/* ---- going ----------------------------------------------------------------------------------- */

static void end_late_outside(struct door *door, uint64_t now)
{
	const struct door_limits *l = &door->o.limits;
	struct door_conn *c, *next;

	DL_FOREACH_SAFE (door->outside, c, next) {
		if (c->state == CONN_HELLO && now - c->since_ms >= l->hello_ms)
			conn_end(c, DOOR_END_NO_HELLO);
		else if (c->state == CONN_WAITS && now - c->since_ms >= l->turn_ms)
			conn_end(c, DOOR_END_NO_TURN);
		c->parked = false;
		conn_watch(c);
	}
}

static void end_late_opened(struct door *door, uint64_t now)
{
	const struct door_limits *l = &door->o.limits;
	uint64_t late = door->turns && door->n_opened >= l->opened ? l->spare_ms : l->grant_ms;
	struct door_conn *c, *next;

	DL_FOREACH_SAFE (door->opened, c, next) {
		if (c->refused_ms && now - c->refused_ms >= REFUSED_MS)
			conn_end(c, DOOR_END_REFUSED);
		else if (now - c->since_ms >= late && is_movable(c))
			conn_end(c, DOOR_END_NOT_GRANTED);
	}
}

void door_on_tick(uv_timer_t *timer)
{
	struct door *door = container_of(timer, struct door, tick);
	uint64_t now = now_ms(door);

	if (door->paused) {
		door->paused = false;
		uv_poll_start(&door->listener, UV_READABLE, door_on_listener);
	}
	end_late_outside(door, now);
	end_late_opened(door, now);
	take_turns_soon(door);
	door_tell_sizes(door);
}

void door_apply(struct door_conn *c, bool granted, bool refused)
{
	if (refused && !c->refused_ms)
		c->refused_ms = now_ms(c->door);
	if (granted && c->state == CONN_OPENED) {
		delist(c);
		list_remove(c);
		list_add(c, CONN_GRANTED);
		c->calls_before = c->frames.calls;
		door_befriend(c->door, c->key);
		take_turns_soon(c->door);
	} else if (!granted && c->state == CONN_GRANTED) {
		if (!enlist(c)) {
			conn_end(c, DOOR_END_NO_MEMORY);
			return;
		}
		c->source->is_friend = door_is_friend(c->door, c->key);
		c->bytes_before = BIO_number_read(SSL_get_rbio(c->ssl));
		c->frames_before = c->frames.all;
		c->calls_before = c->frames.calls;
		c->refused_ms = refused ? now_ms(c->door) : 0;
		list_remove(c);
		list_add(c, CONN_OPENED);
	}
	door_tell_sizes(c->door);
}
