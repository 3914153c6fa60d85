/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaches to a process: finds the layout of its structures, and its code cache. The JVM reserves
 * its code heaps once, early in its start, and their bounds never change. So attaching works as
 * soon as they are reserved; the code in them is found when it is sampled. Loop thread.
 */
#include "agent/runtime/hotspot/hotspot.h"

enum {
	SEGMENT_LOG2_MIN = 4,
	SEGMENT_LOG2_MAX = 16,
	PERF_DATA_MAX = 1 << 20,
	PERF_ENTRIES_MAX = 4096,
	COUNTER_NAME_MAX = 32,
	NUMBERS_CHANGED = 20, /* major version: see hotspot_read_number() */
	/* The major version that JDK 8 reports; later ones report their own. */
	MAJOR_OF_8 = 25,
};

/* The most bytes of a heap: the JVM allows so many for all heaps together. */
#define CACHE_MAX (2ULL << 30)

static uint64_t word_at(const struct target_memory *m, uint64_t address)
{
	uint64_t v = 0;

	return target_read(m, address, &v, sizeof(v)) < 0 ? 0 : v;
}

static int32_t int_at(const struct target_memory *m, uint64_t address)
{
	int32_t v = 0;

	return target_read(m, address, &v, sizeof(v)) < 0 ? 0 : v;
}

/* ---- the code cache ---------------------------------------------------------------------------
 */

/* Reads the CodeHeap at ADDRESS into heap I of K. -EAGAIN: it has no memory yet. */
static int read_heap(const struct hotspot_layout *l, const struct target_memory *m,
		     uint64_t address, struct kiln_hotspot *k, uint32_t i, struct error *err)
{
	uint64_t memory = address + (uint64_t)l->heap_memory;
	uint64_t low = word_at(m, memory + (uint64_t)l->space_low_boundary);
	uint64_t high = word_at(m, memory + (uint64_t)l->space_high_boundary);
	uint64_t segmap = word_at(m, address + (uint64_t)l->heap_segmap + (uint64_t)l->space_low);
	int32_t log2 = int_at(m, address + (uint64_t)l->heap_log2_segment);

	if (!low || !segmap)
		return -EAGAIN;
	if (low >= high || high - low > CACHE_MAX || low % 64 || log2 < SEGMENT_LOG2_MIN ||
	    log2 > SEGMENT_LOG2_MAX || (i && log2 != k->log2_segment))
		return error_set(err, -ENOTSUP, "a CodeHeap from 0x%llx to 0x%llx, of 2^%d",
				 (unsigned long long)low, (unsigned long long)high, log2);
	k->heaps[i] = (struct kiln_hotspot_heap){low, segmap, (uint32_t)(high - low), 0};
	k->log2_segment = (uint8_t)log2;
	k->low = i ? MIN(k->low, low) : low;
	k->high = MAX(k->high, high);
	return 0;
}

static int read_heaps(const struct hotspot_layout *l, const struct target_memory *m,
		      struct kiln_hotspot *k, struct error *err)
{
	uint64_t list, data;
	int32_t n;
	int r = 0;

	if (l->heap) {
		data = word_at(m, l->heap);
		return data ? read_heap(l, m, data, k, 0, err) : -EAGAIN;
	}
	list = word_at(m, l->heaps);
	n = list ? int_at(m, list + (uint64_t)l->array_len) : 0;
	data = list ? word_at(m, list + (uint64_t)l->array_data) : 0;
	if (!data || n <= 0)
		return -EAGAIN;
	if (n > KILN_HOTSPOT_HEAPS)
		return error_set(err, -ENOTSUP, "%d CodeHeaps", n);
	for (int32_t i = 0; i < n && r == 0; i++)
		r = read_heap(l, m, word_at(m, data + (uint64_t)i * 8), k, (uint32_t)i, err);
	return r;
}

/* ---- the JVM's counters -----------------------------------------------------------------------
 */

/*
 * Finds the address of the counter NAME; 0: there is none. The JVM has counters in memory for jstat
 * (none with -XX:-UsePerfData): entries of {length, offset of the name, length of a vector, type,
 * flags, unit, variability, offset of the value}, behind a header that has the offset of the first
 * entry at 24 (src/hotspot/share/runtime/perfData.hpp, PerfDataEntry; perfMemory.hpp,
 * PerfDataPrologue).
 */
static uint64_t find_counter(const struct hotspot_layout *l, const struct target_memory *m,
			     const char *name)
{
	uint64_t start = l->perf_start ? word_at(m, l->perf_start) : 0;
	uint64_t top = l->perf_top ? word_at(m, l->perf_top) : 0, at;
	size_t size = strlen(name) + 1;
	char found[COUNTER_NAME_MAX];

	if (!start || top <= start || top - start > PERF_DATA_MAX || int_at(m, start) == 0)
		return 0;
	at = start + (uint32_t)int_at(m, start + 28 - 4);
	for (int i = 0; i < PERF_ENTRIES_MAX && at >= start && at < top; i++) {
		uint32_t length = (uint32_t)int_at(m, at);
		uint32_t name_at = (uint32_t)int_at(m, at + 4);
		uint32_t value_at = (uint32_t)int_at(m, at + 16);

		if (length < 20 || length > top - at)
			return 0;
		if (name_at < length && value_at <= length - 8 && value_at % 8 == 0 &&
		    target_read(m, at + name_at, found, size) == 0 && same_bytes(found, name, size))
			return at + value_at;
		at += length;
	}
	return 0;
}

void hotspot_find_counters(struct hotspot_process *p, const struct target_memory *memory)
{
	p->kernel.unloads = find_counter(&p->layout, memory, "java.cls.unloadedClasses");
	p->kernel.compiles = find_counter(&p->layout, memory, "java.ci.totalTime");
	p->kernel.stopped = find_counter(&p->layout, memory, "sun.rt.safepointTime");
}

/* ---- the walker's data ------------------------------------------------------------------------
 */

static bool fits(int32_t offset, int32_t bytes)
{
	return offset >= 0 && offset <= KILN_HOTSPOT_BLOB_BYTES - bytes;
}

static int fill_kernel(const struct hotspot_layout *l, struct kiln_hotspot *k, struct error *err)
{
	bool pointer = l->blob_code_begin >= 0;
	int32_t code = pointer ? l->blob_code_begin : l->blob_code_offset;

	if (!fits(l->blob_name, 8) || !fits(l->blob_size, 4) || !fits(l->blob_frame_size, 4) ||
	    !fits(code, 8) || !fits(l->blob_complete, 4))
		return error_set(err, -ENOTSUP, "a CodeBlob larger than is known");
	k->block_header = (uint8_t)l->block_size;
	k->blob_name = (uint8_t)l->blob_name;
	k->blob_frame_size = (uint8_t)l->blob_frame_size;
	k->blob_code = (uint8_t)code;
	k->blob_complete = (uint8_t)l->blob_complete;
	k->nmethod_id = (uint16_t)l->nmethod_id;
	k->nmethod_stub = (uint16_t)l->nmethod_stub;
	k->nmethod_orig_pc = (uint16_t)l->nmethod_orig_pc;
	if (pointer)
		k->flags |= KILN_HOTSPOT_CODE_POINTER;
	/* An int would be aligned: a field that is not is a short (25 to 27). */
	if (l->blob_complete % 4)
		k->flags |= KILN_HOTSPOT_COMPLETE_16;
	if (l->nmethod_deopt_begin >= 0) {
		k->flags |= KILN_HOTSPOT_DEOPT_POINTER;
		k->nmethod_deopt = (uint16_t)l->nmethod_deopt_begin;
		k->nmethod_deopt_mh = (uint16_t)MAX(l->nmethod_deopt_mh_begin, 0);
	} else {
		k->nmethod_deopt = (uint16_t)MAX(l->nmethod_deopt, 0);
		k->nmethod_deopt_mh = (uint16_t)MAX(l->nmethod_deopt_mh, 0);
	}
	k->method_const = (uint16_t)l->method_const;
	k->const_pool = (uint16_t)l->const_pool;
	k->const_name = (uint16_t)l->const_name;
	k->pool_holder = (uint16_t)l->pool_holder;
	k->klass_name = (uint16_t)l->klass_name;
	/* _hash_and_refcount has the hash in its upper half; the lower half counts references. */
	k->symbol_hash = (uint16_t)(l->symbol_hash >= 0 ? l->symbol_hash + 2 : l->symbol_identity);
	/* Frames of 8 have no mirror (frame_x86.hpp, interpreter_frame_bcp_offset). */
	k->frame_bytecode = l->heap ? 0x38 : 0x40;
	return 0;
}

void hotspot_tell_kernel(const struct hotspot_process *p, struct kiln_runtime *ret)
{
	_Static_assert(sizeof(p->kernel) <= sizeof(ret->data), "kiln_hotspot");
	runtime_tell_walker(ret, &p->kernel, sizeof(p->kernel));
}

static void tell_kernel(const struct hotspot_process *p, struct runtime_target *target,
			struct kiln_runtime *ret)
{
	hotspot_tell_kernel(p, ret);
	target->code_start = p->kernel.low;
	target->code_end = p->kernel.high;
}

/* Reads the version: "17.0.9+9-Debian" is 17.0.9, and 8's "25.392-b08" is 8. */
static void read_version(const struct hotspot_process *p, struct runtime_target *target)
{
	const struct target_memory *m = &target->memory;
	uint64_t text = p->layout.release ? word_at(m, p->layout.release) : 0;
	int n;

	if (p->layout.heap && p->layout.major && int_at(m, p->layout.major) == MAJOR_OF_8) {
		snprintf(target->version, sizeof(target->version), "8");
		return;
	}
	if (!text || target_read(m, text, target->version, sizeof(target->version) - 1) < 0)
		target->version[0] = '\0';
	n = (int)strspn(target->version, "0123456789.");
	target->version[n] = '\0';
}

static int attach_again(struct runtime_target *target, struct kiln_runtime *ret_kernel,
			void **ret_state)
{
	struct hotspot_process *p = target->previous;

	p->refs++;
	read_version(p, target);
	tell_kernel(p, target, ret_kernel);
	*ret_state = p;
	return 0;
}

int hotspot_attach(const struct runtime_image *ri, struct runtime_target *target,
		   struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct hotspot_image *image = container_of(ri, struct hotspot_image, base);
	_cleanup_free_ struct hotspot_process *p = calloc(1, sizeof(*p));
	int r;

	/* The process has a newer mapset: both attachments share the state. */
	if (target->previous)
		return attach_again(target, ret_kernel, ret_state);
	if (!p)
		return -ENOMEM;
	p->refs = 1;
	r = hotspot_layout_read(image, target->bias, &target->memory, &p->layout, err);
	if (r == 0)
		r = read_heaps(&p->layout, &target->memory, &p->kernel, err);
	if (r == 0)
		r = fill_kernel(&p->layout, &p->kernel, err);
	if (r < 0)
		return r;
	read_version(p, target);
	p->numbers_exclude_zero = !p->layout.heap && p->layout.major &&
				  int_at(&target->memory, p->layout.major) >= NUMBERS_CHANGED;
	p->bias = target->bias;
	p->descs = image->descs ? image->descs + target->bias : 0;
	p->variables = image->variables + target->bias;
	p->variables_end = image->variables_end + target->bias;
	p->wants_pieces = true;
	hotspot_find_counters(p, &target->memory);
	tell_kernel(p, target, ret_kernel);
	*ret_state = TAKE_PTR(p);
	return 0;
}

void hotspot_detach(void *state)
{
	struct hotspot_process *p = state;

	if (!p || --p->refs)
		return;
	hotspot_pieces_done(&p->pieces);
	hotspot_threads_done(&p->threads);
	free(p);
}
