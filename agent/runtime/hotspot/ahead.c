/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What will be read to name methods is read ahead by few system calls: each costs more than copying
 * some kilobytes. Nothing here has to be right: what was not read ahead is read when it is needed.
 * Loop thread; keeps nothing.
 */
#include "agent/runtime/hotspot/hotspot.h"

enum {
	METHODS_MAX = 8, /* that were not named before, of one frame */
	STEP_SPANS = 3,	 /* of one method and step, at most */
	OWN_SPANS = HOTSPOT_OWN_N + 2,
	SYMBOL_BYTES = 80,  /* most names are shorter */
	CONST_BYTES = 2048, /* of bytecodes and lines */
};

static struct target_span field(uint64_t address, int32_t offset)
{
	return (struct target_span){address + (uint64_t)offset, sizeof(uint64_t)};
}

static struct target_span pool_entry(const struct hotspot_layout *l, uint64_t pool, uint32_t index)
{
	return field(pool + (uint64_t)index * 8, l->pool_size);
}

/* Sets RET to what METHOD's cookie is made of. */
static void own_spans(const struct kiln_hotspot *k, uint64_t method,
		      const uint64_t own[HOTSPOT_OWN_N], struct target_span ret[OWN_SPANS])
{
	ret[0] = field(method, k->method_const);
	ret[1] = field(own[HOTSPOT_OWN_CONST], k->const_pool);
	ret[2] = field(own[HOTSPOT_OWN_CONST], k->const_name);
	ret[3] = field(own[HOTSPOT_OWN_POOL], k->pool_holder);
	ret[4] = field(own[HOTSPOT_OWN_HOLDER], k->klass_name);
	ret[5] = field(own[HOTSPOT_OWN_NAME], k->symbol_hash);
}

void hotspot_cookie_ahead(const struct hotspot_process *p, const struct target_memory *memory,
			  uint64_t method, const uint64_t own[HOTSPOT_OWN_N])
{
	struct target_span spans[OWN_SPANS];

	own_spans(&p->kernel, method, own, spans);
	target_read_together(memory, spans, OWN_SPANS);
}

/* ---- methods that were not named before ------------------------------------------------------ */

/* What a method leads to, as far as it is known. */
struct chain {
	uint64_t method, constant, pool, holder;
	uint64_t entry, file_entry; /* of the pool: the method's name, the file's name; 0: none */
};

static size_t constant_spans(const struct hotspot_process *p, const struct target_memory *m,
			     struct chain *c, struct target_span *ret)
{
	if (hotspot_read_word(m, c->method, p->kernel.method_const, &c->constant) < 0)
		return 0;
	ret[0] = (struct target_span){c->constant, (size_t)p->layout.const_size};
	return 1;
}

static size_t pool_spans(const struct hotspot_process *p, const struct target_memory *m,
			 struct chain *c, struct target_span *ret)
{
	const struct hotspot_layout *l = &p->layout;
	uint32_t name, words = 0;

	if (hotspot_read_word(m, c->constant, p->kernel.const_pool, &c->pool) < 0 ||
	    hotspot_read_half(m, c->constant, p->kernel.const_name, &name) < 0 ||
	    hotspot_read(m, c->constant, l->const_words, &words, sizeof(words)) < 0)
		return 0;
	ret[0] = (struct target_span){c->pool, (size_t)l->pool_size};
	ret[1] = pool_entry(l, c->pool, name);
	ret[2] = (struct target_span){c->constant, MIN((size_t)words * 8, CONST_BYTES)};
	c->entry = ret[1].address;
	return 3;
}

static size_t holder_spans(const struct hotspot_process *p, const struct target_memory *m,
			   struct chain *c, struct target_span *ret)
{
	const struct hotspot_layout *l = &p->layout;
	uint32_t file = 0;
	uint64_t symbol;

	if (hotspot_read_word(m, c->pool, p->kernel.pool_holder, &c->holder) < 0 ||
	    hotspot_read_word(m, c->entry, 0, &symbol) < 0)
		return 0;
	ret[0] = field(c->holder, p->kernel.klass_name);
	ret[1] = (struct target_span){symbol & ~1ULL, SYMBOL_BYTES};
	if (l->pool_file < 0 || hotspot_read_half(m, c->pool, l->pool_file, &file) < 0 || !file)
		return 2;
	ret[2] = pool_entry(l, c->pool, file);
	c->file_entry = ret[2].address;
	return 3;
}

static size_t name_spans(const struct hotspot_process *p, const struct target_memory *m,
			 struct chain *c, struct target_span *ret)
{
	uint64_t symbol;

	if (hotspot_read_word(m, c->holder, p->kernel.klass_name, &symbol) < 0)
		return 0;
	ret[0] = (struct target_span){symbol, SYMBOL_BYTES};
	if (!c->file_entry || hotspot_read_word(m, c->file_entry, 0, &symbol) < 0)
		return 1;
	ret[1] = (struct target_span){symbol & ~1ULL, SYMBOL_BYTES};
	return 2;
}

/*
 * Follows N methods at the same time: each step needs what the one before has read. The last one
 * reads AGAIN too.
 */
static void follow(const struct hotspot_process *p, const struct target_memory *m,
		   struct chain *chains, size_t n, const struct target_span *again)
{
	static size_t (*const steps[])(
	    const struct hotspot_process *p, const struct target_memory *m, struct chain *c,
	    struct target_span *ret) = {constant_spans, pool_spans, holder_spans, name_spans};
	struct target_span spans[METHODS_MAX * STEP_SPANS] = {};

	for (size_t step = 0; n && step < ARRAY_SIZE(steps); step++) {
		size_t at = 0, left = 0;

		for (size_t i = 0; i < n; i++) {
			size_t got = steps[step](p, m, &chains[i], spans + at);

			at += got;
			if (got)
				chains[left++] = chains[i];
		}
		n = left;
		target_read_again(m, spans, at, step + 1 < ARRAY_SIZE(steps) ? NULL : again);
	}
}

void hotspot_methods_ahead(const struct hotspot_process *p, const struct target_memory *memory,
			   const struct hotspot_place *places, int n, uint64_t code,
			   const struct target_span *again)
{
	struct target_span spans[HOTSPOT_PLACES * OWN_SPANS];
	struct chain chains[METHODS_MAX] = {};
	struct runtime_function f;
	size_t at = 0, n_chains = 0;

	for (int i = 0; i < n; i++) {
		uint64_t cookie, method = places[i].method;

		if (code && target_find_cookie(memory, method, code, &cookie))
			continue;
		if (target_guess_function(memory, method, &f)) {
			own_spans(&p->kernel, method, f.own, spans + at);
			at += OWN_SPANS;
			continue;
		}
		spans[at++] = field(method, p->kernel.method_const);
		if (n_chains < METHODS_MAX)
			chains[n_chains++].method = method;
	}
	target_read_again(memory, spans, at, n_chains ? NULL : again);
	follow(p, memory, chains, n_chains, again);
}
