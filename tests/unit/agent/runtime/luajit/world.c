/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of a struct world, and its names. */
#include "tests/unit/agent/runtime/luajit/world.h"

#define KILN_WALKER luajit_walk
#include "bpf/unwind.h"

#include "agent/runtime/luajit/walker.h"

#include "tests/unit/agent/runtime/recorded_env.h"

enum { MAGIC = 0x6c6a6b4b, FRAMES_MAX = 64 };

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
	return &cached;
}

void world_stack(struct world *w, char *out, size_t size)
{
	struct target_memory memory = {.read = recorded_walk_memory, .arg = &w->walk};
	uint32_t n =
	    recorded_env_walk(&w->walk, &luajit_ops, &w->facts.kernel, sizeof(w->facts.kernel));

	recorded_env_name(NULL, &memory, n, FRAMES_MAX, out, size);
}

int world_save(const struct world *w, const char *path)
{
	return recorded_walk_save(&w->walk, MAGIC, &w->facts, sizeof(w->facts), path);
}

int world_parse(FILE *f, struct world **ret)
{
	_cleanup_(world_freep) struct world *w = world_new();
	int r =
	    w && f ? recorded_walk_read(&w->walk, MAGIC, &w->facts, sizeof(w->facts), f) : -ENOMEM;

	if (r < 0)
		return r;
	*ret = TAKE_PTR(w);
	return 0;
}

int world_load(const char *path, struct world **ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");

	return world_parse(f, ret);
}
