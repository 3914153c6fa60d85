/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Perl 5, as one of the runtimes of agent/runtime/runtime.h. Declares what the parts share: the
 * layouts of the versions' structures, the data found in the interpreter's file, and the readers of
 * Perl's objects.
 */
#pragma once

#include "agent/runtime/perl/walker_data.h"
#include "agent/runtime/runtime.h"

enum {
	PERL_MINOR_MIN = 26,
	PERL_MINOR_MAX = 44,
	PERL_NAME_MAX = 512,  /* bytes of a name or a package in the process; the rest is cut off */
	PERL_PATH_MAX = 1024, /* bytes of a file's name */
};

/* Offsets, in bytes, that differ between Perl versions. walker_data.h has those that are the same
 * in all of them. */
struct perl_layout {
	unsigned int minor; /* the first minor version that has this layout */
	struct kiln_perl_variables at;
	/* PERL_CONTEXT and struct stackinfo (cop.h) */
	uint16_t context_size, sub_cv, oldmark, stackinfo_type;
	/* enum opcode (opnames.h) */
	uint16_t nextstate, dbstate, sort, entersub;
	/* Offset of struct xpvhv_aux in an HV's body (hv.h); 0: it lies behind the array. */
	uint16_t stash_aux;
	bool defer_catches; /* _invoke_defer_block() of pp_ctl.c has a JMPENV */
};

/* The layout of Perl 5.MINOR; NULL if that version is not supported. */
const struct perl_layout *perl_layout_of(unsigned int minor);

/* Data found in a file; ELF virtual addresses, 0: not there. */
struct perl_image {
	struct runtime_image base;
	unsigned int minor;
	uint64_t runops; /* Perl_runops_standard */
	uint32_t state_from;
	bool threaded;
	struct kiln_perl_variables at; /* not threaded */
};

int perl_probe(const struct image *image, struct runtime_image **ret,
	       struct error *err) _must_check_;
void perl_forget(struct runtime_image *ri);

/* A process with the interpreter in it. */
struct perl_process {
	const struct perl_layout *layout;
	bool threaded;
};

extern const struct interpreter_ops perl_ops;

int perl_attach(const struct runtime_image *ri, struct runtime_target *target,
		struct kiln_runtime *ret_kernel, void **ret_state, struct error *err) _must_check_;
int perl_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		   char *scratch, size_t scratch_size, struct symbol_result *ret);
int perl_read_text(void *state, const struct kiln_text *text, char *scratch, size_t scratch_size,
		   struct symbol_result *ret);
void perl_detach(void *state);

/* ---- texts -------------------------------------------------------------------------------------
 */

/* A buffer for UTF-8 strings, each with a NUL. A string that does not fit is cut off. */
struct perl_text {
	char *at;
	size_t left;
};

/* Appends S to the string that is being written at the end of T. */
void perl_text_add(struct perl_text *t, const char *s);
/* The same for LEN bytes of UTF-8 or, without UTF8, of Latin-1. */
void perl_text_bytes(struct perl_text *t, const uint8_t *bytes, size_t len, bool utf8);
/* Ends the string that began at START, the t->at of that time, and returns it. */
const char *perl_text_end(struct perl_text *t, char *start);

/* The head of an SV, without its body and its reference count. */
struct perl_sv {
	uint32_t flags;
	uint64_t u; /* sv_u */
};
/* Reads the SV at ADDRESS; *RET_BODY: its sv_any. -EFAULT: it is not of TYPE. RET may be NULL. */
int perl_read_sv(const struct target_memory *m, uint64_t address, uint32_t type, uint64_t *ret_body,
		 struct perl_sv *ret);

/* Reads the string of the HEK at ADDRESS into T; *RET points to it there. */
int perl_hek(const struct target_memory *m, uint64_t address, struct perl_text *t,
	     const char **ret);
/* The same for the name of the package whose stash is at ADDRESS. */
int perl_stash_name(const struct perl_layout *l, const struct target_memory *m, uint64_t address,
		    struct perl_text *t, const char **ret);
/* The same for the names of the GV at ADDRESS and of its package. */
int perl_gv_name(const struct perl_layout *l, const struct target_memory *m, uint64_t address,
		 struct perl_text *t, const char **ret_package, const char **ret);
/* The address of the name of the file whose GV ("_<file") is at ADDRESS. */
int perl_gv_file(const struct target_memory *m, uint64_t address, uint64_t *ret);
/* Appends the C string at ADDRESS to T. *RET_COOKIE: its kiln_perl_file_cookie(). */
int perl_c_string(const struct target_memory *m, uint64_t address, struct perl_text *t,
		  uint64_t *ret_cookie);

static inline int perl_read_word(const struct target_memory *m, uint64_t address, uint64_t *ret)
{
	return target_read(m, address, ret, sizeof(*ret));
}
