// SPDX-License-Identifier: Apache-2.0
/*
 * Ruby's struct interpreter_ops, and attaching to a process: all data for the walker but the place
 * of the thread-local variable comes from the file. Loop thread.
 */
#include "agent/runtime/ruby/ruby.h"

static uint64_t loaded(const struct runtime_target *target, uint64_t vaddr)
{
	return vaddr ? vaddr + target->bias : 0;
}

/* Fills in how the walker finds a thread's context. -EAGAIN: the thread-local variable is not known
 * yet, and there is no other way. */
static int find_context(const struct ruby_image *image, const struct ruby_layout *l,
			const struct runtime_target *target, struct kiln_ruby *k)
{
	struct thread_variable_place place;

	k->context_thread = l->context_thread;
	k->thread_id = l->thread_id;
	k->place = (uint8_t)image->code.place;
	k->place_offset = image->code.place_offset;
	if (l->thread_id)
		k->global = loaded(target, image->global);
	if (thread_variable_place(&image->current, target, &place)) {
		k->has_tls = 1;
		k->tls_module = place.module;
		k->tls_shift = place.shift;
		k->tls_offset = place.offset;
	}
	return k->has_tls || k->global || k->place != KILN_RUBY_NOWHERE ? 0 : -EAGAIN;
}

static int ruby_attach(const struct runtime_image *ri, struct runtime_target *target,
		       struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct ruby_image *image = container_of(ri, struct ruby_image, base);
	const struct ruby_layout *l = ruby_layout_of(image->version);
	const struct ruby_code *code = &image->code;
	struct ruby_process *p;
	struct kiln_ruby k = {
	    .loop_start = loaded(target, code->loop.start),
	    .exec_start = loaded(target, code->exec.start),
	    .exec_end = loaded(target, code->exec.end),
	    .cold_start = loaded(target, code->cold.start),
	    .cold_end = loaded(target, code->cold.end),
	    .loop_size = (uint32_t)(code->loop.end - code->loop.start),
	    .loop_prologue = code->prologue,
	    .loop_return = code->returns,
	};
	int r;

	if (!l)
		return error_set(err, -ENOTSUP, "Ruby %s", ri->version);
	k.frame_size = l->frame_size;
	k.parent = (uint8_t)l->parent;
	k.lines = (uint8_t)l->lines;
	k.lines_size = (uint8_t)l->lines_size;
	k.lines_index = (uint8_t)l->lines_index;
	k.line_size = l->line_size;
	k.string_embedded = l->string_embedded;
	r = find_context(image, l, target, &k);
	if (r < 0)
		return r;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->image = image;
	p->layout = l;
	p->bias = target->bias;
	runtime_tell_walker(ret_kernel, &k, sizeof(k));
	*ret_state = p;
	return 0;
}

static void ruby_detach(void *state)
{
	struct ruby_process *p = state;

	free(p->texts);
	free(p);
}

/* YJIT's code (3.1 on) is in anonymous memory, but a library may have made that memory, too. */
static enum jit_claim ruby_owns(void *state, const struct target_memory *memory, uint64_t start,
				uint64_t end)
{
	const struct ruby_process *p = state;

	return p->image->version >= RUBY_VERSION_JIT ? JIT_LIKELY : JIT_NONE;
}

extern const struct walker_object ruby_walker;

const struct interpreter_ops ruby_ops = {
    .name = "ruby",
    .id = KILN_RUNTIME_RUBY,
    .walker = &ruby_walker,
    .files = (const char *const[]){"libruby", "ruby", NULL},
    .type = FRAME_RUBY,
    .probe = ruby_probe,
    .forget = ruby_forget,
    .attach = ruby_attach,
    .symbolize = ruby_symbolize,
    .read_text = ruby_read_text,
    .detach = ruby_detach,
    .owns = ruby_owns,
};
