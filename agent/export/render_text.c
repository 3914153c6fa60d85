/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of the text dump (text.c names its source). Control characters in foreign strings
 * are written as \xNN, so that no process name can forge a line.
 */
#include "agent/export/render.h"

#define RESOURCE_OPEN  "--------------- New Resource Profile --------------\n"
#define RESOURCE_CLOSE "-------------- End Resource Profile ---------------\n\n"
#define PROFILE_OPEN   "------------------- New Profile -------------------\n"
#define PROFILE_CLOSE  "------------------- End Profile -------------------\n"
#define SAMPLE_OPEN    "------------------- New Sample --------------------\n"
#define SAMPLE_CLOSE   "------------------- End Sample --------------------\n"
#define RULE	       "---------------------------------------------------\n"

static void put(struct buf *out, const char *s)
{
	for (size_t n; *s; s += n) {
		for (n = 0; (unsigned char)s[n] >= 0x20 && s[n] != 0x7f;)
			n++;
		buf_append(out, s, n);
		if (s[n])
			buf_printf(out, "\\x%02x", (unsigned char)s[n++]);
	}
}

/* As JSON writes a string. */
static void put_quoted(struct buf *out, const char *s)
{
	buf_puts(out, "\"");
	for (; *s; s++)
		if (*s == '"' || *s == '\\')
			buf_printf(out, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			buf_printf(out, "\\u%04x", (unsigned char)*s);
		else
			buf_append(out, s, 1);
	buf_puts(out, "\"");
}

static void put_str(struct buf *out, const char *key, const char *value)
{
	buf_printf(out, "  %s: ", key);
	put(out, value);
	buf_puts(out, " (Str)\n");
}

static void put_int(struct buf *out, const char *key, int64_t value)
{
	buf_printf(out, "  %s: %lld (Int)\n", key, (long long)value);
}

static void put_attribute(struct buf *out, const struct attr *a)
{
	buf_puts(out, "  ");
	put(out, a->key);
	buf_puts(out, ": ");
	switch (a->type) {
	case ATTR_STR:
		put(out, a->str);
		buf_puts(out, " (Str)\n");
		break;
	case ATTR_INT:
		buf_printf(out, "%lld (Int)\n", (long long)a->num);
		break;
	case ATTR_BOOL:
		buf_printf(out, "%s (Bool)\n", a->num ? "true" : "false");
		break;
	case ATTR_STRS:
		buf_puts(out, "[");
		for (size_t i = 0; i < a->n_strs; i++) {
			buf_puts(out, i ? "," : "");
			put_quoted(out, a->strs[i]);
		}
		buf_puts(out, "] (Slice)\n");
		break;
	}
}

static void put_frames(struct buf *out, const struct batch *b, const struct batch_stack *stack,
		       const struct text_options *o)
{
	for (uint32_t i = 0; i < stack->len; i++) {
		const struct batch_location *l =
		    &b->locations[b->stack_locations[stack->first + i]];

		if (!(o->frame_types & 1U << l->type))
			continue;
		for (uint32_t j = 0; j < l->n_lines; j++) {
			const struct batch_line *line = &b->lines[l->first_line + j];
			const struct batch_function *f = &b->functions[line->function];

			buf_printf(out,
				   "Instrumentation: %s, Function: ", frame_type_name(l->type));
			put(out, f->name);
			if (o->function_file) {
				buf_puts(out, ", File: ");
				put(out, f->file);
				buf_printf(out, ", Line: %u, Column: 0", line->line);
			}
			buf_puts(out, "\n");
		}
	}
}

static void put_sample(struct buf *out, const struct batch *b, const struct batch_sample *s,
		       const struct text_options *o)
{
	const struct batch_process *p = &b->processes[s->process];

	buf_puts(out, SAMPLE_OPEN);
	if (o->sample_attributes) {
		put_str(out, "thread.name", s->thread_name);
		put_str(out, "process.executable.name", p->executable_name);
		put_str(out, "process.executable.path", p->executable_path);
		put_int(out, "process.pid", p->pid);
		if (s->tid)
			put_int(out, "thread.id", s->tid);
		for (size_t i = 0; i < b->label_sets[s->labels].n; i++)
			put_str(out, b->label_sets[s->labels].labels[i].key,
				b->label_sets[s->labels].labels[i].value);
	}
	buf_printf(out, "  Values: [%lld]\n", (long long)s->value);
	if (o->sample_attributes)
		buf_puts(out, RULE);
	if (o->stack_frames)
		put_frames(out, b, &b->stacks[s->stack], o);
	buf_puts(out, SAMPLE_CLOSE);
}

static const char *type_of(const struct batch_profile *p)
{
	return batch_sample_type(p);
}

static bool wanted(const struct batch *b, const struct batch_profile *p,
		   const struct text_options *o)
{
	if (o->skip_without_container && !b->resources[p->resource].container_id[0])
		return false;
	for (size_t i = 0; i < o->n_sample_types; i++)
		if (streq(o->sample_types[i], type_of(p)))
			return true;
	return !o->n_sample_types;
}

void render_text(const struct batch *b, const struct text_options *o, struct buf *out,
		 void (*piece)(void *arg, struct buf *out), void *arg)
{
	const struct batch_resource *open = NULL;

	for (uint32_t i = 0; i < b->n_profiles; i++) {
		const struct batch_profile *p = &b->profiles[i];
		const struct batch_resource *r = &b->resources[p->resource];

		if (!wanted(b, p, o))
			continue;
		if (r != open) {
			buf_puts(out, open ? RESOURCE_CLOSE : "");
			buf_puts(out, RESOURCE_OPEN);
			for (size_t j = 0; o->resource_attributes && j < r->n_attrs; j++)
				put_attribute(out, &r->attrs[j]);
			open = r;
		}
		buf_puts(out, PROFILE_OPEN);
		buf_puts(out, "  ProfileID: 00000000000000000000000000000000\n");
		buf_puts(out, "  Dropped attributes count: 0\n");
		buf_printf(out, "  SampleType: %s\n", type_of(p));
		for (uint32_t j = 0; j < p->n_samples; j++) {
			put_sample(out, b, &b->samples[p->first_sample + j], o);
			if (piece)
				piece(arg, out);
		}
		buf_puts(out, PROFILE_CLOSE);
	}
	buf_puts(out, open ? RESOURCE_CLOSE : "");
}
