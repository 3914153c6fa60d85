// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/runtime/recorded_memory.h"

#include <inttypes.h>

uint8_t *recorded_memory_at(struct recorded_memory *m, uint64_t address, size_t len)
{
	for (size_t i = 0; i < m->n_pieces; i++) {
		struct recorded_piece *p = &m->pieces[i];

		if (address >= p->start && address - p->start < p->size &&
		    len <= p->size - (address - p->start))
			return p->bytes + (address - p->start);
	}
	return NULL;
}

uint64_t recorded_memory_word(struct recorded_memory *m, uint64_t address)
{
	const uint8_t *at = recorded_memory_at(m, address, sizeof(uint64_t));
	uint64_t value = 0;

	if (at)
		memcpy(&value, at, sizeof(value));
	return value;
}

void recorded_memory_put(struct recorded_memory *m, uint64_t address, uint64_t value)
{
	uint8_t *at = recorded_memory_at(m, address, sizeof(value));

	if (at)
		memcpy(at, &value, sizeof(value));
}

static int read_piece(void *arg, uint64_t address, void *dst, size_t len)
{
	const uint8_t *at = recorded_memory_at(arg, address, len);

	if (!at)
		return -EFAULT;
	memcpy(dst, at, len);
	return 0;
}

struct target_memory recorded_memory_target(struct recorded_memory *m)
{
	return (struct target_memory){.read = read_piece, .arg = m};
}

uint8_t *recorded_memory_add(struct recorded_memory *m, uint64_t start, size_t size)
{
	struct recorded_piece *p = &m->pieces[m->n_pieces];

	if (m->n_pieces == RECORDED_PIECES_MAX)
		return NULL;
	*p = (struct recorded_piece){.start = start, .size = size, .bytes = calloc(1, size + 1)};
	m->n_pieces += p->bytes != NULL;
	return p->bytes;
}

/* Negative: no digit. */
static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool recorded_memory_parse(struct recorded_memory *m, const char *line)
{
	uint64_t start;
	size_t size = 0;
	const char *hex;
	uint8_t *bytes;
	int at = 0;

	if (sscanf(line, "memory %" SCNx64 " %n", &start, &at) != 1 || !at)
		return false;
	hex = line + at;
	while (nibble(hex[2 * size]) >= 0 && nibble(hex[2 * size + 1]) >= 0)
		size++;
	bytes = recorded_memory_add(m, start, size);
	for (size_t i = 0; bytes && i < size; i++)
		bytes[i] = (uint8_t)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
	return bytes != NULL;
}

void recorded_memory_done(struct recorded_memory *m)
{
	for (size_t i = 0; i < m->n_pieces; i++)
		free(m->pieces[i].bytes);
	m->n_pieces = 0;
}
