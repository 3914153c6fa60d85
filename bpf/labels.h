/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Labels of the thread that is sampled: the trace and span that it works for, and keys and values
 * that the program gave it. Only processes with KILN_PROCESS_LABELS come here.
 *
 * A thread writes its own labels, and is interrupted while they are read. Publishers write in the
 * order that their format prescribes, so that an interrupted update can be recognized
 * (docs/labels.md).
 *
 * The id of a set is a hash of its content and of the process's mapset. A set that this CPU has not
 * sent in the last 4 to 8 seconds is sent ahead of the sample; user space keeps sets for longer. A
 * sample whose set cannot be sent has none.
 */
#pragma once

enum {
	LABELS_REMEMBERED = 1024, /* sets that a CPU remembers to have sent; a power of 2 */
	LABELS_PERIOD_SHIFT = 32, /* period: 2^32 ns; a set is sent again two periods later */
	OTEL_HEAD = 28,		  /* bytes of a record before its attributes */
	OTEL_FIRST = 128,	  /* bytes of a record that are read at once */
	GO_BUCKETS_MAX = 12,	  /* buckets of a map: overflow buckets and old ones included */
	GO_SLOTS = 8,		  /* Go 1.23, internal/abi/map.go: MapBucketCount */
	GO_TOPHASH_MIN = 5,	  /* runtime/map.go: minTopHash; below: empty or evacuated */
};

/* OTEP 4947, "Thread-Local Context Record": packed, in the machine's byte order. */
struct otel_record {
	uint64_t trace_id[2];
	uint64_t span_id;
	uint8_t valid, trace_flags;
	uint16_t attributes_size;
	uint32_t beyond; /* padding of this struct, not part of the record's header */
};

struct go_string {
	uint64_t data, len;
};

/* Go 1.23, runtime/map.go: hmap, bmap. */
struct go_map {
	uint64_t count;
	uint8_t flags, log2_buckets;
	uint8_t rest[6];
	uint64_t buckets, old_buckets;
};

struct go_bucket {
	uint8_t tophash[GO_SLOTS];
	struct go_string keys[GO_SLOTS], values[GO_SLOTS];
	uint64_t overflow;
};

struct label_scratch {
	uint64_t kept; /* mapset and runtimes_epoch for which `otel`, `custom` and `go` hold */
	uint32_t sources, pad;
	struct kiln_thread_place otel, custom;
	struct kiln_go_place go;
	struct otel_record head;
	struct go_string list[KILN_LABELS_MAX * 2];
	struct go_map map;
	struct go_bucket bucket;
	uint64_t sent[LABELS_REMEMBERED]; /* id of a set; low byte: period of sending */
	uint32_t at;			  /* bytes of `set.bytes` that are in use */
	uint32_t count;			  /* pairs in `set.bytes` */
	union {
		struct kiln_labels set;
		uint64_t words[(sizeof(struct kiln_labels) + KILN_LABEL_BYTES) / 8];
		/* 512 spare bytes: the verifier sees only that a string begins at most at the limit
		 * of KILN_LABEL_BYTES, not that it ends there. */
		uint8_t room[sizeof(struct kiln_labels) + KILN_LABEL_BYTES + 512];
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct label_scratch);
} label_scratch SEC(".maps");

static __always_inline struct label_scratch *label_own(void)
{
	const uint32_t zero = 0;

	return bpf_map_lookup_elem(&label_scratch, &zero);
}

static __always_inline void label_count(uint32_t slot, enum kiln_stat stat)
{
	struct kiln_cpu *cpu = bpf_map_lookup_elem(&cpus, &slot);

	if (cpu)
		cpu->stats.n[stat]++;
}

static __always_inline int label_word(uint64_t address, uint64_t *ret)
{
	return (int)bpf_probe_read_user(ret, sizeof(*ret), (const void *)address);
}

/* Reads the word in the thread-local variable at PLACE of the thread with the thread pointer THREAD
 * into *RET; 0 if the variable is not allocated yet. Returns 0, or negative if it cannot be read.
 */
static __always_inline int label_variable(const struct kiln_thread_place *place, uint64_t thread,
					  uint64_t *ret)
{
	uint64_t block = thread;

	*ret = 0;
	if (place->module) {
		if (label_word(thread + ARCH_DTV, &block))
			return -1;
		if (label_word(block + ((uint64_t)place->module << (place->shift & 7)), &block))
			return -1;
		/* Not allocated yet (glibc 2.36, elf/dl-tls.c: TLS_DTV_UNALLOCATED). */
		if (!block || block == ~0ULL)
			return 0;
	}
	return label_word(block + (uint64_t)place->offset, ret);
}

/* ---- one set -----------------------------------------------------------------------------------
 */

/* Adds a pair of strings to the set. Returns 0; 1 if there is no room; -1 if the strings cannot be
 * read. */
__attribute__((noinline)) int label_put(uint64_t key, uint64_t key_len, uint64_t value,
					uint64_t value_len)
{
	struct label_scratch *s = label_own();
	const uint32_t head = sizeof(struct kiln_labels);
	uint32_t at, k, v;

	if (!s)
		return -1;
	if (key_len > KILN_LABEL_KEY_MAX || value_len > KILN_LABEL_VALUE_MAX)
		s->set.flags |= KILN_LABELS_CUT;
	k = key_len > KILN_LABEL_KEY_MAX ? KILN_LABEL_KEY_MAX : (uint32_t)key_len;
	v = value_len > KILN_LABEL_VALUE_MAX ? KILN_LABEL_VALUE_MAX : (uint32_t)value_len;
	at = s->at;
	if (s->count >= KILN_LABELS_MAX || at + 2 + k + v > KILN_LABEL_BYTES) {
		s->set.flags |= KILN_LABELS_CUT;
		return 1;
	}
	at &= KILN_LABEL_BYTES - 1;
	s->room[head + at] = (uint8_t)k;
	s->room[head + at + 1] = (uint8_t)v;
	at += 2;
	asm volatile("" : "+r"(k));
	k &= KILN_LABEL_KEY_MAX;
	if (bpf_probe_read_user(&s->room[head + at], k, (const void *)key))
		return -1;
	at = (at + k) & (2 * KILN_LABEL_BYTES - 1);
	if (at > KILN_LABEL_BYTES)
		return -1;
	asm volatile("" : "+r"(v));
	v &= KILN_LABEL_VALUE_MAX;
	if (bpf_probe_read_user(&s->room[head + at], v, (const void *)value))
		return -1;
	s->at = at + v;
	s->count++;
	return 0;
}

/*
 * Reads the header of OpenTelemetry's record at RECORD into s->head, and its first attributes, as
 * far as one read of OTEL_FIRST bytes gets them, into the set: a read costs more than its bytes.
 * Returns how many bytes of attributes that is, or -1 if the record cannot be read.
 */
static __always_inline int label_otel_first(struct label_scratch *s, uint64_t record, uint32_t keys)
{
	/* The attributes get to their place in the set, the header to the place before it. */
	uint8_t *at = &s->room[sizeof(struct kiln_labels) - OTEL_HEAD];
	uint64_t *words = (uint64_t *)s->set.trace_id;

	if (keys && !bpf_probe_read_user(at, OTEL_FIRST, (const void *)record)) {
		__builtin_memcpy(&s->head, at, OTEL_HEAD);
		/* The record may turn out not to be valid. */
		words[0] = words[1] = words[2] = 0;
		s->set.n_attributes = 0;
		return OTEL_FIRST - OTEL_HEAD;
	}
	/* The memory may end right behind the record. */
	return bpf_probe_read_user(&s->head, OTEL_HEAD, (const void *)record) ? -1 : 0;
}

/*
 * Reads OpenTelemetry's record at RECORD into the set, with its attributes if KEYS is set. Returns
 * 0, or -enum kiln_stat: the error to count.
 */
static __always_inline int label_otel(struct label_scratch *s, uint64_t record, uint32_t keys)
{
	uint64_t *words;
	uint32_t n;
	int has;

	has = label_otel_first(s, record, keys);
	if (has < 0)
		return -KILN_STAT_LABELS_UNREADABLE;
	if (s->head.valid != 1)
		return 0;
	/* Trace id and span id must both be set, or both be 0. */
	if (!(s->head.trace_id[0] | s->head.trace_id[1]) != !s->head.span_id)
		return -KILN_STAT_LABELS_BROKEN;
	n = keys ? s->head.attributes_size : 0;
	if (n > KILN_LABEL_BYTES) {
		n = KILN_LABEL_BYTES;
		s->set.flags |= KILN_LABELS_CUT;
	}
	asm volatile("" : "+r"(n));
	if (n > KILN_LABEL_BYTES)
		return 0;
	if (n > (uint32_t)has && bpf_probe_read_user(&s->room[sizeof(struct kiln_labels)], n,
						     (const void *)(record + OTEL_HEAD)))
		return -KILN_STAT_LABELS_UNREADABLE;
	words = (uint64_t *)s->set.trace_id;
	words[0] = s->head.trace_id[0];
	words[1] = s->head.trace_id[1];
	words[2] = s->head.span_id;
	s->set.n_attributes = n;
	s->at = n;
	return 0;
}

/* Adds the N pairs of Go strings in s->list to the set. Returns the same as label_otel(). */
static __always_inline int label_put_list(struct label_scratch *s, uint64_t n)
{
	for (uint32_t i = 0; i < KILN_LABELS_MAX && i < n; i++) {
		int r = label_put(s->list[2 * i].data, s->list[2 * i].len, s->list[2 * i + 1].data,
				  s->list[2 * i + 1].len);

		if (r)
			return r < 0 ? -KILN_STAT_LABELS_UNREADABLE : 0;
	}
	return 0;
}

/*
 * Reads the list at ADDRESS, {address of the labels, number of labels}, into S->list. *ret_n: the
 * number of labels read, as many as there is room for. Returns the same as label_otel().
 */
static __always_inline int label_read_list(struct label_scratch *s, uint64_t address,
					   uint64_t *ret_n)
{
	uint64_t head[2], n;

	*ret_n = 0;
	if (bpf_probe_read_user(head, sizeof(head), (const void *)address))
		return -KILN_STAT_LABELS_UNREADABLE;
	n = head[1];
	if (n > 1 << 20)
		return -KILN_STAT_LABELS_BROKEN;
	if (n > KILN_LABELS_MAX) {
		n = KILN_LABELS_MAX;
		s->set.flags |= KILN_LABELS_CUT;
	}
	if (!n)
		return 0;
	asm volatile("" : "+r"(n));
	if (n > KILN_LABELS_MAX)
		return 0;
	if (bpf_probe_read_user(s->list, (uint32_t)n * 2 * sizeof(s->list[0]),
				(const void *)head[0]))
		return -KILN_STAT_LABELS_UNREADABLE;
	*ret_n = n;
	return 0;
}

/* Reads the labels of a goroutine of Go 1.24 and later, a slice of pairs of strings:
 * runtime/pprof/label.go, labelMap {LabelSet {list []label {key, value string}}}. */
__attribute__((noinline)) int label_go_slice(uint64_t labels)
{
	struct label_scratch *s = label_own();
	uint64_t n;
	int r;

	if (!s)
		return 0;
	r = label_read_list(s, labels, &n);
	if (r || !n)
		return r;
	return label_put_list(s, n);
}

/* Adds the labels in s->bucket to the set. Returns the same as label_put(). */
__attribute__((noinline)) int label_go_bucket(uint32_t pad)
{
	struct label_scratch *s = label_own();
	int r = 0;

	if (!s)
		return 0;
	for (uint32_t i = 0; i < GO_SLOTS && !r; i++)
		if (s->bucket.tophash[i] >= GO_TOPHASH_MIN)
			r = label_put(s->bucket.keys[i].data, s->bucket.keys[i].len,
				      s->bucket.values[i].data, s->bucket.values[i].len);
	return r;
}

/*
 * Reads the labels of a goroutine before Go 1.24: *labelMap, which is map[string]string. A map that
 * is growing may have entries in the old buckets; entries that were moved are marked there.
 */
__attribute__((noinline)) int label_go_map(uint64_t labels)
{
	struct label_scratch *s = label_own();
	uint64_t map, next, left, old, bucket = 0;

	if (!s)
		return 0;
	if (label_word(labels, &map) ||
	    (map && bpf_probe_read_user(&s->map, sizeof(s->map), (const void *)map)))
		return -KILN_STAT_LABELS_UNREADABLE;
	if (!map || !s->map.count)
		return 0;
	if (s->map.log2_buckets > 20 || s->map.count > 1 << 20)
		return -KILN_STAT_LABELS_BROKEN;
	next = s->map.buckets;
	left = 1ULL << (s->map.log2_buckets & 31);
	old = s->map.old_buckets;
	for (uint32_t i = 0; i < GO_BUCKETS_MAX; i++) {
		int r;

		if (bucket) {
			/* The last bucket read has an overflow bucket: read that one now. */
		} else if (left) {
			bucket = next;
			next += sizeof(s->bucket);
			left--;
		} else if (old) {
			/* There are as many old buckets as new ones, or half as many. */
			left = 1ULL << (s->map.log2_buckets & 31);
			if (!(s->map.flags & 8 /* runtime/map.go: sameSizeGrow */))
				left /= 2;
			next = old;
			old = 0;
			continue;
		} else {
			return 0;
		}
		if (bpf_probe_read_user(&s->bucket, sizeof(s->bucket), (const void *)bucket))
			return -KILN_STAT_LABELS_UNREADABLE;
		r = label_go_bucket(0);
		if (r)
			return r < 0 ? -KILN_STAT_LABELS_UNREADABLE : 0;
		bucket = s->bucket.overflow;
	}
	s->set.flags |= KILN_LABELS_CUT;
	return 0;
}

/*
 * Finds the labels of the goroutine that the thread runs. *RET: their address, or 0. The current g
 * may also be g0, on whose stack the runtime works for the goroutine, or the signal handler's g: so
 * the goroutine is found through m.curg. Returns the same as label_otel().
 */
static __always_inline int label_go_find(const struct kiln_walk *w, const struct kiln_go_place *go,
					 uint64_t *ret)
{
	uint64_t g, m, curg, g0;

	*ret = 0;
	if (go->in_register)
		g = w->leaf[go->reg & (ARCH_LEAF_ROOM / 2 - 1)];
	else if (label_variable(&go->g, w->thread_pointer, &g))
		return -KILN_STAT_LABELS_UNREADABLE;
	if (!g)
		return 0;
	if (label_word(g + go->m, &m))
		return -KILN_STAT_LABELS_UNREADABLE;
	if (!m)
		return 0;
	if (label_word(m + go->curg, &curg))
		return -KILN_STAT_LABELS_UNREADABLE;
	if (!curg)
		return 0;
	/* In C code on arm64 the register does not hold g. If it does not hold m.curg, it must hold
	 * m.g0, the first member of m. */
	if (go->in_register && curg != g && (label_word(m, &g0) || g0 != g))
		return 0;
	return label_word(curg + go->labels, ret) ? -KILN_STAT_LABELS_UNREADABLE : 0;
}

/*
 * Reads a set of custom-labels v1: {labels, count, capacity}; a label is {key, value}, each of them
 * {length, bytes}. Returns the same as label_otel().
 */
__attribute__((noinline)) int label_custom(uint64_t set)
{
	struct label_scratch *s = label_own();
	uint64_t n;
	int r;

	if (!s)
		return 0;
	r = label_read_list(s, set, &n);
	if (r || !n)
		return r;
	for (uint32_t i = 0; i < KILN_LABELS_MAX && i < n; i++) {
		/* Read as a Go string, {length, bytes} has its address in `len` and its length in
		 * `data`. A key whose address is 0 belongs to a label that is being written. */
		const struct go_string *k = &s->list[2 * i], *v = &s->list[2 * i + 1];
		int r;

		if (!k->len)
			continue;
		r = label_put(k->len, k->data, v->len, v->data);
		if (r)
			return r < 0 ? -KILN_STAT_LABELS_UNREADABLE : 0;
	}
	return 0;
}

/* ---- the set of a sample -----------------------------------------------------------------------
 */

/* Copies the entries of the mapset's label sources from `runtimes`. Called when the CPU meets
 * another mapset. */
static __always_inline void label_places(struct label_scratch *s, struct kiln_walk *w)
{
	const struct kiln_runtime *entry;

	s->sources = 0;
	entry = env_runtime(w, KILN_LABELS_OTEL);
	if (entry) {
		s->sources |= 1U << KILN_LABELS_OTEL;
		__builtin_memcpy(&s->otel, entry->data, sizeof(s->otel));
	}
	entry = env_runtime(w, KILN_LABELS_GO);
	if (entry) {
		s->sources |= 1U << KILN_LABELS_GO;
		__builtin_memcpy(&s->go, entry->data, sizeof(s->go));
	}
	entry = env_runtime(w, KILN_LABELS_CUSTOM);
	if (entry) {
		s->sources |= 1U << KILN_LABELS_CUSTOM;
		__builtin_memcpy(&s->custom, entry->data, sizeof(s->custom));
	}
}

/* The id of the set: a hash of its content and of the mapset. Never 0. */
static __always_inline uint64_t label_hash(struct label_scratch *s)
{
	enum { FROM = __builtin_offsetof(struct kiln_labels, trace_id) / 8 };
	uint64_t h, k;
	uint32_t n, used;

	used = sizeof(struct kiln_labels) + s->at;
	/* The last word may be in use only in part. */
	n = used / 8 & 255;
	asm volatile("" : "+r"(n));
	if (n < sizeof(s->words) / 8)
		s->words[n] &= (1ULL << (used & 7) * 8) - 1;
	n += !!(used & 7);
	h = (uint64_t)s->set.mapset * 0x9e3779b97f4a7c15ULL;
	k = h;
	/* Two words at a time, in hashes of their own: the CPU computes both at once. The set is
	 * followed by spare bytes, so that words[i + 1] exists; if it is no part of the set, only h
	 * is used. */
	for (uint32_t i = FROM; i < sizeof(s->words) / 8 && i < n; i += 2) {
		h = (h ^ s->words[i]) * 0xbf58476d1ce4e5b9ULL;
		h ^= h >> 29;
		if (i + 1 < n) {
			k = (k ^ s->words[i + 1]) * 0x94d049bb133111ebULL;
			k ^= k >> 29;
		}
	}
	h = (h ^ h >> 32 ^ k * 0x9e3779b97f4a7c15ULL) * 0x94d049bb133111ebULL;
	return h ^ h >> 29 ?: 1;
}

/* Sends the set unless it was sent recently. Returns 0, or -1 if it cannot be sent. */
static __always_inline int label_send(struct label_scratch *s, uint64_t now)
{
	uint64_t period = now >> LABELS_PERIOD_SHIFT, *sent;
	uint64_t len;

	sent = &s->sent[(s->set.id >> 32) & (LABELS_REMEMBERED - 1)];
	if ((*sent ^ s->set.id) < 256 && ((period - *sent) & 255) < 2)
		return 0;
	len = sizeof(struct kiln_labels) + s->at;
	s->set.type = KILN_RECORD_LABELS;
	s->set.size = (uint32_t)len;
	asm volatile("" : "+r"(len));
	if (len > sizeof(struct kiln_labels) + KILN_LABEL_BYTES || len < sizeof(struct kiln_labels))
		return -1;
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >> (ring_shift - 1) ||
	    bpf_ringbuf_output(&ring, s->room, len, BPF_RB_NO_WAKEUP))
		return -1;
	*sent = (s->set.id & ~255ULL) | (period & 255);
	return 0;
}

/* Reads the thread's labels, sends the set if needed, and writes its id into the sample of CPU
 * number SLOT. begin_sample() must have returned 1. */
__attribute__((noinline)) int read_labels(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	struct label_scratch *s = label_own();
	uint64_t kept, address, *words;
	struct record *r;
	uint32_t sources;
	int bad = 0;

	if (!w || !s)
		return 0;
	r = env_record(w);
	/* The epoch is read before the data that it vouches for. */
	kept = (uint64_t)w->mapset << 32 | *(volatile uint32_t *)&runtimes_epoch;
	if (s->kept != kept) {
		label_places(s, w);
		s->kept = kept;
	}
	sources = s->sources & r->head.runtimes;
	if (!sources)
		return 0;
	words = (uint64_t *)s->set.trace_id;
	words[0] = words[1] = words[2] = 0;
	s->set.flags = 0;
	s->set.n_attributes = 0;
	s->at = s->count = 0;
	if (sources >> KILN_LABELS_OTEL & 1) {
		if (label_variable(&s->otel, w->thread_pointer, &address))
			bad = -KILN_STAT_LABELS_UNREADABLE;
		else if (address)
			bad = label_otel(s, address, r->head.runtimes & KILN_LABEL_KEYS);
	}
	if (!bad && sources >> KILN_LABELS_GO & 1) {
		bad = label_go_find(w, &s->go, &address);
		if (!bad && address)
			bad = s->go.is_map ? label_go_map(address) : label_go_slice(address);
	}
	if (!bad && sources >> KILN_LABELS_CUSTOM & 1) {
		if (label_variable(&s->custom, w->thread_pointer, &address))
			bad = -KILN_STAT_LABELS_UNREADABLE;
		else if (address)
			bad = label_custom(address);
	}
	if (bad) {
		label_count(slot, bad == -KILN_STAT_LABELS_BROKEN ? KILN_STAT_LABELS_BROKEN
								  : KILN_STAT_LABELS_UNREADABLE);
		return 0;
	}
	if (!s->at && !words[0] && !words[1])
		return 0;
	if (s->set.flags & KILN_LABELS_CUT)
		label_count(slot, KILN_STAT_LABELS_CUT);
	s->set.n_pairs = s->at - s->set.n_attributes;
	s->set.mapset = w->mapset;
	s->set.tgid = r->head.tgid;
	s->set.start_time = r->head.start_time;
	s->set.id = label_hash(s);
	if (label_send(s, r->head.time)) {
		label_count(slot, KILN_STAT_LABELS_UNSENT);
		return 0;
	}
	r->head.label = s->set.id;
	return 0;
}
