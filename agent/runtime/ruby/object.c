// SPDX-License-Identifier: Apache-2.0
/*
 * Reads Ruby's objects: strings and arrays. All memory is foreign: the type of an object is checked
 * before its members are read, and lengths are capped. Loop thread.
 *
 * Sources: struct RBasic, RString, RArray and their flags, include/ruby/ruby.h of 2.7.4,
 * include/ruby/internal/core/{rbasic,rstring,rarray}.h of 3.1.2 and 3.3.8.
 */
#include "agent/runtime/ruby/ruby.h"

enum {
	TYPE_MASK = 0x1f,
	STRING_NOEMBED = 1 << 13,
	STRING_LEN_SHIFT = 14, /* in the flags of an embedded String, before 3.2 */
	STRING_LEN_MASK = 31,
	STRING_LEN = 16,
	STRING_POINTER = 24,
	ARRAY_EMBED = 1 << 13,
	ARRAY_LEN_SHIFT = 15,
	ARRAY_LEN_MASK = 3,
	ARRAY_LEN_MASK_3_2 = 127,
	ARRAY_EMBEDDED = 16,
	ARRAY_LEN = 16,
	ARRAY_POINTER = 32,
};

uint64_t ruby_read_word(const struct ruby_look *look, uint64_t address)
{
	uint64_t v;

	return target_read(look->memory, address, &v, sizeof(v)) < 0 ? 0 : v;
}

unsigned int ruby_type_of(const struct ruby_look *look, uint64_t address)
{
	/* The VALUEs of small numbers, symbols and nil are not addresses. */
	if (address < 4096 || address & 7)
		return 0;
	return (unsigned int)ruby_read_word(look, address) & TYPE_MASK;
}

int ruby_read_string(const struct ruby_look *look, uint64_t address, struct ruby_text *text,
		     const char **ret)
{
	const struct ruby_layout *l = look->process->layout;
	uint64_t flags, length, data = address + l->string_embedded;
	int r;

	if (ruby_type_of(look, address) != RUBY_T_STRING || text->left < 2)
		return -EFAULT;
	flags = ruby_read_word(look, address);
	if (flags & STRING_NOEMBED || l->string_embedded != STRING_LEN)
		length = ruby_read_word(look, address + STRING_LEN);
	else
		length = flags >> STRING_LEN_SHIFT & STRING_LEN_MASK;
	if (flags & STRING_NOEMBED)
		data = ruby_read_word(look, address + STRING_POINTER);
	length = MIN(MIN(length, RUBY_NAME_MAX), text->left - 1);
	r = length ? target_read(look->memory, data, text->at, length) : 0;
	if (r < 0)
		return r;
	text->at[length] = '\0';
	/* A String with a NUL in it ends there. */
	length = strlen(text->at);
	*ret = text->at;
	text->at += length + 1;
	text->left -= length + 1;
	return 0;
}

uint64_t ruby_array_element(const struct ruby_look *look, uint64_t address, uint64_t index)
{
	uint64_t flags, length, data;

	if (ruby_type_of(look, address) != RUBY_T_ARRAY)
		return 0;
	flags = ruby_read_word(look, address);
	if (flags & ARRAY_EMBED) {
		length =
		    flags >> ARRAY_LEN_SHIFT &
		    (look->process->image->version >= 302 ? ARRAY_LEN_MASK_3_2 : ARRAY_LEN_MASK);
		data = address + ARRAY_EMBEDDED;
	} else {
		length = ruby_read_word(look, address + ARRAY_LEN);
		data = ruby_read_word(look, address + ARRAY_POINTER);
	}
	return index < length ? ruby_read_word(look, data + index * 8) : 0;
}
