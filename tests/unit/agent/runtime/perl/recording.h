/* SPDX-License-Identifier: Apache-2.0 */
/* A recording that record.c made: memory that is a few pieces of a process's, and what was in them.
 */
#pragma once

#include "agent/runtime/perl/perl.h"

enum { RECORDING_PIECES_MAX = 2048, RECORDING_FRAMES_MAX = 256 };

struct recording {
	struct perl_image image;
	uint64_t bias, state;
	struct recording_frame {
		unsigned int line, start_line;
		char name[256], file[256];
		unsigned int group;
	} frames[RECORDING_FRAMES_MAX];
	size_t n_frames;
	unsigned int n_groups;
	struct recording_piece {
		uint64_t start, size;
		uint8_t *bytes;
	} pieces[RECORDING_PIECES_MAX];
	size_t n_pieces;
};

/* NULL when the file is not there or damaged. */
struct recording *recording_read(const char *path);
struct recording *recording_parse(FILE *f); /* takes NULL */
struct recording *recording_free(struct recording *r);
struct target_memory recording_memory(struct recording *r);
struct runtime_target recording_target(struct recording *r);
/* The byte at ADDRESS, to be changed; NULL when it was not recorded. */
uint8_t *recording_at(struct recording *r, uint64_t address, size_t len);
void recording_put(struct recording *r, uint64_t address, uint64_t value);
uint64_t recording_word(struct recording *r, uint64_t address);
