/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent/runtime/perl/walker.h compiled for the host, over any struct target_memory. Only Perl's own
 * frames are walked: there are no native ones, so each call of the walker is thought to be for one
 * more native frame of the loop of ops.
 */
#pragma once

#include "agent/runtime/perl/perl.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define KILN_WALKER perl_walk
#include "bpf/unwind.h"

KILN_INLINE struct kiln_text *env_new_text(struct kiln_walk *w, const uint64_t words[2]);
KILN_INLINE void env_send_text(const struct kiln_text *text);
KILN_INLINE int env_read_string(void *dst, uint32_t len, uint64_t address);
#include "agent/runtime/perl/walker.h"
#pragma GCC diagnostic pop

enum { HOST_TEXTS_MAX = 256 };

static struct {
	const struct target_memory *memory;
	uint64_t words[KILN_RECORD_WORDS];
	uint64_t reads;
	struct kiln_text text, texts[HOST_TEXTS_MAX]; /* sent */
	size_t n_texts;
	uint32_t ends[KILN_MAX_USER_FRAMES]; /* words at the end of each group */
	size_t n_groups;
	struct kiln_walk walk;
} host;

KILN_INLINE struct kiln_walk *env_walk(uint32_t slot)
{
	(void)slot;
	return &host.walk;
}

KILN_INLINE const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	(void)id;
	return &w->runtime;
}

KILN_INLINE uint64_t *env_words(struct kiln_walk *w)
{
	(void)w;
	return host.words;
}

KILN_INLINE const struct kiln_mapping *env_mapping(uint32_t index)
{
	(void)index;
	return NULL;
}

KILN_INLINE const struct kiln_table *env_table(uint32_t image)
{
	(void)image;
	return NULL;
}

KILN_INLINE const uint32_t *env_slot(uint32_t slot)
{
	(void)slot;
	return NULL;
}

KILN_INLINE int env_read(void *dst, uint32_t len, uint64_t address)
{
	host.reads++;
	return target_read(host.memory, address, dst, len) < 0 ? -1 : 0;
}

KILN_INLINE int env_read_string(void *dst, uint32_t len, uint64_t address)
{
	char *text = dst;

	host.reads++;
	for (uint32_t i = 0; i < len; i++) {
		if (target_read(host.memory, address + i, text + i, 1) < 0)
			return -1;
		if (!text[i])
			return (int)i + 1;
	}
	text[len - 1] = '\0';
	return (int)len;
}

KILN_INLINE struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	(void)w;
	(void)tag;
	(void)vaddr;
	return NULL;
}

KILN_INLINE struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	(void)w;
	(void)pc;
	return NULL;
}

KILN_INLINE struct kiln_text *env_new_text(struct kiln_walk *w, const uint64_t words[2])
{
	(void)w;
	host.text.words[0] = words[0];
	host.text.words[1] = words[1];
	return &host.text;
}

KILN_INLINE void env_send_text(const struct kiln_text *text)
{
	if (host.n_texts < HOST_TEXTS_MAX)
		host.texts[host.n_texts++] = *text;
}

/* What was sent of the frame WORDS; NULL: nothing. */
static inline const struct kiln_text *host_text(const uint64_t words[2])
{
	for (size_t i = 0; i < host.n_texts; i++)
		if (memcmp(host.texts[i].words, words, sizeof(host.texts[i].words)) == 0)
			return &host.texts[i];
	return NULL;
}

/*
 * The Perl frames of the interpreter whose state is at STATE: two words each, in host.words.
 * Returns the number of words; a KILN_FRAME_MISSING is one.
 */
static uint32_t host_walk(const struct target_memory *memory, const struct kiln_runtime *runtime,
			  uint64_t state)
{
	struct kiln_walk *w = &host.walk;

	memset(w, 0, sizeof(*w));
	host.memory = memory;
	host.reads = 0;
	host.n_texts = host.n_groups = 0;
	w->runtimes = ~0U;
	w->mapset = 1;
	w->runtime = *runtime;
	w->regs.extra = state;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	w->runtime_id = KILN_RUNTIME_PERL;
	while (host.n_groups < KILN_MAX_USER_FRAMES) {
		(void)perl_walk(0);
		host.ends[host.n_groups++] = w->n;
		if (perl_has(w, PERL_OVER) || w->full || !w->cursor.words[PERL_BASE])
			break;
	}
	return w->n;
}
