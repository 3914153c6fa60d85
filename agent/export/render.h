/* SPDX-License-Identifier: Apache-2.0 */
/* Renders batches as text for people. Pure functions, so that tests can compare the text. */
#pragma once

#include "agent/profile/batch.h"
#include "lib/buf.h"

struct text_options {
	bool resource_attributes, sample_attributes, stack_frames, function_file,
	    skip_without_container;
	uint32_t frame_types; /* bits of enum frame_type */
	char **sample_types;  /* "samples", "off_cpu"; none: all */
	size_t n_sample_types;
};

/*
 * Appends the dump of BATCH. PIECE (may be NULL) is called between samples, and may write OUT's
 * bytes out and empty it with buf_reset().
 */
void render_text(const struct batch *batch, const struct text_options *options, struct buf *out,
		 void (*piece)(void *arg, struct buf *out), void *arg);

struct top_options {
	uint32_t rows;	    /* functions shown, 0: 20 */
	unsigned int width; /* columns; names are cut to fit, 0: 80 */
	bool tty;	    /* clear the screen first, bold header */
};

/* The table of the functions that took most CPU samples. -ENOMEM */
int render_top(const struct batch *batch, const struct top_options *options, struct buf *out);
