// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/runtime/php/recording.h"

#include <inttypes.h>

struct runtime_target recording_target(struct recording *r)
{
	return (struct runtime_target){
	    .memory = recorded_memory_target(&r->memory), .tgid = 1, .bias = r->bias};
}

static bool parse_image(struct recording *r, const char *line)
{
	struct php_image *p = &r->image;
	uint32_t version;

	p->base.ops = &php_ops;
	if (sscanf(line, "image %u %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %u", &version,
		   &r->bias, &p->globals, &p->loop.start, &p->loop.size, &p->edges.entered) != 6)
		return false;
	p->layout = php_layout_of(version);
	return p->layout != NULL;
}

static bool parse_frame(struct recording *r, const char *line)
{
	struct recording_frame *f = &r->frames[r->n_frames];

	return r->n_frames < RECORDING_FRAMES_MAX && ++r->n_frames &&
	       sscanf(line, "frame\t%u\t%u\t%255[^\t\n]\t%255[^\t\n]", &f->line, &f->start_line,
		      f->name, f->file) >= 3;
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
		else if (has_prefix(line, "frame\t"))
			good = parse_frame(r, line);
		else
			good = recorded_memory_parse(&r->memory, line);
	}
	good = good && r->image.layout;
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
