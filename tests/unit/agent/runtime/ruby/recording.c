// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/runtime/ruby/recording.h"

#include <inttypes.h>

struct runtime_target recording_target(struct recording *r)
{
	return (struct runtime_target){
	    .memory = recorded_memory_target(&r->memory), .tgid = 1, .bias = r->bias};
}

static bool parse_image(struct recording *r, const char *line)
{
	struct ruby_image *p = &r->image;
	struct ruby_code *c = &p->code;
	int kind;

	p->base.ops = &ruby_ops;
	p->n_symbols = 1;
	if (sscanf(line,
		   "image %u %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
		   " %u %" SCNx64 " %d %" SCNx64 " %" SCNd64 " %" SCNx64,
		   &p->version, &r->bias, &c->loop.start, &c->loop.end, &c->exec.start,
		   &c->exec.end, &c->prologue, &p->global, &kind, &p->current.slot,
		   &p->current.offset, &p->symbols[0]) != 12)
		return false;
	p->current.kind = (enum thread_variable_kind)kind;
	return p->version >= RUBY_VERSION_MIN && p->version <= RUBY_VERSION_MAX;
}

static bool parse_frame(struct recording *r, const char *line)
{
	struct recording_frame *f = &r->frames[r->n_frames];

	return r->n_frames < RECORDING_FRAMES_MAX && ++r->n_frames &&
	       sscanf(line, "frame %u %u %63s %127[^\n]", &f->line, &f->start_line, f->file,
		      f->name) == 4;
}

struct recording *recording_parse(FILE *f)
{
	struct recording *r = calloc(1, sizeof(*r));
	_cleanup_free_ char *line = NULL;
	bool good = f && r, has_image = false;
	size_t size = 0;

	while (good && getline(&line, &size, f) > 0) {
		if (has_prefix(line, "image "))
			good = has_image = parse_image(r, line);
		else if (has_prefix(line, "frame "))
			good = parse_frame(r, line);
		else if (has_prefix(line, "memory "))
			good = recorded_memory_parse(&r->memory, line);
		else
			good = sscanf(line, "thread %" SCNx64, &r->thread) == 1;
	}
	return good && has_image ? r : recording_free(r);
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
