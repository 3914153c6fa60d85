// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of a LuaJIT process, recorded or forged (a file of record_luajit): walking and naming
 * do bounded work.
 */
#include "bpf/types.h"
#include "bpf/arch.h"
#include "tests/unit/agent/runtime/luajit/world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char out[1 << 16];
	FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	_cleanup_(world_freep) struct world *w = NULL;

	if (world_parse(f, &w) == 0) {
		world_stack(w, out, sizeof(out));
		if (!memchr(out, 0, sizeof(out)))
			abort();
	}
	if (f)
		fclose(f);
	return 0;
}
