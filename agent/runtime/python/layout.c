// SPDX-License-Identifier: Apache-2.0
/*
 * Offsets of the fields that a walk needs, by version. Sources: CPython's headers at the tag of
 * each version's last release, on 64-bit Linux, and checked against the debug information of builds
 * of 3.6.15, 3.7.16, 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0:
 *   thread state     Include/pystate.h, Include/cpython/pystate.h (3.8 on)
 *   interpreter      Include/pystate.h, Include/internal/pycore_interp.h (3.9 on)
 *   _PyRuntime       Include/internal/pystate.h (3.7), pycore_pystate.h (3.8), pycore_runtime.h
 *   frame            Include/frameobject.h, Include/cpython/frameobject.h (3.9, 3.10),
 *                    Include/internal/pycore_frame.h (3.11 on), pycore_interpframe_structs.h
 *                    (3.14 on)
 *   code             Include/code.h, Include/cpython/code.h (3.8 on)
 *   str, bytes       Include/unicodeobject.h, Include/cpython/unicodeobject.h, bytesobject.h
 * From 3.13 on the process itself has the offsets: struct _Py_DebugOffsets at the start of
 * _PyRuntime (3.13: Include/internal/pycore_runtime.h; 3.14 on: pycore_debug_offsets.h). The layout
 * of that struct was checked against the headers of 3.14.8 and 3.15.0. Any thread.
 */
#include "agent/runtime/python/python.h"

enum {
	WORD = 8,
	CODE_SPAN = KILN_PYTHON_CODE_WORDS * WORD,
	FIELD_MAX = 1 << 20, /* offsets are below this: only _PyRuntime (3.12 on) is larger */
};

#define NONE		    PYTHON_NO_FIELD
/* The bit in code_mask of the word at OFFSET in a code object; bit 0 is the type, at 8. */
#define AT(offset)	    (1U << (((offset)-8) / WORD))
/* The bits of all words from OFFSET to LAST. */
#define UP_TO(offset, last) ((AT(last) << 1) - AT(offset))

/* PyCompactUnicodeObject and PyASCIIObject have a wchar_t * up to 3.11 (PEP 623). */
#define OBJECTS                                                                                    \
	.object_type = 8, .string_length = 16, .string_state = 32, .bytes_size = 16,               \
	.bytes_data = 32
#define STRINGS_TO_3_11 .string_ascii = 48, .string_compact = 72
#define STRINGS_OF_3_12 .string_ascii = 40, .string_compact = 56

#define FRAME_OBJECTS                                                                              \
	.kind = KILN_PYTHON_OBJECTS, .interp_next = 0, .interp_threads = 8, .thread_next = 8,      \
	.thread_frame = 24, .frame_previous = 24, .frame_code = 32, .frame_owner = NONE,           \
	.frame_copy = NONE, .code_qualname = NONE, .code_start = NONE, .code_copies = NONE,        \
	OBJECTS, STRINGS_TO_3_11

/* code_mask has all words up to co_zombieframe, which changes, as do the words behind it. */
#define CODE_TO_3_7                                                                                \
	.code_firstlineno = 36, .code_filename = 96, .code_name = 104, .code_lines = 112,          \
	.code_mask = UP_TO(16, 112)
#define CODE_3_8_TO_3_10                                                                           \
	.code_firstlineno = 40, .code_filename = 104, .code_name = 112, .code_lines = 120,         \
	.code_mask = UP_TO(16, 120)

static const struct python_layout layouts[PYTHON_MINOR_OFFSETS - PYTHON_MINOR_MIN] = {
    [6 - PYTHON_MINOR_MIN] =
	{
	    FRAME_OBJECTS,
	    CODE_TO_3_7,
	    .runtime_interpreters = NONE,
	    .runtime_current = NONE,
	    .runtime_key = NONE,
	    .thread_id = 152,
	    .cframe_frame = NONE,
	    .frame_instr = 120,
	},
    [7 - PYTHON_MINOR_MIN] =
	{
	    FRAME_OBJECTS,
	    CODE_TO_3_7,
	    .runtime_interpreters = 24,
	    .runtime_current = 1480,
	    .runtime_key = 1504,
	    .thread_id = 176,
	    .cframe_frame = NONE,
	    .frame_instr = 104,
	},
    [8 - PYTHON_MINOR_MIN] =
	{
	    FRAME_OBJECTS,
	    CODE_3_8_TO_3_10,
	    .runtime_interpreters = 32,
	    .runtime_current = 1368,
	    .runtime_key = 1392,
	    .thread_id = 176,
	    .cframe_frame = NONE,
	    .frame_instr = 104,
	},
    [9 - PYTHON_MINOR_MIN] =
	{
	    FRAME_OBJECTS,
	    CODE_3_8_TO_3_10,
	    .runtime_interpreters = 32,
	    .runtime_current = 568,
	    .runtime_key = 584,
	    .thread_id = 176,
	    .cframe_frame = NONE,
	    .frame_instr = 104,
	},
    [10 - PYTHON_MINOR_MIN] =
	{
	    FRAME_OBJECTS,
	    CODE_3_8_TO_3_10,
	    .runtime_interpreters = 32,
	    .runtime_current = 568,
	    .runtime_key = 584,
	    .thread_id = 176,
	    .cframe_frame = 48,
	    .frame_instr = 96,
	},
    /* code_mask leaves out co_flags: co_warmup, which changes, is in the same word. */
    [11 - PYTHON_MINOR_MIN] =
	{
	    .kind = KILN_PYTHON_ENTRY,
	    OBJECTS,
	    STRINGS_TO_3_11,
	    .runtime_interpreters = 40,
	    .runtime_current = 576,
	    .runtime_key = 592,
	    .interp_next = 0,
	    .interp_threads = 16,
	    .thread_next = 8,
	    .thread_id = 152,
	    .thread_frame = 56,
	    .cframe_frame = 8,
	    .frame_code = 32,
	    .frame_previous = 48,
	    .frame_instr = 56,
	    .frame_owner = 68,
	    .frame_copy = NONE,
	    .code_firstlineno = 72,
	    .code_filename = 112,
	    .code_name = 120,
	    .code_qualname = 128,
	    .code_lines = 136,
	    .code_start = 184,
	    .code_copies = NONE,
	    .code_mask = UP_TO(16, 40) | UP_TO(56, 80) | UP_TO(96, 128),
	},
    /* code_mask leaves out co_version, which CPython sets later. */
    [12 - PYTHON_MINOR_MIN] =
	{
	    .kind = KILN_PYTHON_SHIM,
	    OBJECTS,
	    STRINGS_OF_3_12,
	    .runtime_interpreters = 40,
	    .runtime_current = NONE,
	    .runtime_key = 1544,
	    .interp_next = 0,
	    .interp_threads = 72,
	    .thread_next = 8,
	    .thread_id = 136,
	    .thread_frame = 56,
	    .cframe_frame = 0,
	    .frame_code = 0,
	    .frame_previous = 8,
	    .frame_instr = 56,
	    .frame_owner = 70,
	    .frame_copy = NONE,
	    .shim_owner = 3,
	    .code_firstlineno = 68,
	    .code_filename = 112,
	    .code_name = 120,
	    .code_qualname = 128,
	    .code_lines = 136,
	    .code_start = 192,
	    .code_copies = NONE,
	    .code_mask = UP_TO(16, 80) | UP_TO(96, 128),
	},
};

const struct python_layout *python_layout_of(unsigned int minor)
{
	if (minor < PYTHON_MINOR_MIN || minor >= PYTHON_MINOR_OFFSETS)
		return NULL;
	return &layouts[minor - PYTHON_MINOR_MIN];
}

/* ---- 3.13 on ----------------------------------------------------------------------------------
 */

/* Byte offsets of the parts of struct _Py_DebugOffsets. Each version added fields to some parts. */
struct offsets_places {
	uint32_t interpreter, thread, frame, code, object, bytes, string;
	uint32_t thread_id;
	uint32_t copy, copies; /* 0: 3.13 has none */
};

static const struct offsets_places places[PYTHON_MINOR_MAX - PYTHON_MINOR_OFFSETS + 1] = {
    [13 - PYTHON_MINOR_OFFSETS] =
	{
	    .interpreter = 48,
	    .thread = 152,
	    .frame = 224,
	    .code = 272,
	    .object = 352,
	    .bytes = 512,
	    .string = 536,
	    .thread_id = 192,
	},
    [14 - PYTHON_MINOR_OFFSETS] =
	{
	    .interpreter = 48,
	    .thread = 176,
	    .frame = 248,
	    .code = 312,
	    .object = 400,
	    .bytes = 592,
	    .string = 616,
	    .thread_id = 216,
	    .copy = 304,
	    .copies = 392,
	},
    [15 - PYTHON_MINOR_OFFSETS] =
	{
	    .interpreter = 48,
	    .thread = 176,
	    .frame = 312,
	    .code = 376,
	    .object = 464,
	    .bytes = 688,
	    .string = 712,
	    .thread_id = 240,
	    .copy = 368,
	    .copies = 456,
	},
};

struct reader {
	struct cursor c;
	bool bad;
};

/* Returns word N of the part at PLACE: an offset, which must be below LIMIT. Else r->bad is set. */
static uint32_t field(struct reader *r, uint32_t place, uint32_t n, uint64_t limit)
{
	uint64_t v;

	cursor_seek(&r->c, place + (size_t)n * WORD);
	v = cursor_u64(&r->c);
	if (r->c.bad || v >= limit)
		r->bad = true;
	return (uint32_t)v;
}

static uint32_t size_of(struct reader *r, uint32_t place)
{
	return field(r, place, 0, FIELD_MAX);
}

static void read_thread(struct reader *r, const struct offsets_places *at, struct python_layout *l)
{
	uint32_t size = size_of(r, at->interpreter);

	l->runtime_interpreters = field(r, 24, 2, FIELD_MAX);
	l->runtime_current = l->runtime_key = NONE;
	l->interp_next = field(r, at->interpreter, 2, size);
	l->interp_threads = field(r, at->interpreter, 3, size);
	size = size_of(r, at->thread);
	l->thread_next = field(r, at->thread, 2, size);
	l->thread_frame = field(r, at->thread, 4, size);
	l->thread_id = field(r, at->thread_id, 0, size);
	l->cframe_frame = NONE;
}

static void read_frame(struct reader *r, const struct offsets_places *at, struct python_layout *l)
{
	uint32_t size = size_of(r, at->frame), copies;

	size = MIN(size, KILN_PYTHON_FRAME_BYTES);
	l->frame_previous = field(r, at->frame, 1, size);
	l->frame_code = field(r, at->frame, 2, size);
	l->frame_instr = field(r, at->frame, 3, size);
	l->frame_owner = field(r, at->frame, 5, size);
	l->frame_copy = l->code_copies = NONE;
	copies = at->copies ? field(r, at->copies, 0, FIELD_MAX) : 0;
	if (copies) {
		l->frame_copy = field(r, at->copy, 0, size);
		l->code_copies = copies;
	}
}

/* The bit in code_mask of the word at OFFSET; 0: beyond the words that the walker reads. */
static uint32_t mask_of(const struct python_layout *l, uint32_t offset)
{
	uint32_t from = offset - l->object_type;

	return offset < l->object_type || from >= CODE_SPAN ? 0 : 1U << (from / WORD);
}

static void read_code(struct reader *r, const struct offsets_places *at, struct python_layout *l)
{
	uint32_t size = size_of(r, at->code);

	l->object_type = field(r, at->object, 1, WORD * 8);
	l->code_filename = field(r, at->code, 1, size);
	l->code_name = field(r, at->code, 2, size);
	l->code_qualname = field(r, at->code, 3, size);
	l->code_lines = field(r, at->code, 4, size);
	l->code_firstlineno = field(r, at->code, 5, size);
	/*
	 * The instructions are the last member, and SIZE does not count them: they may begin at its
	 * end.
	 */
	l->code_start = field(r, at->code, 9, (uint64_t)size + WORD);
	/*
	 * Words that never change: ob_size (behind the type), flags and number of arguments, first
	 * line, and the pointers to names.
	 */
	l->code_mask = mask_of(l, l->object_type + WORD) | mask_of(l, field(r, at->code, 6, size)) |
		       mask_of(l, l->code_firstlineno) | mask_of(l, field(r, at->code, 7, size)) |
		       mask_of(l, field(r, at->code, 8, size)) | mask_of(l, l->code_filename) |
		       mask_of(l, l->code_name) | mask_of(l, l->code_qualname);
}

static void read_objects(struct reader *r, const struct offsets_places *at, struct python_layout *l)
{
	uint32_t size = size_of(r, at->bytes);

	l->bytes_size = field(r, at->bytes, 1, size);
	l->bytes_data = field(r, at->bytes, 2, size);
	size = size_of(r, at->string);
	l->string_state = field(r, at->string, 1, size);
	l->string_length = field(r, at->string, 2, size);
	l->string_ascii = field(r, at->string, 3, (uint64_t)size + 1);
	/* PyCompactUnicodeObject adds utf8_length and utf8. */
	l->string_compact = l->string_ascii + 2 * WORD;
}

int python_layout_read(const void *offsets, size_t size, unsigned int minor,
		       struct python_layout *ret, struct error *err)
{
	const struct offsets_places *at;
	struct python_layout l = {.kind = KILN_PYTHON_SHIM, .shim_owner = 3};
	struct reader r = {.c = cursor_of(offsets, size)};
	uint64_t version;

	if (minor < PYTHON_MINOR_OFFSETS || minor > PYTHON_MINOR_MAX)
		return error_set(err, -ENOTSUP, "3.%u is not known", minor);
	at = &places[minor - PYTHON_MINOR_OFFSETS];
	if (size < WORD || memcmp(offsets, "xdebugpy", WORD) != 0)
		return -EAGAIN;
	cursor_seek(&r.c, WORD);
	version = cursor_u64(&r.c);
	if (version >> 16 != (3U << 8 | minor))
		return error_set(err, -ENOTSUP, "_Py_DebugOffsets: version %#llx, want 3.%u",
				 (unsigned long long)version, minor);
	read_thread(&r, at, &l);
	read_frame(&r, at, &l);
	read_code(&r, at, &l);
	read_objects(&r, at, &l);
	if (r.bad || r.c.bad)
		return error_set(err, -ENOTSUP, "_Py_DebugOffsets of 3.%u: offsets make no sense",
				 minor);
	*ret = l;
	return 0;
}
