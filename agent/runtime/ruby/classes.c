// SPDX-License-Identifier: Apache-2.0
/*
 * The names of classes and modules. From 3.2 on a class has its path in its extension; before, in
 * the instance variable __classpath__. A singleton class has no path: it is named by its attached
 * object. The place of the attached object differs by version, and in 4.0 by patch release. So it
 * is searched, and recognized because its class is the singleton class. Loop thread.
 *
 * Sources: internal/class.h, class.c, variable.c, st.h of 2.7.4, 3.1.2 and 3.3.8.
 */
#include "agent/runtime/ruby/ruby.h"

enum {
	CLASS_POINTER = 24, /* struct RClass.ptr, before 3.2 */
	EXTENSION_WORDS = 24,
	NEARBY = 2,		 /* words */
	EXTENSION_VARIABLES = 8, /* rb_classext_t.iv_tbl, before 3.2 */
	OBJECT_CLASS = 8,	 /* struct RBasic.klass */
	/* st_table */
	TABLE_COUNT = 40, /* entries_bound */
	TABLE_ENTRIES = 48,
	ENTRY_WORDS = 3, /* hash, key, record */
	ENTRY_KEY = 1,
	ENTRY_RECORD = 2,
	ENTRIES_MAX = 64, /* entries read of one class */
};

static bool is_constant(const char *path)
{
	if (*path < 'A' || (*path > 'Z' && (unsigned char)*path < 0x80))
		return false;
	for (; *path; path++)
		if (strchr("#<>@ \n", *path))
			return false;
	return true;
}

/* Reads the String at ADDRESS. -ENOENT: it is not a constant's path, as those of classes are. */
static int read_path(const struct ruby_look *look, uint64_t address, struct ruby_text *text,
		     const char **ret)
{
	struct ruby_text before = *text;
	int r;

	if (ruby_type_of(look, address) != RUBY_T_STRING)
		return -ENOENT;
	r = ruby_read_string(look, address, text, ret);
	if (r == 0 && is_constant(*ret))
		return 0;
	*text = before;
	return r < 0 ? r : -ENOENT;
}

/* ---- before 3.2: instance variables ---------------------------------------------------------- */

struct variables {
	uint64_t entries[ENTRIES_MAX][ENTRY_WORDS];
	size_t n;
};

static void read_variables(const struct ruby_look *look, uint64_t class, struct variables *ret)
{
	uint64_t extension = ruby_read_word(look, class + CLASS_POINTER);
	uint64_t table = extension ? ruby_read_word(look, extension + EXTENSION_VARIABLES) : 0;
	uint64_t entries;
	size_t n;

	ret->n = 0;
	if (!table)
		return;
	n = MIN(ruby_read_word(look, table + TABLE_COUNT), ENTRIES_MAX);
	entries = ruby_read_word(look, table + TABLE_ENTRIES);
	if (n && target_read(look->memory, entries, ret->entries, n * sizeof(ret->entries[0])) == 0)
		ret->n = n;
}

static bool is_classpath(const struct ruby_look *look, uint64_t id, const struct ruby_text *text)
{
	struct ruby_process *p = look->process;
	struct ruby_text scratch = *text;
	const char *name;

	if (!p->classpath && ruby_read_id(look, id, &scratch, &name) == 0 &&
	    streq(name, "__classpath__"))
		p->classpath = id;
	return p->classpath == id;
}

static int path_by_variables(const struct ruby_look *look, uint64_t class, struct ruby_text *text,
			     const char **ret)
{
	struct variables v;

	read_variables(look, class, &v);
	for (size_t i = 0; i < v.n; i++)
		if (ruby_type_of(look, v.entries[i][ENTRY_RECORD]) == RUBY_T_STRING &&
		    is_classpath(look, v.entries[i][ENTRY_KEY], text))
			return read_path(look, v.entries[i][ENTRY_RECORD], text, ret);
	return -ENOENT;
}

static uint64_t attached_by_variables(const struct ruby_look *look, uint64_t class)
{
	struct variables v;

	read_variables(look, class, &v);
	for (size_t i = 0; i < v.n; i++) {
		uint64_t object = v.entries[i][ENTRY_RECORD];

		if (ruby_type_of(look, object) &&
		    ruby_read_word(look, object + OBJECT_CLASS) == class)
			return object;
	}
	return 0;
}

/* ---- from 3.2 on: the extension -------------------------------------------------------------- */

/* Reads as many words of the class's extension as memory allows; returns their number. */
static size_t read_extension(const struct ruby_look *look, uint64_t class,
			     uint64_t words[EXTENSION_WORDS])
{
	uint64_t at = class + look->process->layout->class_extension;

	for (size_t n = EXTENSION_WORDS; n; n--)
		if (target_read(look->memory, at, words, n * 8) == 0)
			return n;
	return 0;
}

static int path_by_extension(const struct ruby_look *look, uint64_t class, struct ruby_text *text,
			     const char **ret)
{
	size_t known = look->process->layout->class_path / 8, n;
	uint64_t words[EXTENSION_WORDS];

	n = read_extension(look, class, words);
	if (known < n && read_path(look, words[known], text, ret) == 0)
		return 0;
	/* Other patch releases have the path nearby, where nothing else is such a String. */
	for (size_t i = known - NEARBY; i < n && i <= known + NEARBY; i++)
		if (read_path(look, words[i], text, ret) == 0)
			return 0;
	return -ENOENT;
}

static uint64_t attached_by_extension(const struct ruby_look *look, uint64_t class)
{
	uint64_t words[EXTENSION_WORDS];
	size_t n = read_extension(look, class, words);

	for (size_t i = 0; i < n; i++)
		if (ruby_type_of(look, words[i]) &&
		    ruby_read_word(look, words[i] + OBJECT_CLASS) == class)
			return words[i];
	return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_class(const struct ruby_look *look, uint64_t address)
{
	unsigned int type = ruby_type_of(look, address);

	return type == RUBY_T_CLASS || type == RUBY_T_MODULE;
}

static int read_class(const struct ruby_look *look, uint64_t class, struct ruby_text *text,
		      const char **ret)
{
	return look->process->layout->class_extension ? path_by_extension(look, class, text, ret)
						      : path_by_variables(look, class, text, ret);
}

int ruby_read_owner(const struct ruby_look *look, uint64_t owner, struct ruby_text *text,
		    const char **ret, char *ret_between)
{
	uint64_t object;

	if (!is_class(look, owner))
		return -ENOENT;
	*ret_between = '#';
	if (read_class(look, owner, text, ret) == 0)
		return 0;
	object = look->process->layout->class_extension ? attached_by_extension(look, owner)
							: attached_by_variables(look, owner);
	if (!is_class(look, object))
		return -ENOENT;
	*ret_between = '.';
	return read_class(look, object, text, ret);
}
