// SPDX-License-Identifier: Apache-2.0
/*
 * PHP's struct interpreter_ops, and the data for the walker: addresses and offsets, none of which
 * has to be read from the process. Loop thread.
 */
#include "agent/runtime/php/php.h"

static void place(uint64_t bias, const struct php_function *f, uint64_t *ret_start,
		  uint32_t *ret_size)
{
	*ret_start = f->start + bias;
	*ret_size = f->start && f->size <= UINT32_MAX ? (uint32_t)f->size : 0;
}

static int php_attach(const struct runtime_image *ri, struct runtime_target *target,
		      struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct php_image *p = container_of(ri, struct php_image, base);
	const struct php_layout *l = p->layout;
	struct php_process *process;
	struct kiln_php k = {
	    .globals = p->globals + target->bias,
	    .entered = p->edges.entered,
	    .left_from = p->edges.left_from,
	    .left_to = p->edges.left_to,
	    .frame = p->edges.frame,
	    .canary = p->edges.canary,
	    .flags = p->edges.has_registers ? PHP_HAS_REGISTERS : 0,
	    .current = l->current,
	    .exception_op = l->exception_op,
	    .before_exception = l->before_exception,
	    .main_context = l->main_context,
	    .current_context = l->current_context,
	    .opcodes = l->opcodes,
	    .last = l->last,
	    .filename = l->filename,
	    .generator_frame = l->generator_frame,
	    .generator_parent = l->generator_parent,
	    .generator_fake = l->generator_fake,
	    .fiber_context = l->fiber_context,
	    .fiber_caller = l->fiber_caller,
	    .saved_bx = p->saved_bx,
	};

	process = calloc(1, sizeof(*process));
	if (!process)
		return error_set(err, -ENOMEM, "out of memory");
	*process = (struct php_process){.layout = l, .globals = k.globals};
	place(target->bias, &p->loop, &k.loop, &k.loop_size);
	place(target->bias, &p->cold, &k.cold, &k.cold_size);
	place(target->bias, &p->root, &k.root, &k.root_size);
	place(target->bias, &p->resume, &k.resume, &k.resume_size);
	place(target->bias, &p->fiber, &k.fiber, &k.fiber_size);
	runtime_tell_walker(ret_kernel, &k, sizeof(k));
	*ret_state = process;
	return 0;
}

static void php_detach(void *state)
{
	free(state);
}

extern const struct walker_object php_walker;

const struct interpreter_ops php_ops = {
    .name = "php",
    .id = KILN_RUNTIME_PHP,
    .walker = &php_walker,
    .files = (const char *const[]){"php", "libphp", NULL},
    .type = FRAME_PHP,
    .probe = php_probe,
    .forget = php_forget,
    .attach = php_attach,
    .symbolize = php_symbolize,
    .detach = php_detach,
    .owns = php_owns,
};
