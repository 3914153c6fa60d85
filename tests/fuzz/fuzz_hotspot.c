// SPDX-License-Identifier: Apache-2.0
/*
 * The input is a recorded Java process (tests/unit/agent/runtime/hotspot/world.h): memory,
 * registers and offsets, any of which may be nonsense. Walking its stack and naming the frames must
 * end.
 */
#include "tests/unit/agent/runtime/hotspot/world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char out[1 << 16];
	struct error err = {0};
	_cleanup_fclose_ FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	_cleanup_(world_freep) struct world *w = NULL;

	if (!f || world_read(f, &w) < 0 || hotspot_layout_check(&w->process.layout, &err) < 0)
		return 0;
	world_stack(w, out, sizeof(out));
	if (w->n_words > KILN_MAX_USER_WORDS || !memchr(out, 0, sizeof(out)))
		abort();
	return 0;
}
