/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct interpreter_ops: a runtime whose own frames are walked (Python, V8). Each runtime has a
 * folder, where `runtime(NAME ...)` of cmake/runtime.cmake makes NAME_ops a row of runtime_table[];
 * no other file names the runtime (docs/adding-a-runtime.md). Its walker, the kernel side, is
 * NAME/walker.h; the walker's data is struct kiln_NAME.
 *
 *   probe       recognizes the runtime in a file, and its version. Called once for each file, when
 *               the file's unwind table is compiled.
 *   attach      makes the walker's data for one process.
 *   symbolize   finds the name of a frame. Called as soon as a stack with the frame was seen: when
 *               the window closes, the process may be gone and its objects moved.
 *   detach      frees what attach() has made. Called when the mapset is gone.
 *   owns        tells whether memory that is no ELF segment holds code of the runtime.
 *
 * Everything read from a process is foreign: lengths are capped, links counted, values checked.
 * Nothing is ever written to it, and it is never stopped.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/elf/image.h"
#include "agent/elf/unwind.h"
#include "agent/profile/batch.h"
#include "agent/runtime/functions.h"
#include "agent/sampler/mapset.h"
#include "agent/sampler/walkers.h"
#include "agent/symbol/symbolizer.h"
#include "bpf/types.h"

enum {
	RUNTIME_RANGES_MAX = 8,
	RUNTIME_VERSION_MAX = 32,
	RUNTIME_VERSIONS_MAX = 8, /* versions of one runtime that status and metrics tell apart */
};

/*
 * Code [start, end), ELF virtual addresses, whose frames are the runtime's (KILN_RULE_RUNTIME).
 * Where ranges overlap, the first one counts.
 */
struct runtime_range {
	uint64_t start, end;
	/* The code has no unwind information, and keeps fp as a frame pointer. */
	bool frame_pointer;
	/* The code keeps a frame pointer whenever it calls: KILN_RULE_FRAME_POINTER. */
	bool keeps_fp;
	bool native; /* the frames are native: the walker is not called */
};

/* What probe() found in a file. Immutable; freed with ops->forget(). */
struct runtime_image {
	const struct interpreter_ops *ops;
	char version[RUNTIME_VERSION_MAX]; /* to show, as "3.11"; "": only a process tells it */
	struct runtime_range ranges[RUNTIME_RANGES_MAX];
	size_t n_ranges;
	bool native_only; /* the version is not known: only native frames are walked */
	void *own;	  /* the runtime's own data */
};

/* Memory of a process: SIZE bytes at ADDRESS. */
struct target_span {
	uint64_t address;
	size_t size;
};

/* A process's memory. Also implemented over recorded memory, for tests. */
struct target_memory {
	/* Reads LEN bytes at ADDRESS, all or nothing. 0, -EFAULT, -ESRCH, -EPERM. */
	int (*read)(void *arg, uint64_t address, void *dst, size_t len);
	void *arg;
	/* See target_read_again() and target_renew(). NULL: nothing is read ahead. */
	void (*together)(void *arg, const struct target_span *spans, size_t n,
			 const struct target_span *again);
	void (*renew)(void *arg);
	/* See target_keep_begin(); CODE 0: its end. All three, or none. */
	void (*keep)(void *arg, uint32_t space, uint64_t code);
	bool (*has_read)(void *arg);
	void (*forget)(void *arg, uint32_t space, uint64_t code);
	/* For target_find_function(). NULL: no functions are kept. */
	struct runtime_functions *functions;
	uint32_t space;
	bool *found; /* set when target_find_function() finds one */
};

static inline int target_read(const struct target_memory *m, uint64_t address, void *dst,
			      size_t len)
{
	return m->read(m->arg, address, dst, len);
}

/*
 * For symbolize(): reads the N SPANS by one system call, which is much cheaper than one for each,
 * so that target_read() has them. They are hints: a span that cannot be read, is too long, or is
 * not asked for later does no harm.
 */
static inline void target_read_together(const struct target_memory *m,
					const struct target_span *spans, size_t n)
{
	if (m->together)
		m->together(m->arg, spans, n, NULL);
}

/*
 * As target_read_together(). If any of the SPANS has to be read, AGAIN, which was read before, is
 * read once more behind them, by the same system call; what was read of it earlier is dropped.
 * NULL: nothing.
 */
static inline void target_read_again(const struct target_memory *m, const struct target_span *spans,
				     size_t n, const struct target_span *again)
{
	if (m->together)
		m->together(m->arg, spans, n, again);
}

/*
 * target_read() in symbolize() may read ahead, and answer later reads from that. This drops what
 * was read ahead: call it before reading an object again to see whether it has changed.
 */
static inline void target_renew(const struct target_memory *m)
{
	if (m->renew)
		m->renew(m->arg);
}

/*
 * For symbolize(), around reads of what does not change while the process has the compiled code
 * CODE, a number, not 0, that it has for no other code. What is read from here to target_keep_end()
 * is kept for later calls with CODE, and what those before have kept is not read again. The caller
 * has seen that the process has CODE, and looks again behind these reads, if target_has_read().
 */
static inline void target_keep_begin(const struct target_memory *m, uint64_t code)
{
	if (m->keep)
		m->keep(m->arg, m->space, code);
}

static inline void target_keep_end(const struct target_memory *m)
{
	if (m->keep)
		m->keep(m->arg, 0, 0);
}

/* Was the process's memory read since target_keep_begin(), and since AGAIN was read once more by
 * target_read_again()? */
static inline bool target_has_read(const struct target_memory *m)
{
	return !m->has_read || m->has_read(m->arg);
}

/* Drops what was kept for CODE: the process did not have it any more. */
static inline void target_forget(const struct target_memory *m, uint64_t code)
{
	if (m->forget)
		m->forget(m->arg, m->space, code);
}

/* In symbolize(): finds the function that ADDRESS had last, which may be gone. */
static inline bool target_guess_function(const struct target_memory *m, uint64_t address,
					 struct runtime_function *ret)
{
	return m->functions && runtime_functions_guess(m->functions, m->space, address, ret);
}

/*
 * In symbolize(): finds the function at ADDRESS with the cookie COOKIE, if it was kept when another
 * frame of it was named. RET's pointers hold until target_keep_function().
 */
static inline bool target_find_function(const struct target_memory *m, uint64_t address,
					uint64_t cookie, struct runtime_function *ret)
{
	const struct runtime_function_key key = {address, cookie, m->space, 0};

	if (!m->functions || !runtime_functions_find(m->functions, &key, ret))
		return false;
	*m->found = true;
	return true;
}

/* Keeps FUNCTION, which was read and checked, for target_find_function(). */
static inline void target_keep_function(const struct target_memory *m, uint64_t address,
					uint64_t cookie, const struct runtime_function *function)
{
	const struct runtime_function_key key = {address, cookie, m->space, 0};

	if (m->functions)
		runtime_functions_add(m->functions, &key, function);
}

/* As runtime_functions_cookie() and runtime_functions_keep_cookie(). */
static inline bool target_find_cookie(const struct target_memory *m, uint64_t address,
				      uint64_t code, uint64_t *ret)
{
	return m->functions && runtime_functions_cookie(m->functions, m->space, address, code, ret);
}

static inline void target_keep_cookie(const struct target_memory *m, uint64_t address,
				      uint64_t code, uint64_t cookie)
{
	if (m->functions)
		runtime_functions_keep_cookie(m->functions, m->space, address, code, cookie);
}

/* A process to attach to. */
struct runtime_target {
	struct target_memory memory;
	uint32_t tgid;
	uint64_t bias;		   /* of the runtime's file: address = ELF virtual address + bias */
	const struct image *image; /* the runtime's file */
	/* Finds the loaded image whose file name begins with PREFIX ("libc.so", "ld-musl"), and its
	 * bias, for structures of other libraries. Returns NULL: there is none. */
	const struct image *(*find_image)(void *arg, const char *prefix, uint64_t *ret_bias);
	/*
	 * Finds the mapping of /proc/PID/maps that holds ADDRESS, executable or not: [start, end).
	 */
	int (*find_mapping)(void *arg, uint64_t address, uint64_t *ret_start, uint64_t *ret_end);
	void *arg;
	/* The state of another attachment to this process, by the same file; or NULL. */
	void *previous;
	/* Set by attach(): memory for the runtime's code, of which not all is executable yet. */
	uint64_t code_start, code_end;
	/* Set by attach() if the file does not tell the version: as runtime_image.version. */
	char version[RUNTIME_VERSION_MAX];
};

/* For attach(): copies DATA, a struct that the runtime's BPF walker defines, into its map entry
 * RET. SIZE: bytes, at most KILN_RUNTIME_BYTES; the walker is given that many. */
static inline void runtime_tell_walker(struct kiln_runtime *ret, const void *data, size_t size)
{
	*ret = (struct kiln_runtime){.size = size};
	memcpy(ret->data, data, size);
}

struct interpreter_ops {
	const char *name;		    /* as in `tracers`, metrics and the log */
	const char *api_name;		    /* as in ProfilingConfig; NULL: the same */
	uint32_t id;			    /* 1..31; its bit in `tracers` is 1 << id */
	const struct walker_object *walker; /* the program that walks its frames in the kernel */
	enum frame_type type;		    /* of its frames */
	/* How the names of its files begin, NULL at the end: a hint which files to look at when the
	 * agent starts. NULL: there is no hint. */
	const char *const *files;

	/*
	 * Recognizes the runtime in a file. Thread pool, many at once. -ENOENT: the file is not
	 * this runtime. -ENOTSUP and ERR: it is, but its version is not known. Its native frames
	 * are walked nevertheless, and status shows ERR; RET is then the image that this needs
	 * (native_only), or NULL.
	 */
	int (*probe)(const struct image *image, struct runtime_image **ret, struct error *err);
	void (*forget)(struct runtime_image *ri);

	/*
	 * Makes the walker's data RET_KERNEL for a process, and RET_STATE, which the functions
	 * below are given. Loop thread, as are all functions below. -EAGAIN: the runtime is not
	 * initialised yet, try again later.
	 */
	int (*attach)(const struct runtime_image *ri, struct runtime_target *target,
		      struct kiln_runtime *ret_kernel, void **ret_state, struct error *err);
	/*
	 * Finds the functions of the frame WORDS, innermost first. RET's strings may lie in SCRATCH
	 * (of SCRATCH_SIZE bytes): the caller copies them at once. -EFAULT: the memory cannot be
	 * read, or holds something else by now (the cookie differs).
	 */
	int (*symbolize)(void *state, const struct target_memory *memory, const uint64_t words[2],
			 char *scratch, size_t scratch_size, struct symbol_result *ret);
	/*
	 * As symbolize(), but from a text that the walker has sent (bpf/text.h), without the
	 * process. Negative: the name has to be read from memory. NULL: the walker sends no texts.
	 */
	int (*read_text)(void *state, const struct kiln_text *text, char *scratch,
			 size_t scratch_size, struct symbol_result *ret);
	/*
	 * Copies the runtime's own name of a thread to RET (SIZE bytes). TID is its id in the
	 * process's pid namespace, COMM its name in the kernel; INHERITED: COMM is only the
	 * process's name. -ENOENT: there is no other name; -EAGAIN: it cannot be read now. NULL:
	 * the runtime gives its threads no names.
	 */
	int (*thread_name)(void *state, const struct target_memory *memory, uint32_t tid,
			   const char *comm, bool inherited, char *ret, size_t size);
	void (*detach)(void *state);
	/*
	 * Does [START, END) hold code of the runtime? It is one mapping of a process that is
	 * attached, executable and no segment of an ELF file: anonymous memory, memfd, /dev/zero, a
	 * file of the runtime's own format, or the part of an ELF file that no segment has (a
	 * program and its libraries in one file). MEMORY may be read. NULL: the runtime has no code
	 * in such memory.
	 */
	enum jit_claim (*owns)(void *state, const struct target_memory *memory, uint64_t start,
			       uint64_t end);
	/*
	 * Makes the unwind rules for code in that memory for which there can be rules, by addresses
	 * of the process; each of them has KILN_RULE_RUNTIME. Called after attach(), and again,
	 * seldom, while samples have frames of the runtime. -EALREADY: nothing has changed since
	 * the last call; not returned if LOST, because the kernel does not have the rules any more.
	 * -EAGAIN: the code is not there yet. RET_KERNEL: the walker's data, with what is known by
	 * now. NULL: the runtime has no such code.
	 */
	int (*read_code)(void *state, const struct target_memory *memory, bool lost,
			 struct kiln_runtime *ret_kernel, struct unwind_table **ret);
};

extern const struct interpreter_ops *const runtime_table[]; /* NULL at the end */
