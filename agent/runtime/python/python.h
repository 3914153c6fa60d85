/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython, as one of the runtimes of agent/runtime/runtime.h. What the parts share: the layout of a
 * version's structures, what a file tells of the interpreter in it, and the tables of lines.
 */
#pragma once

#include "agent/runtime/runtime.h"
#include "agent/runtime/python/walker_data.h"
#include "agent/runtime/thread_variable.h"
#include "lib/cursor.h"

enum {
	PYTHON_MINOR_MIN = 6,
	PYTHON_MINOR_MAX = 15,
	PYTHON_MINOR_OFFSETS = 13, /* from here on the process has a table of its own offsets */
	PYTHON_OFFSETS_BYTES = 744,
	PYTHON_OFFSETS_BYTES_TO_3_14 = 648,
	PYTHON_STRING_MAX = 2048,	 /* characters of a name or path; the rest is cut off */
	PYTHON_LINE_TABLE_MAX = 1 << 20, /* bytes */
};

/* Offsets in bytes; PYTHON_NO_FIELD: there is none. From where is said in layout.c. */
#define PYTHON_NO_FIELD UINT32_MAX

struct python_layout {
	uint32_t kind; /* enum kiln_python_kind */
	/* _PyRuntimeState; with none (3.6) symbols lead to the same values. */
	uint32_t runtime_interpreters, runtime_current, runtime_key;
	uint32_t interp_next, interp_threads;
	uint32_t thread_next, thread_id, thread_frame, cframe_frame;
	/* PyFrameObject or _PyInterpreterFrame */
	uint32_t frame_code, frame_previous, frame_instr, frame_owner, frame_copy;
	uint32_t shim_owner;
	/* PyCodeObject */
	uint32_t code_filename, code_name, code_qualname, code_lines, code_firstlineno, code_start;
	uint32_t code_copies;
	uint32_t code_mask; /* of the words from the type on: those that never change */
	/* PyObject, PyASCIIObject, PyCompactUnicodeObject, PyBytesObject */
	uint32_t object_type;
	uint32_t string_length, string_state, string_ascii, string_compact;
	uint32_t bytes_size, bytes_data;
};

/* The layout of 3.MINOR below PYTHON_MINOR_OFFSETS; NULL when that is not known. */
const struct python_layout *python_layout_of(unsigned int minor);
/*
 * From the _Py_DebugOffsets at the start of _PyRuntime. -EAGAIN: not filled in yet; -ENOTSUP and
 * ERR: it makes no sense.
 */
int python_layout_read(const void *offsets, size_t size, unsigned int minor,
		       struct python_layout *ret, struct error *err) _must_check_;

/* What a file has; addresses are ELF virtual ones, 0: not there. */
struct python_image {
	struct runtime_image base;
	unsigned int minor;
	uint64_t runtime;   /* _PyRuntime */
	uint64_t current;   /* _PyThreadState_Current (3.6) */
	uint64_t interps;   /* interp_head (3.6) */
	uint64_t key;	    /* autoTLSkey (3.6) */
	uint64_t code_type; /* PyCode_Type */
	uint64_t eval;
	struct thread_variable running; /* the state that runs (3.12 on) */
	struct thread_variable bound;	/* PyGILState's (3.15) */
};

int python_probe(const struct image *image, struct runtime_image **ret,
		 struct error *err) _must_check_;
void python_forget(struct runtime_image *ri);

/* A process with the interpreter in it. */
struct python_process {
	struct python_layout layout;
	unsigned int minor;
	uint64_t code_type;
	uint32_t code_from;
};

extern const struct interpreter_ops python_ops;

int python_attach(const struct runtime_image *ri, struct runtime_target *target,
		  struct kiln_runtime *ret_kernel, void **ret_state,
		  struct error *err) _must_check_;
int python_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		     char *scratch, size_t scratch_size, struct symbol_result *ret);
void python_detach(void *state);

/*
 * The line of instruction LASTI in a code object of 3.MINOR whose table of lines is C and whose
 * first line is FIRST; 0 when it has none. LASTI counts as the version does: bytes, but
 * instructions in 3.10. Any bytes will do.
 */
uint32_t python_line(unsigned int minor, struct cursor c, uint32_t first, int32_t lasti);
