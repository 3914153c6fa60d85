/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A part of walker.h: sends the place of evaluated code ahead of the sample (bpf/text.h), because
 * the code may be collected before its names are read. Reads line tables and names as lines.c and
 * names.c do.
 */
#pragma once

enum {
	RUBY_BODY_FIRST_LINE = 88, /* bytes: location.first_lineno */
	RUBY_PARENTS_MAX = 8,
	RUBY_STRETCHES_BACK = 4, /* stretches that are tried until one has a line */
	/* Words of w->scratch. */
	RUBY_ROOT = 16,
	RUBY_ROOT_BODY = 17,
	RUBY_LEVELS = 18,
	RUBY_WITHIN = 19,
	/* enum iseq_type, names.c */
	RUBY_ISEQ_BLOCK = 2,
	RUBY_ISEQ_RESCUE = 4,
	RUBY_ISEQ_ENSURE = 5,
	RUBY_ISEQ_EVAL = 6,
	RUBY_ISEQ_PLAIN = 8,
	/* struct RString, struct RArray: object.c */
	RUBY_TYPE_STRING = 5,
	RUBY_TYPE_ARRAY = 7,
	RUBY_FLAG_1 = 1 << 13, /* set: a String is not embedded, but an Array is */
	RUBY_STRING_POINTER = 24,
	RUBY_ARRAY_EMBEDDED = 16,
	RUBY_ARRAY_POINTER = 32,
	/* The succinct bit vector: lines.c */
	RUBY_IMMEDIATE = 54,
	RUBY_IMMEDIATE_PER_WORD = 9,
	RUBY_IMMEDIATE_BITS = 7,
	RUBY_IMMEDIATE_BYTES = 48,
	RUBY_BLOCK_BITS = 512,
	RUBY_BLOCK_BYTES = 80,
	RUBY_RANK_BITS = 9,
};

/*
 * Makes one step from the code at w->scratch[RUBY_ROOT] to the code around it. Returns 0 if
 * RUBY_ROOT is the method or class itself, 1 if the caller has to go on, negative if the code
 * cannot be named by a text.
 */
KILN_GLOBAL int ruby_step_up(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t body;
	uint32_t type = 0;

	if (!w)
		return -1;
	body = ruby_word(w->scratch[RUBY_ROOT] + RUBY_ISEQ_BODY);
	w->scratch[RUBY_ROOT_BODY] = body;
	if (!body || env_read(&type, 4, body))
		return -1;
	switch (type) {
	case RUBY_ISEQ_BLOCK:
		w->scratch[RUBY_LEVELS]++;
		break;
	case RUBY_ISEQ_RESCUE:
	case RUBY_ISEQ_ENSURE:
		if (w->scratch[RUBY_LEVELS])
			break;
		if (w->scratch[RUBY_WITHIN])
			return -1;
		w->scratch[RUBY_WITHIN] =
		    type == RUBY_ISEQ_RESCUE ? KILN_RUBY_IN_RESCUE : KILN_RUBY_IN_ENSURE;
		break;
	case RUBY_ISEQ_EVAL:
	case RUBY_ISEQ_PLAIN:
		break;
	default:
		return 0;
	}
	w->scratch[RUBY_ROOT] = ruby_word(body + ruby_data(w)->parent);
	return w->scratch[RUBY_ROOT] ? 1 : -1;
}

/* The line of instruction INDEX of the code whose body is BODY; 0: not known. */
KILN_GLOBAL int ruby_line_at(uint32_t slot, uint64_t body, uint32_t index)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_ruby *r;
	uint64_t lines, at, stretch = 1;
	uint32_t n, bit, line = 0;

	if (!w)
		return 0;
	r = ruby_data(w);
	lines = ruby_word(body + r->lines);
	at = ruby_word(body + r->lines_index);
	n = (uint32_t)ruby_word(body + r->lines_size);
	if (n > 1 && index < RUBY_IMMEDIATE) {
		stretch = ruby_word(at + index / RUBY_IMMEDIATE_PER_WORD * 8) >>
			      index % RUBY_IMMEDIATE_PER_WORD * RUBY_IMMEDIATE_BITS &
			  127;
	} else if (n > 1) {
		index -= RUBY_IMMEDIATE;
		at += RUBY_IMMEDIATE_BYTES + index / RUBY_BLOCK_BITS * RUBY_BLOCK_BYTES;
		bit = index % RUBY_BLOCK_BITS;
		stretch = (uint32_t)ruby_word(at);
		if (bit >= 64)
			stretch += ruby_word(at + 8) >> (bit / 64 - 1) * RUBY_RANK_BITS & 511;
		stretch += (uint64_t)__builtin_popcountll(ruby_word(at + 16 + bit / 64 * 8)
							  << (63 - bit % 64));
	}
	if (stretch > n)
		return 0;
	for (int i = 0; i < RUBY_STRETCHES_BACK && stretch && !line; i++, stretch--)
		if (env_read(&line, 4, lines + (stretch - 1) * r->line_size))
			return 0;
	return (int)line;
}

/* The address of the characters of the String at ADDRESS, or of the first String in the Array
 * there; 0: it is neither. */
KILN_INLINE uint64_t ruby_characters(const struct kiln_ruby *r, uint64_t address)
{
	uint64_t flags = ruby_word(address);

	if ((flags & RUBY_TYPE_MASK) == RUBY_TYPE_ARRAY) {
		address = flags & RUBY_FLAG_1 ? address + RUBY_ARRAY_EMBEDDED
					      : ruby_word(address + RUBY_ARRAY_POINTER);
		address = ruby_word(address);
		flags = ruby_word(address);
	}
	if ((flags & RUBY_TYPE_MASK) != RUBY_TYPE_STRING)
		return 0;
	return flags & RUBY_FLAG_1 ? ruby_word(address + RUBY_STRING_POINTER)
				   : address + r->string_embedded;
}

/* Sends the text of the frame with the words FIRST and SECOND, whose code is ISEQ, unless it was
 * sent recently. */
KILN_GLOBAL int ruby_send_text(uint32_t slot, uint64_t iseq, uint64_t first, uint64_t second)
{
	struct kiln_walk *w = env_walk(slot);
	const uint64_t words[2] = {first, second};
	uint32_t index = KILN_RUBY_INDEX(second);
	struct kiln_ruby_text *t;
	struct kiln_text *text;
	uint64_t body, path;
	int up = 1, n;

	if (!w || !ruby_data(w)->lines_index || KILN_RUBY_IS_ENTRY(second))
		return 0;
	text = env_new_text(w, words);
	if (!text)
		return 0;
	t = (struct kiln_ruby_text *)text->bytes;
	w->scratch[RUBY_ROOT] = iseq;
	w->scratch[RUBY_LEVELS] = w->scratch[RUBY_WITHIN] = 0;
	for (int i = 0; i < RUBY_PARENTS_MAX && up > 0; i++)
		up = ruby_step_up(slot);
	/* Code without other code around it: its name is gone when it is collected. */
	if (up || w->scratch[RUBY_ROOT] == iseq)
		return 0;
	t->root = w->scratch[RUBY_ROOT];
	t->root_body = w->scratch[RUBY_ROOT_BODY];
	t->levels = (uint8_t)w->scratch[RUBY_LEVELS];
	t->within = (uint8_t)w->scratch[RUBY_WITHIN];
	t->owner_class = ruby_word(KILN_RUBY_OBJECT(second) + RUBY_OBJECT_CLASS);
	body = ruby_word(iseq + RUBY_ISEQ_BODY);
	t->start = ruby_word(body + RUBY_BODY_FIRST_LINE);
	if (index && !(KILN_FRAME_FLAGS(first) & KILN_RUBY_EXACT))
		index--;
	t->line = KILN_RUBY_INDEX(second) == KILN_RUBY_INDEX_NONE
		      ? 0
		      : (uint32_t)ruby_line_at(slot, body, index);
	path = ruby_characters(ruby_data(w), ruby_word(body + RUBY_BODY_PATH * 8));
	n = path ? env_read_string(t->path, sizeof(t->path), path) : -1;
	if (n < 0 || n >= (int)sizeof(t->path))
		return 0;
	env_send_text(text);
	return 0;
}
