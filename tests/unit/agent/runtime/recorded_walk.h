/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk through a stopped process, native frames included: registers, mappings, rules of native
 * frames, and the memory that the walk read. Filled from a live process and written to a file that
 * a test replays. A walk reads the same bytes each time, so a read is found by its address and
 * length.
 */
#pragma once

#include "agent/runtime/target.h"

enum {
	RECORDED_READS_MAX = 1 << 14,
	RECORDED_RULES_MAX = 512,
	RECORDED_MAPS_MAX = 1024,
	RECORDED_BYTES_MAX = 8 << 20,
};

struct recorded_read {
	uint64_t address;
	uint32_t len;
	uint32_t at; /* in `bytes`; UINT32_MAX: it could not be read */
};

struct recorded_rule {
	uint64_t pc;
	struct kiln_rule rule;
	uint32_t known; /* 0: no rule */
	uint32_t end;	/* enum kiln_end: why the walk ends there */
};

struct recorded_walk {
	uint64_t leaf[32]; /* by DWARF number */
	struct recorded_read reads[RECORDED_READS_MAX];
	uint32_t n_reads;
	struct recorded_rule rules[RECORDED_RULES_MAX];
	uint32_t n_rules;
	struct kiln_mapping maps[RECORDED_MAPS_MAX];
	uint32_t n_maps;
	uint8_t *bytes; /* owned: RECORDED_BYTES_MAX */
	uint32_t n_bytes;
	int pid; /* live process: missing reads and rules are taken from it; 0: a recording */
	/* In a live process: finds the rule for PC. Returns 0 or an enum kiln_end. */
	int (*find_rule)(uint64_t pc, struct kiln_rule *ret);
	bool unread;  /* as if the process were not attached to */
	uint32_t end; /* enum kiln_end of the last walk */
};

int recorded_walk_init(struct recorded_walk *w);
void recorded_walk_done(struct recorded_walk *w);
/* The read callback of struct target_memory. ARG: the recorded walk. */
int recorded_walk_memory(void *arg, uint64_t address, void *dst, size_t len);
/* Copies registers of the stopped and traced thread TID into W->leaf; on failure W->leaf is
 * unchanged. x86-64. */
void recorded_walk_registers(struct recorded_walk *w, pid_t tid);
/* Changes the bytes at ADDRESS in all recorded reads. */
void recorded_walk_put(struct recorded_walk *w, uint64_t address, const void *src, size_t len);
/* The rule for PC; NULL: not recorded. */
struct recorded_rule *recorded_walk_rule(struct recorded_walk *w, uint64_t pc);
/* Writes SYM as lines "NAME FILE:LINE", without the file's directory; advances *OUT. */
void recorded_walk_put_symbols(const struct symbol_result *sym, char **out, size_t *left);

/* Writes a file: MAGIC, sizes, FACTS (other facts about the process), and W. */
int recorded_walk_save(const struct recorded_walk *w, uint32_t magic, const void *facts,
		       size_t facts_size, const char *path);
/* FACTS may be larger than in the file. -EBADMSG: not such a file. */
int recorded_walk_read(struct recorded_walk *w, uint32_t magic, void *facts, size_t facts_size,
		       FILE *f);
int recorded_walk_load(struct recorded_walk *w, uint32_t magic, void *facts, size_t facts_size,
		       const char *path);
