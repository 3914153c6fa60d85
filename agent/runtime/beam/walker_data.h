/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the walk of BEAM frames (walker.h) and user space agree on. */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_BEAM = 8 }; /* enum kiln_runtime_id */

enum kiln_beam_frame {
	/* Address: the program counter, in code of the JIT. Second word: kiln_beam_cookie(). */
	KILN_BEAM_CODE = 0,
	/* The program counter is a return address (of which 1 is subtracted). */
	KILN_BEAM_RETURN = 4,
};

enum {
	KILN_BEAM_CODE_WORDS = 4,   /* that a cookie is made of, and how many bytes of them */
	KILN_BEAM_CODE_BEFORE = 16, /* lie before the program counter */
	KILN_BEAM_KEYS = 32,	    /* of pthread_key_create() that may hold the scheduler's data */
	KILN_BEAM_NO_KEY = 0xffff,
};

/* Of one process. Offsets in bytes. */
struct kiln_beam {
	uint64_t low, high;   /* all code of the JIT lies in between; other things may, too */
	uint64_t normal_exit; /* where the outermost function of an Erlang process returns to */
	uint64_t main_start, main_end;	 /* process_main(), the scheduler's loop */
	uint64_t image_start, image_end; /* code of the emulator's file */
	uint64_t dirty_start, dirty_end; /* erts_dirty_process_main(); 0: not known */
	/* Of process_main()'s frame: it makes room for so many bytes, rounds rsp down to 64, and
	 * puts the registers there; rbx points this far into them. */
	uint32_t frame;
	uint16_t registers;
	uint16_t data_registers; /* ErtsSchedulerData: the address of the registers, */
	uint16_t data_process;	 /* the process that runs, */
	uint16_t data_matching;	 /* the one that ETS matches with, */
	uint16_t data_type;	 /* and the type of the scheduler */
	uint16_t process_stop;	 /* Process: the stack pointer while C runs */
	uint16_t key;		 /* of ErtsSchedulerData; KILN_BEAM_NO_KEY: not known */
	uint8_t frame_pointers;	 /* Erlang frames have them (+JPperf true) */
	uint8_t pad[5];
};
KILN_ASSERT_SIZE(kiln_beam, 96);

/*
 * What tells code from other code that was loaded in its place: the bytes around the program
 * counter. Before a function's first instruction lies its name (ErtsCodeInfo).
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
