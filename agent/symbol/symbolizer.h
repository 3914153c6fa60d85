/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for frames. One thread at a time (the agent runs it in one worker job per window). Every
 * cache has a byte or entry cap given in symbolizer_options; what is dropped is resolved again when
 * it is needed.
 */
#pragma once

#include "agent/elf/image.h"
#include "agent/profile/batch.h"
#include "lib/error.h"

enum {
	SYMBOL_INLINE_MAX = 32, /* functions at one address: inlined calls and the outer function */
};

/* One function at an address, innermost first in the array. Strings live until symbolizer_trim().
 */
struct symbol {
	const char *name;	   /* demangled */
	const char *system_name;   /* as in the file */
	const char *file;	   /* "" when not known */
	uint32_t line, start_line; /* 0 when not known */
};

struct symbol_result {
	enum frame_type type;
	uint32_t n; /* 0: no symbol covers the address */
	struct symbol symbols[SYMBOL_INLINE_MAX];
};

struct symbolizer_options {
	size_t max_table_bytes;	  /* symbol tables held in memory, all images: 16 MiB */
	size_t max_cached_frames; /* 65536 */
	const char
	    *debug_root;      /* where build-id and debug-link directories lie: "/usr/lib/debug" */
	const char *proc;     /* "/proc" */
	const char *kallsyms; /* "/proc/kallsyms" */
};

/* A process's root directory. Before it is used, PID is checked to be the same process still. */
struct process_root {
	const char *path; /* "/proc/PID/root" */
	uint32_t pid;
	uint64_t start_time; /* of the process, CLOCK_BOOTTIME ns; 0: PATH is used unchecked */
};

struct symbolizer;
int symbolizer_new(const struct symbolizer_options *options, struct symbolizer **ret,
		   struct error *err) _must_check_;
struct symbolizer *symbolizer_free(struct symbolizer *s);

/*
 * The functions at ELF virtual address VADDR of IMAGE. For a return address the caller passes the
 * address minus 1. ROOT: of a process that maps the image, where its debug files are looked for
 * first (then on the host); NULL: the host only. Sources in order: gopclntab,
 * .symtab, separate debug file (build-id directory, debug link; CRC or build id must match),
 * .gnu_debugdata, .dynsym. A symbol covers [st_value, st_value + st_size); one of size 0 covers up
 * to the next symbol within its section. 0 even when no symbol is found (ret->n = 0).
 */
int symbolize_image(struct symbolizer *s, struct image *image, const struct process_root *root,
		    uint64_t vaddr, struct symbol_result *ret);
/*
 * /tmp/perf-PID.map (in the process's own mount namespace and by its pid there). START_TIME
 * distinguishes processes that have had the same pid. Re-read when it has grown, at most once a
 * window.
 */
int symbolize_jit(struct symbolizer *s, uint32_t pid, uint64_t start_time, uint64_t address,
		  struct symbol_result *ret);
/* kallsyms, modules and BPF programs; re-read when an address is not covered, rate limited. MODULE
 * gets "" or the module's name. */
int symbolize_kernel(struct symbolizer *s, uint64_t address, struct symbol_result *ret,
		     const char **ret_module);
/* Once a window, after the batch was built: drops what is over its cap. Invalidates strings. */
void symbolizer_trim(struct symbolizer *s);
/* Bytes held, for /metrics. */
size_t symbolizer_bytes(const struct symbolizer *s);
