/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accumulates batches in a builder of bounded size and writes it out; see the header. The clock is
 * that of the batches: a rotation is due when a batch ends ROTATION after the period's first one
 * began. Pool thread, see local.h.
 */
#include "agent/export/profile_file.h"

#include <time.h>

#include "lib/log.h"

enum { ENCODED_MAX = 1 << 30 };

struct profile_file {
	struct local_exporter local; /* first */
	const struct profile_format *format;
	char *path;
	uint64_t rotation_ns;
	uint64_t run_start_ns;	  /* of the first batch; 0: none yet */
	uint64_t period_start_ns; /* of the first batch since the last rotation */
	void *profile;
	bool dirty; /* holds samples that are not in a file */
};

/* PATH with its first %s replaced; several exporters may share one directory. */
static int file_name(const struct profile_file *f, char *out, size_t size)
{
	const char *mark = strstr(f->path, "%s");
	time_t s = (time_t)(f->period_start_ns / 1000000000);
	char when[32] = "";
	struct tm tm;
	int n;

	if (gmtime_r(&s, &tm))
		strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
	n = mark ? snprintf(out, size, "%.*s%s%s", (int)(mark - f->path), f->path, when, mark + 2)
		 : snprintf(out, size, "%s", f->path);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static void write_out(struct profile_file *f)
{
	struct error err = {0};
	char path[4096];
	struct buf out;
	int r;

	buf_init(&out, ENCODED_MAX);
	r = file_name(f, path, sizeof(path));
	if (r < 0)
		error_set(&err, r, "%s: %s", f->path, strerror(-r));
	else
		r = f->format->encode(f->profile, &out, &err);
	if (!r)
		r = local_replace_file(path, out.data, out.len, &err);
	if (r < 0)
		log_error("export", "%s: %s", f->local.name, err.message);
	else
		log_info("export", "%s: wrote %s (%zu bytes)", f->local.name, path, out.len);
	f->dirty = f->dirty && r < 0; /* tried again at the next rotation, and at the end */
	buf_done(&out);
}

static void rotate(struct profile_file *f, const struct batch *batch)
{
	write_out(f);
	if (strstr(f->path, "%s") && !f->dirty)
		f->format->reset(f->profile);
	f->period_start_ns = batch->start_unix_ns + batch->duration_ns;
}

static void profile_file_consume(struct local_exporter *l, struct batch *batch)
{
	struct profile_file *f = container_of(l, struct profile_file, local);
	uint64_t end = batch->start_unix_ns + batch->duration_ns;

	if (!f->run_start_ns)
		f->run_start_ns = f->period_start_ns = batch->start_unix_ns;
	if (f->format->add(f->profile, batch) < 0)
		metric_add(l->drops, batch_cpu_samples(batch));
	f->dirty = true;
	if (f->rotation_ns && (end >= f->period_start_ns + f->rotation_ns ||
			       end < f->period_start_ns)) /* the clock was set back */
		rotate(f, batch);
}

/* An empty run leaves an empty profile, not a missing file. */
static void profile_file_finish(struct local_exporter *l)
{
	struct profile_file *f = container_of(l, struct profile_file, local);
	struct timespec now;

	if (!f->run_start_ns) {
		clock_gettime(CLOCK_REALTIME, &now);
		f->period_start_ns = (uint64_t)now.tv_sec * 1000000000;
		f->dirty = true;
	}
	if (f->dirty)
		write_out(f);
	if (f->dirty)
		atomic_store(&f->local.base.failed, true);
}

static void profile_file_release(struct local_exporter *l)
{
	struct profile_file *f = container_of(l, struct profile_file, local);

	if (f->profile)
		f->format->free(f->profile);
	free(f->path);
}

static const struct local_hooks profile_file_hooks = {
    .consume = profile_file_consume,
    .finish = profile_file_finish,
    .release = profile_file_release,
};

int profile_file_create(const struct profile_format *format, const struct exporter_config *config,
			uv_loop_t *loop, struct exporter **ret, struct error *err)
{
	struct profile_file *f;
	const char *mark;
	int r;

	if (!config->path || !config->path[0])
		return error_set(err, -EINVAL, "path: must be given");
	/* Better now than after an hour of profiling. A directory named by the time comes later. */
	mark = strstr(config->path, "%s");
	r = mark && strchr(mark, '/') ? 0 : local_check_path(config->path, err);
	if (r < 0)
		return r;
	f = calloc(1, sizeof(*f));
	if (!f)
		return error_set(err, -ENOMEM, "out of memory");
	f->format = format;
	f->rotation_ns = config->rotation_ms * 1000000;
	f->path = strdup(config->path);
	r = f->path ? format->new (&f->profile) : -ENOMEM;
	if (r < 0)
		error_set(err, r, "%s", strerror(-r));
	else
		r = local_init(&f->local, format->ops, &profile_file_hooks, format->drops, config,
			       loop, err);
	if (r < 0) {
		profile_file_release(&f->local);
		free(f);
		return r;
	}
	*ret = &f->local.base;
	return 0;
}
