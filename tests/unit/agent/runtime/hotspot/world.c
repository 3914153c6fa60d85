/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's environment for bpf/unwind.h over a struct world. One thread, one world at a time:
 * `current`. A file is the struct's own bytes, so recordings are made anew when it changes.
 */
#include "tests/unit/agent/runtime/hotspot/world.h"

#include <sys/uio.h>

#define KILN_WALKER hotspot_walk
#include "bpf/unwind.h"

#include "agent/runtime/hotspot/walker.h"

enum { BYTES_MAX = 8 << 20, MAGIC = 0x6b73686b };

static struct world *current;
static struct kiln_cache_entry cached;
static uint64_t words[KILN_RECORD_WORDS];
static struct kiln_runtime runtime;
static struct kiln_walk walk;

struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));

	if (w)
		w->bytes = malloc(BYTES_MAX);
	return w && w->bytes ? w : world_free(w);
}

struct world *world_free(struct world *w)
{
	if (!w)
		return NULL;
	free(w->bytes);
	free(w);
	return NULL;
}

/* ---- memory ----------------------------------------------------------------------------------
 */

static struct world_read *record_read(struct world *w, uint64_t address, size_t len)
{
	struct iovec to, from = {(void *)(uintptr_t)address, len};
	struct world_read *r;

	if (w->n_reads == WORLD_READS_MAX || len > BYTES_MAX - w->n_bytes)
		return NULL;
	to = (struct iovec){w->bytes + w->n_bytes, len};
	r = &w->reads[w->n_reads++];
	*r = (struct world_read){.address = address, .len = (uint32_t)len, .at = UINT32_MAX};
	if (process_vm_readv(w->pid, &to, 1, &from, 1, 0) == (ssize_t)len) {
		r->at = w->n_bytes;
		w->n_bytes += (uint32_t)len;
	}
	return r;
}

int world_memory(void *arg, uint64_t address, void *dst, size_t len)
{
	struct world *w = arg;
	struct world_read *r = NULL;

	for (uint32_t i = 0; i < w->n_reads && !r; i++)
		if (w->reads[i].address == address && w->reads[i].len == len)
			r = &w->reads[i];
	if (!r && w->pid)
		r = record_read(w, address, len);
	/* A part of what was read at once. */
	for (uint32_t i = 0; !r && i < w->n_reads; i++) {
		const struct world_read *whole = &w->reads[i];

		if (whole->at != UINT32_MAX && address >= whole->address &&
		    address - whole->address <= whole->len &&
		    len <= whole->len - (address - whole->address)) {
			memcpy(dst, w->bytes + whole->at + (address - whole->address), len);
			return 0;
		}
	}
	/* Two words that were read one by one. */
	if (!r && len == 16 && world_memory(w, address, dst, 8) == 0)
		return world_memory(w, address + 8, (uint8_t *)dst + 8, 8);
	if (!r || r->at == UINT32_MAX)
		return -EFAULT;
	memcpy(dst, w->bytes + r->at, len);
	return 0;
}

void world_put(struct world *w, uint64_t address, const void *src, size_t len)
{
	const uint8_t *from = src;
	struct world_read *r;

	for (uint32_t i = 0; i < w->n_reads; i++)
		for (size_t k = 0; k < len && w->reads[i].at != UINT32_MAX; k++)
			if (address + k - w->reads[i].address < w->reads[i].len)
				w->bytes[w->reads[i].at + (address + k - w->reads[i].address)] =
				    from[k];
	if (w->n_reads == WORLD_READS_MAX || len > BYTES_MAX - w->n_bytes)
		return;
	r = &w->reads[w->n_reads++];
	*r = (struct world_read){.address = address, .len = (uint32_t)len, .at = w->n_bytes};
	memcpy(w->bytes + w->n_bytes, src, len);
	w->n_bytes += (uint32_t)len;
}

/* ---- the walk's environment ------------------------------------------------------------------
 */

static inline int env_read(void *dst, uint32_t len, uint64_t address)
{
	return world_memory(current, address, dst, len);
}

static inline struct kiln_walk *env_walk(uint32_t slot)
{
	return &walk;
}

static inline const struct kiln_mapping *env_mapping(uint32_t index)
{
	return index < current->n_maps ? &current->maps[index] : NULL;
}

/* Tables and slab are not there: rules are kept by address. */
static inline const struct kiln_table *env_table(uint32_t image)
{
	return NULL;
}

static inline const uint32_t *env_slot(uint32_t slot)
{
	return NULL;
}

static struct world_rule *rule_of(uint64_t pc)
{
	struct world_rule *r;

	for (uint32_t i = 0; i < current->n_rules; i++)
		if (current->rules[i].pc == pc)
			return &current->rules[i];
	if (!current->find_rule || current->n_rules == WORLD_RULES_MAX)
		return NULL;
	r = &current->rules[current->n_rules++];
	*r = (struct world_rule){.pc = pc};
	r->known = current->find_rule(pc, &r->rule) == 0;
	return r;
}

static inline struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	return NULL;
}

static inline struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	const struct world_rule *r = rule_of(pc);

	cached = (struct kiln_cache_entry){.pc = pc, .tag = w->tag};
	if (r && r->known)
		cached.rule = r->rule;
	return &cached;
}

static inline const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	return id == KILN_RUNTIME_HOTSPOT && !current->unread ? &runtime : NULL;
}

static inline uint64_t *env_words(struct kiln_walk *w)
{
	return words;
}

/* ---- stacks ----------------------------------------------------------------------------------
 */

static void put_symbols(const struct symbol_result *sym, char **out, size_t *left)
{
	for (uint32_t i = 0; i < sym->n && *left; i++) {
		const struct symbol *s = &sym->symbols[i];
		const char *base = strrchr(s->file, '/');
		int n = snprintf(*out, *left, "%s %s:%u\n", s->name, base ? base + 1 : s->file,
				 s->line);

		n = (int)MIN((size_t)MAX(n, 0), *left - 1);
		*out += n;
		*left -= (size_t)n;
	}
}

static void name_frames(struct world *w, char *out, size_t size)
{
	const struct target_memory memory = {.read = world_memory, .arg = w};
	struct symbol_result sym;
	static char scratch[1 << 16];
	int frames = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < w->n_words && frames < WORLD_FRAMES && size > 1; frames++) {
		int len = 0;

		if (KILN_FRAME_KIND(words[i]) == KILN_FRAME_RUNTIME(KILN_RUNTIME_HOTSPOT)) {
			sym.n = 0;
			if (hotspot_ops.symbolize(&w->process, &memory, &words[i], scratch,
						  sizeof(scratch), &sym) < 0)
				len = snprintf(out, size, "?\n");
			put_symbols(&sym, &out, &size);
		} else if (KILN_FRAME_KIND(words[i]) == KILN_FRAME_MISSING) {
			len = snprintf(out, size, "missing %u\n", (uint32_t)words[i] & 255);
		} else {
			len = snprintf(out, size, "native\n");
		}
		len = (int)MIN((size_t)MAX(len, 0), size - 1);
		out += len;
		size -= (size_t)len;
		i += kiln_frame_words(words[i]);
	}
}

void world_walk(struct world *world)
{
	struct kiln_walk *w = &walk;

	current = world;
	memset(w, 0, sizeof(*w));
	memcpy(runtime.data, &world->process.kernel, sizeof(world->process.kernel));
	w->regs = (struct kiln_regs){.pc = world->leaf[ARCH_REG_PC],
				     .sp = world->leaf[ARCH_REG_SP],
				     .fp = world->leaf[ARCH_REG_FP],
				     .extra = world->leaf[ARCH_REG_EXTRA]};
	memcpy(w->leaf, world->leaf, sizeof(w->leaf));
	w->exact = w->leaf_valid = 1;
	w->tag = 1;
	w->count = world->n_maps;
	w->runtimes = UINT32_MAX;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	words[0] = walk_frame(w);
	w->n = 1;
	walk_on(w);
	world->end = w->end;
	world->words = words;
	world->n_words = w->n;
}

void world_stack(struct world *world, char *out, size_t size)
{
	world_walk(world);
	name_frames(world, out, size);
}

/* ---- files -----------------------------------------------------------------------------------
 */

int world_save(const struct world *w, const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "we");
	const uint32_t head[] = {MAGIC,	     sizeof(w->process), w->n_reads,
				 w->n_rules, w->n_maps,		 w->n_bytes};

	if (!f)
		return -errno;
	if (fwrite(head, sizeof(head), 1, f) != 1 ||
	    fwrite(&w->process, sizeof(w->process), 1, f) != 1 ||
	    fwrite(w->leaf, sizeof(w->leaf), 1, f) != 1 ||
	    fwrite(w->reads, sizeof(*w->reads), w->n_reads, f) != w->n_reads ||
	    fwrite(w->rules, sizeof(*w->rules), w->n_rules, f) != w->n_rules ||
	    fwrite(w->maps, sizeof(*w->maps), w->n_maps, f) != w->n_maps ||
	    fwrite(w->bytes, 1, w->n_bytes, f) != w->n_bytes)
		return -EIO;
	return 0;
}

int world_load(const char *path, struct world **ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_(world_freep) struct world *w = world_new();
	uint32_t head[6];

	if (!f || !w)
		return -errno;
	if (fread(head, sizeof(head), 1, f) != 1 || head[0] != MAGIC ||
	    head[1] > sizeof(w->process) || head[2] > WORLD_READS_MAX ||
	    head[3] > WORLD_RULES_MAX || head[4] > WORLD_MAPS_MAX || head[5] > BYTES_MAX)
		return -EBADMSG;
	w->n_reads = head[2];
	w->n_rules = head[3];
	w->n_maps = head[4];
	w->n_bytes = head[5];
	/* What is known of a process may have grown since. */
	if (fread(&w->process, head[1], 1, f) != 1 || fread(w->leaf, sizeof(w->leaf), 1, f) != 1 ||
	    fread(w->reads, sizeof(*w->reads), w->n_reads, f) != w->n_reads ||
	    fread(w->rules, sizeof(*w->rules), w->n_rules, f) != w->n_rules ||
	    fread(w->maps, sizeof(*w->maps), w->n_maps, f) != w->n_maps ||
	    fread(w->bytes, 1, w->n_bytes, f) != w->n_bytes)
		return -EBADMSG;
	w->process.pieces = (struct hotspot_pieces){};
	*ret = TAKE_PTR(w);
	return 0;
}
