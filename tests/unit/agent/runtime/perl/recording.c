// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/runtime/perl/recording.h"

#include <inttypes.h>

uint8_t *recording_at(struct recording *r, uint64_t address, size_t len)
{
	for (size_t i = 0; i < r->n_pieces; i++) {
		struct recording_piece *p = &r->pieces[i];

		if (address >= p->start && address - p->start < p->size &&
		    len <= p->size - (address - p->start))
			return p->bytes + (address - p->start);
	}
	return NULL;
}

void recording_put(struct recording *r, uint64_t address, uint64_t value)
{
	uint8_t *at = recording_at(r, address, sizeof(value));

	if (at)
		memcpy(at, &value, sizeof(value));
}

uint64_t recording_word(struct recording *r, uint64_t address)
{
	const uint8_t *at = recording_at(r, address, 8);
	uint64_t value = 0;

	if (at)
		memcpy(&value, at, sizeof(value));
	return value;
}

static int read_piece(void *arg, uint64_t address, void *dst, size_t len)
{
	const uint8_t *at = recording_at(arg, address, len);

	if (!at)
		return -EFAULT;
	memcpy(dst, at, len);
	return 0;
}

struct target_memory recording_memory(struct recording *r)
{
	return (struct target_memory){.read = read_piece, .arg = r};
}

struct runtime_target recording_target(struct recording *r)
{
	return (struct runtime_target){.memory = recording_memory(r), .tgid = 1, .bias = r->bias};
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

/* Negative: no digit. */
static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_memory(struct recording *r, const char *line)
{
	struct recording_piece *p = &r->pieces[r->n_pieces];
	const char *hex;
	int at = 0;

	if (r->n_pieces >= RECORDING_PIECES_MAX ||
	    sscanf(line, "memory %" SCNx64 " %n", &p->start, &at) != 1 || !at)
		return false;
	hex = line + at;
	p->bytes = malloc(strlen(hex) / 2 + 1);
	for (; p->bytes && nibble(hex[0]) >= 0 && nibble(hex[1]) >= 0; hex += 2)
		p->bytes[p->size++] = (uint8_t)(nibble(hex[0]) << 4 | nibble(hex[1]));
	r->n_pieces++;
	return p->bytes != NULL;
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
			good = parse_memory(r, line);
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
	for (size_t i = 0; i < r->n_pieces; i++)
		free(r->pieces[i].bytes);
	free(r);
	return NULL;
}
