/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A part of walker.h: emits frames, and sends the names of frames that were not emitted recently
 * ahead of the sample (bpf/text.h), because COPs, closures and whole processes may be gone soon.
 */
#pragma once

#include "agent/runtime/perl/walker_place.h"

/* Copies the string of the HEK at ADDRESS to DST, of SIZE bytes. Returns 1 if it is UTF-8, 0 if it
 * is Latin-1, negative if it cannot be read or does not fit. */
KILN_INLINE int perl_read_hek(uint64_t address, char *dst, uint32_t size)
{
	uint64_t head = 0;
	uint8_t flags = 0;
	uint32_t len;

	if (!address || env_read(&head, 8, address))
		return -1;
	len = (uint32_t)(head >> 32);
	if (len >= size || env_read(&flags, 1, address + PERL_HEK_KEY + len + 1) ||
	    env_read_string(dst, size, address + PERL_HEK_KEY) != (int)len + 1)
		return -1;
	return flags & PERL_HEK_UTF8;
}

/* The HEK of the name of the package whose stash is at ADDRESS; 0: it has none. */
KILN_INLINE uint64_t perl_stash_hek(struct kiln_walk *w, uint64_t address)
{
	uint64_t aux, name;
	uint32_t count;

	if (!address || env_read(w->scratch, 24, address))
		return 0;
	if ((w->scratch[1] >> 32 & (PERL_HV_HAS_AUX | PERL_SV_TYPE_MASK)) !=
	    (PERL_HV_HAS_AUX | PERL_SVT_PVHV))
		return 0;
	aux = w->scratch[0] + perl_data(w)->stash_aux;
	if (!perl_data(w)->stash_aux)
		aux = w->scratch[2] + (perl_word(aux + PERL_HV_MAX) + 1) * 8;
	if (env_read(w->scratch, 32, aux))
		return 0;
	name = w->scratch[PERL_AUX_NAME / 8];
	count = (uint32_t)(w->scratch[PERL_AUX_NAME_COUNT / 8] >> 32);
	/* With a count, NAME is an array of several names; the first one is used. */
	return count ? perl_word(name) : name;
}

/* Reads the addresses of the name and the stash of the GV at ADDRESS into the scratch. Non-zero: it
 * is not a GV. */
KILN_INLINE int perl_read_gv(struct kiln_walk *w, uint64_t address)
{
	uint64_t body, egv;

	if (env_read(w->scratch, 24, address) ||
	    (w->scratch[1] >> 32 & PERL_SV_TYPE_MASK) != PERL_SVT_PVGV)
		return -1;
	body = w->scratch[0];
	egv = w->scratch[2] ? perl_word(w->scratch[2] + PERL_GP_EGV) : 0;
	if (egv && egv != address && !env_read(w->scratch, 16, egv) &&
	    (w->scratch[1] >> 32 & PERL_SV_TYPE_MASK) == PERL_SVT_PVGV)
		body = w->scratch[0];
	return env_read(w->scratch, 16, body + PERL_GV_NAME);
}

/* Finds the HEKs of the package and the name of a frame's function. FIRST: the frame's first word.
 * Non-zero: not found. */
KILN_INLINE int perl_name_heks(struct kiln_walk *w, uint64_t first, uint64_t *ret_package,
			       uint64_t *ret_name)
{
	uint64_t function = KILN_PERL_FUNCTION(first), stash;

	*ret_package = 0;
	*ret_name = function;
	switch (KILN_FRAME_FLAGS(first)) {
	case KILN_PERL_HEK:
		return 0;
	case KILN_PERL_CV:
		function = perl_word(function + PERL_SV_ANY);
		stash = perl_word(function + PERL_CV_STASH);
		*ret_name = perl_word(function + PERL_CV_GV);
		break;
	default:
		if (perl_read_gv(w, function))
			return -1;
		*ret_name = w->scratch[0];
		stash = w->scratch[1];
		break;
	}
	*ret_package = perl_stash_hek(w, stash);
	return !*ret_package;
}

/*
 * Sends the names of the frame with the words FIRST and SECOND, unless they were sent recently.
 * LINES: its line and, in the upper half, the line where its function begins. In: w->value is the
 * address of the file's name; 0: code of a string.
 */
KILN_GLOBAL int perl_send_text(uint32_t slot, uint64_t first, uint64_t second, uint64_t lines)
{
	struct kiln_walk *w = env_walk(slot);
	const uint64_t words[2] = {first, second};
	struct kiln_perl_text *t;
	struct kiln_text *text;
	uint64_t package, name, file;
	int r;

	if (!w)
		return 0;
	file = w->value; /* env_new_text() calls nothing that changes it */
	text = env_new_text(w, words);
	if (!text)
		return 0;
	t = (struct kiln_perl_text *)text->bytes;
	t->line = (uint32_t)lines;
	t->start = (uint32_t)(lines >> 32);
	t->utf8 = 0;
	t->file[0] = t->package[0] = t->name[0] = 0;
	if (file) {
		r = env_read_string(t->file, sizeof(t->file), file);
		if (r < 0 || r >= (int)sizeof(t->file))
			return 0;
	}
	if (KILN_FRAME_FLAGS(first) != KILN_PERL_CODE) {
		if (perl_name_heks(w, first, &package, &name))
			return 0;
		r = package ? perl_read_hek(package, t->package, sizeof(t->package)) : 0;
		if (r < 0)
			return 0;
		if (r)
			t->utf8 |= KILN_PERL_UTF8_PACKAGE;
		r = perl_read_hek(name, t->name, sizeof(t->name));
		if (r < 0)
			return 0;
		if (r)
			t->utf8 |= KILN_PERL_UTF8_NAME;
	}
	env_send_text(text);
	return 0;
}

/*
 * Emits a frame whose place is the cursor's PERL_COP. In: w->value is the function's address | enum
 * kiln_perl_frame, or enum kiln_perl_code << 3 | KILN_PERL_CODE. START: the first op of an ANON
 * sub.
 */
KILN_GLOBAL int perl_emit(uint32_t slot, uint64_t start)
{
	struct kiln_walk *w = env_walk(slot);
	uint32_t place = KILN_PERL_PLACE_NONE, kind, line = 0;
	uint64_t first, second, function;
	struct perl_cop cop = {};

	if (!w)
		return -1;
	kind = w->value & 7;
	function = w->value >> 3;
	if (kind == KILN_PERL_ANON && !perl_read_cop(w, start, &cop))
		line = cop.line;
	second = perl_place(w, kind, w->cursor.words[PERL_COP], line, &cop, &place);
	first = function | (uint64_t)place << KILN_PERL_PLACE_SHIFT;
	if (kind == KILN_PERL_CODE && place == KILN_PERL_PLACE_FILE)
		first |= perl_file_cookie(w, cop.file) << KILN_PERL_FILE_SHIFT;
	if (walk_emit(w, kind, first, second))
		return -1;
	/* (main) or (eval), without a file. */
	if (kind == KILN_PERL_CODE && !cop.file)
		return 0;
	w->value = cop.file;
	first |= (uint64_t)kind << KILN_FRAME_FLAG_SHIFT |
		 (uint64_t)KILN_FRAME_RUNTIME(w->runtime_id & 31) << KILN_FRAME_KIND_SHIFT;
	return perl_send_text(slot, first, second, cop.line | (uint64_t)line << 32);
}
