/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A part of walker.h: finds the place of a frame by the COP of its statement.
 */
#pragma once

#include "agent/runtime/perl/walker_stack.h"

/* The address of the file name of a COP. FILE: the COP's member, which is that address or, not
 * threaded, a GV named "_<file". */
KILN_INLINE uint64_t perl_file_name(const struct kiln_perl *p, uint64_t file)
{
	if (p->kind != KILN_PERL_STATE_GLOBAL || !file)
		return file;
	return perl_word(perl_word(file + PERL_SV_ANY) + PERL_GV_NAME) + PERL_HEK_KEY + 2;
}

/* Is the file name at NAME that of a string, such as "(eval 12)"? */
KILN_INLINE int perl_is_eval(uint64_t name)
{
	return (perl_word(name) & 0xffffffffffff) == 0x206c61766528; /* "(eval " */
}

/* kiln_perl_file_cookie() of the name at ADDRESS; 0: it cannot be read. */
KILN_INLINE uint64_t perl_file_cookie(struct kiln_walk *w, uint64_t address)
{
	for (uint32_t i = 0; i < KILN_PERL_NAME_WORDS; i++)
		w->scratch[i & 15] = 0;
	if (env_read_string(w->scratch, KILN_PERL_NAME_WORDS * 8, address) < 0)
		return 0;
	return kiln_perl_file_cookie(w->scratch);
}

/* Reads COP into RET. Non-zero: COP is not a statement. */
KILN_INLINE int perl_read_cop(struct kiln_walk *w, uint64_t cop, struct perl_cop *ret)
{
	const struct kiln_perl *p = perl_data(w);

	if (!cop || env_read(w->scratch, PERL_COP_WORDS * 8, cop + PERL_COP_FROM))
		return -1;
	*ret = perl_cop_of(w->scratch);
	return ret->type != p->nextstate && ret->type != p->dbstate;
}

/*
 * Returns the second word of a frame of KIND at the COP AT. *RET_PLACE: the enum kiln_perl_place
 * and, above it, the byte of the cookie, which both go into the first word. *RET: the COP's
 * members. START: for ANON, the line where the sub begins.
 */
KILN_INLINE uint64_t perl_place(struct kiln_walk *w, uint32_t kind, uint64_t at, uint32_t start,
				struct perl_cop *ret, uint32_t *ret_place)
{
	const struct kiln_perl *p = perl_data(w);
	/* While code is compiled, AT is PL_compiling, which has a place but is not an op. */
	int compiling = at == perl_base(w) + p->at.compiling;
	struct perl_cop cop = {};
	uint32_t cookie, before;

	*ret = cop;
	if (perl_read_cop(w, at, &cop) && !compiling)
		return 0;
	*ret = cop;
	ret->file = perl_file_name(p, cop.file);
	if (perl_is_eval(ret->file)) {
		ret->file = 0;
		*ret_place = KILN_PERL_PLACE_EVAL;
		return (uint64_t)cop.line << KILN_PERL_AT_SHIFT |
		       (start <= KILN_PERL_LINE_MAX ? start : 0);
	}
	if (compiling) {
		*ret_place = KILN_PERL_PLACE_FILE;
		return cop.file >> 3 << KILN_PERL_AT_SHIFT |
		       (cop.line <= KILN_PERL_LINE_MAX ? cop.line : 0);
	}
	cookie = kiln_perl_cookie(cop.seq, cop.line, cop.file);
	*ret_place = KILN_PERL_PLACE_COP | cookie >> 24 << 2;
	at = at >> 3 << KILN_PERL_AT_SHIFT;
	if (kind != KILN_PERL_ANON)
		return at | (cookie & KILN_PERL_LINE_MAX);
	before = cop.line - start;
	if (!start || before > KILN_PERL_BEFORE_UNKNOWN)
		before = KILN_PERL_BEFORE_UNKNOWN;
	return at | before << KILN_PERL_BEFORE_SHIFT | (cookie & 0xff);
}
