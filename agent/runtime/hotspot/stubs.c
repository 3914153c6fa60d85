/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the JVM's own code in its code cache: the stubs that it makes when it starts, and the
 * interpreter. All of it lies in blobs. For blobs with many stubs the JVM keeps a list of
 * descriptions, each with a name and bounds (StubCodeDesc,
 * src/hotspot/share/runtime/stubCodeGenerator.hpp). The interpreter is a row of codelets
 * (interpreter.hpp). Blobs of methods, and those that come and go with methods, are left out: the
 * walker looks at their headers.
 *
 * The JVM's tables do not have the head of the list of descriptions. Where its symbol is stripped,
 * libjvm.so's variables are searched for a pointer that leads to such a list. Loop thread.
 */
#include "agent/runtime/hotspot/hotspot.h"

enum {
	BLOCKS_MAX = 16384,
	BLOCK_BYTES = 32 + KILN_HOTSPOT_BLOB_BYTES, /* bytes read of each block */
	CODE_MAX = 8 << 20,			    /* bytes of the cache that are looked at */
	NAME_BYTES = 32,			    /* bytes of a blob's name that tell its kind */
	DESCS_MAX = 4096,
	CODELETS_MAX = 1024,
	CODELET_ALIGN = 32,
	DESC_WORDS = 6,
	VARIABLES_MAX = 4 << 20, /* bytes that are searched */
	VARIABLES_CHUNK = 1 << 16,
	SEARCH_READS_MAX = 1 << 17, /* reads of the memory that they lead to */
};

struct collector {
	struct hotspot_process *p;
	const struct target_memory *memory;
	struct hotspot_pieces *to;
	uint64_t interpreter, interpreter_end; /* code of its blob */
	uint32_t searched;		       /* reads of search_head() */
	int error;
};

static uint64_t word_of(const uint8_t *bytes, int32_t at)
{
	uint64_t v;

	memcpy(&v, bytes + at, sizeof(v));
	return v;
}

static int32_t int_of(const uint8_t *bytes, int32_t at)
{
	int32_t v;

	memcpy(&v, bytes + at, sizeof(v));
	return v;
}

static void add_piece(struct collector *c, const struct hotspot_piece *piece)
{
	struct hotspot_pieces *to = c->to;
	int r = grow_array((void **)&to->v, &to->cap, to->n + 1, sizeof(*to->v), HOTSPOT_PIECES);

	if (r < 0)
		c->error = r == -ENOMEM ? r : c->error;
	else
		to->v[to->n++] = *piece;
}

/* ---- blobs ------------------------------------------------------------------------------------
 */

/* Does the blob NAME hold code that comes and goes with methods, or no code? */
static bool is_passed_over(const char *name)
{
	static const char *const names[] = {
	    "nmethod",
	    "native nmethod",
	    "I2C/C2I",
	    "vtable chunks",
	    "InlineCacheBuffer",
	    "adapter",
	    "Signature Handler Temp",
	    "native signature",
	    "upcall",
	    "nep_invoker",
	    /* What the compilers write into: "Compile::Fill_buffer", "Compile::scratch_buffer".
	     * Other code lies there soon. */
	    "C1 temporary",
	    "Compile::",
	    "JVMCI Compiler",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (has_prefix(name, names[i]))
			return true;
	return false;
}

/* Adds the blob at ADDRESS, whose header is in BYTES. */
static void take_blob(struct collector *c, uint64_t address, const uint8_t *bytes)
{
	const struct hotspot_layout *l = &c->p->layout;
	uint64_t name_at = word_of(bytes, l->blob_name), begin;
	int32_t size = int_of(bytes, l->blob_size), frame = int_of(bytes, l->blob_frame_size);
	char name[NAME_BYTES] = "";

	if (size <= 0 || size > CODE_MAX ||
	    target_read(c->memory, name_at, name, sizeof(name) - 1) < 0 || is_passed_over(name))
		return;
	begin = l->blob_code_begin >= 0
		    ? word_of(bytes, l->blob_code_begin)
		    : address + (uint64_t)(int64_t)int_of(bytes, l->blob_code_offset);
	if (begin < address || begin >= address + (uint64_t)size)
		return;
	if (has_prefix(name, "Interpreter")) {
		c->interpreter = begin;
		c->interpreter_end = address + (uint64_t)size;
		return;
	}
	add_piece(c, &(struct hotspot_piece){
			 .start = begin,
			 .end = address + (uint64_t)size,
			 .name = name_at,
			 .kind = has_prefix(name, "Deoptimization") ? HOTSPOT_PIECE_DEOPT
								    : HOTSPOT_PIECE_BLOB,
			 .frame = frame >= 2 && frame < 4096 ? (uint16_t)frame : 0});
}

/* Adds the blobs of HEAP, block by block. Blocks at its end may change meanwhile. */
static void take_heap(struct collector *c, const struct kiln_hotspot_heap *heap)
{
	const struct hotspot_layout *l = &c->p->layout;
	uint64_t at = heap->low, end = heap->low + MIN(heap->size, (uint32_t)CODE_MAX);
	uint8_t bytes[BLOCK_BYTES];

	for (int i = 0; i < BLOCKS_MAX && at < end; i++) {
		uint64_t length;

		/* HeapBlock::Header: the length, of 64 bits (to 24) or 32, and whether it is used
		 */
		if (target_read(c->memory, at, bytes, sizeof(bytes)) < 0)
			return;
		length = l->block_size == 8 ? (uint32_t)int_of(bytes, 0) : word_of(bytes, 0);
		if (!length || length > heap->size)
			return;
		if (bytes[l->block_size / 2])
			take_blob(c, at + (uint64_t)l->block_size, bytes + l->block_size);
		at += length << c->p->kernel.log2_segment;
	}
}

/* ---- descriptions -----------------------------------------------------------------------------
 */

/* Do WORDS look like a StubCodeDesc? Its bounds are the fourth and fifth word; in 8 a number comes
 * before them. */
static bool is_desc(const struct collector *c, const uint64_t words[DESC_WORDS],
		    uint64_t *ret_start, uint64_t *ret_end)
{
	const struct kiln_hotspot *k = &c->p->kernel;

	for (int at = 3; at < 5; at++) {
		uint64_t start = words[at], end = words[at + 1];

		if (start - k->low < k->high - k->low && end - k->low <= k->high - k->low &&
		    start <= end) {
			*ret_start = start;
			*ret_end = end;
			return true;
		}
	}
	return false;
}

/*
 * Keeps START if NAME is the return barrier: the stub that the outermost frame on the stack returns
 * to when a virtual thread has further frames in the heap.
 */
static void take_barrier(struct collector *c, uint64_t name, uint64_t start)
{
	char text[2 * NAME_BYTES] = "";

	if (target_read(c->memory, name, text, sizeof(text) - 1) < 0)
		return;
	/* Some versions have something before and behind "cont_returnBarrier", and up to 24 or so
	 * it has another name. The barrier for exceptions is another stub. */
	if ((strstr(text, "cont_returnBarrier") && !strstr(text, "cont_returnBarrierExc")) ||
	    streq(text, "Cont thaw return barrier"))
		c->to->barrier = start;
}

static void take_descs(struct collector *c, uint64_t first)
{
	uint64_t words[DESC_WORDS], at = first, start, end, left = CODE_MAX;

	for (int i = 0; i < DESCS_MAX && at; i++) {
		/* The code of all descriptions is read: at most as much as of a heap. */
		if (target_read(c->memory, at, words, sizeof(words)) < 0 ||
		    !is_desc(c, words, &start, &end) || end - start > left)
			return;
		left -= end - start;
		take_barrier(c, words[2], start);
		if (start < end)
			add_piece(c, &(struct hotspot_piece){.start = start,
							     .end = end,
							     .group = words[1],
							     .name = words[2],
							     .kind = HOTSPOT_PIECE_STUB});
		at = words[0];
	}
}

/* Is WORD, one of libjvm.so's variables, the head of the list? */
static bool is_head(struct collector *c, uint64_t word, uint64_t from, uint64_t to)
{
	static const char group[] = "StubRoutines";
	uint64_t words[DESC_WORDS], start, end;
	char text[sizeof(group)];

	/* Descriptions are allocated: they do not lie in libjvm.so itself. */
	if (!word || word % 8 || word >> 47 || word - from < to - from)
		return false;
	c->searched++;
	if (target_read(c->memory, word, words, sizeof(words)) < 0 ||
	    !is_desc(c, words, &start, &end) || words[0] % 8 || !words[0])
		return false;
	for (int i = 0; i < DESCS_MAX; i++) {
		c->searched += 2;
		if (target_read(c->memory, words[1], text, sizeof(text)) < 0)
			return false;
		if (same_bytes(text, group, sizeof(group)))
			return true;
		if (!words[0] || target_read(c->memory, words[0], words, sizeof(words)) < 0 ||
		    !is_desc(c, words, &start, &end))
			return false;
	}
	return false;
}

static uint64_t search_head(struct collector *c)
{
	_cleanup_free_ uint64_t *chunk = malloc(VARIABLES_CHUNK);
	uint64_t from = c->p->variables, to = MIN(c->p->variables_end, from + VARIABLES_MAX);

	for (uint64_t at = from; chunk && at < to; at += VARIABLES_CHUNK) {
		size_t size = (size_t)MIN(to - at, (uint64_t)VARIABLES_CHUNK);

		if (target_read(c->memory, at, chunk, size) < 0)
			continue;
		for (size_t i = 0; i < size / 8 && c->searched < SEARCH_READS_MAX; i++)
			if (is_head(c, chunk[i], c->p->bias, to))
				return at + i * 8;
	}
	return 0;
}

static void find_descs(struct collector *c)
{
	uint64_t first = 0;

	/* The JVM makes its stubs before its interpreter, so one search finds them all. */
	if (!c->p->descs && !c->p->descs_searched && c->interpreter) {
		c->p->descs_searched = true;
		c->p->descs = search_head(c);
	}
	if (c->p->descs && target_read(c->memory, c->p->descs, &first, sizeof(first)) == 0)
		take_descs(c, first);
}

/* ---- the interpreter --------------------------------------------------------------------------
 */

/* Returns where the interpreter's code is; 0: it is not made yet. */
static uint64_t interpreter_at(const struct collector *c)
{
	const struct hotspot_layout *l = &c->p->layout;
	uint64_t queue = 0, buffer = 0;

	if (!l->interpreter || target_read(c->memory, l->interpreter, &queue, sizeof(queue)) < 0 ||
	    !queue || hotspot_read(c->memory, queue, l->queue_buffer, &buffer, 8) < 0)
		return 0;
	return buffer;
}

static void take_codelets(struct collector *c)
{
	const struct hotspot_layout *l = &c->p->layout;
	uint64_t queue = 0, buffer, at, end;
	int32_t begin, end_offset;

	if (!l->interpreter || target_read(c->memory, l->interpreter, &queue, sizeof(queue)) < 0 ||
	    !queue || hotspot_read(c->memory, queue, l->queue_buffer, &buffer, 8) < 0 ||
	    hotspot_read(c->memory, queue, l->queue_begin, &begin, 4) < 0 ||
	    hotspot_read(c->memory, queue, l->queue_end, &end_offset, 4) < 0)
		return;
	at = buffer + (uint64_t)(int64_t)begin;
	end = buffer + (uint64_t)(int64_t)end_offset;
	for (int i = 0; i < CODELETS_MAX && at < end; i++) {
		struct hotspot_piece piece = {.kind = HOTSPOT_PIECE_CODELET};
		int32_t size, bytecode;

		if (hotspot_read(c->memory, at, l->codelet_size, &size, 4) < 0 || size <= 0 ||
		    hotspot_read(c->memory, at, l->codelet_bytecode, &bytecode, 4) < 0 ||
		    hotspot_read(c->memory, at, l->codelet_description, &piece.name, 8) < 0)
			return;
		piece.start = ALIGN_UP(at + (uint64_t)l->codelet_header, (uint64_t)CODELET_ALIGN);
		piece.end = at + (uint64_t)size;
		piece.bytecode = (int16_t)bytecode;
		if (piece.start < piece.end && piece.start >= c->interpreter &&
		    piece.end <= c->interpreter_end)
			add_piece(c, &piece);
		at += (uint64_t)size;
	}
}

/* ---- all of them ------------------------------------------------------------------------------
 */

static int compare_pieces(const void *a, const void *b)
{
	const struct hotspot_piece *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	/* A stub comes before the blob that it is in. */
	return x->end < y->end ? -1 : x->end > y->end;
}

/* Drops blobs whose stubs have descriptions, and pieces that overlap the piece before. */
static void drop_covered(struct hotspot_pieces *v)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n; i++) {
		const struct hotspot_piece *piece = &v->v[i];
		bool covered = n && piece->start < v->v[n - 1].end;

		if (piece->kind == HOTSPOT_PIECE_BLOB && i + 1 < v->n &&
		    v->v[i + 1].start < piece->end)
			continue;
		if (!covered)
			v->v[n++] = *piece;
	}
	v->n = n;
}

void hotspot_pieces_done(struct hotspot_pieces *v)
{
	free(v->v);
	*v = (struct hotspot_pieces){};
}

int hotspot_pieces_find(struct hotspot_process *p, const struct target_memory *memory,
			struct hotspot_pieces *ret)
{
	struct hotspot_pieces found = {};
	struct collector c = {.p = p, .memory = memory, .to = &found};
	uint64_t queue;

	/* The heap that has the interpreter has all of the JVM's own code. */
	queue = interpreter_at(&c);
	for (int i = 0; i < KILN_HOTSPOT_HEAPS; i++)
		if (queue - p->kernel.heaps[i].low < p->kernel.heaps[i].size)
			take_heap(&c, &p->kernel.heaps[i]);
	find_descs(&c);
	found.interpreter = c.interpreter;
	found.interpreter_end = c.interpreter_end;
	if (c.interpreter)
		take_codelets(&c);
	if (c.error < 0) {
		hotspot_pieces_done(&found);
		return c.error;
	}
	if (found.n)
		qsort(found.v, found.n, sizeof(*found.v), compare_pieces);
	drop_covered(&found);
	*ret = found;
	return 0;
}

const struct hotspot_piece *hotspot_piece_at(const struct hotspot_pieces *v, uint64_t pc)
{
	size_t low = 0, high = v->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (v->v[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low < v->n && pc >= v->v[low].start ? &v->v[low] : NULL;
}
