/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a sample may put into the ring when that fills up, so that the cgroup that fills it is the
 * one that loses: first the copies of its stacks, then its callers' frames, at last its samples.
 *
 * Normal records are free. What counts against a cgroup is what makes the ring run over: copies of
 * stacks, and the part of long records beyond KILN_SHARE_FREE. While less than a quarter of the
 * ring is in use nobody is asked, and while it is below a half no record is looked at. The last
 * part of the ring is open only to those who did not take more than their share.
 */
#pragma once

/* How full the ring is, in sixteenths, from which on ... */
enum {
	FILL_SMALL = 4,	  /* copies of stacks are small, and those of who has had enough left out */
	FILL_CHARGE = 8,  /* the reader is woken; long records are charged */
	FILL_SCARCE = 12, /* who took a sixteenth of the ring this second has had enough */
	FILL_SHORT = 14,  /* ... and keeps no more than the frames next to the leaf */
	FILL_RESERVE = 15, /* ... and no samples */
};

enum { SHORT_FRAMES = 4 };

/* What is left of a sample: each value leaves out more than the one before. */
enum shed { SHED_NOTHING, SHED_LARGE_DUMP, SHED_DUMP, SHED_FRAMES, SHED_SAMPLE };

struct share {
	uint64_t second; /* about: of `bytes` */
	uint64_t bytes;	 /* charged in it, and half of what was there when it began */
};

/* By cgroup id. Those that were not charged for longest make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, uint64_t);
	__type(value, struct share);
} shares SEC(".maps");

/* USED bytes of the ring in sixteenths of it. */
static __always_inline uint32_t ring_fill(uint64_t used)
{
	return (uint32_t)(used >> (ring_shift - 4));
}

/*
 * Bytes of the ring that are in use, as far as a CPU has to know that puts a record of LEN bytes
 * there. To ask costs as much as the walk of six frames. So while less than an eighth is in use,
 * each CPU may put its part of a sixteenth there unasked, and takes the ring for empty.
 */
static __always_inline uint64_t ring_used(struct kiln_cpu *cpu, uint64_t len)
{
	uint64_t used;

	if (len <= cpu->ring_room) {
		cpu->ring_room -= len;
		return 0;
	}
	used = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
	cpu->ring_room = used >> (ring_shift - 3) ? 0 : ring_unasked;
	return used;
}

/* That of the current task's cgroup; NULL: the map has no room for it. */
static __attribute__((noinline)) struct share *own_share(void)
{
	struct cgroup_subsys_state *css = task_css(current_task());
	uint64_t owner = kernel_read(kernel_read(kernel_read(css, cgroup), kn), id);
	struct share fresh = {.second = bpf_ktime_get_ns() >> 30};
	struct share *s = bpf_map_lookup_elem(&shares, &owner);

	if (!s) {
		bpf_map_update_elem(&shares, &owner, &fresh, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&shares, &owner);
	}
	if (s && s->second != fresh.second) {
		s->bytes = s->second + 1 == fresh.second ? s->bytes / 2 : 0;
		s->second = fresh.second;
	}
	return s;
}

/*
 * What to leave out while the ring is FILL full, FILL_SMALL at least. May be called with any
 * numbers: a global function, which the verifier looks at once.
 */
__attribute__((noinline)) int shed(uint32_t fill, uint32_t needs_dump)
{
	uint64_t most = 1ULL << ring_shift;
	struct share *s;

	if (!needs_dump && fill < FILL_SHORT)
		return SHED_NOTHING;
	if (fill < FILL_CHARGE)
		most *= 4;
	else if (fill >= FILL_SCARCE)
		most /= 16;
	s = own_share();
	if (s && s->bytes <= most)
		return SHED_LARGE_DUMP;
	if (fill >= FILL_RESERVE)
		return SHED_SAMPLE;
	return fill >= FILL_SHORT ? SHED_FRAMES : SHED_DUMP;
}

/* A record of SIZE bytes, DUMP of them of stack, goes into the ring, which is FILL full. */
__attribute__((noinline)) int charge_share(uint32_t fill, uint32_t size, uint32_t dump)
{
	uint32_t bytes = dump;
	struct share *s;

	if (size > dump && size - dump > KILN_SHARE_FREE && fill >= FILL_CHARGE)
		bytes += size - dump - KILN_SHARE_FREE;
	s = bytes ? own_share() : 0;
	if (s)
		__sync_fetch_and_add(&s->bytes, bytes);
	return 0;
}

/* Words of the SHORT_FRAMES frames that begin at word AT of the record, of N. */
__attribute__((noinline)) int short_words(uint32_t slot, uint32_t at, uint32_t n)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t *words = w ? env_words(w) : 0;
	uint32_t kept = 0;

	for (int i = 0; words && i < SHORT_FRAMES && kept < n; i++)
		kept += kiln_frame_words(words[(at + kept) & (KILN_RECORD_WORDS - 1)]);
	return kept < n ? (int)kept : (int)n;
}
