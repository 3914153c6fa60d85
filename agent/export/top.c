/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of top functions, once a window: what the agent shows when it is given no
 * configuration. On a terminal it takes the screen's place and size; elsewhere it is plain lines of
 * 80 columns (or of $COLUMNS). Pool thread, see local.h.
 */
#include <sys/ioctl.h>

#include "agent/export/local.h"
#include "agent/export/render.h"

enum { RENDER_MAX = 1 << 20, TTY_MARGIN = 6 /* header, column names, rest, prompt */ };

struct top_exporter {
	struct local_exporter local; /* first */
	uint32_t rows;
	struct buf out;
};

static struct top_options top_layout(const struct top_exporter *t)
{
	struct top_options o = {.rows = t->rows, .tty = isatty(t->local.fd)};
	const char *columns = getenv("COLUMNS");
	struct winsize size;

	if (o.tty && ioctl(t->local.fd, TIOCGWINSZ, &size) == 0 && size.ws_col) {
		o.width = size.ws_col;
		if (size.ws_row > TTY_MARGIN + 1)
			o.rows =
			    MIN(o.rows ? o.rows : UINT32_MAX, size.ws_row - (uint32_t)TTY_MARGIN);
	} else if (columns && atoi(columns) > 0) {
		o.width = (unsigned int)atoi(columns);
	}
	return o;
}

static void top_consume(struct local_exporter *l, struct batch *batch)
{
	struct top_exporter *t = container_of(l, struct top_exporter, local);
	struct top_options o = top_layout(t);
	int r;

	buf_reset(&t->out);
	r = render_top(batch, &o, &t->out);
	if (!r)
		r = local_write(l, t->out.data, t->out.len);
	if (r < 0)
		metric_add(l->drops, batch_cpu_samples(batch));
}

static void top_release(struct local_exporter *l)
{
	buf_done(&container_of(l, struct top_exporter, local)->out);
}

static const struct local_hooks top_hooks = {
    .consume = top_consume,
    .release = top_release,
};

static int top_create(const struct exporter_config *config, uv_loop_t *loop, struct exporter **ret,
		      struct error *err)
{
	struct top_exporter *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return error_set(err, -ENOMEM, "out of memory");
	t->rows = config->top_rows;
	buf_init(&t->out, RENDER_MAX);
	r = local_init(&t->local, &top_exporter_ops, &top_hooks, M_TOP_DROPPED, config, loop, err);
	if (r < 0) {
		free(t);
		return r;
	}
	r = local_open(&t->local, config, err);
	if (r < 0) {
		local_destroy(&t->local.base);
		return r;
	}
	*ret = &t->local.base;
	return 0;
}

const struct exporter_ops top_exporter_ops = {
    .type = "top",
    .create = top_create,
    .consume = local_consume,
    .flush = local_flush,
    .destroy = local_destroy,
};
