/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The data of a process that user space gives to the walker, the structures of Perl that both read,
 * and the meaning of both words of a frame (docs/unwinding/perl.md).
 */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_PERL = 5 }; /* enum kiln_runtime_id */

enum {
	KILN_PERL_CONTEXTS_MAX = 4096, /* contexts read in one sample, shown or not */
	KILN_PERL_CONTEXT_BYTES = 0x68,
	KILN_PERL_LINE_MAX = 0xfffff, /* the largest line that a frame's words can hold */
};

/* How the walker finds the interpreter's state. */
enum kiln_perl_state {
	KILN_PERL_STATE_RBX = 1, /* the loop of ops keeps it in rbx */
	KILN_PERL_STATE_GLOBAL,	 /* not threaded: variables of the program */
};

/*
 * The interpreter's variables (PL_op and so on, intrpvar.h): offsets in the interpreter's state;
 * for a Perl without threads, addresses.
 */
struct kiln_perl_variables {
	uint64_t op, curcop, curstackinfo, top_env, compiling, markstack, markstack_ptr, sortcop;
};

/* The process's data. Offsets in bytes; agent/runtime/perl/layout.c has them by version. */
struct kiln_perl {
	struct kiln_perl_variables at;
	uint64_t runops;     /* where Perl_runops_standard begins */
	uint32_t state_from; /* bytes of Perl_runops_standard before rbx is set */
	uint32_t kind;	     /* enum kiln_perl_state */
	/* PERL_CONTEXT */
	uint16_t context_size, sub_cv, oldmark;
	/* struct stackinfo */
	uint16_t stackinfo_type;
	/* op_type of a COP */
	uint16_t nextstate, dbstate;
	uint16_t sort, entersub;
	uint16_t stash_aux;    /* xpvhv_aux in a stash's body; 0: it lies behind the array */
	uint8_t defer_catches; /* the code of a defer block runs with a JMPENV of its own */
	uint8_t pad[1];
};
_Static_assert(sizeof(struct kiln_perl) <= KILN_RUNTIME_BYTES, "struct kiln_perl");

/*
 * Offsets that all versions from 5.26 to 5.44 have (x86-64 and arm64, threaded or not). Checked by
 * compiling each version's headers: docs/unwinding/perl.md.
 */
enum {
	/* struct stackinfo (cop.h) */
	PERL_SI_CXSTACK = 0x08,
	PERL_SI_PREV = 0x10,
	PERL_SI_CXIX = 0x20,
	PERL_SI_WORDS = 6,
	/* PERL_CONTEXT (cop.h) */
	PERL_CX_TYPE = 0x00,
	PERL_CX_OLDCOP = 0x10,
	PERL_CX_RETOP = 0x30, /* in contexts of SUB, FORMAT and EVAL */
	/* struct sv (sv.h) */
	PERL_SV_ANY = 0x00,
	PERL_SV_FLAGS = 0x0c,
	PERL_SV_U = 0x10,
	/* XPVCV (cv.h) */
	PERL_CV_STASH = 0x20,
	PERL_CV_START = 0x28,
	PERL_CV_ROOT = 0x30, /* the op that leaves the sub */
	PERL_CV_GV = 0x38,   /* with CVf_NAMED: the HEK of the name */
	PERL_CV_FLAGS = 0x5c,
	/* XPVGV (gv.h) */
	PERL_GV_NAME = 0x20,
	PERL_GV_STASH = 0x28,
	PERL_GP_EGV = 0x38, /* struct gp: the effective GV of the GVs that share the gp */
	/* XPVHV and, behind it or behind the array, struct xpvhv_aux (hv.h) */
	PERL_HV_MAX = 0x18,
	PERL_AUX_NAME = 0,
	PERL_AUX_NAME_COUNT = 0x1c,
	/* HEK (hv.h): u32 hash, i32 length, bytes, NUL, u8 flags */
	PERL_HEK_LENGTH = 4,
	PERL_HEK_KEY = 8,
	/* struct cop (op.h, cop.h) */
	PERL_OP_PPADDR = 0x10,
	PERL_OP_TARG = 0x18, /* the old op_type of an op that was optimized away */
	PERL_OP_TYPE = 0x20, /* u16, the low nine bits */
	PERL_COP_LINE = 0x24,
	PERL_COP_FILE = 0x30, /* a C string; not threaded: a GV named "_<file" */
	PERL_COP_SEQ = 0x3c,
	/* struct jmpenv (cop.h) */
	PERL_JMPENV_PREV = 0,
};

enum {
	PERL_OP_TYPE_MASK = 0x1ff,
	PERL_SV_TYPE_MASK = 0xff,
	PERL_SVT_PVGV = 9,
	PERL_SVT_PVHV = 12,
	PERL_SVT_PVCV = 13,
	PERL_SVT_PVFM = 14, /* a format's CV */
	PERL_HV_HAS_AUX = 0x02000000,
	PERL_HEK_UTF8 = 1,
	PERL_CVF_ISXSUB = 0x8,
	PERL_CVF_ANON = 0x80,
	PERL_CVF_NAMED = 0x8000,
	PERL_CVF_LEXICAL = 0x10000,
	/* cx_type: the kind, and flags of SUB and EVAL */
	PERL_CXT_MASK = 0xf,
	PERL_CXT_NULL = 0,
	PERL_CXT_SUB = 9,
	PERL_CXT_FORMAT = 10,
	PERL_CXT_EVAL = 11,
	PERL_CXT_SUBST = 12,
	PERL_CXT_DEFER = 13,
	PERL_CXP_SUB_RE = 0x40,	     /* SUB: code in a regular expression */
	PERL_CXP_SUB_RE_FAKE = 0x80, /* SUB: such code, as a part of the sub with the expression */
	PERL_CXP_REAL = 0x20,	     /* EVAL: eval of a string */
	PERL_CXP_EVALBLOCK = 0x40,   /* EVAL: eval {} */
	PERL_CXP_TRY = 0x80,	     /* EVAL: try {} */
	/* si_type */
	PERL_SI_MAIN = 1,
	PERL_SI_SORT = 3,
	PERL_SI_MULTICALL = 10,
};

/* The kind of a frame (the flags of its first word): which function, and what identifies it. */
enum kiln_perl_frame {
	KILN_PERL_GV,	  /* a sub: its GV */
	KILN_PERL_CV,	  /* a sub of a package that has no GV: its CV */
	KILN_PERL_HEK,	  /* a lexical sub: the HEK of its name */
	KILN_PERL_ANON,	  /* a sub without name: the GV of its package's __ANON__ */
	KILN_PERL_FORMAT, /* a format: its GV */
	KILN_PERL_CODE,	  /* code outside of subs: enum kiln_perl_code */
};

enum kiln_perl_code {
	KILN_PERL_MAIN,	   /* the program's file */
	KILN_PERL_REQUIRE, /* a file loaded by require, use or do */
	KILN_PERL_EVAL,	   /* a string */
};

/* How a frame's words tell the place in the function. */
enum kiln_perl_place {
	KILN_PERL_PLACE_NONE,
	KILN_PERL_PLACE_COP,  /* the statement's COP and a cookie */
	KILN_PERL_PLACE_EVAL, /* a line of a string, whose COP will be freed soon */
	KILN_PERL_PLACE_FILE, /* a file's name (as in a COP) and a line of it */
};

/*
 * First word: bits 43..0 the function's address / 8 or enum kiln_perl_code, 45..44 enum
 * kiln_perl_place, 53..46 the cookie's low byte. Second word:
 *   COP    bits 63..20 the COP's address / 8, 19..0 more of the cookie; of ANON 19..8 how many
 *          lines before the COP's line the sub begins (0xfff: not known), 7..0 more of the cookie
 *   EVAL   bits 63..20 the line, 19..0 of ANON the line where the sub begins
 *   FILE   bits 63..20 the address of the file's name / 8, 19..0 the line; of CODE, bits 43..4 of
 *          the first word are kiln_perl_file_cookie()
 */
enum {
	KILN_PERL_PLACE_SHIFT = 44,
	KILN_PERL_COOKIE_SHIFT = 46,
	KILN_PERL_AT_SHIFT = 20,
	KILN_PERL_BEFORE_SHIFT = 8,
	KILN_PERL_BEFORE_UNKNOWN = 0xfff,
	KILN_PERL_FILE_SHIFT = 4,
	KILN_PERL_NAME_WORDS = 16, /* words of a file's name that its cookie is made of */
};
#define KILN_PERL_FUNCTION(word) (((word) & ((1ULL << KILN_PERL_PLACE_SHIFT) - 1)) << 3)
#define KILN_PERL_PLACE(word)	 ((uint32_t)((word) >> KILN_PERL_PLACE_SHIFT) & 3)
#define KILN_PERL_AT(word)	 ((word) >> KILN_PERL_AT_SHIFT)
#define KILN_PERL_LOW(word)	 ((uint32_t)(word) & ((1U << KILN_PERL_AT_SHIFT) - 1))

/* The names of a frame that the walker sends in a struct kiln_text. Strings end with a NUL. If one
 * of them does not fit, no text is sent. */
struct kiln_perl_text {
	uint32_t line, start; /* 0: not known */
	uint32_t utf8;	      /* enum kiln_perl_utf8 */
	uint32_t pad;
	char file[152];
	char package[64]; /* "": lexical subs, and code outside of subs */
	char name[64];
};
_Static_assert(sizeof(struct kiln_perl_text) <= KILN_TEXT_BYTES, "struct kiln_perl_text");

enum kiln_perl_utf8 { KILN_PERL_UTF8_PACKAGE = 1, KILN_PERL_UTF8_NAME = 2 }; /* else Latin-1 */

/* How many words of a COP are read, and from which offset on. */
enum { PERL_COP_WORDS = 5, PERL_COP_FROM = PERL_OP_TARG };

struct perl_cop {
	uint32_t type, line, seq;
	uint64_t file;
};

static inline __attribute__((always_inline)) struct perl_cop perl_cop_of(const uint64_t *words)
{
	struct perl_cop cop = {
	    .type = (uint32_t)words[(PERL_OP_TYPE - PERL_COP_FROM) / 8] & PERL_OP_TYPE_MASK,
	    .line = (uint32_t)(words[(PERL_COP_LINE - PERL_COP_FROM) / 8] >> 32),
	    .seq = (uint32_t)(words[(PERL_COP_SEQ - PERL_COP_FROM) / 8] >> 32),
	    .file = words[(PERL_COP_FILE - PERL_COP_FROM) / 8],
	};

	/* OP_NULL: code of a regular expression begins with a statement that is not executed. */
	if (!cop.type)
		cop.type = (uint32_t)words[0];
	return cop;
}

/*
 * Tells a COP from another that is later at the same address: cop_seq grows with everything that is
 * compiled.
 */
static inline __attribute__((always_inline)) uint32_t kiln_perl_cookie(uint32_t seq, uint32_t line,
								       uint64_t file)
{
	uint64_t h = (file ^ ((uint64_t)seq << 32 | line)) * 0x9e3779b97f4a7c15ULL;

	h ^= h >> 29;
	return (uint32_t)((h * 0xbf58476d1ce4e5b9ULL) >> 32);
}

/* A hash of a file's name, of 40 bits. WORDS: the first KILN_PERL_NAME_WORDS words of the name,
 * with zeros behind its end. */
static inline __attribute__((always_inline)) uint64_t kiln_perl_file_cookie(const uint64_t *words)
{
	uint64_t h = 0;

	for (uint32_t i = 0; i < KILN_PERL_NAME_WORDS; i++) {
		h = (h ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 29;
	}
	return h >> 24;
}
