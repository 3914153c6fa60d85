// SPDX-License-Identifier: Apache-2.0
/*
 * BEAM's struct interpreter_ops, and the names of frames. A name is only given if the code around
 * the frame's program counter and the description of its module were the same before and after the
 * name was read. Loop thread.
 */
#include "agent/runtime/beam/beam.h"

#include "agent/elf/rows.h"

enum { TABLE_BYTES = 1024 };

/* Is the code at PC the one that the walker saw? */
static bool is_same_code(const struct target_memory *memory, uint64_t pc, uint64_t cookie)
{
	uint64_t code[KILN_BEAM_CODE_WORDS];

	return target_read(memory, pc - KILN_BEAM_CODE_BEFORE, code, sizeof(code)) == 0 &&
	       kiln_beam_cookie(code) == cookie;
}

/* Reads the list of modules again: the new entries only, or ALL. */
static int renew_modules(struct beam_process *p, const struct target_memory *memory, bool all)
{
	struct beam_modules modules;
	int r = beam_modules_read(memory, p->descriptor, all ? NULL : &p->modules, &modules);

	if (r < 0)
		return r;
	beam_modules_done(&p->modules);
	p->modules = modules;
	return 0;
}

/*
 * The module that has PC; NULL: none. Reads the list again if it has changed, because a newer
 * module may have taken the place of another.
 */
static const struct beam_module *find_module(struct beam_process *p,
					     const struct target_memory *memory, uint64_t pc)
{
	const struct beam_module *m;
	uint64_t first;

	if (!p->descriptor || beam_modules_first(memory, p->descriptor, &first) < 0)
		return NULL;
	if (first != p->modules.first && renew_modules(p, memory, !p->modules.first) < 0)
		return NULL;
	m = beam_modules_at(&p->modules, pc);
	if (!m || beam_module_lives(m, memory))
		return m;
	if (renew_modules(p, memory, true) < 0)
		return NULL;
	m = beam_modules_at(&p->modules, pc);
	return m && beam_module_lives(m, memory) ? m : NULL;
}

/* The description of M. The last description is kept in P, unless it is large: then *RET_OWNED is
 * set, and the caller frees it. */
static const uint8_t *get_text(struct beam_process *p, const struct target_memory *memory,
			       const struct beam_module *m, uint8_t **ret_owned)
{
	uint8_t *text;

	if (p->kept_text && memcmp(&p->kept, m, sizeof(*m)) == 0)
		return p->kept_text;
	if (beam_module_text(m, memory, &text) < 0)
		return NULL;
	if (m->symfile_size > BEAM_KEEP_MAX) {
		*ret_owned = text;
		return text;
	}
	free(p->kept_text);
	p->kept_text = text;
	p->kept = *m;
	return text;
}

static const char *put_file(const char *file, struct beam_text *t)
{
	size_t n = MIN(strlen(file) + 1, t->left);
	const char *start = t->at;

	if (!n)
		return "";
	memcpy(t->at, file, n);
	t->at[n - 1] = '\0';
	t->at += n;
	t->left -= n;
	return start;
}

static int beam_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
			  char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	struct beam_process *p = state;
	struct beam_text t = {.at = scratch, .left = scratch_size};
	uint64_t pc = words[0] & KILN_FRAME_PC_MASK, at;
	_cleanup_free_ uint8_t *owned = NULL;
	const struct beam_module *m;
	struct beam_place place, next;
	const uint8_t *text;
	const char *name;

	ret->type = FRAME_BEAM;
	ret->n = 0;
	at = pc - !!(KILN_FRAME_FLAGS(words[0]) & KILN_BEAM_RETURN);
	if (!is_same_code(memory, pc, words[1]))
		return -EFAULT;
	m = find_module(p, memory, at);
	text = m ? get_text(p, memory, m, &owned) : NULL;
	if (!text || beam_module_find(text, m->symfile_size, (uint32_t)(at - m->base), &place) < 0)
		return -EFAULT;
	/*
	 * A place in a function's prologue gets the function's name. The prologue runs if the
	 * function is traced. And an error puts the function's address where a return address is,
	 * and the byte before that address is in the prologue.
	 */
	if (beam_is_prologue(place.name, place.length) &&
	    beam_module_find(text, m->symfile_size, place.end, &next) == 0)
		place = next;
	name = beam_name(place.name, MIN(place.length, BEAM_NAME_MAX), &t);
	ret->symbols[0] = (struct symbol){.name = name,
					  .system_name = name,
					  .file = put_file(place.file, &t),
					  .line = place.line};
	target_renew(memory);
	if (!beam_module_lives(m, memory) || !is_same_code(memory, pc, words[1]))
		return -EFAULT;
	ret->n = 1;
	return 0;
}

/* Certain for code of modules that are known; other executable memory may be of the JIT or of a
 * NIF. */
static enum jit_claim beam_owns(void *state, const struct target_memory *memory, uint64_t start,
				uint64_t end)
{
	const struct beam_process *p = state;

	(void)memory;
	for (size_t i = 0; i < p->modules.n; i++)
		if (p->modules.v[i].base >= start && p->modules.v[i].base < end)
			return JIT_CERTAIN;
	return JIT_LIKELY;
}

/* The walker makes all steps, so there are no unwind rules to read. This gives the walker the data
 * that could not be read when the process was attached to, and returns a table of one rule. */
static int beam_read_code(void *state, const struct target_memory *memory, bool lost,
			  struct kiln_runtime *ret_kernel, struct unwind_table **ret)
{
	const struct kiln_rule rule = {
	    .kind = KILN_RULE_FP, .flags = KILN_RULE_RUNTIME, .deref_off = KILN_RUNTIME_BEAM};
	struct beam_process *p = state;
	_cleanup_(rows_done) struct rows rows = {0};
	struct error err = {};
	uint64_t at;
	int r;

	if (p->ready && !lost)
		return -EALREADY;
	r = p->ready ? 0 : beam_learn(p, memory, &err);
	if (r < 0)
		return r;
	at = p->modules.v[0].base;
	r = rows_init(&rows, at, at + TABLE_BYTES);
	if (r < 0)
		return r;
	rows_add(&rows, at, &rule);
	beam_tell_kernel(p, ret_kernel);
	return rows_finish(&rows, ret);
}

extern const struct walker_object beam_walker;

const struct interpreter_ops beam_ops = {
    .name = "beam",
    .id = KILN_RUNTIME_BEAM,
    .walker = &beam_walker,
    .files = (const char *const[]){"beam.", NULL},
    .type = FRAME_BEAM,
    .probe = beam_probe,
    .forget = beam_forget,
    .attach = beam_attach,
    .symbolize = beam_symbolize,
    .detach = beam_detach,
    .owns = beam_owns,
    .read_code = beam_read_code,
};
