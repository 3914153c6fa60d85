/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of bpf/env.h over a struct recorded_walk. One thread and one walk at a time:
 * `current`. To be included after bpf/unwind.h and the walker, by one file of a program, which
 * defines env_cache().
 */
#pragma once

static struct recorded_walk *current;
static const struct interpreter_ops *current_ops;
static uint64_t words[KILN_RECORD_WORDS];
static struct kiln_runtime runtime;
static struct kiln_walk walk;

static inline int env_read(void *dst, uint32_t len, uint64_t address)
{
	return recorded_walk_memory(current, address, dst, len);
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

static inline struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	return NULL;
}

static inline uint64_t *env_words(struct kiln_walk *w)
{
	return words;
}

static inline const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	return id == current_ops->id && !current->unread ? &runtime : NULL;
}

/*
 * Walks from the leaf on; DATA is the runtime's entry in the kernel. Returns the number of `words`.
 */
static uint32_t recorded_env_walk(struct recorded_walk *recorded, const struct interpreter_ops *ops,
				  const void *data, size_t size)
{
	struct kiln_walk *w = &walk;

	current = recorded;
	current_ops = ops;
	memset(w, 0, sizeof(*w));
	runtime.size = size;
	memcpy(runtime.data, data, size);
	w->regs = (struct kiln_regs){.pc = recorded->leaf[ARCH_REG_PC],
				     .sp = recorded->leaf[ARCH_REG_SP],
				     .fp = recorded->leaf[ARCH_REG_FP],
				     .extra = recorded->leaf[ARCH_REG_EXTRA]};
	memcpy(w->leaf, recorded->leaf, sizeof(w->leaf));
	w->exact = w->leaf_valid = 1;
	w->tag = 1;
	w->count = recorded->n_maps;
	w->runtimes = UINT32_MAX;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	words[0] = walk_frame(w);
	w->n = 1;
	walk_on(w);
	recorded->end = w->end;
	return w->n;
}

/*
 * Writes the names of the N `words`, a line each: "NAME FILE:LINE", "?" for a frame without a name,
 * "missing KIND" or "native". STATE: see interpreter_ops.symbolize.
 */
static void recorded_env_name(void *state, const struct target_memory *memory, uint32_t n,
			      int frames_max, char *out, size_t size)
{
	struct symbol_result sym;
	static char scratch[1 << 16];
	int frames = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < n && frames < frames_max && size > 1; frames++) {
		int len = 0;

		if (KILN_FRAME_KIND(words[i]) == KILN_FRAME_RUNTIME(current_ops->id)) {
			sym.n = 0;
			if (current_ops->symbolize(state, memory, &words[i], scratch,
						   sizeof(scratch), &sym) < 0)
				len = snprintf(out, size, "?\n");
			recorded_walk_put_symbols(&sym, &out, &size);
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
