/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of a struct world, and its names. */
#include "tests/unit/agent/runtime/hotspot/world.h"

#define KILN_WALKER hotspot_walk
#include "bpf/unwind.h"

#include "agent/runtime/hotspot/walker.h"

#include "tests/unit/agent/runtime/recorded_env.h"

enum { MAGIC = 0x6b73686b, FRAMES_MAX = 128, CACHE_ENTRIES = 4096 };

/* Kept from walk to walk of one world. */
static struct kiln_cache_entry cache[CACHE_ENTRIES];

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
	struct kiln_cache_entry *entry = &cache[hash_words(&pc, 1, 0) % CACHE_ENTRIES];
	const struct recorded_rule *r;

	if (entry->pc == pc && entry->tag == w->tag)
		return entry;
	r = recorded_walk_rule(current, pc);
	*entry = (struct kiln_cache_entry){.pc = pc, .tag = w->tag};
	if (r && r->known)
		entry->rule = r->rule;
	return entry;
}

void world_walk(struct world *w)
{
	w->n_words = recorded_env_walk(&w->walk, &hotspot_ops, &w->process.kernel,
				       sizeof(w->process.kernel));
	w->words = words;
}

void world_stack(struct world *w, char *out, size_t size)
{
	const struct target_memory memory = {.read = recorded_walk_memory, .arg = &w->walk};

	world_walk(w);
	recorded_env_name(&w->process, &memory, w->n_words, FRAMES_MAX, out, size);
}

int world_save(const struct world *w, const char *path)
{
	return recorded_walk_save(&w->walk, MAGIC, &w->process, sizeof(w->process), path);
}

int world_read(FILE *f, struct world **ret)
{
	_cleanup_(world_freep) struct world *w = world_new();
	int r =
	    w ? recorded_walk_read(&w->walk, MAGIC, &w->process, sizeof(w->process), f) : -ENOMEM;

	if (r < 0)
		return r;
	w->process.pieces = (struct hotspot_pieces){};
	memset(cache, 0, sizeof(cache));
	*ret = TAKE_PTR(w);
	return 0;
}

int world_load(const char *path, struct world **ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");

	return f ? world_read(f, ret) : -errno;
}
