/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue, job, flush and destroy of local exporters; see the header for who calls what.
 *
 * Invariant: `busy` is true exactly while `work` is with the pool. Everything else but `stop`
 * belongs to the loop thread; fd, broken and the exporter's own parts belong to the job.
 */
#include "agent/export/local.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "lib/log.h"

enum { PIPE_CHUNK = 4096, FILE_CHUNK = 1 << 20, POLL_MS = 100 };

int local_init(struct local_exporter *l, const struct exporter_ops *ops,
	       const struct local_hooks *hooks, enum metric_id drops,
	       const struct exporter_config *config, uv_loop_t *loop, struct error *err)
{
	int r;

	l->fd = -1;
	l->base.ops = ops;
	l->hooks = hooks;
	l->drops = drops;
	l->loop = loop;
	l->name = strdup(config->id ? config->id : ops->type);
	if (!l->name)
		return error_set(err, -ENOMEM, "out of memory");
	l->base.name = l->name;
	r = uv_timer_init(loop, &l->deadline);
	if (r < 0) {
		free(TAKE_PTR(l->name));
		return error_set(err, r, "%s", uv_strerror(r));
	}
	uv_unref((uv_handle_t *)&l->deadline);
	return 0;
}

int local_open(struct local_exporter *l, const struct exporter_config *config, struct error *err)
{
	int r;

	if (!config->output) {
		l->fd = STDOUT_FILENO;
		return 0;
	}
	l->fd = open(config->output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (l->fd < 0) {
		r = -errno;
		return error_set(err, r, "output: %s: %s", config->output, strerror(-r));
	}
	l->close_fd = true;
	return 0;
}

/* ---- writing (pool thread) --------------------------------------------------------------------
 */

/* Logs once. A reader that has closed the pipe (head -1) is not a failure. */
static void fail_writing(struct local_exporter *l, int r)
{
	if (r == -EPIPE) {
		atomic_store(&l->base.gone, true);
	} else if (!l->broken) {
		log_error("export", "%s: writing: %s", l->name, strerror(-r));
		atomic_store(&l->base.failed, true);
	}
	l->broken = true;
}

/*
 * A pipe that polls writable takes PIPE_BUF bytes without blocking. Writing in chunks of that size
 * lets the job end when the exporter is told to stop, even if the descriptor is in blocking mode.
 */
int local_write(struct local_exporter *l, const void *data, size_t len)
{
	const char *p = data;
	struct stat st;
	bool regular = fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode);
	size_t chunk = regular ? FILE_CHUNK : PIPE_CHUNK;

	while (len) {
		struct pollfd pfd = {.fd = l->fd, .events = POLLOUT};
		ssize_t n;

		if (atomic_load(&l->stop))
			return -ECANCELED;
		n = poll(&pfd, 1, POLL_MS);
		if (n == 0 || (n < 0 && errno == EINTR))
			continue;
		n = n < 0 ? -1 : write(l->fd, p, MIN(len, chunk));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0) {
			int r = -errno;

			fail_writing(l, r);
			return r;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_file(const char *path, const void *data, size_t len)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	const char *p = data;
	ssize_t n;

	if (fd < 0)
		return -errno;
	for (; len; p += n, len -= (size_t)n) {
		n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			n = 0;
		if (n < 0)
			return -errno;
	}
	return fsync(fd) < 0 && errno != EINVAL && errno != EROFS ? -errno : 0;
}

int local_check_path(const char *path, struct error *err)
{
	_cleanup_free_ char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;
	struct stat st;

	if (!dir)
		return error_set(err, -ENOMEM, "out of memory");
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0; /* a device or a pipe, written in place */
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return error_set(err, -EISDIR, "path: %s: is a directory", path);
	if (slash)
		slash[slash == dir] = 0;
	if (faccessat(AT_FDCWD, slash ? dir : ".", W_OK | X_OK, AT_EACCESS) < 0)
		return error_set(err, -errno, "path: %s: %s", path, strerror(errno));
	return 0;
}

int local_replace_file(const char *path, const void *data, size_t len, struct error *err)
{
	struct stat st;
	char temporary[4096];
	int r;

	/* A device or FIFO (/dev/null) must be written in place, not replaced. */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		r = write_file(path, data, len);
		return r < 0 ? error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
	}
	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.tmp.%d", path, (int)getpid()) >=
	    sizeof(temporary))
		return error_set(err, -ENAMETOOLONG, "%s: %s", path, strerror(ENAMETOOLONG));
	r = write_file(temporary, data, len);
	if (!r && rename(temporary, path) < 0)
		r = -errno;
	if (r < 0) {
		unlink(temporary);
		return error_set(err, r, "%s: %s", path, strerror(-r));
	}
	return 0;
}

/* ---- the queue and its job (loop thread, but for run_job) --------------------------------------
 */

static void drop(struct local_exporter *l, struct batch *batch)
{
	metric_add(l->drops, batch_cpu_samples(batch));
	batch_unref(batch);
}

static void on_closed(uv_handle_t *handle)
{
	struct local_exporter *l = container_of(handle, struct local_exporter, deadline);

	l->hooks->release(l);
	if (l->close_fd)
		close(l->fd);
	free(l->name);
	free(l);
}

static void end_flush(struct local_exporter *l)
{
	void (*done)(void *) = TAKE_PTR(l->done);

	uv_timer_stop(&l->deadline);
	if (done)
		done(l->done_arg);
}

static void run_job(struct work *work)
{
	struct local_exporter *l = container_of(work, struct local_exporter, work);

	if (l->current)
		l->hooks->consume(l, l->current);
	else if (l->hooks->finish)
		l->hooks->finish(l);
}

static void next_job(struct local_exporter *l);

static void after_job(struct work *work)
{
	struct local_exporter *l = container_of(work, struct local_exporter, work);

	l->busy = false;
	if (!l->current)
		l->finished = true;
	l->current = batch_unref(l->current);
	next_job(l);
}

static void next_job(struct local_exporter *l)
{
	if (l->busy)
		return;
	while (l->n && atomic_load(&l->stop)) {
		drop(l, l->queue[l->head]);
		l->head = (l->head + 1) % LOCAL_QUEUE_MAX;
		l->n--;
	}
	if (l->destroyed) {
		end_flush(l);
		uv_close((uv_handle_t *)&l->deadline, on_closed);
		return;
	}
	if (l->n) {
		l->current = l->queue[l->head];
		l->head = (l->head + 1) % LOCAL_QUEUE_MAX;
		l->n--;
	} else if (!l->done || l->finished) {
		end_flush(l);
		return;
	}
	l->busy = work_submit(l->loop, &l->work, run_job, after_job) == 0;
	if (!l->busy) { /* no thread or descriptor: run the job here, so that nothing is lost */
		run_job(&l->work);
		after_job(
		    &l->work); /* also ends a flush; calls this at most LOCAL_QUEUE_MAX times */
	}
}

void local_consume(struct exporter *e, struct batch *batch)
{
	struct local_exporter *l = container_of(e, struct local_exporter, base);

	if (l->n == LOCAL_QUEUE_MAX || l->destroyed || l->finished) {
		drop(l, batch_ref(batch));
		return;
	}
	l->queue[(l->head + l->n++) % LOCAL_QUEUE_MAX] = batch_ref(batch);
	next_job(l);
}

static void on_deadline(uv_timer_t *timer)
{
	struct local_exporter *l = container_of(timer, struct local_exporter, deadline);

	atomic_store(&l->stop, true); /* ends the job soon, and then the flush */
}

void local_flush(struct exporter *e, uint64_t deadline_ms, void (*done)(void *), void *arg)
{
	struct local_exporter *l = container_of(e, struct local_exporter, base);

	l->done = done;
	l->done_arg = arg;
	uv_timer_start(&l->deadline, on_deadline, deadline_ms, 0);
	next_job(l);
}

struct exporter *local_destroy(struct exporter *e)
{
	struct local_exporter *l;

	if (!e)
		return NULL;
	l = container_of(e, struct local_exporter, base);
	if (l->destroyed)
		return NULL;
	l->destroyed = true;
	atomic_store(&l->stop, true);
	next_job(l);
	return NULL;
}
