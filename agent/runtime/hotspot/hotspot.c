/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hotspot_ops, and the names of frames. A name is only given if the code or method that it was read
 * from was the same before and after: compiled code is told by its compile id, which the JVM gives
 * once, an interpreted method by its cookie. Code and methods that the process does not have any
 * more have no names. Loop thread.
 */
#include "agent/runtime/hotspot/hotspot.h"

enum {
	STUB_NAME_MAX = 128,
	BYTECODES_MAX = 65536, /* bytes of a method */
	INTERPRETER = 1,       /* stands for the group of codelets */
};

static int put_places(const struct hotspot_process *p, const struct target_memory *memory,
		      const struct hotspot_place *places, int n, uint64_t code,
		      struct hotspot_text *text, struct symbol_result *ret)
{
	int r = 0;

	for (int i = 0; i < n && r == 0; i++)
		r = hotspot_method_symbol(p, memory, &places[i], code, text, ret);
	/* If the text is full, the names that fit are returned. */
	return ret->n && r == -ENOSPC ? 0 : r;
}

/*
 * Is the code at BLOB the one with the compile id ID, and still in use? If so both before and after
 * its names are read, they are right: code loses its method, or is freed, before the JVM frees the
 * memory of a class that the code needs.
 */
static bool is_alive(const struct hotspot_process *p, const struct target_memory *memory,
		     uint64_t blob, uint32_t id)
{
	const struct hotspot_layout *l = &p->layout;
	int32_t at = l->nmethod_method >= 0 ? l->nmethod_method : l->compiled_method_method;
	const struct target_span header = hotspot_nmethod_span(p, blob);
	uint64_t method;
	uint32_t now;
	uint8_t used;

	target_read_together(memory, &header, 1);
	/* HeapBlock::Header: the length, in half of its size, then whether the block is used */
	return hotspot_read(memory, blob, -l->block_size / 2, &used, sizeof(used)) == 0 && used &&
	       hotspot_read(memory, blob, p->kernel.nmethod_id, &now, sizeof(now)) == 0 &&
	       now == id && hotspot_read(memory, blob, at, &method, sizeof(method)) == 0 && method;
}

static int compiled_symbol(const struct hotspot_process *p, const struct target_memory *memory,
			   const uint64_t words[2], struct hotspot_text *text,
			   struct symbol_result *ret)
{
	struct hotspot_place places[HOTSPOT_PLACES];
	uint64_t pc = words[0] & KILN_FRAME_PC_MASK;
	uint64_t blob = pc - KILN_HOTSPOT_DISTANCE(words[1]);
	uint32_t id = KILN_HOTSPOT_COMPILE_ID(words[1]);
	/* Its id and its address: code that was compiled ahead of time may have no id. */
	uint64_t code = blob ^ (uint64_t)id << 32;
	const struct target_span header = hotspot_nmethod_span(p, blob);
	bool keeps = id != 0;
	int n, r;

	if (KILN_HOTSPOT_DISTANCE(words[1]) == KILN_HOTSPOT_DISTANCE_MAX ||
	    !is_alive(p, memory, blob, id))
		return -EFAULT;
	if (keeps)
		target_keep_begin(memory, code);
	n = hotspot_code_places(p, memory, blob, pc, places, HOTSPOT_PLACES);
	target_keep_end(memory);
	if (n > 0)
		hotspot_methods_ahead(p, memory, places, n, code, &header);
	r = n < 0 ? n : put_places(p, memory, places, n, code, text, ret);
	/* Something was read behind the last look at the header. */
	if (!keeps || target_has_read(memory))
		target_renew(memory);
	if (is_alive(p, memory, blob, id))
		return r;
	target_forget(memory, code);
	return -EFAULT;
}

/* Returns the index of the bytecode in the ConstMethod CODE whose address has the lower half
 * ADDRESS (0: of the first one); -1: it is not in there. */
static int32_t bci_of(const struct hotspot_process *p, uint64_t code, uint32_t address)
{
	uint32_t bci = address - (uint32_t)(code + (uint64_t)p->layout.const_size);

	return !address ? 0 : bci < BYTECODES_MAX ? (int32_t)bci : -1;
}

static int interpreted_symbol(const struct hotspot_process *p, const struct target_memory *memory,
			      const uint64_t words[2], struct hotspot_text *text,
			      struct symbol_result *ret)
{
	struct hotspot_place place = {.method = words[0] & KILN_FRAME_PC_MASK};
	uint32_t cookie, seen = KILN_HOTSPOT_COOKIE(words[1]);
	uint32_t bytecode = KILN_HOTSPOT_BCP(words[1]);
	uint64_t own[HOTSPOT_OWN_N];
	struct runtime_function f;
	int r;

	if (target_find_function(memory, place.method, seen, &f)) {
		hotspot_put_symbol(p, &f, bci_of(p, f.own[HOTSPOT_OWN_CONST], bytecode), ret);
		return 0;
	}
	hotspot_methods_ahead(p, memory, &place, 1, 0, NULL);
	if (hotspot_method_cookie(p, memory, place.method, own, &cookie) < 0 || cookie != seen)
		return -EFAULT;
	place.bci = bci_of(p, own[HOTSPOT_OWN_CONST], bytecode);
	r = put_places(p, memory, &place, 1, 0, text, ret);
	target_renew(memory);
	hotspot_cookie_ahead(p, memory, place.method, own);
	if (hotspot_method_cookie(p, memory, place.method, own, &cookie) < 0 || cookie != seen)
		return -EFAULT;
	return r;
}

/* ---- stubs ------------------------------------------------------------------------------------
 */

/* Appends the text that the process has at ADDRESS. */
static int put_string(const struct target_memory *memory, uint64_t address,
		      struct hotspot_text *text)
{
	for (int i = 0; i < STUB_NAME_MAX && text->left > 1; i++) {
		if (target_read(memory, address + (uint64_t)i, text->at, 1) < 0)
			return -EFAULT;
		if (!*text->at)
			return 0;
		/* Names are ASCII. */
		if (*text->at < ' ' || *text->at > '~')
			*text->at = '?';
		text->at++;
		text->left--;
	}
	return 0;
}

/*
 * Cuts off what the JVM puts around the names of its stubs. The name is [START, END); returns its
 * new end.
 */
static char *stub_name_end(char *start, char *end)
{
	static const char *const tails[] = {" (stub gen)", "_stub"};
	static const char head[] = "Stub Generator ";
	size_t length = sizeof(head) - 1;

	if ((size_t)(end - start) > length && same_bytes(start, head, length)) {
		memmove(start, start + length, (size_t)(end - start) - length);
		end -= length;
	}

	for (size_t i = 0; i < ARRAY_SIZE(tails); i++) {
		size_t n = strlen(tails[i]);

		if ((size_t)(end - start) > n && same_bytes(end - n, tails[i], n))
			end -= n;
	}
	return end;
}

/*
 * Finds the address of a stub's name: that of its piece of code, else that of its blob. *RET_GROUP
 * is the address of its group's name, INTERPRETER, or 0: it has no group.
 */
static int find_stub_name(struct hotspot_process *p, const struct target_memory *memory,
			  const uint64_t words[2], uint64_t *ret_group, uint64_t *ret_name)
{
	uint64_t pc =
	    (words[0] & KILN_FRAME_PC_MASK) - !!(KILN_FRAME_FLAGS(words[0]) & KILN_HOTSPOT_RETURN);
	const struct hotspot_piece *piece = hotspot_piece_at(&p->pieces, pc);
	uint32_t distance = KILN_HOTSPOT_DISTANCE(words[1]);

	*ret_group = piece ? piece->group : 0;
	if (piece && piece->kind == HOTSPOT_PIECE_CODELET)
		*ret_group = INTERPRETER;
	*ret_name = piece ? piece->name : 0;
	if (piece || distance == KILN_HOTSPOT_DISTANCE_MAX)
		return piece ? 0 : -EFAULT;
	/* The stub was made after the pieces were found: find them again. */
	p->wants_pieces = true;
	return hotspot_read(memory, (words[0] & KILN_FRAME_PC_MASK) - distance, p->layout.blob_name,
			    ret_name, sizeof(*ret_name));
}

static int stub_symbol(struct hotspot_process *p, const struct target_memory *memory,
		       const uint64_t words[2], struct hotspot_text *text,
		       struct symbol_result *ret)
{
	char *start = text->at, *begin, *end;
	uint64_t group, name;

	if (find_stub_name(p, memory, words, &group, &name) < 0)
		return -EFAULT;
	if (group == INTERPRETER)
		hotspot_text_put(text, "Interpreter::", 13);
	else if (group && put_string(memory, group, text) < 0)
		return -EFAULT;
	else if (group)
		hotspot_text_put(text, "::", 2);
	begin = text->at;
	if (put_string(memory, name, text) < 0)
		return -EFAULT;
	end = stub_name_end(begin, text->at);
	*end = 0;
	ret->symbols[0] = (struct symbol){.name = start, .system_name = start, .file = ""};
	ret->n = 1;
	return 0;
}

static int frozen_symbol(struct symbol_result *ret)
{
	static const char name[] = "[frames of a virtual thread in the heap]";

	ret->symbols[0] = (struct symbol){.name = name, .system_name = name, .file = ""};
	ret->n = 1;
	return 0;
}

static int hotspot_symbolize(void *state, const struct target_memory *memory,
			     const uint64_t words[2], char *scratch, size_t scratch_size,
			     struct symbol_result *ret)
{
	struct hotspot_process *p = state;
	struct hotspot_text text = {.at = scratch, .left = scratch_size};

	ret->type = FRAME_JVM;
	ret->n = 0;
	switch (KILN_FRAME_FLAGS(words[0]) & KILN_HOTSPOT_KIND_MASK) {
	case KILN_HOTSPOT_COMPILED:
		return compiled_symbol(p, memory, words, &text, ret);
	case KILN_HOTSPOT_INTERPRETED:
		return interpreted_symbol(p, memory, words, &text, ret);
	case KILN_HOTSPOT_STUB:
		return stub_symbol(p, memory, words, &text, ret);
	default:
		return frozen_symbol(ret);
	}
}

/* The JVM has code in its code cache and nowhere else. */
static enum jit_claim hotspot_owns(void *state, const struct target_memory *memory, uint64_t start,
				   uint64_t end)
{
	const struct hotspot_process *p = state;

	return start >= p->kernel.low && end <= p->kernel.high ? JIT_CERTAIN : JIT_NONE;
}

static int hotspot_read_code(void *state, const struct target_memory *memory, bool lost,
			     struct kiln_runtime *ret_kernel, struct unwind_table **ret)
{
	struct hotspot_process *p = state;
	struct hotspot_pieces pieces;
	int r;

	if (!p->wants_pieces && !lost)
		return -EALREADY;
	r = hotspot_pieces_find(p, memory, &pieces);
	if (r < 0)
		return r;
	if (!lost && pieces.n == p->pieces.n) {
		hotspot_pieces_done(&pieces);
		return -EALREADY;
	}
	r = hotspot_static_table(p, memory, &pieces, ret);
	if (r < 0) {
		hotspot_pieces_done(&pieces);
		return r;
	}
	hotspot_pieces_done(&p->pieces);
	p->pieces = pieces;
	/* Some pieces are only made when the compilers run: a sample of unknown code asks again. */
	p->wants_pieces = false;
	p->kernel.barrier = pieces.barrier;
	if (!p->kernel.compiles)
		hotspot_find_counters(p, memory);
	hotspot_tell_kernel(p, ret_kernel);
	return 0;
}

extern const struct walker_object hotspot_walker;

const struct interpreter_ops hotspot_ops = {
    .name = "hotspot",
    .api_name = "jvm",
    .id = KILN_RUNTIME_HOTSPOT,
    .walker = &hotspot_walker,
    .files = (const char *const[]){"libjvm", NULL},
    .type = FRAME_JVM,
    .probe = hotspot_probe,
    .forget = hotspot_forget,
    .attach = hotspot_attach,
    .symbolize = hotspot_symbolize,
    .thread_name = hotspot_thread_name,
    .detach = hotspot_detach,
    .owns = hotspot_owns,
    .read_code = hotspot_read_code,
};
