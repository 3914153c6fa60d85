// SPDX-License-Identifier: Apache-2.0
/*
 * LuaJIT's struct interpreter_ops, and attaching to a process: all data for the walker comes from
 * the file. Loop thread.
 */
#include "agent/runtime/luajit/luajit.h"

static int luajit_attach(const struct runtime_image *ri, struct runtime_target *target,
			 struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	struct kiln_luajit k = container_of(ri, struct luajit_image, base)->kernel;
	bool *has_jit = malloc(sizeof(*has_jit));

	(void)err;
	if (!has_jit)
		return -ENOMEM;
	*has_jit = k.has_jit;
	k.vm += target->bias;
	runtime_tell_walker(ret_kernel, &k, sizeof(k));
	*ret_state = has_jit;
	return 0;
}

static void luajit_detach(void *state)
{
	free(state);
}

/*
 * An area of machine code of traces begins with the address of the next area and its own size
 * (lj_jit.h, MCLink). Several areas may lie in one mapping.
 */
static enum jit_claim luajit_owns(void *state, const struct target_memory *memory, uint64_t start,
				  uint64_t end)
{
	const bool *has_jit = state;
	uint64_t link[2];

	if (!*has_jit)
		return JIT_NONE;
	if (target_read(memory, start, link, sizeof(link)) == 0 && link[0] % 4096 == 0 &&
	    link[0] >> 47 == 0 && link[1] && link[1] % 4096 == 0 && link[1] <= end - start)
		return JIT_CERTAIN;
	return JIT_LIKELY;
}

extern const struct walker_object luajit_walker;

const struct interpreter_ops luajit_ops = {
    .name = "luajit",
    .id = KILN_RUNTIME_LUAJIT,
    .walker = &luajit_walker,
    .files = (const char *const[]){"luajit", "libluajit", NULL},
    .type = FRAME_LUAJIT,
    .probe = luajit_probe,
    .forget = luajit_forget,
    .attach = luajit_attach,
    .symbolize = luajit_symbolize,
    .detach = luajit_detach,
    .owns = luajit_owns,
};
