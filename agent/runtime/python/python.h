/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython as one of the runtimes of agent/runtime/runtime.h. This header has what the files of this
 * folder share: the layout of a version's structures, what probe() found in a file, and the tables
 * of lines.
 */
#pragma once

#include "agent/runtime/runtime.h"
#include "agent/runtime/python/walker_data.h"
#include "agent/runtime/thread_variable.h"
#include "lib/cursor.h"

enum {
	PYTHON_MINOR_MIN = 6,
	PYTHON_MINOR_MAX = 15,
	PYTHON_MINOR_OFFSETS = 13, /* first version whose processes hold struct _Py_DebugOffsets */
	PYTHON_OFFSETS_BYTES = 744,
	PYTHON_OFFSETS_BYTES_TO_3_14 = 648,
	PYTHON_STRING_MAX = 2048,	 /* characters of a name or path; the rest is cut off */
	PYTHON_LINE_TABLE_MAX = 1 << 20, /* bytes */
};

/*
 * Offsets of fields in their structures, in bytes. PYTHON_NO_FIELD: the version has no such field.
 * layout.c names the sources.
 */
#define PYTHON_NO_FIELD UINT32_MAX

struct python_layout {
	uint32_t kind; /* enum kiln_python_kind */
	/*
	 * _PyRuntimeState. 3.6 has none: there the symbols in struct python_image have these
	 * values.
	 */
	uint32_t runtime_interpreters, runtime_current, runtime_key;
	uint32_t interp_next, interp_threads;
	uint32_t thread_next, thread_id, thread_frame, cframe_frame;
	/* PyFrameObject or _PyInterpreterFrame */
	uint32_t frame_code, frame_previous, frame_instr, frame_owner, frame_copy;
	uint32_t shim_owner;
	/* PyCodeObject */
	uint32_t code_filename, code_name, code_qualname, code_lines, code_firstlineno, code_start;
	uint32_t code_copies;
	uint32_t code_mask; /* bit i: word i of the object, counted from its type, never changes */
	/* PyObject, PyASCIIObject, PyCompactUnicodeObject, PyBytesObject */
	uint32_t object_type;
	uint32_t string_length, string_state, string_ascii, string_compact;
	uint32_t bytes_size, bytes_data;
};

/* Returns the layout of 3.MINOR. NULL: MINOR is not known, or is PYTHON_MINOR_OFFSETS or more. */
const struct python_layout *python_layout_of(unsigned int minor);
/*
 * Makes the layout of 3.MINOR from OFFSETS: the first SIZE bytes of _PyRuntime, which are its
 * struct _Py_DebugOffsets. -EAGAIN: CPython has not filled them in yet; -ENOTSUP and ERR: they make
 * no sense.
 */
int python_layout_read(const void *offsets, size_t size, unsigned int minor,
		       struct python_layout *ret, struct error *err) _must_check_;

/* What probe() found in a file. Addresses are ELF virtual addresses; 0: the symbol is missing. */
struct python_image {
	struct runtime_image base;
	unsigned int minor;
	uint64_t runtime;   /* _PyRuntime */
	uint64_t current;   /* _PyThreadState_Current (3.6) */
	uint64_t interps;   /* interp_head (3.6) */
	uint64_t key;	    /* autoTLSkey (3.6) */
	uint64_t code_type; /* PyCode_Type */
	uint64_t eval;
	struct thread_variable running; /* _Py_tss_tstate, the thread's running state (3.12 on) */
	/* _Py_tss_gilstate, the thread's state for PyGILState (3.15) */
	struct thread_variable bound;
};

int python_probe(const struct image *image, struct runtime_image **ret,
		 struct error *err) _must_check_;
void python_forget(struct runtime_image *ri);

/* State of an attachment: what python_symbolize() needs to know of the process. */
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
 * Returns the line of the instruction LASTI in a code object of 3.MINOR; 0: the instruction has no
 * line. C is the object's table of lines, FIRST its first line. LASTI is in bytes, in 3.10 in
 * instructions. C may hold any bytes.
 */
uint32_t python_line(unsigned int minor, struct cursor c, uint32_t first, int32_t lasti);
