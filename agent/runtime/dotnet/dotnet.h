/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .NET's runtime (CoreCLR) as one of the runtimes of agent/runtime/runtime.h. This header has what
 * the files of this folder share. The table that the runtime exports for debuggers leads to the map
 * of all its code, in the process. Some offsets are found by searching for known values, the others
 * are constants of the versions (docs/unwinding/dotnet.md).
 */
#pragma once

#include "agent/runtime/dotnet/walker_data.h"
#include "agent/runtime/runtime.h"
#include "lib/cursor.h"

struct dotnet_image {
	struct runtime_image base;
	uint64_t table; /* g_dacTable: ELF virtual address */
	uint64_t start; /* ELF virtual address of the file's first segment */
	uint32_t major; /* 8 */
};

int dotnet_probe(const struct image *image, struct runtime_image **ret,
		 struct error *err) _must_check_;
void dotnet_forget(struct runtime_image *ri);

/* ---- a process --------------------------------------------------------------------------------
 */

/* The metadata of a module (ECMA-335, II.24) in the process's memory: where its parts are. */
enum dotnet_table {
	DOTNET_TYPE_DEF = 0x02,
	DOTNET_METHOD_DEF = 0x06,
	DOTNET_GENERIC_PARAM = 0x2a,
	DOTNET_NESTED_CLASS = 0x29,
	DOTNET_TABLES = 0x2d,
};

struct dotnet_metadata {
	uint64_t tables[DOTNET_TABLES]; /* address of each table */
	uint32_t rows[DOTNET_TABLES];
	uint16_t sizes[DOTNET_TABLES]; /* bytes of a row */
	uint64_t strings;
	uint32_t strings_size;
	/* Indices into these heaps have 4 bytes, not 2. */
	uint8_t wide_strings, wide_guids, wide_blobs;
};

struct dotnet_module {
	uint64_t module, place; /* the Module, and its name or image: these addresses identify it */
	uint64_t used;
	bool has_metadata;
	struct dotnet_metadata metadata;
};

enum { DOTNET_MODULES = 64 /* modules that are remembered */ };

struct dotnet_process {
	uint32_t refs; /* attachments */
	struct kiln_dotnet kernel;
	uint64_t
	    code_map; /* offset in ReadyToRunInfo of the map from code to MethodDesc; 0: not yet */
	uint16_t simple_name; /* Module: m_pSimpleName */
	uint16_t
	    module_base; /* Module: its image (from 10 on, which has no m_pSimpleName); else 0 */
	uint16_t method_module; /* MethodTable: m_pModule */
	/* Bits of a method's token that its MethodDesc has; the chunk has the others. */
	uint8_t token_bits;
	/* MethodTable: shift of its type's row in m_dwFlags2 (8: m_wToken) */
	uint8_t row_shift;
	bool knows_stubs;	       /* the numbers of the kinds of stubs are those in name.c */
	uint64_t code_start, code_end; /* reserved for code; 0: not known */
	uint64_t clock;
	struct dotnet_module modules[DOTNET_MODULES];
};

int dotnet_attach(const struct runtime_image *ri, struct runtime_target *target,
		  struct kiln_runtime *ret_kernel, void **ret_state,
		  struct error *err) _must_check_;
void dotnet_detach(void *state);

/* Reads LEN bytes at ADDRESS. 0 or -EFAULT. */
static inline int dotnet_read(const struct target_memory *m, uint64_t address, void *dst,
			      size_t len)
{
	return target_read(m, address, dst, len) < 0 ? -EFAULT : 0;
}

/* ---- code (code.c) ----------------------------------------------------------------------------
 */

struct dotnet_section {
	uint64_t words[KILN_DOTNET_SECTION_WORDS];
};

/* Finds the RangeSection that holds PC. -ENOENT: none does. -EFAULT. */
int dotnet_section_at(const struct kiln_dotnet *k, const struct target_memory *memory, uint64_t pc,
		      struct dotnet_section *ret) _must_check_;
/* Calls TAKE for each RangeSection until it returns non-zero, which is returned. */
int dotnet_each_section(const struct kiln_dotnet *k, const struct target_memory *memory,
			int (*take)(void *arg, const struct dotnet_section *section), void *arg);
/* Finds the MethodDesc of the code compiled ahead of time that holds PC, and where that code
 * begins. -EFAULT. */
int dotnet_ahead_method(struct dotnet_process *p, const struct target_memory *memory, uint64_t pc,
			uint64_t *ret_start, uint64_t *ret_method) _must_check_;

/* ---- metadata (metadata.c) --------------------------------------------------------------------
 */

/*
 * Finds and reads the metadata whose heap of strings has the address NAME in it. -EFAULT, -ENOENT.
 */
int dotnet_metadata_find(const struct target_memory *memory, uint64_t name,
			 struct dotnet_metadata *ret) _must_check_;
/*
 * Reads the metadata of the image at BASE, which may lie there as in its file, or as it is loaded.
 */
int dotnet_metadata_of_image(const struct target_memory *memory, uint64_t base,
			     struct dotnet_metadata *ret) _must_check_;
/* Reads the string INDEX, cut to SIZE bytes. -EFAULT. */
int dotnet_metadata_string(const struct dotnet_metadata *d, const struct target_memory *memory,
			   uint32_t index, char *ret, size_t size) _must_check_;
struct dotnet_type_row {
	uint32_t name, space; /* indices of strings */
	uint32_t methods;     /* the row of its first method */
};
int dotnet_metadata_type(const struct dotnet_metadata *d, const struct target_memory *memory,
			 uint32_t row, struct dotnet_type_row *ret) _must_check_;
/* Finds the row of the type that has the method of row METHOD. -ENOENT, -EFAULT. */
int dotnet_metadata_owner(const struct dotnet_metadata *d, const struct target_memory *memory,
			  uint32_t method, uint32_t *ret) _must_check_;
/* Finds the type that TYPE is nested in; *RET 0: none. -EFAULT. */
int dotnet_metadata_outer(const struct dotnet_metadata *d, const struct target_memory *memory,
			  uint32_t type, uint32_t *ret) _must_check_;
/* Reads the names of the generic parameters of the row OWNER, a type or a method: indices of
 * strings. Returns how many, at most MAX; those of a nested type begin with those of the outer one.
 * -EFAULT. */
int dotnet_metadata_parameters(const struct dotnet_metadata *d, const struct target_memory *memory,
			       bool of_method, uint32_t owner, uint32_t *ret,
			       size_t max) _must_check_;
int dotnet_metadata_method(const struct dotnet_metadata *d, const struct target_memory *memory,
			   uint32_t method, uint32_t *ret_name) _must_check_;

/* ---- type arguments (generics.c) --------------------------------------------------------------
 */

/* Reads the type arguments of the MethodTable TABLE: TypeHandles, those of its outer types first.
 * Returns how many, at most MAX; 0: it is not generic, or cannot be read. */
size_t dotnet_type_arguments(const struct target_memory *memory, uint64_t table, uint64_t *ret,
			     size_t max);
/* Reads the type arguments of the MethodDesc METHOD, without those of its type. */
size_t dotnet_method_arguments(const struct dotnet_process *p, const struct target_memory *memory,
			       uint64_t method, uint64_t *ret, size_t max);
struct dotnet_type {
	uint64_t element; /* TypeHandle of an array's elements; 0: it is no array */
	uint64_t module;  /* the type's Module */
	uint32_t row;	  /* the type's row in that module's metadata */
};
/* Finds the type that the TypeHandle HANDLE stands for. -ENOENT: a type without a name. -EFAULT. */
int dotnet_type_of(const struct dotnet_process *p, const struct target_memory *memory,
		   uint64_t handle, struct dotnet_type *ret) _must_check_;

/* ---- names (name.c) ---------------------------------------------------------------------------
 */

int dotnet_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		     char *scratch, size_t scratch_size, struct symbol_result *ret);

extern const struct interpreter_ops dotnet_ops;
