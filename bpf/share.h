/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limits what a cgroup may put into the ring while the ring fills up, so that the cgroup that fills
 * it loses data and no other does: first the copies of its stacks, then the frames of callers, at
 * last its samples.
 *
 * Records of normal size are not charged. A cgroup is charged for what makes the ring overflow:
 * copies of stacks and, while the ring is at least half full, the part of a record beyond
 * KILN_SHARE_FREE. While less than a quarter of the ring is in use, nothing is limited. The last
 * part of the ring is open only to cgroups that have not used more than their share.
 */
#pragma once

/* Fill levels of the ring, in sixteenths. From each level on: */
enum {
	FILL_SMALL = 4,	   /* copies of stacks are small; cgroups over their share send none */
	FILL_CHARGE = 8,   /* the reader is woken; long records are charged */
	FILL_SCARCE = 12,  /* a cgroup's share is a sixteenth of the ring per second */
	FILL_SHORT = 14,   /* cgroups over their share send only the frames next to the leaf */
	FILL_RESERVE = 15, /* cgroups over their share send no samples */
};

enum { SHORT_FRAMES = 4 };

/* What is left out of a sample. Each value leaves out more than the one before. */
enum shed { SHED_NOTHING, SHED_LARGE_DUMP, SHED_DUMP, SHED_FRAMES, SHED_SAMPLE };

struct share {
	uint64_t second; /* bpf_ktime_get_ns() >> 30 of `bytes` */
	uint64_t bytes;	 /* charged in this second, plus half of `bytes` of the second before */
};

/* By cgroup id. The cgroups that have not been used for longest are evicted. */
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
 * The bytes of the ring that are in use, for a CPU that is about to put a record of LEN bytes
 * there. A query costs as much as a walk of six frames. So after a query that found less than an
 * eighth in use, the CPU may put `ring_unasked` bytes (its part of a sixteenth) into the ring
 * without a query: this function then returns 0.
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

/* The share of the current task's cgroup; NULL: the map has no room for it. */
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
 * What to leave out of a sample (enum shed) while the ring's fill level is FILL, FILL_SMALL at
 * least. NEEDS_DUMP: the sample wants a copy of its stack. A global function, so that the verifier
 * checks it once, for any arguments.
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

/*
 * Charges the current task's cgroup for a record of SIZE bytes, of which DUMP bytes are a copy of
 * the stack. FILL: the ring's fill level.
 */
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

/* How many of the N words from word AT of the record on belong to the first SHORT_FRAMES frames. */
__attribute__((noinline)) int short_words(uint32_t slot, uint32_t at, uint32_t n)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t *words = w ? env_words(w) : 0;
	uint32_t kept = 0;

	for (int i = 0; words && i < SHORT_FRAMES && kept < n; i++)
		kept += kiln_frame_words(words[(at + kept) & (KILN_RECORD_WORDS - 1)]);
	return kept < n ? (int)kept : (int)n;
}
