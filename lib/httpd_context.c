/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lws_context: making it, and taking it down with libwebsockets' libuv plugin on the caller's
 * loop ("foreign loop").
 *
 * Facts about libwebsockets 4.1.6 that shape this file (lib/event-libs/libuv/libuv.c,
 * lib/core/context.c):
 * - With a foreign loop lws_context_destroy() only begins: sockets, then the context's idle and
 * timer handles close through the loop, and it must be called again once they are gone. Nothing
 * tells when. The reaper looks whether the loop still knows these two handles.
 * - It closes its eventfd twice, at once and again through the loop: see close_lws().
 */
#include "lib/httpd_internal.h"

#include <fcntl.h>
#include <pthread.h>

#include "lib/log.h"

enum { SPARE_FDS = 8 /* of the context: its wake-up pipe, and sockets that are still closing */ };

static void log_lws(int level, const char *line)
{
	size_t n = strlen(line);

	while (n && line[n - 1] == '\n')
		n--;
	log_debug("libwebsockets", "%.*s", (int)n, line);
}

static void set_lws_log(void)
{
	lws_set_log_level(LLL_ERR | LLL_WARN, log_lws);
}

/* ---- whose handles are whose ----------------------------------------------------------------- */

struct handle_list {
	const uv_handle_t **items;
	size_t n, cap;
	int error;
};

static void list_handle(uv_handle_t *handle, void *arg)
{
	struct handle_list *list = arg;
	uv_handle_type type = uv_handle_get_type(handle);
	int r;

	if ((type != UV_IDLE && type != UV_TIMER && type != UV_POLL) || list->error)
		return;
	r = grow_array((void **)&list->items, &list->cap, list->n + 1, sizeof(*list->items),
		       1 << 20);
	if (r < 0)
		list->error = r;
	else
		list->items[list->n++] = handle;
}

static bool listed(const struct handle_list *list, const uv_handle_t *handle)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->items[i] == handle)
			return true;
	return false;
}

static void note_handle(struct httpd *h, const uv_handle_t *handle)
{
	uv_os_fd_t fd;

	if (uv_handle_get_type(handle) != UV_POLL) {
		if (h->n_lws_handles < ARRAY_SIZE(h->lws_handles))
			h->lws_handles[h->n_lws_handles++] = handle;
	} else if (uv_fileno(handle, &fd) == 0) {
		h->lws_wake_fd = fd;
	}
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Makes the context and notes which handles of the loop are its own. */
static int new_context(struct httpd *h, struct lws_context_creation_info *info)
{
	struct handle_list before = {0}, after = {0};
	int r = 0;

	uv_walk(h->loop, list_handle, &before);
	if (!before.error)
		h->lws = lws_create_context(info);
	if (h->lws) {
		uv_walk(h->loop, list_handle, &after);
		for (size_t i = 0; i < after.n; i++)
			if (!listed(&before, after.items[i]))
				note_handle(h, after.items[i]);
	}
	r = before.error ? before.error : after.error;
	free(before.items);
	free(after.items);
	return r;
}

static int open_reserve(struct httpd *h)
{
	for (size_t i = 0; i < ARRAY_SIZE(h->reserve_fds); i++) {
		h->reserve_fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (h->reserve_fds[i] < 0)
			return -errno;
	}
	return 0;
}

int httpd_context_start(struct httpd *h, const struct httpd_tls *tls, struct error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	void *loops[1] = {h->loop};
	struct lws_context_creation_info info = {
	    .port = CONTEXT_PORT_NO_LISTEN_SERVER,
	    .protocols = h->protocols,
	    .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_SKIP_SERVER_CANONICAL_NAME,
	    .foreign_loops = loops,
	    .gid = (gid_t)-1,
	    .uid = (uid_t)-1,
	    .user = h,
	    .token_limits = &h->limits,
	    .max_http_header_data = HTTPD_HEAD_MAX,
	    .max_http_header_pool = (short)h->max_connections,
	    .timeout_secs = h->request_timeout_s,
	    /* One buffer for the context. With the default of 4 KiB, a longer piece would take a
	       turn of the loop for each 4 KiB. */
	    .pt_serv_buf_size = HTTPD_SEND_CHUNK,
	    .fd_limit_per_thread = h->max_connections + SPARE_FDS,
	};
	int r = open_reserve(h);

	if (r < 0)
		return error_set(err, r, "%s: %s", h->address, strerror(-r));
	pthread_once(&once, set_lws_log);
	h->protocols[0] = (struct lws_protocols){.name = "http", .callback = httpd_on_lws};
	h->limits.token_limit[WSI_TOKEN_GET_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_HEAD_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_POST_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_PUT_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_DELETE_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_OPTIONS_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_PATCH_URI] = HTTPD_PATH_MAX;
	r = httpd_set_tls(tls, &info, err);
	if (r < 0)
		return r;
	r = new_context(h, &info);
	if (!h->lws)
		return error_set(err, r < 0 ? r : -ENOSYS,
				 "libwebsockets cannot run on libuv: is its plugin "
				 "(libwebsockets-evlib-uv) installed?");
	h->vhost = lws_get_vhost_by_name(h->lws, "default");
	return r < 0 || !h->vhost ? error_set(err, r < 0 ? r : -ENOSYS, "libwebsockets: no server")
				  : 0;
}

/* ---- taking down ----------------------------------------------------------------------------- */

struct presence {
	const struct httpd *h;
	bool any;
};

static void find_lws_handle(uv_handle_t *handle, void *arg)
{
	struct presence *p = arg;

	for (size_t i = 0; i < p->h->n_lws_handles; i++)
		if (p->h->lws_handles[i] == handle)
			p->any = true;
}

static void on_reaper(uv_idle_t *idle)
{
	struct httpd *h = idle->data;
	struct presence p = {.h = h};

	uv_walk(h->loop, find_lws_handle, &p);
	if (p.any)
		return;
	lws_context_destroy(h->lws);
	h->lws = NULL;
	uv_idle_stop(idle);
	uv_close((uv_handle_t *)idle, httpd_on_handle_closed);
}

/*
 * Begins to destroy the context. libwebsockets 4.1.6 closes its eventfd here, and the same number
 * again from the loop (lws_destroy_event_pipe() and __lws_close_free_wsi_final()); by then the
 * number may belong to a file that another thread has opened. So this function occupies the number
 * in between, and the second close closes that descriptor. The kernel gives out the lowest free
 * number: the reserve descriptors, which were opened before the context and are lower, are closed
 * first, so that files opened by other threads at this moment get those numbers.
 */
static void close_lws(struct httpd *h)
{
	int source = h->reserve_fds[0], fd;

	for (size_t i = 1; i < ARRAY_SIZE(h->reserve_fds); i++)
		if (h->reserve_fds[i] >= 0)
			close(h->reserve_fds[i]);
	lws_context_destroy(h->lws);
	if (source < 0)
		return;
	if (h->lws_wake_fd >= 0) {
		fd = fcntl(source, F_DUPFD_CLOEXEC, h->lws_wake_fd);
		if (fd >= 0 && fd != h->lws_wake_fd)
			close(fd);
	}
	close(source);
}

static void close_reserve(struct httpd *h)
{
	for (size_t i = 0; i < ARRAY_SIZE(h->reserve_fds); i++)
		if (h->reserve_fds[i] >= 0)
			close(h->reserve_fds[i]);
}

void httpd_context_stop(struct httpd *h)
{
	if (h->lws) {
		close_lws(h);
		uv_idle_start(&h->reaper, on_reaper);
	} else {
		close_reserve(h);
		uv_close((uv_handle_t *)&h->reaper, httpd_on_handle_closed);
	}
}
