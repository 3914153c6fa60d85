/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bpf/text.h is in the kernel, on the host: texts are kept. Behind host_env.h; what the walker
 * calls is declared by host_text_calls.h.
 */
#pragma once

enum { HOST_TEXTS_MAX = 256 };

/* What the walker has sent. */
static struct {
	struct kiln_text text, texts[HOST_TEXTS_MAX];
	size_t n_texts;
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
	if (sent.n_texts >= HOST_TEXTS_MAX)
		return NULL;
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
