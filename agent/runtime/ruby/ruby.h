/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ruby (CRuby), as one of the runtimes of agent/runtime/runtime.h. Declares what the parts share:
 * the data found in a file, the layouts of the versions' structures, and the readers of Ruby's
 * objects.
 */
#pragma once

#include "agent/runtime/ruby/walker_data.h"
#include "agent/runtime/runtime.h"
#include "agent/runtime/thread_variable.h"
#include "lib/cursor.h"

enum {
	RUBY_VERSION_MIN = 205, /* major * 100 + minor */
	RUBY_VERSION_MAX = 400,
	RUBY_VERSION_JIT = 301, /* the first with YJIT */
	RUBY_SYMBOLS_MAX = 16,
	RUBY_NAME_MAX = 1024, /* bytes of a name or path; the rest is cut off */
};

/* The code of the interpreter's loop and its caller; ELF virtual addresses. */
struct ruby_code {
	struct runtime_range loop;	 /* vm_exec_core() */
	struct runtime_range exec, cold; /* rb_vm_exec(); 0 if it is the same function */
	uint32_t prologue;		 /* bytes of the loop before the first handler */
	uint32_t returns;		 /* offset of the loop's return; 0: not known, or several */
	uint32_t place;			 /* enum kiln_ruby_place */
	int32_t place_offset;
};

/* Data found in a file; ELF virtual addresses, 0: not there. */
struct ruby_image {
	struct runtime_image base;
	unsigned int version; /* major * 100 + minor */
	struct ruby_code code;
	struct thread_variable current;	    /* ruby_current_ec (3.0 on) */
	uint64_t global;		    /* ruby_current_execution_context_ptr (2.x) */
	uint64_t symbols[RUBY_SYMBOLS_MAX]; /* one of them is ruby_global_symbols */
	size_t n_symbols;
};

int ruby_probe(const struct image *image, struct runtime_image **ret,
	       struct error *err) _must_check_;
void ruby_forget(struct runtime_image *ri);

/*
 * Finds the interpreter's loop and its caller. In: CODE has the ranges that symbols tell, and 0 for
 * the others. -ENOTSUP: no code looks like Ruby's loop.
 */
int ruby_find_code(const struct image *image, struct ruby_code *code,
		   struct error *err) _must_check_;

/* Offsets in bytes; 0 where a version has none. */
struct ruby_layout {
	unsigned int from;	/* the first version */
	uint8_t frame_size;	/* rb_control_frame_t */
	uint8_t context_thread; /* rb_execution_context_t.thread_ptr */
	uint16_t thread_id;	/* rb_thread_t.thread_id (2.x) */
	uint8_t line_size;	/* sizeof(iseq_insn_info_entry) */
	uint8_t line_at;	/* .line_no; up to 2.5 there is .position before it */
	/* rb_iseq_constant_body.insns_info */
	uint16_t lines, lines_size, lines_index;
	uint16_t parent, local;	 /* .parent_iseq, .local_iseq */
	uint8_t string_embedded; /* RString.as.embed; before 3.2 the length is in the flags */
	uint8_t class_extension; /* behind struct RClass; 0: the class has a pointer to it at 24 */
	uint8_t class_path;	 /* rb_classext_t.classpath; 0: it is an instance variable */
};

/* The layout of VERSION, from RUBY_VERSION_MIN to RUBY_VERSION_MAX. */
const struct ruby_layout *ruby_layout_of(unsigned int version);

/* A process with the interpreter in it. */
struct ruby_process {
	const struct ruby_image *image;
	const struct ruby_layout *layout;
	uint64_t bias;
	uint64_t symbols;	  /* ruby_global_symbols; 0: not found yet */
	uint64_t classpath;	  /* the ID of __classpath__; 0: not found yet */
	struct ruby_texts *texts; /* owned; NULL: the walker has sent none yet */
};

/* Arguments of the functions that read a process's objects. */
struct ruby_look {
	struct ruby_process *process;
	const struct target_memory *memory;
};

/* The unused part of the caller's scratch. */
struct ruby_text {
	char *at;
	size_t left;
};

/* ---- object.c: Ruby's objects ---------------------------------------------------------------- */

enum ruby_type {
	RUBY_T_CLASS = 2,
	RUBY_T_MODULE = 3,
	RUBY_T_STRING = 5,
	RUBY_T_ARRAY = 7,
	RUBY_T_DATA = 12,
	RUBY_T_IMEMO = 0x1a,
};

uint64_t ruby_read_word(const struct ruby_look *look, uint64_t address); /* 0 if unreadable */
/* The enum ruby_type of the object at ADDRESS; 0: it is not an object, or cannot be read. */
unsigned int ruby_type_of(const struct ruby_look *look, uint64_t address);
/* Reads the String at ADDRESS into TEXT, with a NUL. -EFAULT: it is not a String. */
int ruby_read_string(const struct ruby_look *look, uint64_t address, struct ruby_text *text,
		     const char **ret) _must_check_;
/* Element INDEX of the Array at ADDRESS; 0: there is none. */
uint64_t ruby_array_element(const struct ruby_look *look, uint64_t address, uint64_t index);

/* ---- symbols.c: the name of an ID ------------------------------------------------------------ */
int ruby_read_id(const struct ruby_look *look, uint64_t id, struct ruby_text *text,
		 const char **ret) _must_check_;

/* ---- classes.c ------------------------------------------------------------------------------- */
/* The name of the class or module OWNER. *RET_BETWEEN: the character between that name and a
 * method's. -ENOENT: OWNER has no name. */
int ruby_read_owner(const struct ruby_look *look, uint64_t owner, struct ruby_text *text,
		    const char **ret, char *ret_between) _must_check_;

/* ---- lines.c --------------------------------------------------------------------------------- */
/* The line tables of an instruction sequence. The caller of ruby_read_lines() frees BYTES. */
struct ruby_lines {
	void *bytes;
	size_t size;
	uint32_t n; /* stretches of instructions */
};
/* Reads those of the sequence with the body BODY, which has INSTRUCTIONS words of instructions. */
int ruby_read_lines(const struct ruby_look *look, uint64_t body, uint32_t instructions,
		    struct ruby_lines *ret) _must_check_;
/* The line of instruction INDEX; 0: it has none. BYTES may have any content. */
uint32_t ruby_line(const struct ruby_layout *l, const void *bytes, size_t size, uint32_t n,
		   uint32_t index);

/* ---- text.c: what the walker has sent of evaluated code ----------------------------------------
 */
/* Stores TEXT for ruby_find_text(). Always returns a negative number: the caller then looks for the
 * name in the process's memory first. */
int ruby_read_text(void *state, const struct kiln_text *text, char *scratch, size_t scratch_size,
		   struct symbol_result *ret);
/* The text of the frame WORDS; NULL: the walker has sent none, or newer texts have replaced it. */
const struct kiln_ruby_text *ruby_find_text(const struct ruby_process *p, const uint64_t words[2]);

/* ---- names.c --------------------------------------------------------------------------------- */
int ruby_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		   char *scratch, size_t scratch_size, struct symbol_result *ret);

extern const struct interpreter_ops ruby_ops;
