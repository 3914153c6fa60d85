// SPDX-License-Identifier: Apache-2.0
/*
 * The name of an ID. ruby_global_symbols is {last ID, table of strings, ids}; `ids` is an Array of
 * Arrays with a pair {String, Symbol} for each ID. The code of rb_id2str() refers to it and to a
 * few other variables; which of them is ruby_global_symbols is found by the objects there. Loop
 * thread.
 *
 * Sources: symbol.c, symbol.h, template/id.h.tmpl of 2.7.4, 3.1.2 and 3.3.8.
 */
#include "agent/runtime/ruby/ruby.h"

enum {
	SYMBOLS_IDS = 16,
	ID_OPERATOR_MAX = 1000, /* IDs of operators, below 256, are not shifted by ID_SHIFT */
	ID_SHIFT = 4,		/* RUBY_ID_SCOPE_SHIFT */
	ID_UNIT = 512,		/* pairs in one Array */
	ID_PAIR = 2,
};

/* The String of the ID with number SERIAL in the table at SYMBOLS; 0: there is none. */
static uint64_t string_of(const struct ruby_look *look, uint64_t symbols, uint64_t serial)
{
	uint64_t ids = ruby_read_word(look, symbols + SYMBOLS_IDS);
	uint64_t unit = ruby_array_element(look, ids, serial / ID_UNIT);

	return ruby_array_element(look, unit, serial % ID_UNIT * ID_PAIR);
}

static bool find_symbols(const struct ruby_look *look, uint64_t serial)
{
	struct ruby_process *p = look->process;

	for (size_t i = 0; !p->symbols && i < p->image->n_symbols; i++) {
		uint64_t symbols = p->image->symbols[i] + p->bias;

		if (ruby_type_of(look, string_of(look, symbols, serial)) == RUBY_T_STRING)
			p->symbols = symbols;
	}
	return p->symbols != 0;
}

int ruby_read_id(const struct ruby_look *look, uint64_t id, struct ruby_text *text,
		 const char **ret)
{
	uint64_t serial = id < ID_OPERATOR_MAX ? id : id >> ID_SHIFT;

	if (!find_symbols(look, serial))
		return -EFAULT;
	return ruby_read_string(look, string_of(look, look->process->symbols, serial), text, ret);
}
