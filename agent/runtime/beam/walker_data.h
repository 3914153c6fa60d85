/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The data of a process that user space gives to the walker (walker.h), and the meaning of both
 * words of a frame. */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_BEAM = 8 }; /* enum kiln_runtime_id */

enum kiln_beam_frame {
	/* Address: the program counter, in code of the JIT. Second word: kiln_beam_cookie(). */
	KILN_BEAM_CODE = 0,
	/* The same; the program counter is a return address: the name is that of pc - 1. */
	KILN_BEAM_RETURN = 4,
};

enum {
	KILN_BEAM_CODE_WORDS = 4,   /* words of code that a cookie is made of */
	KILN_BEAM_CODE_BEFORE = 16, /* bytes of these words that lie before the program counter */
	KILN_BEAM_KEYS = 32,	    /* keys of pthread_key_create() that are searched */
	KILN_BEAM_NO_KEY = 0xffff,
};

/* The data of one process. Offsets in bytes. */
struct kiln_beam {
	uint64_t low, high;   /* all JIT code is within [low, high); other memory may be, too */
	uint64_t normal_exit; /* where the outermost function of an Erlang process returns to */
	uint64_t main_start, main_end;	 /* process_main(), the scheduler's loop */
	uint64_t image_start, image_end; /* code of the emulator's file */
	uint64_t dirty_start, dirty_end; /* erts_dirty_process_main(); 0: not known */
	/* process_main() subtracts `frame` from rsp, rounds rsp down to 64, and puts the
	 * scheduler's registers there. rbx is the address of the registers + `registers`. */
	uint32_t frame;
	uint16_t registers;
	uint16_t data_registers; /* ErtsSchedulerData: offset of the address of the registers */
	uint16_t data_process;	 /* ... of the process that runs */
	uint16_t data_matching;	 /* ... of the process with which ETS matches */
	uint16_t data_type;	 /* ... of the scheduler's type */
	uint16_t process_stop;	 /* Process: offset of the stack pointer while C runs */
	uint16_t key;		 /* pthread key of ErtsSchedulerData; KILN_BEAM_NO_KEY: not known */
	uint8_t frame_pointers;	 /* Erlang frames have them (+JPperf true) */
	uint8_t pad[5];
};
KILN_ASSERT_SIZE(kiln_beam, 96);

/*
 * Tells code from other code that is later loaded at the same address: a hash of the bytes around
 * the program counter. A function's name (ErtsCodeInfo) lies before its first instruction.
 */
static inline uint64_t kiln_beam_cookie(const uint64_t code[KILN_BEAM_CODE_WORDS])
{
	uint64_t h = 0;

	for (int i = 0; i < KILN_BEAM_CODE_WORDS; i++) {
		h = (h ^ code[i]) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 29;
	}
	return h;
}
