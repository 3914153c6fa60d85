/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of methods. A Method leads to its ConstMethod, which has the bytecodes and the indices of
 * its names in the class's constant pool; the pool leads to the class. Names are Symbols: a length
 * and modified UTF-8. None of these moves while the class is loaded, whatever garbage collector
 * runs. A method is read once for all of its frames (agent/runtime/functions.h). Loop thread; keeps
 * nothing of its own.
 */
#include "agent/runtime/hotspot/hotspot.h"

enum { SYMBOL_BYTES_MAX = 1024 };

/* Reads the characters of the Symbol at ADDRESS. *RET: how many. */
static int read_symbol(const struct hotspot_layout *l, const struct target_memory *m,
		       uint64_t address, uint8_t bytes[SYMBOL_BYTES_MAX], size_t *ret)
{
	uint32_t length;

	if (hotspot_read_half(m, address, l->symbol_length, &length) < 0)
		return -EFAULT;
	*ret = MIN(length, (uint32_t)SYMBOL_BYTES_MAX);
	return hotspot_read(m, address, l->symbol_body, bytes, *ret);
}

/* Reads entry INDEX of the constant pool POOL, which is a Symbol. */
static int pool_symbol(const struct hotspot_layout *l, const struct target_memory *m, uint64_t pool,
		       uint32_t index, uint8_t bytes[SYMBOL_BYTES_MAX], size_t *ret)
{
	uint64_t symbol;

	/* In some versions the lowest bit marks an entry that is not resolved. */
	if (hotspot_read_word(m, pool + (uint64_t)index * 8, l->pool_size, &symbol) < 0)
		return -EFAULT;
	return read_symbol(l, m, symbol & ~1ULL, bytes, ret);
}

int hotspot_method_cookie(const struct hotspot_process *p, const struct target_memory *memory,
			  uint64_t method, uint64_t ret_own[HOTSPOT_OWN_N], uint32_t *ret_cookie)
{
	const struct kiln_hotspot *k = &p->kernel;
	uint64_t *code = &ret_own[HOTSPOT_OWN_CONST], *pool = &ret_own[HOTSPOT_OWN_POOL],
		 *holder = &ret_own[HOTSPOT_OWN_HOLDER], *symbol = &ret_own[HOTSPOT_OWN_NAME];
	uint32_t name;
	uint16_t hash;

	if (hotspot_read_word(memory, method, k->method_const, code) < 0 ||
	    hotspot_read_word(memory, *code, k->const_pool, pool) < 0 ||
	    hotspot_read_half(memory, *code, k->const_name, &name) < 0 ||
	    hotspot_read_word(memory, *pool, k->pool_holder, holder) < 0 ||
	    hotspot_read_word(memory, *holder, k->klass_name, symbol) < 0 ||
	    hotspot_read(memory, *symbol, k->symbol_hash, &hash, sizeof(hash)) < 0)
		return -EFAULT;
	*ret_cookie = kiln_hotspot_cookie(*code, *symbol, hash, name);
	return 0;
}

/* ---- reading ---------------------------------------------------------------------------------
 */

/* Puts the class's name, a dot and the method's name into TEXT. */
static int read_name(const struct hotspot_layout *l, const struct target_memory *m,
		     const uint64_t own[HOTSPOT_OWN_N], struct hotspot_text *text, const char **ret)
{
	uint8_t bytes[SYMBOL_BYTES_MAX];
	char *start = text->at;
	uint32_t index;
	size_t n;

	if (hotspot_read_half(m, own[HOTSPOT_OWN_CONST], l->const_name, &index) < 0 ||
	    read_symbol(l, m, own[HOTSPOT_OWN_NAME], bytes, &n) < 0)
		return -EFAULT;
	hotspot_text_put_name(text, bytes, hotspot_class_shown(bytes, n), true);
	hotspot_text_put(text, ".", 1);
	if (pool_symbol(l, m, own[HOTSPOT_OWN_POOL], index, bytes, &n) < 0)
		return -EFAULT;
	hotspot_text_put_name(text, bytes, n, false);
	*ret = hotspot_text_end(text, start);
	return 0;
}

static int read_file(const struct hotspot_layout *l, const struct target_memory *m,
		     const uint64_t own[HOTSPOT_OWN_N], struct hotspot_text *text, const char **ret)
{
	uint8_t bytes[SYMBOL_BYTES_MAX];
	char *start = text->at;
	uint32_t index = 0;
	size_t n;

	if (l->pool_file >= 0
		? hotspot_read_half(m, own[HOTSPOT_OWN_POOL], l->pool_file, &index) < 0
		: l->klass_file < 0 ||
		      hotspot_read_half(m, own[HOTSPOT_OWN_HOLDER], l->klass_file, &index) < 0)
		return -EFAULT;
	*ret = "";
	if (!index)
		return 0;
	if (pool_symbol(l, m, own[HOTSPOT_OWN_POOL], index, bytes, &n) < 0)
		return -EFAULT;
	hotspot_text_put_name(text, bytes, n, false);
	*ret = hotspot_text_end(text, start);
	return 0;
}

/* Reads the function RET, of which `own` is known; its strings go to TEXT. The caller frees
 * *RET_LINES. */
static int read_function(const struct hotspot_process *p, const struct target_memory *memory,
			 struct hotspot_text *text, struct runtime_function *ret,
			 struct hotspot_lines *ret_lines)
{
	const char *name;
	int r = read_name(&p->layout, memory, ret->own, text, &name);

	if (r == 0)
		r = read_file(&p->layout, memory, ret->own, text, &ret->file);
	if (r < 0)
		return r;
	hotspot_name_demangle((char *)name, ret->file);
	ret->name = name;
	r = hotspot_lines_read(p, memory, ret->own[HOTSPOT_OWN_CONST], ret_lines);
	ret->table = ret_lines->bytes;
	ret->table_size = ret_lines->size;
	return r;
}

static const char *copy(struct hotspot_text *text, const char *s)
{
	char *start = text->at;

	hotspot_text_put(text, s, strlen(s));
	return hotspot_text_end(text, start);
}

void hotspot_put_symbol(const struct hotspot_process *p, const struct runtime_function *f,
			int32_t bci, struct symbol_result *ret)
{
	struct symbol *sym = &ret->symbols[ret->n++];

	*sym = (struct symbol){.name = f->name, .system_name = f->name, .file = f->file};
	hotspot_lines_find(f->table, f->table_size, bci, p->numbers_exclude_zero, &sym->line,
			   &sym->start_line);
}

/* Has RET room for one more symbol, and TEXT for its class, dot, method, file and NULs? */
static bool has_room(const struct hotspot_text *text, const struct symbol_result *ret)
{
	return ret->n < SYMBOL_INLINE_MAX && text->left >= 5 * SYMBOL_BYTES_MAX;
}

/* Puts the symbol of a method that was read before into RET. False: the method is not kept. */
static bool put_known(const struct hotspot_process *p, const struct target_memory *memory,
		      const struct hotspot_place *place, uint64_t cookie, struct hotspot_text *text,
		      struct symbol_result *ret)
{
	struct runtime_function f;

	if (!target_find_function(memory, place->method, cookie, &f))
		return false;
	/* The kept strings only hold until another method is kept. */
	f.name = copy(text, f.name);
	f.file = copy(text, f.file);
	hotspot_put_symbol(p, &f, place->bci, ret);
	return true;
}

int hotspot_method_symbol(const struct hotspot_process *p, const struct target_memory *memory,
			  const struct hotspot_place *place, uint64_t code,
			  struct hotspot_text *text, struct symbol_result *ret)
{
	_cleanup_(hotspot_lines_done) struct hotspot_lines lines = {};
	struct runtime_function f = {.file = ""};
	uint64_t cookie;
	uint32_t now;
	int r;

	if (!has_room(text, ret))
		return -ENOSPC;
	if (code && target_find_cookie(memory, place->method, code, &cookie) &&
	    put_known(p, memory, place, cookie, text, ret))
		return 0;
	if (hotspot_method_cookie(p, memory, place->method, f.own, &now) < 0)
		return -EFAULT;
	if (code)
		target_keep_cookie(memory, place->method, code, now);
	if (put_known(p, memory, place, now, text, ret))
		return 0;
	r = read_function(p, memory, text, &f, &lines);
	if (r < 0)
		return r;
	hotspot_put_symbol(p, &f, place->bci, ret);
	f.start_line = ret->symbols[ret->n - 1].start_line;
	if (f.table_size <= RUNTIME_FUNCTION_TABLE_MAX)
		target_keep_function(memory, place->method, now, &f);
	return 0;
}
