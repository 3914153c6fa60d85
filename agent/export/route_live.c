/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exporters made for Destinations. They have the defaults of configured ones, except for three
 * things: their queue is in memory only and smaller, retries have no time limit (the size of the
 * queue decides), and their id is one that no component can have. Loop thread.
 */
#include "agent/export/route_live.h"

#include <sys/mman.h>

enum {
	LIVE_TIMEOUT_GRPC_MS = 5000,
	LIVE_TIMEOUT_HTTP_MS = 30000,
	LIVE_QUEUE_REQUESTS = 1000,
	LIVE_ID_MAX = 600, /* type, and 2 names of 253 bytes */
	PEM_PATH_MAX = 32,
};

const char *live_type(enum pod_destination_kind kind)
{
	switch (kind) {
	case POD_DESTINATION_GRPC:
		return "otlp_grpc";
	case POD_DESTINATION_HTTP:
		return "otlp_http";
	default:
		return "customprofilesexporter";
	}
}

/* PATH: the path by which this process can open the file. */
static int put_pem(const char *text, int *ret_fd, char path[PEM_PATH_MAX])
{
	_cleanup_close_ int fd = memfd_create("kiln-pem", MFD_CLOEXEC);
	size_t left = strlen(text);
	ssize_t n;

	if (fd < 0)
		return -errno;
	for (; left; text += n, left -= (size_t)n) {
		n = write(fd, text, left);
		if (n < 0 && errno == EINTR)
			n = 0;
		if (n < 0)
			return -errno;
	}
	snprintf(path, PEM_PATH_MAX, "/proc/self/fd/%d", fd);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int set_tls(int fds[static LIVE_PEMS], const struct pod_destination *d,
		   char paths[LIVE_PEMS][PEM_PATH_MAX], struct tls_config *tls)
{
	const char *pems[LIVE_PEMS] = {d->ca_pem, d->certificate_pem, d->key_pem};
	char **names[LIVE_PEMS] = {&tls->ca_file, &tls->cert_file, &tls->key_file};
	int r;

	tls->insecure = d->tls_mode == POD_TLS_PLAINTEXT;
	tls->insecure_skip_verify = d->tls_mode == POD_TLS_SKIP_VERIFY;
	tls->server_name_override = *d->server_name ? (char *)d->server_name : NULL;
	for (size_t i = 0; i < LIVE_PEMS; i++) {
		if (!pems[i])
			continue;
		r = put_pem(pems[i], &fds[i], paths[i]);
		if (r < 0)
			return r;
		*names[i] = paths[i];
	}
	return 0;
}

static struct exporter_config config_of(const struct pod_destination *d, char *id,
					uint64_t queue_bytes)
{
	bool http = d->kind == POD_DESTINATION_HTTP;

	return (struct exporter_config){
	    .type = (char *)live_type(d->kind),
	    .id = id,
	    .endpoint = (char *)d->endpoint,
	    .compression = (char *)(*d->compression ? d->compression : "gzip"),
	    .timeout_ms = d->timeout_ms ? d->timeout_ms
			  : http	? LIVE_TIMEOUT_HTTP_MS
					: LIVE_TIMEOUT_GRPC_MS,
	    .retry = {.enabled = true,
		      .initial_interval_ms = 5000,
		      .multiplier = 1.5,
		      .randomization_factor = 0.5,
		      .max_interval_ms = 30000},
	    .queue = {.enabled = true, .queue_size = LIVE_QUEUE_REQUESTS, .max_bytes = queue_bytes},
	    .proto_generation = (char *)(*d->proto_generation ? d->proto_generation : "auto"),
	    .export_resource_attributes = true,
	    .export_profile_attributes = true,
	    .export_sample_attributes = true,
	    .export_stack_frames = true,
	    .ignore_profiles_without_container_id = true,
	};
}

struct user {
	int (*use)(const struct exporter_config *config, struct user *u, struct error *err);
	uv_loop_t *loop;
	struct exporter *exporter;
};

/* CONFIG is valid during the call of U->use, the files in PEMS until they are closed. */
static int with_config(const struct pod_destination *d, uint64_t queue_bytes,
		       int pems[static LIVE_PEMS], struct user *u, struct error *err)
{
	struct config_pair pairs[CONFIG_HEADERS_MAX];
	char paths[LIVE_PEMS][PEM_PATH_MAX], id[LIVE_ID_MAX];
	struct exporter_config config = config_of(d, id, queue_bytes);
	int r;

	if (d->n_headers > CONFIG_HEADERS_MAX)
		return error_set(err, -EINVAL, "more than %d headers", CONFIG_HEADERS_MAX);
	for (size_t i = 0; i < d->n_headers; i++)
		pairs[i] = (struct config_pair){.key = (char *)d->headers[i].name,
						.value = (char *)d->headers[i].value};
	config.headers = (struct config_pairs){.items = pairs, .n = d->n_headers};
	/* No component's id begins with this, so the log lines can be told apart. */
	snprintf(id, sizeof(id), "destination/%s", d->id);
	r = set_tls(pems, d, paths, &config.tls);
	if (r < 0)
		return error_set(err, r, "tls: %s", strerror(-r));
	return u->use(&config, u, err);
}

static int create(const struct exporter_config *config, struct user *u, struct error *err)
{
	return exporter_new(config, u->loop, &u->exporter, err);
}

static int redirect(const struct exporter_config *config, struct user *u, struct error *err)
{
	return u->exporter->ops->redirect(u->exporter, config, u->loop, err);
}

void live_close_pems(int pems[static LIVE_PEMS])
{
	for (size_t i = 0; i < LIVE_PEMS; i++) {
		if (pems[i] >= 0)
			close(pems[i]);
		pems[i] = -1;
	}
}

int live_redirect(struct exporter *e, const struct pod_destination *d, uv_loop_t *loop,
		  int pems[static LIVE_PEMS], struct error *err)
{
	struct user u = {.use = redirect, .loop = loop, .exporter = e};
	int fresh[LIVE_PEMS] = {-1, -1, -1};
	int r = with_config(d, 0, fresh, &u, err);

	live_close_pems(r < 0 ? fresh : pems);
	if (r == 0)
		memcpy(pems, fresh, sizeof(fresh));
	return r;
}

int live_exporter_new(const struct pod_destination *d, uint64_t queue_bytes, uv_loop_t *loop,
		      struct live_exporter **ret, struct error *err)
{
	struct user u = {.use = create, .loop = loop};
	struct live_exporter *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < LIVE_PEMS; i++)
		l->pems[i] = -1;
	r = with_config(d, queue_bytes, l->pems, &u, err);
	l->exporter = u.exporter;
	if (r < 0) {
		live_exporter_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

static void nobody(void *arg)
{
}

static void on_flushed(void *arg)
{
	struct live_exporter *l = arg;
	void (*done)(void *) = TAKE_PTR(l->done);

	l->flushed = true;
	if (done)
		done(l->arg);
}

void live_flush(struct live_exporter *l, uint64_t deadline_ms, void (*done)(void *), void *arg)
{
	if (l->flushed) {
		if (done)
			done(arg);
		return;
	}
	l->done = done ? done : nobody;
	l->arg = arg;
	l->exporter->ops->flush(l->exporter, deadline_ms, on_flushed, l);
}

struct live_exporter *live_exporter_free(struct live_exporter *l)
{
	if (!l)
		return NULL;
	/* Replaces the callback of a flush under way: it may come after L is freed. */
	if (l->exporter && l->done)
		l->exporter->ops->flush(l->exporter, 0, nobody, NULL);
	if (l->exporter)
		l->exporter->ops->destroy(l->exporter);
	live_close_pems(l->pems);
	free(l);
	return NULL;
}
