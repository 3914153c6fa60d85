// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/runtime/perl/recording.h"

#include <inttypes.h>

struct runtime_target recording_target(struct recording *r)
{
	return (struct runtime_target){
	    .memory = recorded_memory_target(&r->memory), .tgid = 1, .bias = r->bias};
}

static bool parse_image(struct recording *r, const char *line)
{
	struct perl_image *p = &r->image;
	int threaded, at = 0;
	char *end;

	p->base.ops = &perl_ops;
	if (sscanf(line, "image %u %d %" SCNx64 " %" SCNx64 " %" SCNu32 "%n", &p->minor, &threaded,
		   &r->bias, &p->runops, &p->state_from, &at) != 5)
		return false;
	line += at;
	for (size_t i = 0; i < sizeof(p->at) / 8; i++, line = end)
		((uint64_t *)&p->at)[i] = strtoull(line, &end, 0);
	p->threaded = threaded;
	/* perl_probe() refuses others. */
	return perl_layout_of(p->minor);
}

static bool parse_frame(struct recording *r, const char *line)
{
	struct recording_frame *f = &r->frames[r->n_frames];

	if (r->n_frames >= RECORDING_FRAMES_MAX)
		return false;
	r->n_frames++;
	f->group = r->n_groups;
	return sscanf(line, "frame %u\t%u\t%255[^\t]\t%255[^\t\n]", &f->line, &f->start_line,
		      f->name, f->file) == 4;
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
		else if (has_prefix(line, "group"))
			r->n_groups++;
		else
			good = sscanf(line, "state %" SCNx64, &r->state) == 1;
	}
	if (good && r->image.minor)
		return r;
	return recording_free(r);
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
