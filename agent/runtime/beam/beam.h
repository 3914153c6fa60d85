/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BEAM, the virtual machine of Erlang and Elixir, as one of the runtimes of
 * agent/runtime/runtime.h. Declares what the parts share: the data found in BEAM's file and in a
 * process, and the functions that read it. docs/unwinding/beam.md has the sources.
 */
#pragma once

#include "agent/runtime/beam/walker_data.h"
#include "agent/runtime/runtime.h"

enum {
	BEAM_RELEASE_MIN = 25,
	BEAM_RELEASE_MAX = 29,
	BEAM_MODULES_MAX = 1 << 16,
	BEAM_TEXT_MAX = 16 << 20,  /* bytes of a module's description */
	BEAM_KEEP_MAX = 256 << 10, /* bytes of a description that is kept for the next name */
	BEAM_NAME_MAX = 1024,
};

/* Symbols of BEAM's file: ELF virtual addresses; 0: the file does not have the symbol. */
struct beam_image {
	struct runtime_image base;
	uint64_t descriptor; /* __jit_debug_descriptor */
	uint64_t dirty_main; /* erts_dirty_process_main() */
	uint64_t getter;     /* erts_get_scheduler_data() */
};

/* A module, as the virtual machine describes it to debuggers. Addresses in the process. */
struct beam_module {
	uint64_t base;	  /* of the code */
	uint64_t symfile; /* of the description */
	uint64_t entry;	  /* of the list entry (struct jit_code_entry) */
	uint64_t symfile_size;
	uint32_t code_size;
	uint32_t age; /* position in the list: smaller is newer */
};

struct beam_modules {
	struct beam_module *v; /* sorted by base */
	size_t n;
	struct beam_module oldest;
	/* The newest entry of the list when it was read; 0: the list was not read to its end. */
	uint64_t first;
	uint64_t first_symfile;
	uint64_t normal_exit; /* 0: the list does not have it */
	bool frame_pointers;
};

/* A process that runs BEAM. */
struct beam_process {
	uint32_t refs;
	const struct beam_image *image;
	const struct image *file;  /* BEAM's file; valid while the process is attached to */
	uint64_t bias, descriptor; /* descriptor 0: not found yet */
	struct beam_modules modules;
	struct kiln_beam kernel;
	bool ready; /* `kernel` is complete */
	/* The module whose description was read last, and the description. */
	struct beam_module kept;
	uint8_t *kept_text;
};

/* A place in a module's code. The strings lie in the module's description. */
struct beam_place {
	const char *name; /* "shop:total/1"; of LENGTH bytes */
	size_t length;
	uint32_t start, end; /* [start, end) of the function, bytes from the module's base */
	const char *file;    /* "" if there is none */
	uint32_t line;
};

/* A buffer for strings with a NUL. A string that does not fit is cut off. */
struct beam_text {
	char *at;
	size_t left;
};

int beam_probe(const struct image *image, struct runtime_image **ret,
	       struct error *err) _must_check_;
void beam_forget(struct runtime_image *ri);
int beam_attach(const struct runtime_image *ri, struct runtime_target *target,
		struct kiln_runtime *ret_kernel, void **ret_state, struct error *err) _must_check_;
/* Reads p->kernel, the data for the walker. -EAGAIN: the virtual machine has not set it up yet. */
int beam_learn(struct beam_process *p, const struct target_memory *memory,
	       struct error *err) _must_check_;
void beam_tell_kernel(const struct beam_process *p, struct kiln_runtime *ret);
void beam_free(struct beam_process *p);
void beam_detach(void *state);

/*
 * Reads the list of modules that begins at DESCRIPTOR. OLD: an earlier list, or NULL: its entries
 * are copied and not read again, so RET may have modules that are gone. -EAGAIN: the list is empty.
 */
int beam_modules_read(const struct target_memory *memory, uint64_t descriptor,
		      const struct beam_modules *old, struct beam_modules *ret) _must_check_;
void beam_modules_done(struct beam_modules *m);
/* Reads the address of the list's newest entry. */
int beam_modules_first(const struct target_memory *memory, uint64_t descriptor,
		       uint64_t *ret) _must_check_;
/* The module whose code has ADDRESS, or NULL. */
const struct beam_module *beam_modules_at(const struct beam_modules *m, uint64_t address);
/* Does M's list entry still describe M? */
bool beam_module_lives(const struct beam_module *m, const struct target_memory *memory);
/* Reads M's description; the caller frees it. */
int beam_module_text(const struct beam_module *m, const struct target_memory *memory,
		     uint8_t **ret) _must_check_;
/* Finds the function at OFFSET in a module's code. TEXT, of SIZE bytes: the module's description.
 * -ENOENT: there is none. */
int beam_module_find(const void *text, size_t size, uint32_t offset,
		     struct beam_place *ret) _must_check_;
/* The same for the function called NAME. */
int beam_module_named(const void *text, size_t size, const char *name,
		      struct beam_place *ret) _must_check_;
/*
 * Searches a list of modules in BYTES, which were read at ADDRESS, by the values that a struct
 * jit_descriptor has. Reads the memory that a candidate points to. Returns its address; 0: none.
 */
uint64_t beam_find_descriptor(const struct target_memory *memory, uint64_t address,
			      const void *bytes, size_t size);

/* Is NAME the name of a function's prologue, which holds the function's name, and code for NIFs and
 * tracing? */
bool beam_is_prologue(const char *name, size_t length);
/* Writes the function that the virtual machine calls NAME to T, as its language writes it. */
const char *beam_name(const char *name, size_t length, struct beam_text *t);

extern const struct interpreter_ops beam_ops;
