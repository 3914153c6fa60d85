// SPDX-License-Identifier: Apache-2.0
/*
 * The name of a frame: the name that its caller has for the function, or the place where the
 * function begins, as in LuaJIT's own tracebacks. Loop thread.
 *
 * Source: LuaJIT src/lj_debug.c (lj_debug_shortname(), lj_debug_pushloc()).
 */
#include "agent/runtime/luajit/luajit.h"

#include <stdarg.h>

struct room {
	char *at;
	size_t left;
};

_printf_(2, 3) static const char *put(struct room *t, const char *format, ...)
{
	char *start = t->at;
	va_list args;
	int n;

	if (!t->left)
		return "";
	va_start(args, format);
	n = vsnprintf(t->at, t->left, format, args);
	va_end(args);
	n = n < 0 ? 0 : MIN(n, (int)t->left - 1);
	start[n] = 0;
	t->at += n + 1;
	t->left -= (size_t)n + 1;
	return start;
}

/* The name of P's chunk. In memory it is "@file", "=name", or the source code. */
static const char *chunk_name(const struct target_memory *m, const struct luajit_proto *p,
			      struct room *t)
{
	char text[LUAJIT_NAME_MAX];

	if (luajit_string(m, p->chunk, text, sizeof(text)) < 0)
		return "";
	if (*text == '@' || *text == '=')
		return put(t, "%s", text + 1);
	return put(t, "[string \"%.*s\"]", (int)strcspn(text, "\r\n"), text);
}

static const char *base_name(const char *file)
{
	const char *slash = *file == '[' ? NULL : strrchr(file, '/');

	return slash ? slash + 1 : file;
}

static uint64_t cookie_of(const uint64_t words[2])
{
	return (words[1] >> KILN_LUAJIT_AT_BITS) << KILN_LUAJIT_COOKIE_LOW |
	       (words[0] >> KILN_LUAJIT_AT_BITS & ((1 << KILN_LUAJIT_COOKIE_LOW) - 1));
}

static uint32_t position(const struct luajit_proto *p, uint64_t at)
{
	return (uint32_t)((at - luajit_bytecode(p)) / 4);
}

/* Reads the prototypes of a frame and of its caller. -EFAULT: the cookie is not the one that the
 * walker saw. */
static int read_protos(const struct target_memory *m, const uint64_t words[2],
		       struct luajit_proto *own, struct luajit_proto *caller)
{
	bool is_c = KILN_FRAME_FLAGS(words[0]) == KILN_LUAJIT_C;
	uint64_t at = KILN_LUAJIT_AT(words[0]), from = KILN_LUAJIT_AT(words[1]);

	*caller = *own = (struct luajit_proto){};
	own->cookie = 1;
	if ((!is_c && luajit_find_proto(m, at, own) < 0) ||
	    (from && luajit_find_proto(m, from, caller) < 0) ||
	    kiln_luajit_cookies(own->cookie, caller->cookie) != cookie_of(words))
		return -EFAULT;
	return 0;
}

int luajit_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		     char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	uint64_t at = KILN_LUAJIT_AT(words[0]), from = KILN_LUAJIT_AT(words[1]);
	struct room t = {scratch, scratch_size};
	struct luajit_proto own, caller, again;
	char name[LUAJIT_NAME_MAX] = "";
	struct symbol s = {.name = "", .file = ""};
	int r = read_protos(memory, words, &own, &caller);

	(void)state;
	if (r < 0)
		return r;
	if (from && luajit_callee(memory, &caller, position(&caller, from), name, sizeof(name)) < 0)
		*name = 0;
	if (own.address) {
		s.file = chunk_name(memory, &own, &t);
		s.line = luajit_line(memory, &own, position(&own, at));
		s.start_line = own.first_line;
	}
	if (own.address && !own.first_line)
		s.name = "main chunk";
	else if (*name)
		s.name = put(&t, "%s", name);
	else if (own.address)
		s.name = put(&t, "function <%s:%u>", base_name(s.file), own.first_line);
	else
		s.name = "[C]";
	s.system_name = s.name;
	target_renew(memory);
	r = read_protos(memory, words, &own, &again);
	if (r < 0)
		return r;
	ret->type = FRAME_LUAJIT;
	ret->n = 1;
	ret->symbols[0] = s;
	return 0;
}
