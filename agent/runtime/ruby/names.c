// SPDX-License-Identifier: Apache-2.0
/*
 * The name of a frame, as in Ruby 3.4's backtraces, for all versions: Shop::Cart#total,
 * Shop::Cart.build, block in Shop::Cart#total, rescue in Shop::Cart#total, <class:Cart>, <main>.
 * A method of a class without a name is shown by its own name alone. A method that define_method
 * made of a block is shown by its name, not by the place of the block.
 *
 * Objects are read twice, before and after their strings, because in between they may be freed and
 * replaced by others. Both times they must have the cookie that the walk saw. The names are kept
 * for frames of other instructions of the same code. Loop thread.
 *
 * Sources: calculate_iseq_label() and gen_method_name(), vm_backtrace.c of 3.4; vm_core.h,
 * method.h, proc's structures of 2.7.4, 3.1.2 and 3.3.8.
 */
#include "agent/runtime/ruby/ruby.h"

enum {
	ISEQ_BODY = 16,
	/* rb_iseq_constant_body */
	BODY_TYPE = 0,
	BODY_SIZE = 4,
	BODY_ENCODED = 8,
	BODY_PATH = 64,
	BODY_LABEL = 80,
	BODY_FIRST_LINE = 88,
	/* rb_callable_method_entry_t */
	METHOD_DEFINITION = 16,
	METHOD_OWNER = 32,
	OBJECT_CLASS = 8, /* struct RBasic.klass */
	/* rb_method_definition_t */
	DEFINITION_TYPE = 0,
	DEFINITION_TYPE_MASK = 15,
	DEFINITION_BODY = 8,
	DEFINITION_ID = 32,
	TYPE_BMETHOD = 4,  /* VM_METHOD_TYPE_BMETHOD */
	DATA_POINTER = 32, /* struct RTypedData.data */
	PROC_CODE = 16,	   /* rb_proc_t.block.as.captured.code */
	IMEMO_SHIFT = 12,
	IMEMO_ISEQ = 7,
	LEVELS_MAX = 64,
	VERSION_INT_LINE = 302, /* from this version on a first line is an int, not a VALUE */
};

/* rb_iseq_type */
enum iseq_type {
	ISEQ_TOP,
	ISEQ_METHOD,
	ISEQ_BLOCK,
	ISEQ_CLASS,
	ISEQ_RESCUE,
	ISEQ_ENSURE,
	ISEQ_EVAL,
	ISEQ_MAIN,
	ISEQ_PLAIN,
};

/*
 * The objects in a frame's words, and those that they lead to. `entry`: the method entry; 0: the
 * words have the owner instead, or the frame has no method.
 */
struct frame {
	struct ruby_look look;
	uint64_t iseq, body, entry, definition, owner;
	uint32_t cookie, index;
	bool is_exact, is_bmethod;
};

static uint64_t hash_of_code(struct frame *f)
{
	const struct ruby_look *look = &f->look;
	uint64_t encoded = ruby_read_word(look, f->body + BODY_ENCODED);
	uint64_t label = ruby_read_word(look, f->body + BODY_LABEL);
	uint64_t path = ruby_read_word(look, f->body + BODY_PATH);

	return kiln_ruby_code_hash(f->body, encoded, label, path);
}

/* Reads the objects that the cookie is made of. -EFAULT: they have been replaced by others. */
static int read_objects(struct frame *f)
{
	const struct ruby_look *look = &f->look;
	uint64_t method = 0, hash;

	if (f->entry) {
		if (ruby_type_of(look, f->entry) != RUBY_T_IMEMO)
			return -EFAULT;
		method = f->definition = ruby_read_word(look, f->entry + METHOD_DEFINITION);
		f->owner = ruby_read_word(look, f->entry + METHOD_OWNER);
	} else if (f->owner) {
		method = ruby_read_word(look, f->owner + OBJECT_CLASS);
	}
	if (f->iseq) {
		f->body = ruby_read_word(look, f->iseq + ISEQ_BODY);
		if (!f->body)
			return -EFAULT;
		hash = hash_of_code(f);
	} else {
		hash =
		    kiln_ruby_definition_hash(ruby_read_word(look, f->definition + DEFINITION_BODY),
					      ruby_read_word(look, f->definition + DEFINITION_ID));
	}
	return kiln_ruby_cookie(hash, method, f->owner) == f->cookie ? 0 : -EFAULT;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void put(struct ruby_text *text, const char *s, size_t len)
{
	len = MIN(len, text->left - 1);
	memcpy(text->at, s, len);
	text->at += len;
	text->left -= len;
	*text->at = '\0';
}

/* Appends NAME with the frame's class before it. */
static void put_qualified(const struct frame *f, const char *name, struct ruby_text *text)
{
	char room[RUBY_NAME_MAX + 1];
	struct ruby_text scratch = {room, sizeof(room)};
	const char *class;
	char between;

	if (f->owner && ruby_read_owner(&f->look, f->owner, &scratch, &class, &between) == 0) {
		put(text, class, strlen(class));
		put(text, &between, 1);
	}
	put(text, name, strlen(name));
}

/* Appends the name of the frame's method, with its class. */
static int put_method(const struct frame *f, struct ruby_text *text)
{
	char room[RUBY_NAME_MAX + 1];
	struct ruby_text scratch = {room, sizeof(room)};
	const char *name;
	uint64_t id = ruby_read_word(&f->look, f->definition + DEFINITION_ID);
	int r = ruby_read_id(&f->look, id, &scratch, &name);

	if (r == 0)
		put_qualified(f, name, text);
	return r;
}

static bool is_iseq(const struct ruby_look *look, uint64_t address)
{
	return ruby_type_of(look, address) == RUBY_T_IMEMO &&
	       (ruby_read_word(look, address) >> IMEMO_SHIFT & 15) == IMEMO_ISEQ;
}

/* The instruction sequence of the block from which define_method made the frame's method; 0: it is
 * another kind of method. */
static uint64_t method_block(const struct frame *f)
{
	const struct ruby_look *look = &f->look;
	uint64_t proc, data, iseq;

	if (!f->definition || (ruby_read_word(look, f->definition + DEFINITION_TYPE) &
			       DEFINITION_TYPE_MASK) != TYPE_BMETHOD)
		return 0;
	proc = ruby_read_word(look, f->definition + DEFINITION_BODY);
	if (ruby_type_of(look, proc) != RUBY_T_DATA)
		return 0;
	data = ruby_read_word(look, proc + DATA_POINTER);
	iseq = data ? ruby_read_word(look, data + PROC_CODE) : 0;
	return is_iseq(look, iseq) ? iseq : 0;
}

static uint64_t body_of(const struct ruby_look *look, uint64_t iseq)
{
	return iseq ? ruby_read_word(look, iseq + ISEQ_BODY) : 0;
}

static void put_level(struct ruby_text *text, unsigned int level)
{
	char s[40];
	int n = 0;

	if (level == 1)
		n = snprintf(s, sizeof(s), "block in ");
	else if (level > 1)
		n = snprintf(s, sizeof(s), "block (%u levels) in ", level);
	put(text, s, (size_t)n);
}

/* Appends the label of the instruction sequence whose body is BODY; QUALIFIED: with the class. */
static int put_label(const struct frame *f, uint64_t body, bool qualified, struct ruby_text *text)
{
	char room[RUBY_NAME_MAX + 1];
	struct ruby_text scratch = {room, sizeof(room)};
	const char *label;
	int r = ruby_read_string(&f->look, ruby_read_word(&f->look, body + BODY_LABEL), &scratch,
				 &label);

	if (r < 0)
		return r;
	if (qualified)
		put_qualified(f, label, text);
	else
		put(text, label, strlen(label));
	return 0;
}

/* Is code of this TYPE part of the method or class around it? */
static bool is_inner(uint32_t type)
{
	return type == ISEQ_BLOCK || type == ISEQ_RESCUE || type == ISEQ_ENSURE ||
	       type == ISEQ_EVAL || type == ISEQ_PLAIN;
}

/* Appends the frame's name: goes from its instruction sequence to the method or class around it. */
static int put_name(const struct frame *f, struct ruby_text *text)
{
	const struct ruby_layout *l = f->look.process->layout;
	const struct ruby_look *look = &f->look;
	uint64_t iseq = f->iseq, body = f->body, block = method_block(f), parent;
	unsigned int level = 0;
	uint32_t type;

	if (!iseq || f->is_bmethod)
		return put_method(f, text);
	for (int i = 0; i < LEVELS_MAX; i++) {
		if (target_read(look->memory, body + BODY_TYPE, &type, sizeof(type)) < 0)
			return -EFAULT;
		if (block && iseq == block) {
			put_level(text, level);
			return put_method(f, text);
		}
		parent = ruby_read_word(look, body + l->parent);
		if (type == ISEQ_BLOCK)
			level++;
		else if (type == ISEQ_RESCUE && !level)
			put(text, "rescue in ", 10);
		else if (type == ISEQ_ENSURE && !level)
			put(text, "ensure in ", 10);
		if (!is_inner(type)) {
			put_level(text, level);
			return put_label(f, body, type == ISEQ_METHOD, text);
		}
		if (!is_iseq(look, parent)) {
			put_level(text, level);
			return put_label(f, body, false, text);
		}
		iseq = parent;
		body = body_of(look, parent);
		if (!body)
			return -EFAULT;
	}
	return -EFAULT;
}

/* ---- places ---------------------------------------------------------------------------------- */

static int read_path(const struct frame *f, struct ruby_text *text, const char **ret)
{
	const struct ruby_look *look = &f->look;
	uint64_t path = ruby_read_word(look, f->body + BODY_PATH);

	/* {path, real path} */
	if (ruby_type_of(look, path) == RUBY_T_ARRAY)
		path = ruby_array_element(look, path, 0);
	return ruby_read_string(look, path, text, ret);
}

static uint32_t line_of_value(const struct frame *f, uint64_t line)
{
	if (f->look.process->image->version < VERSION_INT_LINE)
		line >>= 1; /* the VALUE of a small number */
	line = (uint32_t)line;
	return line <= INT32_MAX ? (uint32_t)line : 0;
}

static uint32_t first_line(const struct frame *f)
{
	return line_of_value(f, ruby_read_word(&f->look, f->body + BODY_FIRST_LINE));
}

/* ---- evaluated code that is gone ------------------------------------------------------------- */

/* Are the method or class around the code, and the owner, still the ones that the walker saw? */
static bool is_around(const struct frame *f, const struct kiln_ruby_text *t)
{
	const struct ruby_look *look = &f->look;

	return is_iseq(look, t->root) && body_of(look, t->root) == t->root_body &&
	       (!f->owner || ruby_read_word(look, f->owner + OBJECT_CLASS) == t->owner_class);
}

/* Fills in RET for a frame whose code is gone, from the text T; the strings are in SCRATCH. */
static int read_gone(const struct frame *f, const struct kiln_ruby_text *t, char *scratch,
		     size_t scratch_size, struct symbol *ret)
{
	struct ruby_text text = {scratch, scratch_size - sizeof(t->path)};
	uint32_t type;
	int r;

	if (f->entry || !is_around(f, t) ||
	    target_read(f->look.memory, t->root_body + BODY_TYPE, &type, sizeof(type)) < 0)
		return -EFAULT;
	ret->name = ret->system_name = text.at;
	if (t->within == KILN_RUBY_IN_RESCUE)
		put(&text, "rescue in ", 10);
	else if (t->within == KILN_RUBY_IN_ENSURE)
		put(&text, "ensure in ", 10);
	put_level(&text, t->levels);
	r = put_label(f, t->root_body, type == ISEQ_METHOD, &text);
	if (r < 0)
		return r;
	ret->file = memcpy(text.at + 1, t->path, sizeof(t->path));
	ret->start_line = line_of_value(f, t->start);
	ret->line = t->line ? t->line : ret->start_line;
	target_renew(f->look.memory);
	return is_around(f, t) ? 0 : -EFAULT;
}

/*
 * Reads the data that all frames of a function share. Its strings are in SCRATCH. *RET_LINES: its
 * line tables, which the caller frees.
 */
static int read_function(struct frame *f, char *scratch, size_t scratch_size,
			 struct runtime_function *ret, struct ruby_lines *ret_lines)
{
	/* The name must leave room for the path. */
	struct ruby_text text = {scratch, scratch_size - RUBY_NAME_MAX};
	uint32_t size = 0;
	int r = read_objects(f);

	if (r < 0)
		return r;
	ret->name = text.at;
	r = put_name(f, &text);
	if (r < 0)
		return r;
	if (f->iseq) {
		text.at++;
		text.left += RUBY_NAME_MAX - 1;
		r = read_path(f, &text, &ret->file);
		if (r < 0)
			return r;
		ret->start_line = first_line(f);
		if (target_read(f->look.memory, f->body + BODY_SIZE, &size, sizeof(size)) == 0 &&
		    ruby_read_lines(&f->look, f->body, size, ret_lines) == 0) {
			ret->table = ret_lines->bytes;
			ret->table_size = ret_lines->size;
		}
		ret->own[0] = (uint64_t)size << 32 | ret_lines->n;
	}
	target_renew(f->look.memory);
	return read_objects(f);
}

static uint32_t line_of(const struct frame *f, const struct runtime_function *function)
{
	uint32_t index = f->index, size = (uint32_t)(function->own[0] >> 32);

	/* JIT code does not always store its pc. Like Ruby, use the first line then. */
	if (index >= size)
		return function->start_line;
	/* The index is that of the instruction behind the one that runs. */
	if (!f->is_exact && index)
		index--;
	return function->table ? ruby_line(f->look.process->layout, function->table,
					   function->table_size, (uint32_t)function->own[0], index)
			       : 0;
}

int ruby_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		   char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	uint32_t flags = KILN_FRAME_FLAGS(words[0]);
	uint64_t first = KILN_RUBY_OBJECT(words[0]), second = KILN_RUBY_OBJECT(words[1]);
	bool is_c = flags & KILN_RUBY_C, has_entry = KILN_RUBY_IS_ENTRY(words[1]);
	struct frame f = {
	    .look = {.process = state, .memory = memory},
	    .iseq = is_c ? 0 : first,
	    .definition = is_c ? first : 0,
	    .entry = has_entry ? second : 0,
	    .owner = has_entry ? 0 : second,
	    .cookie = KILN_RUBY_COOKIE(words[0]),
	    .index = KILN_RUBY_INDEX(words[1]),
	    .is_exact = flags & KILN_RUBY_EXACT,
	    .is_bmethod = flags & KILN_RUBY_BMETHOD,
	};
	/* The block of such a method may also run as a block, which is another function. */
	uint64_t address = first | f.is_bmethod, cookie = second << 16 | f.cookie;
	struct runtime_function function = {.name = "", .file = ""};
	const struct kiln_ruby_text *text;
	struct ruby_lines lines = {0};
	int r = 0;

	if (scratch_size < 4 * RUBY_NAME_MAX)
		return -EFAULT;
	if (!target_find_function(memory, address, cookie, &function)) {
		r = read_function(&f, scratch, scratch_size, &function, &lines);
		if (r == 0 && function.table_size <= RUNTIME_FUNCTION_TABLE_MAX)
			target_keep_function(memory, address, cookie, &function);
	}
	if (r == 0) {
		ret->type = FRAME_RUBY;
		ret->n = 1;
		ret->symbols[0] = (struct symbol){
		    .name = function.name,
		    .system_name = function.name,
		    .file = function.file,
		    .start_line = function.start_line,
		    .line = f.iseq ? line_of(&f, &function) : 0,
		};
	} else if ((text = ruby_find_text(state, words))) {
		ret->type = FRAME_RUBY;
		ret->n = 1;
		ret->symbols[0] = (struct symbol){0};
		r = read_gone(&f, text, scratch, scratch_size, &ret->symbols[0]);
	}
	free(lines.bytes);
	return r;
}
