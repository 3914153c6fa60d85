/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Texts of frames: names that a walker reads itself, for runtimes whose objects may be freed before
 * user space reads their names. When a walker emits a frame that it has not emitted lately, it may
 * send a struct kiln_text ahead of the sample. Each CPU remembers for 4 to 8 seconds what it has
 * sent, because user space evicts names. No text is sent when the ring is a quarter full or the
 * sample has TEXTS_A_SAMPLE already: user space then reads the name from memory.
 *
 * The map is the walker's own. Its source includes this file after bpf/walker.h.
 */
#pragma once

enum {
	TEXTS_REMEMBERED = 1024, /* texts that a CPU remembers to have sent; a power of 2 */
	TEXTS_A_SAMPLE = 32,
	TEXT_PERIOD_SHIFT = 32, /* period: 2^32 ns; a text is sent again two periods later */
};

struct texts {
	uint64_t sent[TEXTS_REMEMBERED]; /* hash of frame and mapset; low byte: period of sending */
	uint64_t sample;		 /* time of the last sample that had texts */
	uint32_t count;			 /* texts sent for that sample */
	uint32_t pad;
	struct kiln_text text;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct texts);
} texts SEC(".maps");

/*
 * Returns a text for the frame WORDS, which the caller fills in and passes to env_send_text(). NULL
 * if the text was sent recently or cannot be sent now.
 */
KILN_INLINE struct kiln_text *env_new_text(struct kiln_walk *w, const uint64_t words[2])
{
	uint64_t now = env_record(w)->head.time, period = now >> TEXT_PERIOD_SHIFT, hash, used;
	const uint32_t zero = 0;
	struct texts *t = bpf_map_lookup_elem(&texts, &zero);
	uint32_t i;

	if (!t)
		return 0;
	hash = (words[0] ^ w->mapset) * 0x9e3779b97f4a7c15ULL;
	hash = (hash ^ hash >> 29 ^ words[1]) * 0xbf58476d1ce4e5b9ULL;
	i = (uint32_t)(hash >> 32) & (TEXTS_REMEMBERED - 1);
	if ((t->sent[i] ^ hash) < 256 && ((period - t->sent[i]) & 255) < 2)
		return 0;
	if (t->sample != now) {
		t->sample = now;
		t->count = 0;
	}
	used = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
	if (t->count >= TEXTS_A_SAMPLE || used > bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE) / 4)
		return 0;
	t->count++;
	t->sent[i] = (hash & ~255ULL) | (period & 255);
	t->text.type = KILN_RECORD_TEXT;
	t->text.size = sizeof(t->text);
	t->text.mapset = w->mapset;
	t->text.runtime = w->runtime_id;
	t->text.words[0] = words[0];
	t->text.words[1] = words[1];
	return &t->text;
}

KILN_INLINE void env_send_text(const struct kiln_text *text)
{
	bpf_ringbuf_output(&ring, (void *)text, sizeof(*text), BPF_RB_NO_WAKEUP);
}

/*
 * Copies the string at ADDRESS with its NUL, at most LEN bytes. Returns the bytes copied; LEN: the
 * string may be longer; negative: it cannot be read.
 */
KILN_INLINE int env_read_string(void *dst, uint32_t len, uint64_t address)
{
	return (int)bpf_probe_read_user_str(dst, len, (const void *)address);
}
