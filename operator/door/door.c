/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door's thread, from start to end, and the server's reports on its connections: a report is
 * recorded under the lock, and the thread is woken to act on it.
 */
#include "operator/door/door.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/resource.h>
#include <utlist.h>

#include "lib/listen.h"
#include "lib/parse.h"
#include "operator/door/internal.h"

enum { TICK_MS = 250, ADDRESS_MAX = 128 };

static const char *const end_names[DOOR_END_COUNT] = {
#define X(id, label) label,
    DOOR_ENDS(X)
#undef X
};

const char *door_end_name(enum door_end end)
{
	return end_names[end];
}

/* ---- what the server says -------------------------------------------------------------------- */

int door_note_guest(struct door_conn *c, int fd)
{
	struct door *door = c->door;
	int r = 0;

	pthread_mutex_lock(&door->lock);
	if ((size_t)fd >= door->n_by_fd) {
		size_t n = MAX((size_t)fd + 1, 2 * door->n_by_fd);
		struct door_conn **larger = realloc(door->by_fd, n * sizeof(struct door_conn *));

		if (larger) {
			memset(larger + door->n_by_fd, 0,
			       (n - door->n_by_fd) * sizeof(struct door_conn *));
			door->by_fd = larger;
			door->n_by_fd = n;
		} else {
			r = -ENOMEM;
		}
	}
	if (!r) {
		c->guest_fd = fd;
		door->by_fd[fd] = c;
	}
	pthread_mutex_unlock(&door->lock);
	return r;
}

void door_drop_guest(struct door_conn *c)
{
	struct door *door = c->door;

	pthread_mutex_lock(&door->lock);
	/* The server may have closed its end, and another connection may have its number. */
	if (c->guest_fd >= 0 && door->by_fd[c->guest_fd] == c)
		door->by_fd[c->guest_fd] = NULL;
	if (c->changed)
		DL_DELETE2(door->changed, c, changed_prev, changed_next);
	c->changed = false;
	pthread_mutex_unlock(&door->lock);
}

static struct door_conn *find(const struct door *door, int fd)
{
	return fd >= 0 && (size_t)fd < door->n_by_fd ? door->by_fd[fd] : NULL;
}

struct door_guest door_find(struct door *door, int fd)
{
	struct door_guest guest = {.fd = fd};
	const struct door_conn *c;

	pthread_mutex_lock(&door->lock);
	c = find(door, fd);
	if (c)
		guest.id = c->id;
	pthread_mutex_unlock(&door->lock);
	return guest;
}

void door_judge(struct door *door, const struct door_guest *guest, enum door_standing was,
		enum door_standing is)
{
	struct door_conn *c;

	pthread_mutex_lock(&door->lock);
	c = find(door, guest->fd);
	if (c && c->id == guest->id && was != is) {
		if (was != DOOR_STRANGER)
			c->standings[was]--;
		if (is != DOOR_STRANGER)
			c->standings[is]++;
		c->refused |= is == DOOR_REFUSED;
		if (!c->changed)
			DL_APPEND2(door->changed, c, changed_prev, changed_next);
		c->changed = true;
		uv_async_send(&door->wake);
	}
	pthread_mutex_unlock(&door->lock);
}

/* Takes one connection off the list of those that the server reported on; NULL when it is empty. */
static struct door_conn *take_changed(struct door *door, bool *ret_granted, bool *ret_refused)
{
	struct door_conn *c;

	pthread_mutex_lock(&door->lock);
	c = door->changed;
	if (c) {
		DL_DELETE2(door->changed, c, changed_prev, changed_next);
		*ret_granted = c->standings[DOOR_GRANTED] > 0;
		*ret_refused = c->refused;
		c->changed = c->refused = false;
	}
	pthread_mutex_unlock(&door->lock);
	return c;
}

/* ---- friends --------------------------------------------------------------------------------- */

static uint64_t clock_ms(void)
{
	return uv_hrtime() / 1000000;
}

void door_befriend(struct door *door, const uint8_t key[SOURCE_KEY])
{
	pthread_mutex_lock(&door->lock);
	friends_add(&door->friends, key, clock_ms());
	pthread_mutex_unlock(&door->lock);
}

bool door_is_friend(struct door *door, const uint8_t key[SOURCE_KEY])
{
	bool is;

	pthread_mutex_lock(&door->lock);
	is = friends_have(&door->friends, key, clock_ms());
	pthread_mutex_unlock(&door->lock);
	return is;
}

void door_expect(struct door *door, const char *address)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
	uint8_t key[SOURCE_KEY];

	if (inet_pton(AF_INET, address, &in.sin_addr) == 1)
		source_key((const struct sockaddr *)&in, key);
	else if (inet_pton(AF_INET6, address, &in6.sin6_addr) == 1)
		source_key((const struct sockaddr *)&in6, key);
	else
		return;
	door_befriend(door, key);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void close_all(struct door *door)
{
	struct door_conn **lists[] = {&door->outside, &door->opened, &door->granted};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		while (*lists[i])
			conn_close(*lists[i]);
	uv_close((uv_handle_t *)&door->listener, NULL);
	uv_close((uv_handle_t *)&door->tick, NULL);
	uv_close((uv_handle_t *)&door->turn, NULL);
	uv_close((uv_handle_t *)&door->wake, NULL);
}

static void on_wake(uv_async_t *wake)
{
	struct door *door = container_of(wake, struct door, wake);
	bool granted, refused, closing;
	struct door_conn *c;

	while ((c = take_changed(door, &granted, &refused)))
		door_apply(c, granted, refused);
	pthread_mutex_lock(&door->lock);
	closing = door->closing;
	pthread_mutex_unlock(&door->lock);
	if (closing && !uv_is_closing((uv_handle_t *)wake))
		close_all(door);
}

static void run(void *arg)
{
	struct door *door = arg;

	uv_run(&door->loop, UV_RUN_DEFAULT);
}

/*
 * The thread blocks all signals: they are for the program's own loop, and writing to a closed peer
 * raises no SIGPIPE here.
 */
static int start_thread(struct door *door)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = uv_thread_create(&door->thread, run, door);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

/* ---- life ------------------------------------------------------------------------------------ */

/*
 * Raises the soft limit on descriptors to the hard limit: a connection takes three, and container
 * runtimes start programs with a soft limit of 1024.
 */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

#define DEFAULT(field) (l->field = l->field ? l->field : d.field)

static void set_defaults(struct door_limits *l)
{
	struct door_limits d;

	door_limits_default(&d);
	DEFAULT(outside);
	DEFAULT(opened);
	DEFAULT(hello_ms);
	DEFAULT(turn_ms);
	DEFAULT(grant_ms);
	DEFAULT(spare_ms);
	DEFAULT(handshakes_per_s);
	DEFAULT(stranger_bytes);
}

static int listen_on(struct door *door, struct error *err)
{
	char address[ADDRESS_MAX];
	struct host_port want;
	bool loopback;
	int r;

	if (parse_host_port(door->o.address, &want) < 0)
		return error_set(err, -EINVAL, "want HOST:PORT, got %s", door->o.address);
	r = listen_tcp(want.host, want.port, &door->listen_fd, address, sizeof(address),
		       &door->port, &loopback, err);
	return r;
}

static void memory_free(struct door *door)
{
	SSL_CTX_free(door->tls);
	source_table_done(&door->sources);
	friends_done(&door->friends);
	pthread_mutex_destroy(&door->lock);
	if (door->listen_fd >= 0)
		close(door->listen_fd);
	free(door->by_fd);
	free(door);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	uv_close(handle, NULL);
}

static int start(struct door *door, struct error *err)
{
	int r;

	(void)uv_timer_init(&door->loop, &door->tick);
	(void)uv_timer_init(&door->loop, &door->turn);
	r = uv_async_init(&door->loop, &door->wake, on_wake);
	if (r < 0)
		return error_set(err, r, "cannot make a loop: %s", uv_strerror(r));
	r = uv_poll_init(&door->loop, &door->listener, door->listen_fd);
	if (r < 0)
		return error_set(err, r, "cannot watch a socket: %s", uv_strerror(r));
	uv_poll_start(&door->listener, UV_READABLE, door_on_listener);
	uv_timer_start(&door->tick, door_on_tick, TICK_MS, TICK_MS);
	r = start_thread(door);
	if (r < 0)
		return error_set(err, r, "cannot start a thread: %s", uv_strerror(r));
	return 0;
}

static int start_loop(struct door *door, struct error *err)
{
	int r = uv_loop_init(&door->loop);

	if (r < 0)
		return error_set(err, r, "cannot make a loop: %s", uv_strerror(r));
	r = start(door, err);
	if (r < 0) {
		uv_walk(&door->loop, close_handle, NULL);
		uv_run(&door->loop, UV_RUN_DEFAULT);
		(void)uv_loop_close(&door->loop);
	}
	return r;
}

int door_new(const struct door_options *options, struct door **ret, struct error *err)
{
	struct door *door = calloc(1, sizeof(*door));
	int r;

	if (!door)
		return error_set(err, -ENOMEM, "out of memory");
	door->o = *options;
	door->listen_fd = -1;
	set_defaults(&door->o.limits);
	raise_descriptors();
	pthread_mutex_init(&door->lock, NULL);
	r = source_table_init(&door->sources, door->o.limits.outside + door->o.limits.opened);
	if (r < 0)
		r = error_set(err, r, "out of memory");
	if (!r)
		r = listen_on(door, err);
	if (!r)
		r = door_tls_new(options->cert_pem, options->key_pem, &door->tls, err);
	if (!r)
		r = start_loop(door, err);
	if (r < 0) {
		memory_free(door);
		return r;
	}
	*ret = door;
	return 0;
}

struct door *door_free(struct door *door)
{
	if (!door)
		return NULL;
	pthread_mutex_lock(&door->lock);
	door->closing = true;
	pthread_mutex_unlock(&door->lock);
	uv_async_send(&door->wake);
	uv_thread_join(&door->thread);
	(void)uv_loop_close(&door->loop);
	memory_free(door);
	return NULL;
}

int door_port(const struct door *door)
{
	return door->port;
}

int door_certificate(struct door *door, const char *cert_pem, const char *key_pem,
		     struct error *err)
{
	SSL_CTX *tls, *old;
	int r = door_tls_new(cert_pem, key_pem, &tls, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&door->lock);
	old = door->tls;
	door->tls = tls;
	pthread_mutex_unlock(&door->lock);
	SSL_CTX_free(old);
	return 0;
}

void door_read(const struct door *door, struct door_stats *ret)
{
	*ret = (struct door_stats){.accepted = atomic_load(&door->accepted),
				   .handshakes = atomic_load(&door->handshakes),
				   .paused = atomic_load(&door->pauses),
				   .outside = atomic_load(&door->now[0]),
				   .opened = atomic_load(&door->now[1]),
				   .granted = atomic_load(&door->now[2])};
	for (size_t i = 0; i < DOOR_END_COUNT; i++)
		ret->ended[i] = atomic_load(&door->ended[i]);
}
