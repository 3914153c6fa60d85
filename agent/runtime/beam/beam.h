/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BEAM, the machine of Erlang and Elixir, as one of the runtimes of agent/runtime/runtime.h. The
 * parts share what was found in its file and in a process. docs/unwinding/beam.md has the sources.
 */
#pragma once

#include "agent/runtime/beam/walker_data.h"
#include "agent/runtime/runtime.h"

enum {
	BEAM_RELEASE_MIN = 25,
	BEAM_RELEASE_MAX = 29,
	BEAM_MODULES_MAX = 1 << 16,
	BEAM_TEXT_MAX = 16 << 20,  /* bytes of what the machine says of one module */
	BEAM_KEEP_MAX = 256 << 10, /* ... that are kept for the next name */
	BEAM_NAME_MAX = 1024,
};

/* What a file has; addresses are ELF virtual ones, 0: not there. */
struct beam_image {
	struct runtime_image base;
	uint64_t descriptor; /* __jit_debug_descriptor */
	uint64_t dirty_main; /* erts_dirty_process_main() */
	uint64_t getter;     /* erts_get_scheduler_data() */
};

/* A module, as the machine describes it to debuggers. */
struct beam_module {
	uint64_t base;	  /* of its code */
	uint64_t symfile; /* where the description is */
	uint64_t entry;	  /* where that of the list is */
	uint64_t symfile_size;
	uint32_t code_size;
	uint32_t age; /* its number in the list: smaller is newer */
};

struct beam_modules {
	struct beam_module *v; /* by base */
	size_t n;
	struct beam_module oldest;
	uint64_t first; /* the newest entry of the list when it was read; 0: not all was */
	uint64_t first_symfile;
	uint64_t normal_exit; /* 0: not said */
	bool frame_pointers;
};

/* A process with the machine in it. */
struct beam_process {
	uint32_t refs;
	const struct beam_image *image;
	const struct image *file;  /* ... which is mapped as long as the process is attached to */
	uint64_t bias, descriptor; /* descriptor 0: not found yet */
	struct beam_modules modules;
	struct kiln_beam kernel;
	bool ready; /* `kernel` is whole */
	/* What was read last of a module's description. */
	struct beam_module kept;
	uint8_t *kept_text;
};

/* A place in a module's code. What is pointed to lies in the description. */
struct beam_place {
	const char *name; /* "shop:total/1"; of LENGTH bytes */
	size_t length;
	uint32_t start, end; /* of the function, from the module's code on */
	const char *file;    /* "" when there is none */
	uint32_t line;
};

/* Room for a text with a NUL. What does not fit is cut off. */
struct beam_text {
	char *at;
	size_t left;
};

int beam_probe(const struct image *image, struct runtime_image **ret,
	       struct error *err) _must_check_;
void beam_forget(struct runtime_image *ri);
int beam_attach(const struct runtime_image *ri, struct runtime_target *target,
		struct kiln_runtime *ret_kernel, void **ret_state, struct error *err) _must_check_;
/* Finds what the walker needs and has not got yet. -EAGAIN: the machine has not set it up. */
int beam_learn(struct beam_process *p, const struct target_memory *memory,
	       struct error *err) _must_check_;
void beam_tell_kernel(const struct beam_process *p, struct kiln_runtime *ret);
void beam_free(struct beam_process *p);
void beam_detach(void *state);

/*
 * The list that begins at DESCRIPTOR: of entries that OLD had (or NULL) no more is read, so some
 * may be gone. -EAGAIN: it is empty.
 */
int beam_modules_read(const struct target_memory *memory, uint64_t descriptor,
		      const struct beam_modules *old, struct beam_modules *ret) _must_check_;
void beam_modules_done(struct beam_modules *m);
/* The newest entry of that list. */
int beam_modules_first(const struct target_memory *memory, uint64_t descriptor,
		       uint64_t *ret) _must_check_;
/* The one whose code has ADDRESS, or NULL. */
const struct beam_module *beam_modules_at(const struct beam_modules *m, uint64_t address);
/* Is it still the one that is described there? */
bool beam_module_lives(const struct beam_module *m, const struct target_memory *memory);
/* Its description; the caller frees it. */
int beam_module_text(const struct beam_module *m, const struct target_memory *memory,
		     uint8_t **ret) _must_check_;
/* The function at OFFSET in the code, by TEXT of SIZE bytes. -ENOENT: there is none. */
int beam_module_find(const void *text, size_t size, uint32_t offset,
		     struct beam_place *ret) _must_check_;
/* The function called NAME. */
int beam_module_named(const void *text, size_t size, const char *name,
		      struct beam_place *ret) _must_check_;
/*
 * Where the list begins, by what it looks like, in the bytes at ADDRESS; 0: not there. Reads what
 * it points to.
 */
uint64_t beam_find_descriptor(const struct target_memory *memory, uint64_t address,
			      const void *bytes, size_t size);

/* Writes the name of the function that the machine calls NAME as its language does. */
/* Is NAME that of what lies before a function: its name, and what a NIF or tracing needs? */
bool beam_is_prologue(const char *name, size_t length);
const char *beam_name(const char *name, size_t length, struct beam_text *t);

extern const struct interpreter_ops beam_ops;
