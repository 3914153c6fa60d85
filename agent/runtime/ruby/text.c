// SPDX-License-Identifier: Apache-2.0
/*
 * Evaluated code is collected within milliseconds, often before its names are read. So the walker
 * sends a text ahead of the sample: the place of the code, and the method or class around it, which
 * lives on and has the rest of the name. The last few texts of a process are kept until the names
 * of the sample's frames are read. Loop thread.
 */
#include "agent/runtime/ruby/ruby.h"

enum { TEXTS = 64 };

struct ruby_texts {
	struct ruby_text_of {
		uint64_t words[2];
		struct kiln_ruby_text text;
	} texts[TEXTS];
	unsigned int next;
};

int ruby_read_text(void *state, const struct kiln_text *text, char *scratch, size_t scratch_size,
		   struct symbol_result *ret)
{
	struct ruby_process *p = state;
	struct ruby_text_of *of;

	if (!p->texts)
		p->texts = calloc(1, sizeof(*p->texts));
	if (!p->texts)
		return -ENOMEM;
	of = &p->texts->texts[p->texts->next++ % TEXTS];
	memcpy(of->words, text->words, sizeof(of->words));
	memcpy(&of->text, text->bytes, sizeof(of->text));
	of->text.path[sizeof(of->text.path) - 1] = '\0';
	return -EAGAIN;
}

const struct kiln_ruby_text *ruby_find_text(const struct ruby_process *p, const uint64_t words[2])
{
	const struct ruby_texts *t = p->texts;

	for (unsigned int i = 1; t && i <= TEXTS; i++) {
		const struct ruby_text_of *of = &t->texts[(t->next - i) % TEXTS];

		if (of->words[0] == words[0] && of->words[1] == words[1] && of->words[0])
			return &of->text;
	}
	return NULL;
}
