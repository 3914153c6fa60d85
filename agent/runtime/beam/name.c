// SPDX-License-Identifier: Apache-2.0
/*
 * The name of a function, as its language writes it. The virtual machine writes all names as Erlang
 * does: `lists:map/2`, 'Elixir.Shop.Cart':'total?'/1. Elixir modules are recognized by their
 * prefix; their functions are written as by Exception.format_mfa/3 (lib/elixir/lib/exception.ex).
 * Stateless.
 */
#include "agent/runtime/beam/beam.h"

#include <ctype.h>

/* A piece of a name: an atom without its quotes. */
struct atom {
	const char *at;
	size_t length;
	bool quoted;
};

static void put(struct beam_text *t, const char *s, size_t length)
{
	size_t n = t->left ? MIN(length, t->left - 1) : 0;

	memcpy(t->at, s, n);
	t->at += n;
	t->left -= n;
}

static void put_text(struct beam_text *t, const char *s)
{
	put(t, s, strlen(s));
}

static void put_atom(struct beam_text *t, const struct atom *a)
{
	put(t, a->at, a->length);
}

/* Reads the atom at *AT, and sets *AT to its end. An atom without quotes ends at a character of
 * ENDS. False: a quoted atom does not end. */
static bool take_atom(const char **at, const char *end, const char *ends, struct atom *ret)
{
	const char *p = *at;

	*ret = (struct atom){.at = p, .quoted = p < end && *p == '\''};
	if (ret->quoted) {
		ret->at = ++p;
		while (p < end && *p != '\'')
			p += *p == '\\' && p + 1 < end ? 2 : 1;
		ret->length = (size_t)(p - ret->at);
		*at = p + 1;
		return p < end;
	}
	while (p < end && !strchr(ends, *p))
		p++;
	ret->length = (size_t)(p - ret->at);
	*at = p;
	return true;
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* May Elixir write A as a function's name without quotes? */
static bool is_plain(const struct atom *a)
{
	static const char operators[] = "+-*/<>=!&|^~.@%";
	size_t n = a->length, words = 0, signs = 0;

	if (!n)
		return false;
	for (size_t i = 0; i < n; i++) {
		words += is_word(a->at[i]);
		signs += a->at[i] && strchr(operators, a->at[i]) != NULL;
	}
	if (signs == n)
		return true;
	if (isdigit((unsigned char)a->at[0]) || isupper((unsigned char)a->at[0]))
		return false;
	return words == n || (words == n - 1 && (a->at[n - 1] == '?' || a->at[n - 1] == '!'));
}

static void put_function(struct beam_text *t, const struct atom *a)
{
	bool plain = is_plain(a);

	if (!plain)
		put_text(t, "\"");
	put_atom(t, a);
	if (!plain)
		put_text(t, "\"");
}

/*
 * Is A the function of a `fn`, such as "-total/1-fun-0-"? *RET_OUTER: the function that has the fn,
 * *RET_ARITY: that function's arity.
 */
static bool is_anonymous(const struct atom *a, struct atom *ret_outer, struct atom *ret_arity)
{
	const char *slash =
	    a->length > 2 && a->at[0] == '-' ? memrchr(a->at, '/', a->length) : NULL;
	const char *end = a->at + a->length, *fun, *number;

	if (!slash)
		return false;
	fun = slash + 1 + strspn(slash + 1, "0123456789");
	if (fun == slash + 1 || (size_t)(end - fun) < sizeof("-fun-") - 1 ||
	    !same_bytes(fun, "-fun-", sizeof("-fun-") - 1))
		return false;
	number = fun + sizeof("-fun-") - 1;
	if (number + strspn(number, "0123456789") + 1 != end || end[-1] != '-')
		return false;
	*ret_outer = (struct atom){.at = a->at + 1, .length = (size_t)(slash - a->at - 1)};
	*ret_arity = (struct atom){.at = slash + 1, .length = (size_t)(fun - slash - 1)};
	return true;
}

static void put_elixir(struct beam_text *t, struct atom module, const struct atom *function,
		       const char *arity, const char *end)
{
	struct atom outer, of;
	const size_t prefix = sizeof("Elixir.") - 1;

	module.at += prefix;
	module.length -= prefix;
	if (is_anonymous(function, &outer, &of)) {
		put_text(t, "anonymous fn");
		put(t, arity, (size_t)(end - arity));
		put_text(t, " in ");
		put_atom(t, &module);
		put_text(t, ".");
		put_function(t, &outer);
		put_text(t, "/");
		put_atom(t, &of);
		return;
	}
	put_atom(t, &module);
	put_text(t, ".");
	put_function(t, function);
	put(t, arity, (size_t)(end - arity));
}

static const char prologue[] = "-CodeInfoPrologue";

bool beam_is_prologue(const char *name, size_t length)
{
	const size_t n = sizeof(prologue) - 1;

	return length > n && same_bytes(name + length - n, prologue, n);
}

const char *beam_name(const char *name, size_t length, struct beam_text *t)
{
	static const char elixir[] = "Elixir.";
	const char *at = name, *end, *start = t->at;
	struct atom module, function;

	/* A function's prologue runs in its place if it is a NIF or traced: use its name. */
	if (beam_is_prologue(name, length))
		length -= sizeof(prologue) - 1;
	end = name + length;
	if (take_atom(&at, end, ":", &module) && module.quoted &&
	    module.length > sizeof(elixir) - 1 &&
	    same_bytes(module.at, elixir, sizeof(elixir) - 1) && at + 1 < end && at[0] == ':' &&
	    at[1] != ':') {
		at++;
		if (take_atom(&at, end, "/", &function) && at < end && *at == '/') {
			put_elixir(t, module, &function, at, end);
			if (t->left)
				*t->at = '\0';
			t->at++;
			t->left -= t->left > 0;
			return start;
		}
	}
	put(t, name, length);
	if (t->left)
		*t->at = '\0';
	t->at++;
	t->left -= t->left > 0;
	return start;
}
