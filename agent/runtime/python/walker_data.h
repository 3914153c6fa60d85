/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What user space tells the walker of a process, and what a code object's cookie
 * is. */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_PYTHON = 1 }; /* enum kiln_runtime_id */

enum kiln_python_kind {
	KILN_PYTHON_OBJECTS = 1, /* 3.6 - 3.10: a frame object for each native frame */
	KILN_PYTHON_ENTRY = 2,	 /* 3.11: the frame that C entered with has a flag */
	KILN_PYTHON_SHIM = 3,	 /* 3.12 on: a frame without code of its own, on the C stack */
};

enum kiln_python_flags {
	KILN_PYTHON_HAS_CURRENT = 1, /* `current` */
	KILN_PYTHON_HAS_TLS = 2,     /* `tls_*` */
	KILN_PYTHON_HAS_TSD = 4,     /* `tsd_*` */
	KILN_PYTHON_HAS_LIST = 8,    /* `interpreters` */
};

#define KILN_PYTHON_NONE 0xffffffffU

enum {
	KILN_PYTHON_CODE_WORDS = 16, /* of a code object, from its type on: what the cookie is of */
	KILN_PYTHON_FRAME_BYTES = 128,
	KILN_PYTHON_STEPS_MAX = 4096, /* frames looked at in one sample, shown or not */
	KILN_PYTHON_THREADS_MAX = 64, /* looked at for want of a better way */
	KILN_PYTHON_PROLOGUE =
	    192, /* bytes of _PyEval_EvalFrameDefault before the frame is linked */
};

/* The process's data. Offsets in bytes; agent/runtime/python/layout.c has them by version. */
struct kiln_python {
	uint64_t current;      /* address of the pointer to the state that runs (3.6 - 3.11) */
	uint64_t interpreters; /* address of the pointer to the first interpreter */
	uint64_t code_type;    /* PyCode_Type; 0: not known */
	uint64_t eval;	       /* where _PyEval_EvalFrameDefault begins */
	int64_t tls_offset;    /* of the pointer to the state that runs, from the block's start */
	uint32_t tls_module;   /* 0: the block is at the thread pointer */
	uint32_t tls_shift;    /* log2 of an entry of the vector of blocks */
	/* The thread's state for PyGILState: at second, or at second of what first points to. */
	uint32_t tsd_first;
	int32_t tsd_second;
	uint32_t interp_next, interp_threads;
	uint32_t thread_next, thread_id, thread_frame;
	/* 3.11, 3.12: from the struct that thread_frame leads to. 3.10: where the state has that
	 * struct. KILN_PYTHON_NONE: there is none. */
	uint32_t cframe_frame;
	uint32_t code_from;   /* of the code object's words that are read; the first is its type */
	uint32_t code_mask;   /* those that never change in its life */
	uint32_t code_start;  /* of the instructions */
	uint32_t code_copies; /* array of threads' own instructions; 0: none */
	uint16_t frame_from, frame_len;
	uint16_t frame_code, frame_previous, frame_instr, frame_owner,
	    frame_copy;	    /* from frame_from */
	uint8_t shim_owner; /* owners from this on have no code */
	uint8_t kind;	    /* enum kiln_python_kind */
	uint8_t flags;	    /* enum kiln_python_flags */
	uint8_t pad[7];
};
_Static_assert(sizeof(struct kiln_python) <= KILN_RUNTIME_BYTES, "struct kiln_python");

/* What tells a code object from another one that lies in the same place later. */
static inline __attribute__((always_inline)) uint32_t kiln_python_cookie(const uint64_t *words,
									 uint32_t mask)
{
	uint64_t lanes[4] = {}, h = 0;

	/* Four at once: each multiplication waits for the one before in its lane. Not
	 * unrolled: the code is cold when a sample comes, so short code is faster. */
	for (uint32_t i = 0; i < KILN_PYTHON_CODE_WORDS; i += 4, mask >>= 4) {
		asm volatile("" : "+r"(i)); /* no unrolling */
		for (uint32_t k = 0; k < 4; k++) {
			uint64_t lane = lanes[k] ^ (words[i + k] & -(uint64_t)(mask >> k & 1));

			lane *= 0x9e3779b97f4a7c15ULL;
			lanes[k] = lane ^ lane >> 29;
		}
	}
	for (uint32_t i = 0; i < 4; i++) {
		h = (h ^ lanes[i]) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 29;
	}
	return (uint32_t)(h >> 32);
}
