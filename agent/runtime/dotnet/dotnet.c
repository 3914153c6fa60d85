// SPDX-License-Identifier: Apache-2.0
/* dotnet_ops, and the memory that is .NET's. Loop thread. */
#include "agent/runtime/dotnet/dotnet.h"

/* The runtime's memory for code is in its map. Other memory without a file may be anyone's. */
static enum jit_claim dotnet_owns(void *state, const struct target_memory *memory, uint64_t start,
				  uint64_t end)
{
	const struct dotnet_process *p = state;
	struct dotnet_section s;

	if (dotnet_section_at(&p->kernel, memory, start, &s) == 0 ||
	    dotnet_section_at(&p->kernel, memory, end - 1, &s) == 0)
		return JIT_CERTAIN;
	return JIT_LIKELY;
}

extern const struct walker_object dotnet_walker;

const struct interpreter_ops dotnet_ops = {
    .name = "dotnet",
    .id = KILN_RUNTIME_DOTNET,
    .walker = &dotnet_walker,
    .files = (const char *const[]){"libcoreclr", NULL},
    .type = FRAME_DOTNET,
    .probe = dotnet_probe,
    .forget = dotnet_forget,
    .attach = dotnet_attach,
    .symbolize = dotnet_symbolize,
    .detach = dotnet_detach,
    .owns = dotnet_owns,
};
