/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of a struct world, and its names. */
#include "tests/unit/agent/runtime/v8/world.h"

#define KILN_WALKER v8_walk
#include "bpf/unwind.h"

#include "agent/runtime/v8/walker.h"

#include "tests/unit/agent/runtime/recorded_env.h"

enum { MAGIC = 0x6b38764b, FRAMES_MAX = 64 };

static struct kiln_cache_entry cached;

struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));

	return w && recorded_walk_init(&w->walk) == 0 ? w : world_free(w);
}

struct world *world_free(struct world *w)
{
	if (!w)
		return NULL;
	recorded_walk_done(&w->walk);
	free(w);
	return NULL;
}

static inline struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	const struct recorded_rule *r = recorded_walk_rule(current, pc);

	cached = (struct kiln_cache_entry){.pc = pc, .tag = w->tag};
	if (r && r->known)
		cached.rule = r->rule;
	/* The recordings are older than this flag. */
	if ((cached.rule.flags & KILN_RULE_RUNTIME) && cached.rule.kind != KILN_RULE_FP)
		cached.rule.flags |= KILN_RULE_FRAME_POINTER;
	return &cached;
}

static void name_frames(struct world *w, uint32_t n, char *out, size_t size)
{
	_cleanup_(runtime_functions_freep) struct runtime_functions *functions = NULL;
	struct runtime_image ri = {.ops = &v8_ops, .own = &w->image};
	bool found;
	struct runtime_target target = {
	    .memory = {recorded_walk_memory, &w->walk, .found = &found}};
	struct kiln_runtime ignored;
	void *state = NULL;

	out[0] = 0;
	if (v8_ops.attach(&ri, &target, &ignored, &state, NULL) < 0)
		return;
	if (w->again && runtime_functions_new(1 << 20, &functions) == 0) {
		target.memory.functions = functions;
		recorded_env_name(state, &target.memory, n, FRAMES_MAX, out, size);
	}
	recorded_env_name(state, &target.memory, n, FRAMES_MAX, out, size);
	v8_ops.detach(state);
}

void world_stack(struct world *w, char *out, size_t size)
{
	uint32_t n =
	    recorded_env_walk(&w->walk, &v8_ops, &w->image.kernel, sizeof(w->image.kernel));

	name_frames(w, n, out, size);
}

int world_save(const struct world *w, const char *path)
{
	return recorded_walk_save(&w->walk, MAGIC, &w->image, sizeof(w->image), path);
}

int world_load(const char *path, struct world **ret)
{
	_cleanup_(world_freep) struct world *w = world_new();
	int r =
	    w ? recorded_walk_load(&w->walk, MAGIC, &w->image, sizeof(w->image), path) : -ENOMEM;

	if (r < 0)
		return r;
	*ret = TAKE_PTR(w);
	return 0;
}
