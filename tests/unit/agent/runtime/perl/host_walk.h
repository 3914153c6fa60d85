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

#include "tests/unit/agent/runtime/host_env.h"

enum { HOST_TEXTS_MAX = 256 };

/* What the walker has sent, and where each group of its frames ends. */
static struct {
	struct kiln_text text, texts[HOST_TEXTS_MAX];
	size_t n_texts;
	uint32_t ends[KILN_MAX_USER_FRAMES]; /* in words */
	size_t n_groups;
} sent;

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

KILN_INLINE struct kiln_text *env_new_text(struct kiln_walk *w, const uint64_t words[2])
{
	(void)w;
	sent.text.words[0] = words[0];
	sent.text.words[1] = words[1];
	return &sent.text;
}

KILN_INLINE void env_send_text(const struct kiln_text *text)
{
	if (sent.n_texts < HOST_TEXTS_MAX)
		sent.texts[sent.n_texts++] = *text;
}

/* What was sent of the frame WORDS; NULL: nothing. */
static inline const struct kiln_text *host_text(const uint64_t words[2])
{
	for (size_t i = 0; i < sent.n_texts; i++)
		if (memcmp(sent.texts[i].words, words, sizeof(sent.texts[i].words)) == 0)
			return &sent.texts[i];
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
	sent.n_texts = sent.n_groups = 0;
	w->runtimes = ~0U;
	w->mapset = 1;
	w->runtime = *runtime;
	w->regs.extra = state;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	w->runtime_id = KILN_RUNTIME_PERL;
	while (sent.n_groups < KILN_MAX_USER_FRAMES) {
		(void)perl_walk(0);
		sent.ends[sent.n_groups++] = w->n;
		if (perl_has(w, PERL_OVER) || w->full || !w->cursor.words[PERL_BASE])
			break;
	}
	return w->n;
}
