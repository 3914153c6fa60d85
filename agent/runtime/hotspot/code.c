/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the places in methods that a program counter in compiled code stands for. An nmethod has
 * descriptions (PcDesc) of some of its program counters, in ascending order: of the return
 * addresses of all calls, and of all places where the code may be stopped. Each description leads
 * to a scope: a method, an index into its bytecodes, and the scope that this one was inlined into
 * (src/hotspot/share/code/pcDesc.hpp, scopeDesc.cpp ScopeDesc::decode_body, debugInfo.hpp).
 *
 * Loop thread; keeps nothing.
 */
#include "agent/elf/code_state.h"
#include "agent/runtime/hotspot/hotspot.h"

enum {
	DESCS_MAX = 1 << 20,
	SCOPES_MAX = 1 << 24, /* bytes */
	SCOPE_HEAD = 16,      /* three numbers of at most 5 bytes */
	METADATA_MAX = 1 << 20,
	STRAIGHT_BYTES = 1024, /* bytes of code checked for jumps behind a leaf's pc */
	BEFORE_BYTES = 512,    /* bytes of code checked for jumps before a leaf's pc */
	INSN_BYTES = 16,
	WAYS_MAX = 16,	 /* paths from a leaf that are followed */
	WAY_BYTES = 512, /* bytes of a path that are followed */
	/* Sizes of what is read ahead, in bytes. */
	DESC_BYTES = 6144,    /* the PcDescs, if they are no more than that */
	METADATA_BYTES = 256, /* the beginning of the table of methods */
	SCOPE_BYTES = 512,    /* before a scope: the scopes that it was inlined into */
	LEAF_BEFORE = 256,    /* code before a leaf's pc */
	LEAF_BEHIND = 512,    /* code from a leaf's pc on */
};

struct code {
	const struct hotspot_process *p;
	const struct target_memory *memory;
	uint64_t blob;
	uint64_t begin; /* of the code */
	uint64_t descs, descs_end, scopes, metadata;
};

static int int_at(const struct code *c, int32_t field, int32_t *ret)
{
	return hotspot_read(c->memory, c->blob, field, ret, sizeof(*ret));
}

static int word_at(const struct code *c, int32_t field, uint64_t *ret)
{
	return hotspot_read(c->memory, c->blob, field, ret, sizeof(*ret));
}

/* Computes the address that is BASE plus the int at FIELD of the blob. */
static int place_at(const struct code *c, uint64_t base, int32_t field, uint64_t *ret)
{
	int32_t offset;
	int r = int_at(c, field, &offset);

	if (r == 0)
		*ret = base + (uint64_t)(int64_t)offset;
	return r < 0 || offset < 0 ? -EFAULT : 0;
}

static int find_metadata(struct code *c)
{
	const struct hotspot_layout *l = &c->p->layout;
	uint64_t data;

	if (l->nmethod_metadata >= 0)
		return place_at(c, c->blob, l->nmethod_metadata, &c->metadata);
	if (word_at(c, l->blob_mutable_data, &data) < 0)
		return -EFAULT;
	return place_at(c, data, l->blob_relocation_size, &c->metadata);
}

static int find_parts(struct code *c)
{
	const struct hotspot_layout *l = &c->p->layout;
	uint64_t base = c->blob;
	int r;

	if (l->blob_code_begin >= 0)
		r = word_at(c, l->blob_code_begin, &c->begin);
	else
		r = place_at(c, c->blob, l->blob_code_offset, &c->begin);
	if (r == 0 && l->nmethod_immutable >= 0)
		r = word_at(c, l->nmethod_immutable, &base);
	if (r == 0)
		r = place_at(c, base, l->nmethod_pcs, &c->descs);
	if (r == 0 && l->nmethod_scopes_begin >= 0)
		r = word_at(c, l->nmethod_scopes_begin, &c->scopes);
	else if (r == 0)
		r = place_at(c, base, l->nmethod_scopes, &c->scopes);
	/* Descriptions end where the dependencies begin; where these lie elsewhere, where the
	 * scopes begin. */
	if (r == 0 && l->nmethod_immutable >= 0)
		c->descs_end = c->scopes;
	else if (r == 0)
		r = place_at(c, base, l->nmethod_pcs_end, &c->descs_end);
	if (r == 0)
		r = find_metadata(c);
	if (r < 0 || c->descs_end < c->descs ||
	    c->descs_end - c->descs > (uint64_t)DESCS_MAX * (uint64_t)l->pcdesc_size)
		return -EFAULT;
	return 0;
}

/* Reads the int at FIELD of description I. */
static int desc_at(const struct code *c, uint64_t i, int32_t field, int32_t *ret)
{
	uint64_t size = (uint64_t)c->p->layout.pcdesc_size;

	return hotspot_read(c->memory, c->descs + i * size, field, ret, sizeof(*ret));
}

/* Reads ahead descriptions [LOW, HIGH), one more on each side, and the table of methods. False: the
 * descriptions are too many. */
static bool read_descs(const struct code *c, uint64_t low, uint64_t high)
{
	uint64_t size = (uint64_t)c->p->layout.pcdesc_size, n = (c->descs_end - c->descs) / size;
	struct target_span spans[2];

	low -= low > 0;
	high = MIN(high + 1, n);
	if ((high - low) * size > DESC_BYTES)
		return false;
	spans[0] = (struct target_span){c->descs + low * size, (size_t)((high - low) * size)};
	spans[1] = (struct target_span){c->metadata, METADATA_BYTES};
	target_read_together(c->memory, spans, ARRAY_SIZE(spans));
	return true;
}

/* Finds the number of the first description at or behind PC. */
static int find_desc(const struct code *c, uint64_t pc, uint64_t *ret)
{
	const struct hotspot_layout *l = &c->p->layout;
	uint64_t low = 0, high = (c->descs_end - c->descs) / (uint64_t)l->pcdesc_size;
	bool are_read = false;
	int32_t at;

	if (pc - c->begin > INT32_MAX)
		return -EFAULT;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (!are_read)
			are_read = read_descs(c, low, high);
		if (desc_at(c, middle, l->pcdesc_pc, &at) < 0)
			return -EFAULT;
		if (at < (int32_t)(pc - c->begin))
			low = middle + 1;
		else
			high = middle;
	}
	*ret = low;
	return 0;
}

struct scope {
	uint32_t sender, method;
	int32_t bci;
};

static int read_scope(const struct code *c, uint32_t offset, struct scope *ret)
{
	uint8_t bytes[SCOPE_HEAD] = {0};
	uint32_t excluded = c->p->numbers_exclude_zero;
	struct cursor cur;

	/* The memory may end right behind the last scope. */
	if (target_read(c->memory, c->scopes + offset, bytes, sizeof(bytes)) < 0)
		for (size_t i = 0; i < sizeof(bytes); i++)
			if (target_read(c->memory, c->scopes + offset + i, &bytes[i], 1) < 0)
				break;
	cur = cursor_of(bytes, sizeof(bytes));
	ret->sender = hotspot_read_number(&cur, excluded);
	ret->method = hotspot_read_number(&cur, excluded);
	ret->bci = (int32_t)hotspot_read_number(&cur, excluded) - 1;
	return cur.bad ? -EFAULT : 0;
}

static int outer_method(const struct code *c, uint64_t *ret)
{
	const struct hotspot_layout *l = &c->p->layout;

	return word_at(c, l->nmethod_method >= 0 ? l->nmethod_method : l->compiled_method_method,
		       ret) < 0 ||
		       !*ret
		   ? -EFAULT
		   : 0;
}

/* Returns the memory of the scope of description I, and SCOPE_BYTES before it: most of the scopes
 * that it was inlined into are there. */
static struct target_span scopes_span(const struct code *c, uint64_t i)
{
	int32_t offset, before;

	if (i >= (c->descs_end - c->descs) / (uint64_t)c->p->layout.pcdesc_size ||
	    desc_at(c, i, c->p->layout.pcdesc_scope, &offset) < 0 || offset <= 0 ||
	    offset > SCOPES_MAX)
		return (struct target_span){};
	before = MIN(offset, SCOPE_BYTES);
	return (struct target_span){c->scopes + (uint64_t)(offset - before),
				    (size_t)before + SCOPE_HEAD};
}

/*
 * Finds the places of description I, innermost first: its scope, and the scopes that it was inlined
 * into. Returns how many; 0: none, or the scopes make no sense.
 */
static int desc_places(const struct code *c, uint64_t i, struct hotspot_place *ret, size_t max)
{
	const struct hotspot_layout *l = &c->p->layout;
	struct scope scope = {0};
	int32_t offset;
	int n = 0;

	if (i >= (c->descs_end - c->descs) / (uint64_t)l->pcdesc_size ||
	    desc_at(c, i, l->pcdesc_scope, &offset) < 0 || offset <= 0 || offset > SCOPES_MAX)
		return 0;
	while (offset && (size_t)n < max) {
		if (read_scope(c, (uint32_t)offset, &scope) < 0 || !scope.method ||
		    scope.method > METADATA_MAX)
			return 0;
		if (target_read(c->memory, c->metadata + (uint64_t)(scope.method - 1) * 8,
				&ret[n].method, 8) < 0)
			return 0;
		ret[n].bci = scope.bci;
		n++;
		/* A scope lies behind the scope that it was inlined into. */
		if (scope.sender >= (uint32_t)offset)
			return 0;
		offset = (int32_t)scope.sender;
	}
	return n;
}

/* ---- the leaf ---------------------------------------------------------------------------------
 *
 * Between two descriptions nothing tells which methods are inlined there. The leaf gets the place
 * of the next description if the code runs on to it, as a loop does to its poll; the JVM itself
 * does the same (PcDescContainer::find_pc_desc_internal). If the code also runs straight from the
 * description before to the leaf, or does not run on to the next one, only the places that both
 * descriptions have in common are certain. Code that returns without a call need not have anything
 * to do with the descriptions beside it: then only the outermost method is certain.
 */

/*
 * Does the code from FROM to TO run on without a jump? Only the first MAX bytes are looked at; if
 * TO is beyond them, the answer is no unless FAR is set.
 */
static bool is_straight(const struct code *c, uint64_t from, uint64_t to, size_t max, bool far)
{
	uint8_t bytes[STRAIGHT_BYTES + INSN_BYTES] = {0};
	struct code_insn insn;
	struct cursor cur;
	uint64_t end;

	/* The descriptions may be forged. */
	if (to < from || (to - from > max && !far))
		return false;
	end = from + MIN(to - from, max);
	if (target_read(c->memory, from, bytes, (size_t)MIN(to - from, max + INSN_BYTES)) < 0)
		return false;
	cur = cursor_of(bytes, sizeof(bytes));
	while (from + cur.pos < end) {
		if (!code_decode(cur, from + cur.pos, true, &insn) ||
		    (insn.flow != CODE_NEXT && insn.flow != CODE_BRANCH && insn.flow != CODE_CALL))
			return false;
		cursor_skip(&cur, insn.size);
	}
	return true;
}

struct ways {
	uint64_t at[WAYS_MAX];
	size_t n;
};

static void add_way(struct ways *w, uint64_t at)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->at[i] == at)
			return;
	if (at && w->n < WAYS_MAX)
		w->at[w->n++] = at;
}

/*
 * Does the path from FROM come to a return without a call? The targets of its jumps are added to W.
 */
static bool way_returns(const struct code *c, uint64_t from, struct ways *w)
{
	uint8_t bytes[WAY_BYTES + INSN_BYTES] = {0};
	struct cursor cur = cursor_of(bytes, sizeof(bytes));
	struct code_insn insn;

	if (target_read(c->memory, from, bytes, sizeof(bytes)) < 0)
		return false;
	while (cur.pos < WAY_BYTES && code_decode(cur, from + cur.pos, true, &insn)) {
		if (insn.flow == CODE_RETURN)
			return true;
		if (insn.flow == CODE_BRANCH || insn.flow == CODE_JUMP)
			add_way(w, insn.target);
		if (insn.flow != CODE_NEXT && insn.flow != CODE_BRANCH)
			return false;
		cursor_skip(&cur, insn.size);
	}
	return false;
}

/* Is there a path from PC to a return instruction without a call on it? */
static bool returns(const struct code *c, uint64_t pc)
{
	struct ways w = {.at = {pc}, .n = 1};

	for (size_t i = 0; i < w.n; i++)
		if (way_returns(c, w.at[i], &w))
			return true;
	return false;
}

/*
 * Cuts the N places at PLACES down to those that the M places at OTHERS have in common with them.
 * Both are innermost first, and are compared from the outermost place on, as long as the calls are
 * the same. Returns how many are left: at least one.
 */
static int common_places(struct hotspot_place *places, int n, const struct hotspot_place *others,
			 int m)
{
	int k = 0;

	while (k < n && k < m) {
		const struct hotspot_place *a = &places[n - 1 - k], *b = &others[m - 1 - k];

		if (a->method != b->method)
			break;
		k++;
		if (a->bci != b->bci)
			break;
	}
	/* The outermost method is certain. */
	k = MAX(k, 1);
	memmove(places, places + n - k, (size_t)k * sizeof(*places));
	/* The slow path of a synchronized method's entry lies behind its code, and its description
	 * names no bytecode. */
	if (places[0].bci < 0 && m >= k && others[m - k].method == places[0].method)
		places[0].bci = others[m - k].bci;
	return k;
}

/* Returns the program counter that description I is for; 0: there is none. */
static uint64_t desc_pc(const struct code *c, uint64_t i)
{
	int32_t offset;

	if (desc_at(c, i, c->p->layout.pcdesc_pc, &offset) < 0 || offset < 0)
		return 0;
	return c->begin + (uint64_t)offset;
}

/* Reads ahead what leaf_places() will read. */
static void read_leaf(const struct code *c, uint64_t pc, uint64_t next)
{
	struct target_span spans[] = {scopes_span(c, next),
				      next ? scopes_span(c, next - 1) : (struct target_span){},
				      {pc - LEAF_BEFORE, LEAF_BEFORE + LEAF_BEHIND}},
			   header = hotspot_nmethod_span(c->p, c->blob);

	target_read_again(c->memory, spans, ARRAY_SIZE(spans), &header);
}

/* Does the code run on from PC to description NEXT, but not to PC from the description before? */
static bool belongs_to_next(const struct code *c, uint64_t pc, uint64_t next)
{
	uint64_t from = next ? desc_pc(c, next - 1) : 0, to = desc_pc(c, next);

	return to && is_straight(c, pc, to, STRAIGHT_BYTES, true) &&
	       !(from && is_straight(c, from, pc, BEFORE_BYTES, false));
}

static int leaf_places(const struct code *c, uint64_t pc, uint64_t next, struct hotspot_place *ret,
		       size_t max)
{
	struct hotspot_place others[HOTSPOT_PLACES];
	int n = desc_places(c, next, ret, max), m;
	/* Where nothing is inlined, there is nothing to choose. */
	bool is_certain = n == 1 && ret[0].bci >= 0;

	if (n > 0 && (c->p->layout.describes_all || is_certain || belongs_to_next(c, pc, next)))
		return n;
	m = next ? desc_places(c, next - 1, others, HOTSPOT_PLACES) : 0;
	if (n > 0) {
		n = common_places(ret, n, others, m);
		if (n > 1 && returns(c, pc)) {
			ret[0] = ret[n - 1];
			n = 1;
		}
		return n;
	}
	if (m > 0)
		ret[0] = others[m - 1];
	return m > 0;
}

int hotspot_code_places(const struct hotspot_process *p, const struct target_memory *memory,
			uint64_t blob, uint64_t pc, struct hotspot_place *ret, size_t max)
{
	struct target_span scopes, header = hotspot_nmethod_span(p, blob);
	struct code c;
	int32_t at = -1;
	uint64_t next;
	int n = 0;

	c.p = p;
	c.memory = memory;
	c.blob = blob;
	if (max && find_parts(&c) == 0 && find_desc(&c, pc, &next) == 0) {
		if (desc_at(&c, next, p->layout.pcdesc_pc, &at) == 0 &&
		    (uint64_t)(int64_t)at == pc - c.begin) {
			scopes = scopes_span(&c, next);
			target_read_again(memory, &scopes, 1, &header);
			n = desc_places(&c, next, ret, max);
		} else {
			read_leaf(&c, pc, next);
			n = leaf_places(&c, pc, next, ret, max);
		}
	}
	if (n == 0 && max) {
		/*
		 * Wrappers of native methods, and code without descriptions: only the method is
		 * known.
		 */
		ret[0].bci = -1;
		if (outer_method(&c, &ret[0].method) < 0)
			return -EFAULT;
		n = 1;
	}
	/* bci -1 is the method's entry, before its first bytecode. Stack traces of the JVM show the
	 * line of bytecode 0 for it (Method::line_number_from_bci()). */
	if (n > 0 && ret[0].bci < 0)
		ret[0].bci = 0;
	return n;
}
