/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeoptimizationData is an array: where the translations are, literals, then three words for each
 * place where code can be left:
 *   the offset in the bytecode of the innermost function,
 *   where the place's translation begins,
 *   the offset in Turbofan's code that the place's call returns to; a check has none.
 * The exits, one for each place, are calls of the same length, one behind the other. A translation
 * is a list of opcodes, a byte each, with variable-length operands: BEGIN, then each frame and its
 * values, from the outermost frame on. Most opcodes are the same as at the same place of an earlier
 * translation: a translation only counts them. The build itself says how many operands each opcode
 * has; the first two opcodes are frames of JavaScript.
 *
 * Loop thread; keeps nothing. All of it may be forged: the number of opcodes that are looked at has
 * a limit.
 *
 * Sources: V8 9.4 to 13.6 src/objects/code.h, from 12 on deoptimization-data.h (DeoptimizationData:
 * four words come between the inlining positions and the first place),
 * src/deoptimizer/translation-opcode.h, src/deoptimizer/frame-translation-builder.cc (operands by
 * opcode, what is counted), src/base/vlq.h, src/codegen/maglev-safepoint-table.h.
 */
#include "agent/runtime/v8/deopt.h"

enum {
	OPCODE_FRAME_RETURN = 0, /* INTERPRETED_FRAME_WITH_RETURN ... */
	OPCODE_FRAME = 1,	 /* ... and _WITHOUT_RETURN: offset, literal of the function */
	/*
	 * Of BEGIN: distance to the earlier translation, number of frames, number of JavaScript
	 * frames.
	 */
	BEGIN_OPERANDS = 3,
	ENTRY_WORDS = 3,
	ENTRY_TRANSLATION = 1,
	ENTRY_PC = 2,
	OPERANDS_MAX = 8,
	/*
	 * Words, counted from the inlining positions: where the exits begin, and how many are of
	 * checks.
	 */
	WORDS_EXITS = 1,
	WORDS_CHECKS = 2,
	EXIT_SIZE = 4,	     /* bytes: src/deoptimizer/x64/deoptimizer-x64.cc */
	EXIT_SIZE_9 = 7,     /* the same in V8 9 */
	WORDS_BEFORE = 4,    /* the word of the first place, counted from the inlining positions */
	COUNT_MAX = 1 << 14, /* places */
	OPCODES_BUDGET = 1 << 18,
	/* Bytes of a safepoint table's header: stack slots, entries, sizes, tagged slots. */
	SAFEPOINT_HEADER = 16,
};

int v8_deopt_function(const struct v8_heap *h, uint64_t data, int32_t id, uint64_t *ret)
{
	const struct v8_layout *l = h->layout;
	uint64_t literals, length, v;

	if (v8_word(h, data, l->array_data + 8 * l->deopt_literals, &literals) < 0 ||
	    v8_word(h, literals, l->array_length, &length) < 0 || !v8_is_smi(length) || id < 0 ||
	    id >= v8_smi(length) || v8_word(h, literals, l->array_data + 8LL * id, &v) < 0)
		return -EFAULT;
	if (l->type_shared_wrapper && v8_type(h, v) == l->type_shared_wrapper &&
	    v8_word(h, v, 8, &v) < 0)
		return -EFAULT;
	if (v8_type(h, v) != l->type_shared)
		return -EFAULT;
	*ret = (v & ~3ULL) | 1;
	return 0;
}

/* ---- translations ----------------------------------------------------------------------------
 */

static int64_t first_entry(const struct v8_layout *l)
{
	return l->deopt_inlining + WORDS_BEFORE;
}

static int entry_word(const struct v8_deopt *d, uint32_t index, int64_t word, int32_t *ret)
{
	const struct v8_layout *l = d->heap->layout;
	int64_t at = first_entry(l) + (int64_t)index * ENTRY_WORDS + word;
	uint64_t v;

	if (index >= d->count || v8_word(d->heap, d->data, l->array_data + 8 * at, &v) < 0 ||
	    !v8_is_smi(v))
		return -EFAULT;
	*ret = v8_smi(v);
	return 0;
}

int v8_deopt_init(struct v8_deopt *d, const struct v8_heap *h, const struct v8_opcodes *opcodes,
		  uint64_t data)
{
	const struct v8_layout *l = h->layout;
	uint64_t length, exits, checks;
	int64_t words;

	*d = (struct v8_deopt){
	    .heap = h, .opcodes = opcodes, .data = data, .budget = OPCODES_BUDGET};
	if (v8_word(h, data, l->array_length, &length) < 0 || !v8_is_smi(length))
		return -EFAULT;
	words = v8_smi(length) - first_entry(l);
	if (words <= 0 || words % ENTRY_WORDS || words / ENTRY_WORDS > COUNT_MAX ||
	    v8_word(h, data, l->array_data + 8 * (l->deopt_inlining + WORDS_EXITS), &exits) < 0 ||
	    !v8_is_smi(exits) ||
	    v8_word(h, data, l->array_data + 8 * (l->deopt_inlining + WORDS_CHECKS), &checks) < 0 ||
	    !v8_is_smi(checks))
		return -EFAULT;
	d->count = (uint32_t)(words / ENTRY_WORDS);
	d->exits = v8_smi(exits);
	d->checks = v8_smi(checks);
	return 0;
}

int v8_deopt_exit(const struct v8_deopt *d, int64_t offset, uint32_t *ret)
{
	int64_t size = d->heap->layout->major < 10 ? EXIT_SIZE_9 : EXIT_SIZE;
	int64_t at = offset - d->exits;

	if (at < 0 || at % size || at / size >= d->count)
		return -ENOENT;
	*ret = (uint32_t)(at / size);
	return 0;
}

bool v8_deopt_is_call(const struct v8_deopt *d, uint32_t index)
{
	return d->checks >= 0 && index >= (uint32_t)d->checks;
}

uint32_t v8_deopt_call(const struct v8_deopt *d, uint32_t index, uint32_t otherwise)
{
	int32_t pc;

	/* A check has no such offset. */
	return entry_word(d, index, ENTRY_PC, &pc) == 0 && pc > 0 ? (uint32_t)pc : otherwise;
}

void v8_deopt_done(struct v8_deopt *d)
{
	free(d->bytes);
	d->bytes = NULL;
}

static int read_translations(struct v8_deopt *d)
{
	const struct v8_layout *l = d->heap->layout;
	uint64_t translations;

	if (d->bytes)
		return 0;
	if (!d->opcodes->n || v8_word(d->heap, d->data, l->array_data, &translations) < 0)
		return -EFAULT;
	return v8_bytes(d->heap, translations, V8_TABLE_MAX, &d->bytes, &d->n);
}

struct translation {
	struct cursor own, earlier;
	uint64_t repeats; /* opcodes that are still to be taken from `earlier` */
};

/* The number V stands for: its lowest bit is the sign. */
static int32_t signed_of(uint64_t v)
{
	int32_t n = (int32_t)(v >> 1 & 0x3fffffff);

	return v & 1 ? -n : n;
}

/*
 * Reads the opcode at C and its first operands, and takes 1 from the budget. Without budget C
 * becomes bad.
 */
static uint8_t read_opcode(struct v8_deopt *d, struct cursor *c, uint64_t ret[BEGIN_OPERANDS])
{
	uint8_t opcode = cursor_u8(c);

	if (!d->budget)
		c->bad = true;
	else
		d->budget--;
	for (uint32_t i = 0; opcode < d->opcodes->n && i < d->opcodes->operands[opcode]; i++) {
		uint64_t v = cursor_uleb(c);

		if (i < BEGIN_OPERANDS)
			ret[i] = v;
	}
	return opcode;
}

/*
 * Returns the next opcode of T, with its operands in RET. It comes from `own` or `earlier`; both go
 * on by one opcode.
 */
static uint8_t next_opcode(struct v8_deopt *d, struct translation *t, uint64_t ret[BEGIN_OPERANDS])
{
	uint64_t ignored[BEGIN_OPERANDS];
	uint32_t n = d->opcodes->n;
	uint8_t opcode;

	if (!t->repeats) {
		opcode = read_opcode(d, &t->own, ret);
		/*
		 * The operand of the last opcode is how many opcodes are the same. A byte above n
		 * says this, too: it is that number plus n.
		 */
		if (opcode == n - 1)
			t->repeats = ret[0];
		else if (opcode > n)
			t->repeats = opcode - n;
		if (!t->repeats) {
			(void)read_opcode(d, &t->earlier, ignored);
			return opcode;
		}
	}
	t->repeats--;
	opcode = read_opcode(d, &t->earlier, ret);
	t->own.bad = t->own.bad || t->earlier.bad || opcode >= n;
	return opcode;
}

/*
 * Goes to the first frame of the translation at START. Returns the number of JavaScript frames, or
 * -1.
 */
static int32_t begin(struct v8_deopt *d, struct translation *t, size_t start)
{
	uint64_t operands[BEGIN_OPERANDS], ignored[BEGIN_OPERANDS];
	uint8_t opcode;

	cursor_seek(&t->own, start);
	opcode = read_opcode(d, &t->own, operands);
	if (t->own.bad || opcode - d->opcodes->begin > 1 || operands[0] > start)
		return -1;
	cursor_seek(&t->earlier, start - operands[0]);
	(void)read_opcode(d, &t->earlier, ignored);
	return signed_of(operands[2]);
}

int v8_deopt_frames(struct v8_deopt *d, uint32_t index,
		    struct v8_deopt_frame ret[V8_DEOPT_FRAMES_MAX])
{
	struct translation t;
	uint64_t operands[BEGIN_OPERANDS];
	int32_t start, wanted, n = 0;

	if (read_translations(d) < 0 || entry_word(d, index, ENTRY_TRANSLATION, &start) < 0 ||
	    start < 0)
		return -EFAULT;
	t = (struct translation){.own = cursor_of(d->bytes, d->n)};
	t.earlier = t.own;
	wanted = begin(d, &t, (size_t)start);
	if (wanted <= 0 || wanted > V8_DEOPT_FRAMES_MAX)
		return -EFAULT;
	/* Fewer than WANTED may be found: frames of built-in functions count, too. */
	while (n < wanted && (cursor_left(&t.own) || t.repeats)) {
		uint8_t opcode = next_opcode(d, &t, operands);

		if (t.own.bad)
			return -EFAULT;
		if (opcode - d->opcodes->begin <= 1)
			break;
		if (opcode > OPCODE_FRAME)
			continue;
		if (v8_deopt_function(d->heap, d->data, signed_of(operands[1]), &ret[n].shared) < 0)
			return -EFAULT;
		ret[n++].offset = signed_of(operands[0]);
	}
	return n ? n : -EFAULT;
}

int v8_opcodes_init(struct v8_opcodes *ret, struct cursor table)
{
	struct v8_opcodes o = {.n = (uint32_t)(table.size / 4)};

	if (table.bad || table.size % 4 || o.n < 4 || o.n > V8_DEOPT_OPCODES_MAX)
		return -ENOTSUP;
	for (uint32_t i = 0; i < o.n; i++) {
		uint32_t n = cursor_u32(&table);

		if (n > OPERANDS_MAX)
			return -ENOTSUP;
		o.operands[i] = (uint8_t)n;
		/* The last two opcodes with three operands begin translations. */
		if (n == BEGIN_OPERANDS)
			o.begin = i - 1;
	}
	/* FRAME_WITH_RETURN has two more operands, for what is returned. */
	if (o.operands[OPCODE_FRAME] < 3 ||
	    o.operands[OPCODE_FRAME_RETURN] != o.operands[OPCODE_FRAME] + 2 ||
	    o.operands[o.n - 1] != 1 || o.begin <= OPCODE_FRAME ||
	    o.operands[o.begin] != BEGIN_OPERANDS)
		return -ENOTSUP;
	*ret = o;
	return 0;
}

/* ---- safepoints ------------------------------------------------------------------------------
 */

/* Reads an integer of SIZE bytes, lowest byte first. */
static uint32_t small_int(struct cursor *c, uint32_t size)
{
	uint32_t v = 0;

	for (uint32_t i = 0; i < size; i++)
		v |= (uint32_t)cursor_u8(c) << 8 * i;
	return v;
}

int v8_deopt_index(const struct v8_heap *h, uint64_t table, uint32_t offset, uint32_t *ret)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	uint32_t header[SAFEPOINT_HEADER / 4], n, registers, pc, deopt;
	struct cursor c;
	size_t size;

	if (target_read(h->memory, table, header, sizeof(header)) < 0)
		return -EFAULT;
	n = header[1];
	/* header[2]: bit 0: is there any deoptimization data? Then three sizes, 3 bits each. */
	registers = header[2] >> 1 & 7;
	pc = header[2] >> 4 & 7;
	deopt = header[2] >> 7 & 7;
	if (!(header[2] & 1) || registers > 4 || pc > 4 || deopt > 4 || !n || n > COUNT_MAX)
		return -ENOENT;
	size = (size_t)n * (pc + deopt + pc + 1 + registers);
	bytes = malloc(size);
	if (!bytes)
		return -ENOMEM;
	if (target_read(h->memory, table + sizeof(header), bytes, size) < 0)
		return -EFAULT;
	c = cursor_of(bytes, size);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = small_int(&c, pc), index = small_int(&c, deopt),
			 left = small_int(&c, pc);

		cursor_skip(&c, 1 + registers);
		/* INDEX and LEFT are stored plus 1; 0: none. Deoptimized frames return to LEFT. */
		if (index && (at == offset || left == offset + 1)) {
			*ret = index - 1;
			return 0;
		}
	}
	return -ENOENT;
}
