/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HotSpot, the Java virtual machine (JVM) of OpenJDK, as one of the runtimes of
 * agent/runtime/runtime.h. This header has what the files of this folder share.
 *
 * `libjvm.so` exports tables for debuggers (gHotSpotVMStructs and others,
 * src/hotspot/share/runtime/vmStructs.cpp): the offset of each field of a type, the address of each
 * static field, the size of each type. All that differs between versions is read from these tables,
 * in the process: in the file they lack what static constructors fill in.
 */
#pragma once

#include "agent/runtime/hotspot/walker_data.h"
#include "agent/elf/unwind.h"
#include "agent/runtime/runtime.h"
#include "lib/cursor.h"

/* ---- the JVM's tables (layout.c) --------------------------------------------------------------
 */

#define HOTSPOT_NO_FIELD (-1)

/* Offsets and sizes in bytes; HOTSPOT_NO_FIELD: the version has no such field. Members of 64 bits
 * are static fields: their addresses in the process, 0: there is none. The table in layout.c says
 * which versions have a field. */
struct hotspot_layout {
	/* CodeCache, CodeHeap, VirtualSpace, HeapBlock */
	uint64_t heap, heaps; /* static: one CodeHeap (8), or a list of them */
	int32_t heap_memory, heap_segmap, heap_log2_segment;
	int32_t space_low, space_low_boundary, space_high_boundary;
	int32_t array_len, array_data;
	int32_t block_size;
	/* CodeBlob */
	int32_t blob_name, blob_frame_size, blob_complete, blob_size;
	int32_t blob_code_begin, blob_code_offset;
	int32_t blob_mutable_data, blob_relocation_size;
	/* nmethod, CompiledMethod (9 to 22) */
	int32_t nmethod_size, nmethod_id, nmethod_stub, nmethod_orig_pc, nmethod_method;
	int32_t nmethod_pcs, nmethod_pcs_end, nmethod_scopes, nmethod_scopes_begin;
	int32_t nmethod_metadata, nmethod_immutable;
	int32_t nmethod_deopt_begin, nmethod_deopt_mh_begin, nmethod_deopt, nmethod_deopt_mh;
	int32_t compiled_method_method;
	int32_t pcdesc_pc, pcdesc_scope, pcdesc_size;
	/* Method, ConstMethod, ConstantPool, InstanceKlass, Klass, Symbol */
	int32_t method_const;
	int32_t const_pool, const_words, const_flags, const_code_size, const_name, const_size;
	int32_t pool_holder, pool_file, pool_size;
	int32_t klass_name, klass_file;
	int32_t symbol_length, symbol_body, symbol_identity, symbol_hash;
	/* AbstractInterpreter, StubQueue, InterpreterCodelet */
	uint64_t interpreter;
	int32_t queue_buffer, queue_begin, queue_end;
	int32_t codelet_size, codelet_description, codelet_bytecode, codelet_header;
	/* PerfMemory */
	uint64_t perf_start, perf_top;
	/* constants */
	int32_t has_lines;
	/* Abstract_VM_Version */
	uint64_t release, major;
	/* JVMFlag (Flag in 8) */
	uint64_t flags, n_flags;
	int32_t flag_name, flag_address, flag_size;
	uint8_t describes_all; /* -XX:+DebugNonSafepoints */
	/* Threads, JavaThread (to 16); ThreadsSMRSupport, ThreadsList (17 on); Thread, OSThread */
	uint64_t threads_first, threads_list;
	int32_t thread_next, list_length, list_threads;
	int32_t thread_object, thread_os, os_thread_id;
	/* CompressedOops (Universe in 8 to 12) */
	uint64_t oop_base, oop_shift;
	uint8_t narrow_oops; /* -XX:+UseCompressedOops */
};

/* The variables of libjvm.so that lead to the tables. */
enum hotspot_symbol {
	HOTSPOT_STRUCTS,
	HOTSPOT_STRUCT_TYPE,
	HOTSPOT_STRUCT_FIELD,
	HOTSPOT_STRUCT_STATIC,
	HOTSPOT_STRUCT_OFFSET,
	HOTSPOT_STRUCT_ADDRESS,
	HOTSPOT_STRUCT_STRIDE,
	HOTSPOT_TYPES,
	HOTSPOT_TYPE_NAME,
	HOTSPOT_TYPE_SIZE,
	HOTSPOT_TYPE_STRIDE,
	HOTSPOT_INTS,
	HOTSPOT_INT_NAME,
	HOTSPOT_INT_VALUE,
	HOTSPOT_INT_STRIDE,
	HOTSPOT_SYMBOLS
};

struct hotspot_image {
	struct runtime_image base;
	uint64_t symbols[HOTSPOT_SYMBOLS];
	uint64_t descs;			   /* StubCodeDesc::_list; 0: its symbol was stripped */
	uint64_t variables, variables_end; /* the writable segment: [variables, variables_end) */
};

int hotspot_probe(const struct image *image, struct runtime_image **ret,
		  struct error *err) _must_check_;
void hotspot_forget(struct runtime_image *ri);

/*
 * Reads the tables of a process, whose libjvm.so lies at BIAS. -EAGAIN: they are not filled in yet.
 * -ENOTSUP and ERR: they lack something that the walk needs.
 */
int hotspot_layout_read(const struct hotspot_image *image, uint64_t bias,
			const struct target_memory *memory, struct hotspot_layout *ret,
			struct error *err) _must_check_;
/*
 * Checks the sizes in L, and the fields that depend on the version: of each alternative one must be
 * there. -ENOTSUP and ERR. Called by hotspot_layout_read().
 */
int hotspot_layout_check(const struct hotspot_layout *l, struct error *err) _must_check_;

/* ---- the JVM's own code (stubs.c) -------------------------------------------------------------
 */

enum { HOTSPOT_PIECES = 16384 };

enum hotspot_piece_kind {
	HOTSPOT_PIECE_STUB,    /* a stub: one of many in a blob */
	HOTSPOT_PIECE_BLOB,    /* a stub that is a blob of its own */
	HOTSPOT_PIECE_DEOPT,   /* such a blob that takes frames off the stack and builds others */
	HOTSPOT_PIECE_CODELET, /* a codelet of the interpreter */
};

/* Code [start, end) at addresses of the process. */
struct hotspot_piece {
	uint64_t start, end;
	uint64_t group, name; /* addresses of these texts in the process; 0: there is none */
	uint16_t frame;	      /* of blobs: words of the frame; 0: not known */
	int16_t bytecode;     /* of codelets; negative: none */
	uint8_t kind;	      /* enum hotspot_piece_kind */
};

struct hotspot_pieces {
	struct hotspot_piece *v; /* ascending, without overlaps */
	size_t n, cap;
	uint64_t interpreter, interpreter_end; /* code of the interpreter's blob; 0: not made yet */
	uint64_t barrier; /* StubRoutines::cont_returnBarrier (20 on); 0: there is none */
};

struct hotspot_process;
/* Finds the pieces that the process has at this moment. The caller releases RET. */
int hotspot_pieces_find(struct hotspot_process *p, const struct target_memory *memory,
			struct hotspot_pieces *ret) _must_check_;
void hotspot_pieces_done(struct hotspot_pieces *v);
/* The piece that holds PC, or NULL. */
const struct hotspot_piece *hotspot_piece_at(const struct hotspot_pieces *v, uint64_t pc);

/* Makes unwind rules for all of PIECES, from their instructions (static_code.c). */
int hotspot_static_table(const struct hotspot_process *p, const struct target_memory *memory,
			 const struct hotspot_pieces *pieces,
			 struct unwind_table **ret) _must_check_;

/* ---- threads (threads.c) ----------------------------------------------------------------------
 */

enum { HOTSPOT_THREAD_NAME_MAX = 200 /* characters; what is longer is not read */ };

struct hotspot_thread {
	uint64_t thread; /* JavaThread */
	uint32_t id;	 /* in the process's pid namespace */
};

/* Where an array has its length and its elements: offsets in bytes. */
struct hotspot_array_layout {
	uint8_t length, data;
	uint8_t unit; /* bytes of an element; 0: not known yet */
};

struct hotspot_threads {
	struct hotspot_thread *v; /* sorted by id */
	size_t n, cap;
	/* When the list may be read again, and the wait until then. */
	uint64_t list_ms, list_wait_ms;
	/* How references are stored in objects. */
	uint64_t oop_base;
	uint32_t oop_shift;
	bool narrow;
	/* Offsets that were learned: of the name in a java.lang.Thread, and of the characters in a
	 * String. name_at 0: not learned yet. */
	uint16_t name_at, value_at;
	struct hotspot_array_layout array;
	uint32_t tries;
};

/* As thread_name() of struct interpreter_ops. */
int hotspot_thread_name(void *state, const struct target_memory *memory, uint32_t tid,
			const char *comm, bool inherited, char *ret, size_t size) _must_check_;
void hotspot_threads_done(struct hotspot_threads *t);

/* ---- a process --------------------------------------------------------------------------------
 */

struct hotspot_process {
	uint32_t refs; /* attachments */
	struct hotspot_layout layout;
	struct kiln_hotspot kernel;
	uint32_t numbers_exclude_zero; /* 1 from 20 on: see hotspot_read_number() */
	uint64_t bias;
	uint64_t variables, variables_end; /* of libjvm.so */
	/* Address of the head of the list of StubCodeDesc; 0: not found. */
	uint64_t descs;
	struct hotspot_pieces pieces;
	bool wants_pieces; /* code was sampled that is in no piece: find them again */
	bool descs_searched;
	struct hotspot_threads threads;
};

int hotspot_attach(const struct runtime_image *ri, struct runtime_target *target,
		   struct kiln_runtime *ret_kernel, void **ret_state,
		   struct error *err) _must_check_;
void hotspot_detach(void *state);
/* Finds the JVM's counters that the walker reads. While it starts, a JVM may lack some: call again
 * later. */
void hotspot_find_counters(struct hotspot_process *p, const struct target_memory *memory);
void hotspot_tell_kernel(const struct hotspot_process *p, struct kiln_runtime *ret);

/* ---- texts (text.c) ---------------------------------------------------------------------------
 */

/* A buffer that texts are put into, one behind the other. A text that does not fit is cut. */
struct hotspot_text {
	char *at;
	size_t left; /* at least 1, for the NUL */
};

void hotspot_text_put(struct hotspot_text *t, const void *bytes, size_t n);
/* Appends N bytes of modified UTF-8 as UTF-8. A byte that is not valid becomes '?'; in a class's
 * name slashes become dots. */
void hotspot_text_put_name(struct hotspot_text *t, const uint8_t *s, size_t n, bool is_class);
/* Puts a NUL behind the text that began at START, which is returned. */
const char *hotspot_text_end(struct hotspot_text *t, const char *start);
/* Returns how many of the N bytes of a class's name are shown. Not shown are the address behind the
 * name of a hidden class, and the number behind the name of a lambda expression's class: no other
 * run of the program has the same. */
size_t hotspot_class_shown(const uint8_t *s, size_t n);
/*
 * Changes NAME, which a compiler has mangled, back to the name in the source. The ending of FILE,
 * the source file, tells the language.
 */
void hotspot_name_demangle(char *name, const char *file);

/* ---- lines (lines.c) --------------------------------------------------------------------------
 */

/* A method's table of lines, as the process has it. */
struct hotspot_lines {
	uint8_t *bytes;
	size_t size; /* 0: the method has none */
};

/*
 * Reads the table of lines of the ConstMethod at CODE. The caller frees it with
 * hotspot_lines_done().
 */
int hotspot_lines_read(const struct hotspot_process *p, const struct target_memory *memory,
		       uint64_t code, struct hotspot_lines *ret) _must_check_;
void hotspot_lines_done(struct hotspot_lines *l);
/*
 * Finds the lines of BCI and of the method's first bytecode; 0: not known. BYTES may hold anything.
 */
void hotspot_lines_find(const void *bytes, size_t size, int32_t bci, uint32_t excluded,
			uint32_t *ret, uint32_t *ret_start);
/*
 * Reads an UNSIGNED5 number (src/hotspot/share/utilities/unsigned5.hpp): at most 5 bytes. Each byte
 * counts 64 times the byte before, and a byte below 192 is the last one. EXCLUDED is 1 from 20 on,
 * where no byte is 0 and each byte counts one less, else 0.
 */
uint32_t hotspot_read_number(struct cursor *c, uint32_t excluded);

/* ---- names ------------------------------------------------------------------------------------
 */

/* A place in a method. */
struct hotspot_place {
	uint64_t method;
	int32_t bci; /* -1: not known */
};

enum { HOTSPOT_PLACES = SYMBOL_INLINE_MAX };

/* Reads LEN bytes at ADDRESS + OFFSET. 0 or -EFAULT. */
static inline int hotspot_read(const struct target_memory *m, uint64_t address, int64_t offset,
			       void *dst, size_t len)
{
	return target_read(m, address + (uint64_t)offset, dst, len) < 0 ? -EFAULT : 0;
}

/* Reads 8 bytes. */
static inline int hotspot_read_word(const struct target_memory *m, uint64_t address, int64_t offset,
				    uint64_t *ret)
{
	return hotspot_read(m, address, offset, ret, sizeof(*ret));
}

/* Reads 2 bytes. */
static inline int hotspot_read_half(const struct target_memory *m, uint64_t address, int64_t offset,
				    uint32_t *ret)
{
	uint16_t v;

	if (hotspot_read(m, address, offset, &v, sizeof(v)) < 0)
		return -EFAULT;
	*ret = v;
	return 0;
}

/*
 * Puts the name, file and line of PLACE into RET's next symbol. CODE is a number that stands for
 * the compiled code with PLACE, and for no other code of the process; the caller has checked before
 * the call that the code is there, and checks again afterwards. 0: PLACE is in interpreted code.
 * -EFAULT, -ENOSPC.
 */
int hotspot_method_symbol(const struct hotspot_process *p, const struct target_memory *memory,
			  const struct hotspot_place *place, uint64_t code,
			  struct hotspot_text *text, struct symbol_result *ret) _must_check_;
/* Makes F, at BCI, RET's next symbol; it has the strings of F. */
void hotspot_put_symbol(const struct hotspot_process *p, const struct runtime_function *f,
			int32_t bci, struct symbol_result *ret);
/* The members of a method's runtime_function.own: addresses of the structures from which its cookie
 * is computed. */
enum hotspot_own {
	HOTSPOT_OWN_CONST,  /* ConstMethod */
	HOTSPOT_OWN_POOL,   /* ConstantPool */
	HOTSPOT_OWN_HOLDER, /* InstanceKlass */
	HOTSPOT_OWN_NAME,   /* Symbol: the class's name */
	HOTSPOT_OWN_N
};
/* Reads the addresses of the structures that METHOD points to, and computes METHOD's cookie as the
 * walker does. */
int hotspot_method_cookie(const struct hotspot_process *p, const struct target_memory *memory,
			  uint64_t method, uint64_t ret_own[HOTSPOT_OWN_N],
			  uint32_t *ret_cookie) _must_check_;
/* Reads ahead what hotspot_method_symbol() will read for the N PLACES with CODE: by one system call
 * if the methods were named before, otherwise by a few. AGAIN: as in target_read_again(); or NULL.
 */
void hotspot_methods_ahead(const struct hotspot_process *p, const struct target_memory *memory,
			   const struct hotspot_place *places, int n, uint64_t code,
			   const struct target_span *again);
/* Reads ahead, by one system call, what hotspot_method_cookie() will read if METHOD still points to
 * OWN. */
void hotspot_cookie_ahead(const struct hotspot_process *p, const struct target_memory *memory,
			  uint64_t method, const uint64_t own[HOTSPOT_OWN_N]);

/* The beginning of the nmethod at BLOB, which tells whether the code is the same and in use. */
static inline struct target_span hotspot_nmethod_span(const struct hotspot_process *p,
						      uint64_t blob)
{
	const struct hotspot_layout *l = &p->layout;

	return (struct target_span){blob - (uint64_t)l->block_size,
				    (size_t)l->block_size + (size_t)l->nmethod_size};
}

/*
 * Finds the places of PC in the nmethod at BLOB, innermost first: several where calls were inlined.
 * Returns how many, at most MAX; -EFAULT.
 */
int hotspot_code_places(const struct hotspot_process *p, const struct target_memory *memory,
			uint64_t blob, uint64_t pc, struct hotspot_place *ret,
			size_t max) _must_check_;

extern const struct interpreter_ops hotspot_ops;
