/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front end's thread, from start to end, and the server's reports on its connections: a report
 * is recorded under the lock, and the thread is woken to act on it.
 */
#include "operator/frontend/frontend.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/resource.h>
#include <utlist.h>

#include "lib/listen.h"
#include "lib/parse.h"
#include "operator/frontend/internal.h"

enum { TICK_MS = 250, ADDRESS_MAX = 128 };

static const char *const end_names[FRONTEND_END_COUNT] = {
#define X(id, label) label,
    FRONTEND_ENDS(X)
#undef X
};

const char *frontend_end_name(enum frontend_end end)
{
	return end_names[end];
}

/* ---- what the server says -------------------------------------------------------------------- */

int frontend_note_server_fd(struct frontend_conn *c, int fd)
{
	struct frontend *frontend = c->frontend;
	int r = 0;

	pthread_mutex_lock(&frontend->lock);
	if ((size_t)fd >= frontend->n_by_fd) {
		size_t n = MAX((size_t)fd + 1, 2 * frontend->n_by_fd);
		struct frontend_conn **larger =
		    realloc(frontend->by_fd, n * sizeof(struct frontend_conn *));

		if (larger) {
			memset(larger + frontend->n_by_fd, 0,
			       (n - frontend->n_by_fd) * sizeof(struct frontend_conn *));
			frontend->by_fd = larger;
			frontend->n_by_fd = n;
		} else {
			r = -ENOMEM;
		}
	}
	if (!r) {
		c->server_fd = fd;
		frontend->by_fd[fd] = c;
	}
	pthread_mutex_unlock(&frontend->lock);
	return r;
}

void frontend_drop_server_fd(struct frontend_conn *c)
{
	struct frontend *frontend = c->frontend;

	pthread_mutex_lock(&frontend->lock);
	/* The server may have closed its end, and another connection may have its number. */
	if (c->server_fd >= 0 && frontend->by_fd[c->server_fd] == c)
		frontend->by_fd[c->server_fd] = NULL;
	if (c->changed)
		DL_DELETE2(frontend->changed, c, changed_prev, changed_next);
	c->changed = false;
	pthread_mutex_unlock(&frontend->lock);
}

static struct frontend_conn *find(const struct frontend *frontend, int fd)
{
	return fd >= 0 && (size_t)fd < frontend->n_by_fd ? frontend->by_fd[fd] : NULL;
}

struct frontend_ref frontend_find(struct frontend *frontend, int fd)
{
	struct frontend_ref ref = {.fd = fd};
	const struct frontend_conn *c;

	pthread_mutex_lock(&frontend->lock);
	c = find(frontend, fd);
	if (c)
		ref.id = c->id;
	pthread_mutex_unlock(&frontend->lock);
	return ref;
}

void frontend_report_auth(struct frontend *frontend, const struct frontend_ref *ref,
			  enum frontend_auth was, enum frontend_auth is)
{
	struct frontend_conn *c;

	pthread_mutex_lock(&frontend->lock);
	c = find(frontend, ref->fd);
	if (c && c->id == ref->id && was != is) {
		if (was != FRONTEND_UNAUTHENTICATED)
			c->auths[was]--;
		if (is != FRONTEND_UNAUTHENTICATED)
			c->auths[is]++;
		c->refused |= is == FRONTEND_REFUSED;
		if (!c->changed)
			DL_APPEND2(frontend->changed, c, changed_prev, changed_next);
		c->changed = true;
		uv_async_send(&frontend->wake);
	}
	pthread_mutex_unlock(&frontend->lock);
}

/* Takes one connection off the list of those that the server reported on; NULL when it is empty. */
static struct frontend_conn *take_changed(struct frontend *frontend, bool *ret_granted,
					  bool *ret_refused)
{
	struct frontend_conn *c;

	pthread_mutex_lock(&frontend->lock);
	c = frontend->changed;
	if (c) {
		DL_DELETE2(frontend->changed, c, changed_prev, changed_next);
		*ret_granted = c->auths[FRONTEND_GRANTED] > 0;
		*ret_refused = c->refused;
		c->changed = c->refused = false;
	}
	pthread_mutex_unlock(&frontend->lock);
	return c;
}

/* ---- trusted addresses ----------------------------------------------------------------------- */

static uint64_t clock_ms(void)
{
	return uv_hrtime() / 1000000;
}

void frontend_add_trusted(struct frontend *frontend, const uint8_t key[SOURCE_KEY])
{
	pthread_mutex_lock(&frontend->lock);
	trusted_add(&frontend->trusted, key, clock_ms());
	pthread_mutex_unlock(&frontend->lock);
}

bool frontend_is_trusted(struct frontend *frontend, const uint8_t key[SOURCE_KEY])
{
	bool is;

	pthread_mutex_lock(&frontend->lock);
	is = trusted_have(&frontend->trusted, key, clock_ms());
	pthread_mutex_unlock(&frontend->lock);
	return is;
}

void frontend_trust(struct frontend *frontend, const char *address)
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
	frontend_add_trusted(frontend, key);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void close_all(struct frontend *frontend)
{
	struct frontend_conn **lists[] = {&frontend->outside, &frontend->opened,
					  &frontend->granted};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		while (*lists[i])
			conn_close(*lists[i]);
	uv_close((uv_handle_t *)&frontend->listener, NULL);
	uv_close((uv_handle_t *)&frontend->tick, NULL);
	uv_close((uv_handle_t *)&frontend->turn, NULL);
	uv_close((uv_handle_t *)&frontend->wake, NULL);
}

static void on_wake(uv_async_t *wake)
{
	struct frontend *frontend = container_of(wake, struct frontend, wake);
	bool granted, refused, closing;
	struct frontend_conn *c;

	while ((c = take_changed(frontend, &granted, &refused)))
		frontend_apply(c, granted, refused);
	pthread_mutex_lock(&frontend->lock);
	closing = frontend->closing;
	pthread_mutex_unlock(&frontend->lock);
	if (closing && !uv_is_closing((uv_handle_t *)wake))
		close_all(frontend);
}

static void run(void *arg)
{
	struct frontend *frontend = arg;

	uv_run(&frontend->loop, UV_RUN_DEFAULT);
}

/*
 * The thread blocks all signals: they are for the program's own loop, and writing to a closed peer
 * raises no SIGPIPE here.
 */
static int start_thread(struct frontend *frontend)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = uv_thread_create(&frontend->thread, run, frontend);
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

static void set_defaults(struct frontend_limits *l)
{
	struct frontend_limits d;

	frontend_limits_default(&d);
	DEFAULT(outside);
	DEFAULT(opened);
	DEFAULT(hello_ms);
	DEFAULT(turn_ms);
	DEFAULT(grant_ms);
	DEFAULT(spare_ms);
	DEFAULT(handshakes_per_s);
	DEFAULT(unauthenticated_bytes);
}

static int listen_on(struct frontend *frontend, struct error *err)
{
	char address[ADDRESS_MAX];
	struct host_port want;
	bool loopback;
	int r;

	if (parse_host_port(frontend->o.address, &want) < 0)
		return error_set(err, -EINVAL, "want HOST:PORT, got %s", frontend->o.address);
	r = listen_tcp(want.host, want.port, &frontend->listen_fd, address, sizeof(address),
		       &frontend->port, &loopback, err);
	return r;
}

static void memory_free(struct frontend *frontend)
{
	SSL_CTX_free(frontend->tls);
	source_table_done(&frontend->sources);
	trusted_done(&frontend->trusted);
	pthread_mutex_destroy(&frontend->lock);
	if (frontend->listen_fd >= 0)
		close(frontend->listen_fd);
	free(frontend->by_fd);
	free(frontend);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	uv_close(handle, NULL);
}

static int start(struct frontend *frontend, struct error *err)
{
	int r;

	(void)uv_timer_init(&frontend->loop, &frontend->tick);
	(void)uv_timer_init(&frontend->loop, &frontend->turn);
	r = uv_async_init(&frontend->loop, &frontend->wake, on_wake);
	if (r < 0)
		return error_set(err, r, "cannot make a loop: %s", uv_strerror(r));
	r = uv_poll_init(&frontend->loop, &frontend->listener, frontend->listen_fd);
	if (r < 0)
		return error_set(err, r, "cannot watch a socket: %s", uv_strerror(r));
	uv_poll_start(&frontend->listener, UV_READABLE, frontend_on_listener);
	uv_timer_start(&frontend->tick, frontend_on_tick, TICK_MS, TICK_MS);
	r = start_thread(frontend);
	if (r < 0)
		return error_set(err, r, "cannot start a thread: %s", uv_strerror(r));
	return 0;
}

static int start_loop(struct frontend *frontend, struct error *err)
{
	int r = uv_loop_init(&frontend->loop);

	if (r < 0)
		return error_set(err, r, "cannot make a loop: %s", uv_strerror(r));
	r = start(frontend, err);
	if (r < 0) {
		uv_walk(&frontend->loop, close_handle, NULL);
		uv_run(&frontend->loop, UV_RUN_DEFAULT);
		(void)uv_loop_close(&frontend->loop);
	}
	return r;
}

int frontend_new(const struct frontend_options *options, struct frontend **ret, struct error *err)
{
	struct frontend *frontend = calloc(1, sizeof(*frontend));
	int r;

	if (!frontend)
		return error_set(err, -ENOMEM, "out of memory");
	frontend->o = *options;
	frontend->listen_fd = -1;
	set_defaults(&frontend->o.limits);
	raise_descriptors();
	pthread_mutex_init(&frontend->lock, NULL);
	r = source_table_init(&frontend->sources,
			      frontend->o.limits.outside + frontend->o.limits.opened);
	if (r < 0)
		r = error_set(err, r, "out of memory");
	if (!r)
		r = listen_on(frontend, err);
	if (!r)
		r = frontend_tls_new(options->cert_pem, options->key_pem, &frontend->tls, err);
	if (!r)
		r = start_loop(frontend, err);
	if (r < 0) {
		memory_free(frontend);
		return r;
	}
	*ret = frontend;
	return 0;
}

struct frontend *frontend_free(struct frontend *frontend)
{
	if (!frontend)
		return NULL;
	pthread_mutex_lock(&frontend->lock);
	frontend->closing = true;
	pthread_mutex_unlock(&frontend->lock);
	uv_async_send(&frontend->wake);
	uv_thread_join(&frontend->thread);
	(void)uv_loop_close(&frontend->loop);
	memory_free(frontend);
	return NULL;
}

int frontend_port(const struct frontend *frontend)
{
	return frontend->port;
}

int frontend_certificate(struct frontend *frontend, const char *cert_pem, const char *key_pem,
			 struct error *err)
{
	SSL_CTX *tls, *old;
	int r = frontend_tls_new(cert_pem, key_pem, &tls, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&frontend->lock);
	old = frontend->tls;
	frontend->tls = tls;
	pthread_mutex_unlock(&frontend->lock);
	SSL_CTX_free(old);
	return 0;
}

void frontend_read(const struct frontend *frontend, struct frontend_stats *ret)
{
	*ret = (struct frontend_stats){.accepted = atomic_load(&frontend->accepted),
				       .handshakes = atomic_load(&frontend->handshakes),
				       .paused = atomic_load(&frontend->pauses),
				       .outside = atomic_load(&frontend->now[0]),
				       .opened = atomic_load(&frontend->now[1]),
				       .granted = atomic_load(&frontend->now[2])};
	for (size_t i = 0; i < FRONTEND_END_COUNT; i++)
		ret->ended[i] = atomic_load(&frontend->ended[i]);
}
