// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the section that holds an address, as walker_find.h does, and the method of code that was
 * compiled ahead of time. Such code has no header. The runtime keeps a map from the beginning of
 * the code to its method (v8.0.4, src/coreclr/vm/readytoruninfo.h, m_entryPointToMethodDescMap;
 * vm/hash.h), into which it puts each method before the method runs. Loop thread.
 */
#include "agent/runtime/dotnet/dotnet.h"

enum {
	LEVEL_ENTRIES = 256,
	TABLES_MAX = 4096, /* tables of the map of all code that are looked at */
	FUNCTIONS_MAX = 1 << 20,
	HANDLERS_MAX = 256, /* functions of one method: the handlers of its exceptions */
	/* How many bytes of a ReadyToRunInfo are searched for the map, which is at offset 0x1c0 in
	 * .NET 8 and 9. */
	INFO_BYTES = 0x300,
	BUCKETS_MAX = 1 << 20,
	BUCKETS_SEEN = 32,
	PROBES_MAX = 64,
	MAP_USUAL = 0x1c0,
	UNWIND_BYTES = 68, /* bytes of the largest unwind information that is followed */
	SLOTS = 4,	   /* a bucket has SLOTS keys, then as many values */
};

int dotnet_section_at(const struct kiln_dotnet *k, const struct target_memory *memory, uint64_t pc,
		      struct dotnet_section *ret)
{
	uint64_t node = k->map, fragment[4];

	for (int i = KILN_DOTNET_LEVELS - 1; i >= 0; i--) {
		uint64_t at = (pc >> (KILN_DOTNET_LEVEL_SHIFT + i * 8) & 255) * 8;

		if (dotnet_read(memory, node + at, &node, 8) < 0)
			return -EFAULT;
		node &= ~1ULL;
		if (!node)
			return -ENOENT;
	}
	for (int i = 0; i < KILN_DOTNET_FRAGMENTS && node; i++) {
		if (dotnet_read(memory, node, fragment, sizeof(fragment)) < 0)
			return -EFAULT;
		node = fragment[0] & ~1ULL;
		if (pc < fragment[1] || pc >= fragment[2])
			continue;
		if (dotnet_read(memory, fragment[3], ret->words, sizeof(ret->words)) < 0)
			return -EFAULT;
		return pc >= ret->words[KILN_DOTNET_SECTION_BEGIN] &&
			       pc < ret->words[KILN_DOTNET_SECTION_END]
			   ? 0
			   : -ENOENT;
	}
	return -ENOENT;
}

/* ---- all sections -----------------------------------------------------------------------------
 */

struct walk {
	const struct target_memory *memory;
	int (*take)(void *arg, const struct dotnet_section *section);
	void *arg;
	unsigned int tables;
};

static int walk_fragments(struct walk *w, uint64_t node)
{
	struct dotnet_section section;
	uint64_t fragment[4];
	int r;

	for (int i = 0; i < KILN_DOTNET_FRAGMENTS && node; i++) {
		if (dotnet_read(w->memory, node, fragment, sizeof(fragment)) < 0)
			return -EFAULT;
		node = fragment[0] & ~1ULL;
		if (dotnet_read(w->memory, fragment[3], section.words, sizeof(section.words)) < 0)
			continue;
		r = w->take(w->arg, &section);
		if (r)
			return r;
	}
	return 0;
}

static int walk_level(struct walk *w, uint64_t table, int level)
{
	uint64_t entries[LEVEL_ENTRIES];
	int r = 0;

	if (w->tables++ >= TABLES_MAX)
		return 0;
	if (dotnet_read(w->memory, table, entries, sizeof(entries)) < 0)
		return -EFAULT;
	for (size_t i = 0; i < LEVEL_ENTRIES && r == 0; i++) {
		uint64_t next = entries[i] & ~1ULL;

		if (next)
			r = level ? walk_level(w, next, level - 1) : walk_fragments(w, next);
	}
	return r;
}

int dotnet_each_section(const struct kiln_dotnet *k, const struct target_memory *memory,
			int (*take)(void *arg, const struct dotnet_section *section), void *arg)
{
	struct walk w = {memory, take, arg, 0};

	return walk_level(&w, k->map, KILN_DOTNET_LEVELS - 1);
}

/* ---- code compiled ahead of time --------------------------------------------------------------
 */

struct functions {
	uint64_t base, at;
	uint32_t n;
};

static int read_function(const struct target_memory *m, const struct functions *f, uint32_t i,
			 struct kiln_dotnet_function *ret)
{
	return dotnet_read(m, f->at + (uint64_t)i * sizeof(*ret), ret, sizeof(*ret));
}

/* Returns the number of the function that holds RVA. -ENOENT, -EFAULT. */
static int find_function(const struct target_memory *m, const struct functions *f, uint32_t rva)
{
	struct kiln_dotnet_function found;
	uint32_t lo = 0, hi = f->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (read_function(m, f, mid, &found) < 0)
			return -EFAULT;
		if (found.begin <= rva)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return -ENOENT;
	if (read_function(m, f, lo - 1, &found) < 0)
		return -EFAULT;
	return rva < found.end ? (int)(lo - 1) : -ENOENT;
}

/* Does a function begin at ADDRESS? */
static bool is_function(const struct target_memory *m, const struct functions *f, uint64_t address)
{
	struct kiln_dotnet_function found;
	uint64_t rva = address - f->base;
	int i = rva >> 32 ? -ENOENT : find_function(m, f, (uint32_t)rva);

	return i >= 0 && read_function(m, f, (uint32_t)i, &found) == 0 && found.begin == rva;
}

/* Is the map from code to methods at BUCKETS? Its first bucket has only the map's size; a key is
 * where a function begins. */
static bool is_map(const struct target_memory *m, const struct functions *f, uint64_t buckets)
{
	uint64_t size, bucket[2 * SLOTS];

	if (!buckets || buckets % 8 || dotnet_read(m, buckets, &size, 8) < 0 || size < 3 ||
	    size > BUCKETS_MAX)
		return false;
	for (uint64_t i = 1; i <= MIN(size, (uint64_t)BUCKETS_SEEN); i++) {
		if (dotnet_read(m, buckets + i * sizeof(bucket), bucket, sizeof(bucket)) < 0)
			return false;
		for (size_t k = 0; k < SLOTS; k++)
			if (bucket[k] > 1)
				return is_function(m, f, bucket[k]);
	}
	return false;
}

static int find_map(struct dotnet_process *p, const struct target_memory *m, uint64_t info,
		    const struct functions *f, uint64_t *ret)
{
	if (p->code_map)
		return dotnet_read(m, info + p->code_map, ret, 8);
	for (uint64_t at = MAP_USUAL, i = 0; i <= INFO_BYTES / 8; at = i++ * 8) {
		if (dotnet_read(m, info + at, ret, 8) < 0 || !is_map(m, f, *ret))
			continue;
		p->code_map = at;
		return 0;
	}
	return -ENOENT;
}

/*
 * Finds the method whose code begins at KEY in the map at BUCKETS. The key gives the first bucket
 * to look at, and the step to the next one. The search ends at a bucket that was never full
 * (vm/hash.h, HashFunction(), Bucket: the highest bit of the first value says that others follow;
 * PtrHashMap: values are halved). -ENOENT, -EFAULT.
 */
static int look_up(const struct target_memory *m, uint64_t buckets, uint64_t key, uint64_t *ret)
{
	uint64_t size, bucket[2 * SLOTS];
	uint32_t seed = (uint32_t)(key >> 2), step;

	if (dotnet_read(m, buckets, &size, 8) < 0 || size < 2 || size > BUCKETS_MAX)
		return -EFAULT;
	step = 1 + ((uint32_t)(key >> 5) + 1) % ((uint32_t)size - 1);
	for (int i = 0; i < PROBES_MAX; i++, seed += step) {
		uint64_t at = buckets + (1 + seed % size) * sizeof(bucket);

		if (dotnet_read(m, at, bucket, sizeof(bucket)) < 0)
			return -EFAULT;
		for (size_t k = 0; k < SLOTS; k++) {
			if (bucket[k] != key)
				continue;
			*ret = bucket[SLOTS + k] << 1;
			return 0;
		}
		if (!(bucket[SLOTS] >> 63))
			return -ENOENT;
	}
	return -ENOENT;
}

int dotnet_ahead_method(struct dotnet_process *p, const struct target_memory *memory, uint64_t pc,
			uint64_t *ret_start, uint64_t *ret_method)
{
	const struct kiln_dotnet *k = &p->kernel;
	struct kiln_dotnet_function found;
	struct dotnet_section section;
	struct functions f;
	uint8_t unwind[UNWIND_BYTES];
	uint64_t info, map;
	int i, r;

	r = dotnet_section_at(k, memory, pc, &section);
	if (r < 0)
		return -EFAULT;
	f.base = section.words[KILN_DOTNET_SECTION_BEGIN];
	if (dotnet_read(memory, section.words[KILN_DOTNET_SECTION_MODULE] + k->module_r2r, &info,
			8) < 0 ||
	    dotnet_read(memory, info + k->functions, &f.at, 8) < 0 ||
	    dotnet_read(memory, info + k->functions + 8, &f.n, 4) < 0 || f.n > FUNCTIONS_MAX ||
	    pc < f.base)
		return -EFAULT;
	i = find_function(memory, &f, (uint32_t)(pc - f.base));
	if (i < 0 || find_map(p, memory, info, &f, &map) < 0)
		return -EFAULT;
	/* The walker cannot read pages that are not in memory. Reading the unwind information here
	 * brings them in for the next sample. */
	if (read_function(memory, &f, (uint32_t)i, &found) == 0)
		(void)dotnet_read(memory, f.base + found.unwind, unwind, sizeof(unwind));
	/*
	 * The handlers of a method's exceptions are functions right behind it, and not in the map.
	 */
	for (int n = 0; n < HANDLERS_MAX && i >= 0; n++, i--) {
		if (read_function(memory, &f, (uint32_t)i, &found) < 0)
			return -EFAULT;
		r = look_up(memory, map, f.base + found.begin, ret_method);
		if (r == 0) {
			*ret_start = f.base + found.begin;
			return 0;
		}
		if (r != -ENOENT)
			return r;
	}
	return -EFAULT;
}
