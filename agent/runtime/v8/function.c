/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of functions. A function has the name that its source gives it, or one that V8 has inferred
 * from what it was assigned to. Both are in its ScopeInfo, in slots behind the context variables.
 * The order of slots is fixed: the names of context variables, and what is known of each; then,
 * where any of these may be missing, a small integer of the class, the name and its slot, the
 * inferred name. So the first string behind the context variables is the name. A method's scope
 * lies in the scope of its class; the class's name is in the source text where that scope begins
 * (V8 src/objects/scope-info.tq, src/parsing/parser-base.h ParseClassLiteral). Loop thread; keeps
 * nothing.
 */
#include "agent/runtime/v8/function.h"

enum {
	LOCALS_INLINED_MAX = 75, /* src/objects/scope-info.h kScopeInfoMaxInlinedLocalNamesSize */
	LOCALS_MAX = 1 << 20,
	NAME_SLOTS = 5,	 /* slots behind the context variables that may have the name */
	OUTER_SLOTS = 7, /* slots from the same one on that may have the outer scope */
	SCOPE_TYPE_MASK = 15,
	CLASS_TEXT = 64,     /* characters that are looked at for "class NAME" */
	TOKEN_NONE = 0xffff, /* src/objects/shared-function-info.h kFunctionTokenOutOfRange */
};

/* Finds the offset of the first slot behind the context variables of SCOPE. */
static int slots_at(const struct v8_heap *h, uint64_t scope, int64_t *ret)
{
	const struct v8_layout *l = h->layout;
	uint64_t locals, first;
	int64_t at = l->scope_first, n;

	if (v8_word(h, scope, l->scope_locals, &locals) < 0 || !v8_is_smi(locals) ||
	    v8_smi(locals) < 0 || v8_smi(locals) > LOCALS_MAX)
		return -EFAULT;
	n = v8_smi(locals);
	/* A module's scope begins with a count. */
	if (n && v8_word(h, scope, at, &first) == 0 && v8_is_smi(first))
		at += 8;
	*ret = at + 8 * (n < LOCALS_INLINED_MAX ? n : n > 0) + 8 * n;
	return 0;
}

/* Finds the name of the function that SCOPE belongs to. -ENOENT: it has none. */
static int scope_name(const struct v8_heap *h, uint64_t scope, int64_t slots, uint64_t *ret)
{
	for (int64_t i = 0; i < NAME_SLOTS; i++) {
		uint32_t length = 0;
		uint64_t v;

		if (v8_word(h, scope, slots + 8 * i, &v) < 0)
			return -ENOENT;
		if (!v8_is_pointer(v))
			continue;
		if (v8_type(h, v) == h->layout->type_scope_info)
			return -ENOENT;
		if (!v8_is_string(h, v))
			continue;
		if (v8_read(h, v, h->layout->string_length, &length, sizeof(length)) == 0 &&
		    length) {
			*ret = v;
			return 0;
		}
	}
	return -ENOENT;
}

/* Reads the start and end position at the slot AT; *RET is the start. */
static int two_positions(const struct v8_heap *h, uint64_t scope, int64_t at, int32_t *ret)
{
	uint64_t start, end;

	if (v8_word(h, scope, at, &start) < 0 || !v8_is_smi(start) ||
	    v8_word(h, scope, at + 8, &end) < 0 || !v8_is_smi(end) || v8_smi(start) < 0 ||
	    v8_smi(start) > v8_smi(end))
		return -ENOENT;
	*ret = v8_smi(start);
	return 0;
}

static int scope_start(const struct v8_heap *h, uint64_t scope, int64_t slots, int32_t *ret)
{
	const struct v8_layout *l = h->layout;
	uint64_t v;

	if (l->scope_positions) {
		if (v8_word(h, scope, l->scope_positions, &v) < 0 || !v8_is_smi(v))
			return -EFAULT;
		*ret = v8_smi(v);
		return 0;
	}
	/*
	 * Positions are two small integers right before the outer scope; without one, the first
	 * two.
	 */
	for (int64_t i = 2; i < OUTER_SLOTS; i++)
		if (v8_word(h, scope, slots + 8 * i, &v) == 0 && v8_is_pointer(v) &&
		    v8_type(h, v) == l->type_scope_info)
			return two_positions(h, scope, slots + 8 * (i - 2), ret);
	for (int64_t i = 0; i + 1 < OUTER_SLOTS; i++)
		if (two_positions(h, scope, slots + 8 * i, ret) == 0)
			return 0;
	return -ENOENT;
}

/* ---- classes ---------------------------------------------------------------------------------
 */

static bool is_word(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '_' || c == '$' || c >= 0x80;
}

/* Puts the class's name: the word after "class" at POSITION of the script. */
static int class_name(const struct v8_heap *h, uint64_t script, int32_t position,
		      struct v8_text *text, const char **ret)
{
	uint8_t s[CLASS_TEXT] = {0};
	struct v8_flat flat;
	uint64_t source;
	size_t n, i = 0, from;

	if (position < 0 || v8_word(h, script, h->layout->script_source, &source) < 0 ||
	    v8_flat(h, source, &flat) < 0 || flat.width != 1 || (uint32_t)position >= flat.length)
		return -ENOENT;
	n = MIN((size_t)CLASS_TEXT, flat.length - (size_t)position);
	if (target_read(h->memory, flat.at + (uint64_t)position, s, n) < 0)
		return -EFAULT;
	if (n < 6 || memcmp(s, "class", 5) != 0 || is_word(s[5]))
		return -ENOENT;
	for (i = 5; i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r'); i++)
		;
	for (from = i; i < n && s[i] < 0x80 && is_word(s[i]); i++)
		;
	if (i == from || i == n || (i - from == 7 && memcmp(s + from, "extends", 7) == 0))
		return -ENOENT;
	return v8_text_put(text, (const char *)s + from, i - from, ret);
}

/* Puts the name of the class that SCOPE's function is a method of. -ENOENT: it is no method. */
static int method_class(const struct v8_heap *h, uint64_t scope, int64_t slots, uint64_t script,
			struct v8_text *text, const char **ret)
{
	const struct v8_layout *l = h->layout;
	uint64_t outer = 0, flags;
	int64_t outer_slots;
	int32_t start;

	for (int64_t i = 0; i < OUTER_SLOTS && !outer; i++) {
		uint64_t v;

		if (v8_word(h, scope, slots + 8 * i, &v) < 0)
			return -ENOENT;
		if (v8_is_pointer(v) && v8_type(h, v) == l->type_scope_info)
			outer = v;
	}
	if (!outer || v8_word(h, outer, l->scope_flags, &flags) < 0)
		return -ENOENT;
	/* The flags are a small integer up to 13.x. */
	if (v8_is_smi(flags))
		flags >>= 32;
	if ((int32_t)(flags & SCOPE_TYPE_MASK) != l->scope_class)
		return -ENOENT;
	if (slots_at(h, outer, &outer_slots) < 0 || scope_start(h, outer, outer_slots, &start) < 0)
		return -ENOENT;
	return class_name(h, script, start, text, ret);
}

/* ---- functions -------------------------------------------------------------------------------
 */

/* Puts "CLASS.NAME"; for a constructor, the class's name alone. */
static int put_method(struct v8_text *text, const char *class, const char *name, const char **ret)
{
	char joined[2 * V8_STRING_MAX];
	int n;

	if (strcmp(class, name) == 0) {
		*ret = name;
		return 0;
	}
	n = snprintf(joined, sizeof(joined), "%s.%s", class, name);
	return v8_text_put(text, joined, MIN((size_t)MAX(n, 0), sizeof(joined) - 1), ret);
}

static int read_name(const struct v8_heap *h, uint64_t named, uint64_t script, struct v8_text *text,
		     struct v8_function *f)
{
	const char *class;
	uint64_t name = 0;
	int64_t slots;
	int r = 0;

	f->name = "(anonymous)";
	if (!v8_is_pointer(named))
		return 0;
	if (v8_is_string(h, named))
		return v8_string(h, named, text, &f->name);
	if (v8_type(h, named) != h->layout->type_scope_info || slots_at(h, named, &slots) < 0)
		return 0;
	(void)scope_start(h, named, slots, &f->start);
	if (scope_name(h, named, slots, &name) == 0)
		r = v8_string(h, name, text, &f->name);
	if (r == 0 && name && script && method_class(h, named, slots, script, text, &class) == 0)
		r = put_method(text, class, f->name, &f->name);
	return r;
}

int v8_function_read(const struct v8_heap *h, uint64_t shared, struct v8_text *text,
		     struct v8_function *ret)
{
	const struct v8_layout *l = h->layout;
	struct v8_function f = {.start = -1};
	uint64_t script, named;
	uint16_t token;
	int r;

	if (v8_type(h, shared) != l->type_shared ||
	    v8_word(h, shared, l->shared_name, &named) < 0 ||
	    v8_word(h, shared, l->shared_script, &script) < 0)
		return -EFAULT;
	if (v8_is_pointer(script) && v8_type(h, script) == l->type_script)
		f.script = script;
	r = read_name(h, named, f.script, text, &f);
	if (r < 0)
		return r;
	/* Count from the word "function" or "async", which may be lines before the parameters. */
	if (f.start >= 0 && v8_read(h, shared, l->shared_token, &token, sizeof(token)) == 0 &&
	    token != TOKEN_NONE && token <= f.start)
		f.start -= token;
	*ret = f;
	return 0;
}
