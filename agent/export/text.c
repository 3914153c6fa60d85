/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text dump: `customprofilesexporter`, alias `debug`, and --stdout. Its layout is that of the
 * exporter of the same name in danielpacak/opentelemetry-collector-ebpf-profiler (README.md), which
 * people parse, with one line more: "  Values: [N]" in each sample, N being what the sample
 * stands for (CPU: events; off-CPU: nanoseconds). Each resource's block ends with an empty line.
 *
 * A batch is rendered into one buffer and written in pieces; pool thread, see local.h.
 */
#include "agent/export/local.h"
#include "agent/export/render.h"

enum { RENDER_MAX = 1 << 30, PIECE = 32 * 1024 };

struct text_exporter {
	struct local_exporter local; /* first */
	struct text_options options;
	struct buf out;
};

static void text_piece(void *arg, struct buf *out)
{
	struct text_exporter *t = arg;

	if (out->len < PIECE || t->local.broken)
		return;
	local_write(&t->local, out->data, out->len);
	buf_reset(out);
}

static void text_consume(struct local_exporter *l, struct batch *batch)
{
	struct text_exporter *t = container_of(l, struct text_exporter, local);
	int r = 0;

	buf_reset(&t->out);
	render_text(batch, &t->options, &t->out, text_piece, t);
	if (t->out.error || l->broken)
		r = t->out.error ? t->out.error : -EIO;
	else
		r = local_write(l, t->out.data, t->out.len);
	if (r < 0)
		metric_add(l->drops, batch_cpu_samples(batch));
	/* Names can be very long: do not keep such a large buffer. */
	if (t->out.cap > 4 * PIECE)
		buf_done(&t->out);
}

static void text_release(struct local_exporter *l)
{
	struct text_exporter *t = container_of(l, struct text_exporter, local);

	buf_done(&t->out);
	for (size_t i = 0; i < t->options.n_sample_types; i++)
		free(t->options.sample_types[i]);
	free(t->options.sample_types);
}

static const struct local_hooks text_hooks = {
    .consume = text_consume,
    .release = text_release,
};

/* Bits of the frame types named in the configuration; all when none is. */
static int frame_types(const struct exporter_config *config, uint32_t *ret, struct error *err)
{
	uint32_t bits = 0;
	enum frame_type type;

	for (size_t i = 0; i < config->export_stack_frame_types.n; i++) {
		const char *name = config->export_stack_frame_types.items[i];

		if (frame_type_parse(name, &type) < 0)
			return error_set(err, -EINVAL,
					 "export_stack_frame_types: unknown type \"%s\"", name);
		bits |= 1U << type;
	}
	*ret = bits ? bits : UINT32_MAX;
	return 0;
}

static int copy_strings(const struct config_strings *from, char ***ret, size_t *ret_n)
{
	char **copy = calloc(from->n + 1, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	for (size_t i = 0; i < from->n; i++) {
		copy[i] = strdup(from->items[i]);
		if (copy[i])
			continue;
		while (i-- > 0)
			free(copy[i]);
		free(copy);
		return -ENOMEM;
	}
	*ret = copy;
	*ret_n = from->n;
	return 0;
}

static int text_create(const struct exporter_config *config, uv_loop_t *loop, struct exporter **ret,
		       struct error *err)
{
	struct text_exporter *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return error_set(err, -ENOMEM, "out of memory");
	t->options = (struct text_options){
	    .resource_attributes = config->export_resource_attributes,
	    .sample_attributes = config->export_sample_attributes,
	    .stack_frames = config->export_stack_frames,
	    .function_file = config->export_function_file,
	    .skip_without_container = config->ignore_profiles_without_container_id,
	};
	buf_init(&t->out, RENDER_MAX);
	r = frame_types(config, &t->options.frame_types, err);
	if (!r)
		r = copy_strings(&config->export_sample_types, &t->options.sample_types,
				 &t->options.n_sample_types);
	if (!r)
		r = local_init(&t->local, &text_exporter_ops, &text_hooks, M_TEXT_DROPPED, config,
			       loop, err);
	if (r < 0) {
		text_release(&t->local);
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

const struct exporter_ops text_exporter_ops = {
    .type = "customprofilesexporter",
    .create = text_create,
    .consume = local_consume,
    .flush = local_flush,
    .destroy = local_destroy,
};
