// SPDX-License-Identifier: Apache-2.0
/*
 * Attaching to a process. Nothing is read from it: the walk finds the state of a threaded Perl in a
 * register, and a Perl without threads has its state in variables of its file. Loop thread.
 */
#include "agent/runtime/perl/perl.h"

static struct kiln_perl_variables loaded(const struct kiln_perl_variables *at, uint64_t bias)
{
	return (struct kiln_perl_variables){
	    .op = at->op + bias,
	    .curcop = at->curcop + bias,
	    .curstackinfo = at->curstackinfo + bias,
	    .top_env = at->top_env + bias,
	    .compiling = at->compiling + bias,
	    .markstack = at->markstack + bias,
	    .markstack_ptr = at->markstack_ptr + bias,
	    .sortcop = at->sortcop + bias,
	};
}

int perl_attach(const struct runtime_image *ri, struct runtime_target *target,
		struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct perl_image *image = container_of(ri, struct perl_image, base);
	const struct perl_layout *l = perl_layout_of(image->minor);
	struct kiln_perl k = {
	    .at = image->threaded ? l->at : loaded(&image->at, target->bias),
	    .kind = image->threaded ? KILN_PERL_STATE_RBX : KILN_PERL_STATE_GLOBAL,
	    .runops = image->runops + target->bias,
	    .state_from = image->state_from,
	    .context_size = l->context_size,
	    .sub_cv = l->sub_cv,
	    .oldmark = l->oldmark,
	    .stackinfo_type = l->stackinfo_type,
	    .nextstate = l->nextstate,
	    .dbstate = l->dbstate,
	    .sort = l->sort,
	    .entersub = l->entersub,
	    .stash_aux = l->stash_aux,
	    .defer_catches = l->defer_catches,
	};
	struct perl_process *p = calloc(1, sizeof(*p));

	(void)err;
	if (!p)
		return -ENOMEM;
	p->layout = l;
	p->threaded = image->threaded;
	runtime_tell_walker(ret_kernel, &k, sizeof(k));
	*ret_state = p;
	return 0;
}

void perl_detach(void *state)
{
	free(state);
}

extern const struct walker_object perl_walker;

const struct interpreter_ops perl_ops = {
    .name = "perl",
    .id = KILN_RUNTIME_PERL,
    .walker = &perl_walker,
    .files = (const char *const[]){"perl", "libperl", NULL},
    .type = FRAME_PERL,
    .probe = perl_probe,
    .forget = perl_forget,
    .attach = perl_attach,
    .symbolize = perl_symbolize,
    .read_text = perl_read_text,
    .detach = perl_detach,
};
