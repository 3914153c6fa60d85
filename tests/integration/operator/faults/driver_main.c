/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fault tests drive.
 *
 *   operator_driver informers [classic] [page=N] [partial] KIND...
 *       keeps a cache of each kind; for each line on standard input:
 *       "dump"   every object, then "end"
 *       "stats"  a line of counters for each kind, then "end"
 *   operator_driver lease NAMESPACE NAME IDENTITY FILE
 *       takes part in an election; while it holds the lease, appends "IDENTITY NANOSECONDS"
 *       (CLOCK_MONOTONIC) to FILE every 2 ms. SIGTERM gives it back. Exit 3: lost.
 *
 * The cluster is that of $KUBECONFIG. Ends with its standard input.
 */
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "lib/log.h"
#include "operator/lease/lease.h"
#include "tests/integration/operator/faults/driver_store.h"

enum { KINDS_MAX = 8, LINE_MAX_BYTES = 64, WRITE_MS = 2 };

struct driver {
	uv_loop_t loop;
	uv_pipe_t input;
	struct kube_credentials *credentials;
	struct kube_client *client;
	char line[LINE_MAX_BYTES];
	size_t line_len;
	/* informers */
	size_t n;
	enum kube_kind kinds[KINDS_MAX];
	struct driver_store *stores[KINDS_MAX];
	struct informer *informers[KINDS_MAX];
	/* lease */
	struct lease *lease;
	uv_timer_t writer;
	uv_signal_t terminate;
	const char *identity;
	int fd, status;
	bool releasing;
};

static void stop(struct driver *d)
{
	for (size_t i = 0; i < d->n; i++)
		d->informers[i] = informer_free(d->informers[i]);
	d->lease = lease_free(d->lease);
	d->client = kube_client_free(d->client);
	uv_close((uv_handle_t *)&d->input, NULL);
	if (d->identity) {
		uv_close((uv_handle_t *)&d->writer, NULL);
		uv_close((uv_handle_t *)&d->terminate, NULL);
	}
}

static void print_stats(const struct driver *d)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct informer_stats *s = informer_stats(d->informers[i]);

		printf("%s objects=%zu synced=%d connected=%d lists=%llu watches=%llu events=%llu "
		       "bookmarks=%llu undecodable=%llu too_large=%llu expired=%llu errors=%llu\n",
		       kube_resources[d->kinds[i]].plural, driver_store_count(d->stores[i]),
		       s->synced, s->connected, (unsigned long long)s->lists,
		       (unsigned long long)s->watches, (unsigned long long)s->events,
		       (unsigned long long)s->bookmarks, (unsigned long long)s->undecodable,
		       (unsigned long long)s->too_large, (unsigned long long)s->expired,
		       (unsigned long long)s->errors);
	}
}

static void on_command(struct driver *d)
{
	if (streq(d->line, "stats"))
		print_stats(d);
	else if (streq(d->line, "dump"))
		for (size_t i = 0; i < d->n; i++)
			driver_store_dump(d->stores[i], stdout);
	puts("end");
	fflush(stdout);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *ret)
{
	static char buffer[256];

	*ret = uv_buf_init(buffer, sizeof(buffer));
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct driver *d = stream->data;

	if (n < 0) {
		stop(d);
		return;
	}
	for (ssize_t i = 0; i < n; i++) {
		if (buf->base[i] == '\n') {
			d->line[d->line_len] = '\0';
			d->line_len = 0;
			on_command(d);
		} else if (d->line_len < sizeof(d->line) - 1) {
			d->line[d->line_len++] = buf->base[i];
		}
	}
}

/* ---- informers ------------------------------------------------------------------------------- */

static int find_kind(const char *plural, enum kube_kind *ret)
{
	for (int i = 0; i < KUBE_KIND_COUNT; i++) {
		if (streq(kube_resources[i].plural, plural)) {
			*ret = (enum kube_kind)i;
			return 0;
		}
	}
	return -ENOENT;
}

static int start_informers(struct driver *d, char **args, struct error *err)
{
	struct informer_options options = {0};
	int r;

	for (; *args; args++) {
		if (streq(*args, "classic")) {
			options.no_watch_list = true;
		} else if (streq(*args, "partial")) {
			options.metadata_only = true;
		} else if (has_prefix(*args, "page=")) {
			options.page = (unsigned int)strtoul(*args + 5, NULL, 10);
		} else {
			if (d->n >= KINDS_MAX || find_kind(*args, &d->kinds[d->n]) < 0)
				return error_set(err, -EINVAL, "no kind %s", *args);
			options.kind = d->kinds[d->n];
			d->stores[d->n] = driver_store_new(options.kind);
			r = informer_new(&d->loop, d->client, &options, &driver_store_ops,
					 d->stores[d->n], &d->informers[d->n], err);
			if (r < 0)
				return r;
			informer_start(d->informers[d->n++]);
		}
	}
	return 0;
}

/* ---- lease ----------------------------------------------------------------------------------- */

static void on_write(uv_timer_t *timer)
{
	struct driver *d = timer->data;
	struct timespec ts;
	char line[320];
	int n;

	if (!lease_held(d->lease))
		return;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	n = snprintf(line, sizeof(line), "%s %lld\n", d->identity,
		     (long long)ts.tv_sec * 1000000000LL + ts.tv_nsec);
	if (write(d->fd, line, (size_t)n) != n)
		abort();
}

static void on_gained(void *arg)
{
	puts("gained");
	fflush(stdout);
}

static void on_lost(void *arg)
{
	struct driver *d = arg;

	puts("lost");
	fflush(stdout);
	if (d->releasing)
		return;
	d->status = 3;
	stop(d);
}

static void on_released(void *arg)
{
	struct driver *d = arg;

	d->status = 0;
	stop(d);
}

static void on_terminate(uv_signal_t *signal, int number)
{
	struct driver *d = signal->data;

	d->releasing = true;
	lease_release(d->lease, on_released, d);
}

static int start_lease(struct driver *d, char **args, struct error *err)
{
	struct lease_options options = {.gained = on_gained, .lost = on_lost, .arg = d};
	int r;

	if (!args[0] || !args[1] || !args[2] || !args[3])
		return error_set(err, -EINVAL, "want NAMESPACE NAME IDENTITY FILE");
	options.ns = args[0];
	options.name = args[1];
	options.identity = d->identity = args[2];
	d->fd = open(args[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (d->fd < 0)
		return error_set(err, -errno, "%s: %s", args[3], strerror(errno));
	uv_timer_init(&d->loop, &d->writer);
	uv_signal_init(&d->loop, &d->terminate);
	d->writer.data = d->terminate.data = d;
	r = lease_new(&d->loop, d->client, &options, &d->lease, err);
	if (r < 0)
		return r;
	uv_timer_start(&d->writer, on_write, WRITE_MS, WRITE_MS);
	uv_signal_start(&d->terminate, on_terminate, SIGTERM);
	lease_start(d->lease);
	return 0;
}

static int start(struct driver *d, char **argv, struct error *err)
{
	struct kube_client_options options = {.user_agent = "kiln-operator-driver"};
	int r;

	uv_loop_init(&d->loop);
	r = kube_credentials_load(NULL, NULL, &d->credentials, err);
	if (r < 0)
		return r;
	options.credentials = d->credentials;
	r = kube_client_new(&d->loop, &options, &d->client, err);
	if (r < 0)
		return r;
	uv_pipe_init(&d->loop, &d->input, 0);
	d->input.data = d;
	r = uv_pipe_open(&d->input, STDIN_FILENO);
	if (r == 0)
		r = uv_read_start((uv_stream_t *)&d->input, on_alloc, on_input);
	if (r < 0)
		return error_set(err, r, "standard input: %s", uv_strerror(r));
	if (argv[1] && streq(argv[1], "informers"))
		return start_informers(d, argv + 2, err);
	if (argv[1] && streq(argv[1], "lease"))
		return start_lease(d, argv + 2, err);
	return error_set(err, -EINVAL, "usage: operator_driver informers|lease ...");
}

int main(int argc, char **argv)
{
	static struct driver d = {.fd = -1};
	struct error err = {0};

	signal(SIGPIPE, SIG_IGN);
	if (start(&d, argv, &err) < 0) {
		log_error("driver", "%s", err.message);
		return 2;
	}
	uv_run(&d.loop, UV_RUN_DEFAULT);
	for (size_t i = 0; i < d.n; i++)
		driver_store_free(d.stores[i]);
	kube_credentials_free(d.credentials);
	if (d.fd >= 0)
		close(d.fd);
	return uv_loop_close(&d.loop) < 0 ? 4 : d.status;
}
