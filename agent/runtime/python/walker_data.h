/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What user space tells the walker about a process, and the cookie of a code object. */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_PYTHON = 1 }; /* enum kiln_runtime_id */

enum kiln_python_kind {
	KILN_PYTHON_OBJECTS = 1, /* 3.6 - 3.10: one frame object for each native frame */
	KILN_PYTHON_ENTRY = 2,	 /* 3.11: a flag marks the last frame of a native frame's group */
	/* 3.12 on: a group ends with a shim, a frame without code on the C stack. */
	KILN_PYTHON_SHIM = 3,
};

enum kiln_python_flags {
	KILN_PYTHON_HAS_CURRENT = 1, /* `current` */
	KILN_PYTHON_HAS_TLS = 2,     /* `tls_*` */
	KILN_PYTHON_HAS_TSD = 4,     /* `tsd_*` */
	KILN_PYTHON_HAS_LIST = 8,    /* `interpreters` */
};

#define KILN_PYTHON_NONE 0xffffffffU

enum {
	/* Words of a code object, from its type on, that its cookie is made of. */
	KILN_PYTHON_CODE_WORDS = 16,
	KILN_PYTHON_FRAME_BYTES = 128,
	KILN_PYTHON_STEPS_MAX = 4096, /* frames looked at in one sample, shown or not */
	KILN_PYTHON_THREADS_MAX = 64, /* thread states looked at in the interpreters' lists */
	KILN_PYTHON_PROLOGUE =
	    192, /* bytes of _PyEval_EvalFrameDefault before the frame is linked */
};

/*
 * The walker's data on a process. Offsets in bytes; agent/runtime/python/layout.c has them by
 * version.
 */
struct kiln_python {
	uint64_t current;      /* address of the pointer to the running state (3.6 - 3.11) */
	uint64_t interpreters; /* address of the pointer to the first interpreter */
	uint64_t code_type;    /* PyCode_Type; 0: not known */
	uint64_t eval;	       /* where _PyEval_EvalFrameDefault begins */
	int64_t tls_offset;    /* of the pointer to the running state, from the block's start */
	uint32_t tls_module;   /* 0: the block is at the thread pointer */
	uint32_t tls_shift;    /* log2 of the size of an entry in the vector of TLS blocks */
	/*
	 * Where PyGILState keeps the thread's state: at tsd_second from the thread pointer, or, if
	 * tsd_first is not 0, from the address that is stored at tsd_first from the thread pointer.
	 */
	uint32_t tsd_first;
	int32_t tsd_second;
	uint32_t interp_next, interp_threads;
	uint32_t thread_next, thread_id, thread_frame;
	/*
	 * 3.11, 3.12: offset of the frame in the CFrame that thread_frame points to. 3.10: offset
	 * of the pointer to the CFrame in the state. KILN_PYTHON_NONE: the version has no CFrame.
	 */
	uint32_t cframe_frame;
	uint32_t code_from;  /* of the first word of a code object that is read: its type */
	uint32_t code_mask;  /* bit i: word i of these never changes during the object's life */
	uint32_t code_start; /* of the instructions */
	/* of the array of copies of the instructions, one a thread; 0: none */
	uint32_t code_copies;
	uint16_t frame_from, frame_len;
	uint16_t frame_code, frame_previous, frame_instr, frame_owner,
	    frame_copy;	    /* counted from frame_from */
	uint8_t shim_owner; /* a frame whose owner is this or more is a shim */
	uint8_t kind;	    /* enum kiln_python_kind */
	uint8_t flags;	    /* enum kiln_python_flags */
	uint8_t pad[7];
};
_Static_assert(sizeof(struct kiln_python) <= KILN_RUNTIME_BYTES, "struct kiln_python");

/*
 * The cookie of a code object: tells it from an object that lies in its place later. WORDS are its
 * first KILN_PYTHON_CODE_WORDS words from the type on; MASK is code_mask.
 */
static inline __attribute__((always_inline)) uint32_t kiln_python_cookie(const uint64_t *words,
									 uint32_t mask)
{
	uint64_t lanes[4] = {}, h = 0;

	/* Four lanes side by side, because a multiplication waits for the one before it in its
	 * lane. Not unrolled: the code is cold when a sample comes, so short code is faster. */
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
