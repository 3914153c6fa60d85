/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing, linear probing. A slot carries the number of the round that wrote it, so to
 * forget everything costs nothing; nothing is ever deleted alone.
 */
#include "agent/window/memo.h"

enum { CAP_MIN = 1024 };

void memo_done(struct memo *m)
{
	free(m->slots);
	*m = (struct memo){};
}

void memo_begin(struct memo *m)
{
	m->round++;
	/* A round number that comes again would bring old slots back. */
	if ((m->cap > CAP_MIN && m->n < m->cap / 16) || !m->round) {
		memo_done(m);
		m->round = 1;
	}
	m->n = 0;
}

/* The slot of the key, or the free one where it belongs. */
static struct memo_slot *probe(const struct memo *m, const void *where, uint64_t address,
			       uint32_t pid)
{
	size_t i = mix64(address ^ mix64((uintptr_t)where + pid));

	for (;; i++) {
		struct memo_slot *s = &m->slots[i & (m->cap - 1)];

		if (s->round != m->round ||
		    (s->address == address && s->where == where && s->pid == pid))
			return s;
	}
}

static bool grow(struct memo *m)
{
	struct memo bigger = {.cap = MAX(m->cap * 2, (size_t)CAP_MIN), .n = m->n};

	bigger.round = m->round;
	bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
	if (!bigger.slots)
		return false;
	for (size_t i = 0; i < m->cap; i++) {
		const struct memo_slot *s = &m->slots[i];

		if (s->round == m->round)
			*probe(&bigger, s->where, s->address, s->pid) = *s;
	}
	free(m->slots);
	*m = bigger;
	return true;
}

bool memo_add(struct memo *m, const void *where, uint64_t address, uint32_t pid, uint32_t value)
{
	if (!m->round)
		m->round = 1;
	if (m->n >= m->cap / 2 && !grow(m))
		return false;
	*probe(m, where, address, pid) = (struct memo_slot){
	    .where = where, .address = address, .pid = pid, .value = value, .round = m->round};
	m->n++;
	return true;
}

bool memo_find(const struct memo *m, const void *where, uint64_t address, uint32_t pid,
	       uint32_t *ret)
{
	const struct memo_slot *s;

	if (!m->cap)
		return false;
	s = probe(m, where, address, pid);
	if (s->round != m->round)
		return false;
	*ret = s->value;
	return true;
}

size_t memo_bytes(const struct memo *m)
{
	return m->cap * sizeof(*m->slots);
}
