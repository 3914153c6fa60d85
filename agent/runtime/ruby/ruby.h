/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ruby (CRuby), as one of the runtimes of agent/runtime/runtime.h. What the parts share: what a
 * file tells, the layout of a version's structures, and the readers of Ruby's objects.
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

/* Where the code is, by ELF virtual addresses. */
struct ruby_code {
	struct runtime_range loop;	 /* vm_exec_core() */
	struct runtime_range exec, cold; /* rb_vm_exec(); the same as the loop: 0 */
	uint32_t prologue;		 /* bytes before the code of the first instruction */
	uint32_t returns;		 /* offset of its return; 0: not known, or several */
	uint32_t place;			 /* enum kiln_ruby_place */
	int32_t place_offset;
};

/* What a file has; addresses are ELF virtual ones, 0: not there. */
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
 * The interpreter's loop and its caller. What is not 0 in CODE is known by symbols. -ENOTSUP: there
 * is none that looks like Ruby's.
 */
int ruby_find_code(const struct image *image, struct ruby_code *code,
		   struct error *err) _must_check_;

/* Offsets in bytes; 0 where a version has none. */
struct ruby_layout {
	unsigned int from;	/* the first version */
	uint8_t frame_size;	/* rb_control_frame_t */
	uint8_t context_thread; /* rb_execution_context_t.thread_ptr */
	uint16_t thread_id;	/* rb_thread_t.thread_id (2.x) */
	uint8_t line_size;	/* of iseq_insn_info_entry */
	uint8_t line_at;	/* .line_no; before it there is .position, up to 2.5 */
	/* rb_iseq_constant_body.insns_info */
	uint16_t lines, lines_size, lines_index;
	uint16_t parent, local;	 /* .parent_iseq, .local_iseq */
	uint8_t string_embedded; /* RString.as.embed; before 3.2 the flags have the length */
	uint8_t class_extension; /* behind struct RClass; 0: a pointer to it at 24 */
	uint8_t class_path;	 /* rb_classext_t.classpath; 0: an instance variable */
};

/* Of VERSION, from RUBY_VERSION_MIN to RUBY_VERSION_MAX. */
const struct ruby_layout *ruby_layout_of(unsigned int version);

/* A process with the interpreter in it. */
struct ruby_process {
	const struct ruby_image *image;
	const struct ruby_layout *layout;
	uint64_t bias;
	uint64_t symbols;	  /* ruby_global_symbols; 0: not found yet */
	uint64_t classpath;	  /* the ID of __classpath__; 0: not met yet */
	struct ruby_texts *texts; /* owned; NULL: none came yet */
};

/* One look at a process. */
struct ruby_look {
	struct ruby_process *process;
	const struct target_memory *memory;
};

/* What is left of the caller's scratch. */
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

uint64_t ruby_read_word(const struct ruby_look *look, uint64_t address); /* 0: unreadable, too */
/* Of the object at ADDRESS; 0: it is none that can be read. */
unsigned int ruby_type_of(const struct ruby_look *look, uint64_t address);
/* The String at ADDRESS with a NUL, in TEXT. -EFAULT: it is none. */
int ruby_read_string(const struct ruby_look *look, uint64_t address, struct ruby_text *text,
		     const char **ret) _must_check_;
/* Element INDEX of the Array at ADDRESS; 0: there is none. */
uint64_t ruby_array_element(const struct ruby_look *look, uint64_t address, uint64_t index);

/* ---- symbols.c: the name of an ID ------------------------------------------------------------ */
int ruby_read_id(const struct ruby_look *look, uint64_t id, struct ruby_text *text,
		 const char **ret) _must_check_;

/* ---- classes.c ------------------------------------------------------------------------------- */
/* The name of class or module OWNER and what stands between it and a method's. -ENOENT: it has
 * none. */
int ruby_read_owner(const struct ruby_look *look, uint64_t owner, struct ruby_text *text,
		    const char **ret, char *ret_between) _must_check_;

/* ---- lines.c --------------------------------------------------------------------------------- */
/* The tables of lines of an instruction sequence; BYTES belong to whoever has read them. */
struct ruby_lines {
	void *bytes;
	size_t size;
	uint32_t n; /* stretches of instructions */
};
/* Of the sequence whose body is BODY and that has INSTRUCTIONS words. */
int ruby_read_lines(const struct ruby_look *look, uint64_t body, uint32_t instructions,
		    struct ruby_lines *ret) _must_check_;
/* The line of instruction INDEX; 0: it has none. Any bytes will do. */
uint32_t ruby_line(const struct ruby_layout *l, const void *bytes, size_t size, uint32_t n,
		   uint32_t index);

/* ---- text.c: what the walker has sent of evaluated code ----------------------------------------
 */
/* Keeps TEXT for ruby_find_text(); negative always: names are read from memory first. */
int ruby_read_text(void *state, const struct kiln_text *text, char *scratch, size_t scratch_size,
		   struct symbol_result *ret);
/* The text of the frame WORDS; NULL: none came, or it was long ago. */
const struct kiln_ruby_text *ruby_find_text(const struct ruby_process *p, const uint64_t words[2]);

/* ---- names.c --------------------------------------------------------------------------------- */
int ruby_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		   char *scratch, size_t scratch_size, struct symbol_result *ret);

extern const struct interpreter_ops ruby_ops;
