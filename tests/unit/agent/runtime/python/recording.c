// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/runtime/python/recording.h"

#include <inttypes.h>

struct runtime_target recording_target(struct recording *r)
{
	return (struct runtime_target){
	    .memory = recorded_memory_target(&r->memory), .tgid = 1, .bias = r->bias};
}

static bool parse_image(struct recording *r, const char *line)
{
	struct python_image *p = &r->image;
	int running, bound = THREAD_VARIABLE_NONE;

	p->base.ops = &python_ops;
	if (sscanf(line,
		   "image %u %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
		   " %" SCNx64 " %d %" SCNx64 " %" SCNd64 " %d %" SCNx64 " %" SCNd64,
		   &p->minor, &r->bias, &p->runtime, &p->current, &p->interps, &p->key,
		   &p->code_type, &p->eval, &running, &p->running.slot, &p->running.offset, &bound,
		   &p->bound.slot, &p->bound.offset) < 11)
		return false;
	p->running.kind = (enum thread_variable_kind)running;
	p->bound.kind = (enum thread_variable_kind)bound;
	return true;
}

static bool parse_frame(struct recording *r, const char *line)
{
	struct recording_frame *f = &r->frames[r->n_frames];

	return r->n_frames < RECORDING_FRAMES_MAX && ++r->n_frames &&
	       sscanf(line, "frame %u %u %255s %255s", &f->line, &f->start_line, f->name,
		      f->file) == 4;
}

struct recording *recording_parse(FILE *f)
{
	struct recording *r = calloc(1, sizeof(*r));
	_cleanup_free_ char *line = NULL;
	size_t size = 0;
	bool good = f && r;

	while (good && getline(&line, &size, f) > 0) {
		if (has_prefix(line, "image "))
			good = parse_image(r, line);
		else if (has_prefix(line, "frame "))
			good = parse_frame(r, line);
		else if (has_prefix(line, "memory "))
			good = recorded_memory_parse(&r->memory, line);
		else
			good = sscanf(line, "thread %" SCNx64, &r->thread) == 1;
	}
	return good ? r : recording_free(r);
}

struct recording *recording_read(const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");

	return recording_parse(f);
}

struct recording *recording_free(struct recording *r)
{
	if (!r)
		return NULL;
	recorded_memory_done(&r->memory);
	free(r);
	return NULL;
}
