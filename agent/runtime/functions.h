/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct runtime_functions: functions of runtimes that were read already. A function has many
 * instructions, and each of them is a frame of its own (names.h): what these frames have in common
 * is read once. A function is identified by its name space, its address and the cookie that the
 * walker saw. All runtimes and processes share the room; the functions that were not used for
 * longest go first. Loop thread.
 */
#pragma once

#include "lib/base.h"

enum {
	RUNTIME_FUNCTIONS_BYTES = 5 << 18,
	RUNTIME_FUNCTION_TABLE_MAX = 4096, /* bytes; a larger table is not kept */
};

struct runtime_function_key {
	uint64_t address, cookie;
	uint32_t space, pad;
};

struct runtime_function {
	const char *name, *file;
	uint32_t start_line;
	uint64_t own[4];   /* the runtime's own data */
	const void *table; /* the runtime's, mostly from instructions to lines; NULL: none */
	size_t table_size;
};

struct runtime_functions;
int runtime_functions_new(size_t max_bytes, struct runtime_functions **ret) _must_check_;
struct runtime_functions *runtime_functions_free(struct runtime_functions *f);
DEFINE_CLEANUP(struct runtime_functions *, runtime_functions_free)

/* RET's pointers hold until the next runtime_functions_add(). */
bool runtime_functions_find(struct runtime_functions *f, const struct runtime_function_key *key,
			    struct runtime_function *ret);
/* Finds the function at ADDRESS that was added last: whether it is still there is not known. */
bool runtime_functions_guess(struct runtime_functions *f, uint32_t space, uint64_t address,
			     struct runtime_function *ret);
/* Keeps a copy of FUNCTION, in place of the one with this KEY, if there is memory for it. */
void runtime_functions_add(struct runtime_functions *f, const struct runtime_function_key *key,
			   const struct runtime_function *function);
/*
 * Finds the cookie of the function at ADDRESS. It is valid for as long as compiled code that refers
 * to the function exists; CODE is a number that the process has for this code and no other. So the
 * function can be found without a look at the process. A cookie that is seldom asked for may be
 * forgotten.
 */
bool runtime_functions_cookie(const struct runtime_functions *f, uint32_t space, uint64_t address,
			      uint64_t code, uint64_t *ret);
void runtime_functions_keep_cookie(struct runtime_functions *f, uint32_t space, uint64_t address,
				   uint64_t code, uint64_t cookie);
size_t runtime_functions_bytes(const struct runtime_functions *f);
/* Returns how many functions were added since the beginning. */
uint64_t runtime_functions_added(const struct runtime_functions *f);
