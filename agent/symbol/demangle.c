// SPDX-License-Identifier: Apache-2.0
/*
 * libiberty's demanglers expand a short hostile name to gigabytes, because substitutions repeat.
 * They write through a callback that cannot fail, so the callback leaves by longjmp when the output
 * has reached its cap. That is safe because both demanglers keep their state on the stack, except
 * that Rust's one prints a punycode identifier from memory that it frees afterwards: append()
 * returns then, and leaves at the next piece. Recursion is bounded by libiberty
 * (DEMANGLE_RECURSION_LIMIT), stack use by the length of the name. Any thread.
 */
#include "agent/symbol/demangle.h"

#include <ctype.h>
#include <setjmp.h>

#include <libiberty/demangle.h>

struct output {
	jmp_buf full;
	size_t len;
	bool is_rust;
	char text[DEMANGLE_MAX];
};

/* Has DATA a byte that is no ASCII? In Rust's names only decoded punycode identifiers have. */
static bool has_high_byte(const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (data[i] & 0x80)
			return true;
	return false;
}

static void append(const char *data, size_t len, void *arg)
{
	struct output *out = arg;
	size_t left = sizeof(out->text) - 1 - out->len;

	if (len == 0) /* DATA may be NULL then */
		return;
	memcpy(out->text + out->len, data, MIN(len, left));
	out->len += MIN(len, left);
	if (len > left && !(out->is_rust && has_high_byte(data, len)))
		longjmp(out->full, 1);
}

typedef int (*demangler)(const char *name, int options, demangle_callbackref callback, void *arg);

/* True when NAME is mangled for FN; the text is complete or cut at the cap. */
static bool run(demangler fn, const char *name, struct output *out)
{
	bool mangled = true;

	out->len = 0;
	out->is_rust = fn == rust_demangle_callback;
	if (setjmp(out->full) == 0)
		mangled = fn(name, DMGL_PARAMS | DMGL_ANSI, append, out) != 0;
	out->text[out->len] = 0;
	return mangled && out->len > 0;
}

/* Suffixes of clones, by GCC ("symtab.c", clone_function_name) and LLVM (hot/cold split, ThinLTO).
 */
static const char *const suffixes[] = {
    "cold",   "part",	  "isra",    "constprop", "lto_priv",	 "llvm",    "localalias", "clone",
    "hot",    "unlikely", "warm",    "resume",	  "destroy",	 "cleanup", "simdclone",  "memprof",
    "__uniq", "likely",	  "startup", "exit",	  "specialized", "actor",   "default",
};

/* Length of the clone suffix (".WORD", ".WORD.3", ".3") that ends at LEN; 0 when there is none. */
static size_t suffix_len(const char *name, size_t len, bool mangled)
{
	size_t end = len, at = len;
	bool number = false;

	while (at > 0 && isdigit((unsigned char)name[at - 1]))
		at--;
	if (at > 0 && at < len && name[at - 1] == '.') {
		end = at - 1;
		number = true;
	}
	at = end;
	while (at > 0 && (isalpha((unsigned char)name[at - 1]) || name[at - 1] == '_'))
		at--;
	if (at > 1 && at < end && name[at - 1] == '.') {
		for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
			if (strlen(suffixes[i]) == end - at &&
			    memcmp(name + at, suffixes[i], end - at) == 0)
				return len - (at - 1);
		}
	}
	return number && mangled && end > 0 ? len - end : 0;
}

static bool is_mangled(const char *name)
{
	name += strspn(name, "_");
	return *name == 'Z' || *name == 'R';
}

/*
 * Has the Rust name a binder ("FG12_", "DG12_") with more lifetimes than code has? libiberty counts
 * to that number, up to 2^64, also where it prints nothing and append() could not end it.
 */
static bool has_huge_binder(const char *name)
{
	static const char digits[] =
	    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

	for (const char *p = name; (p = strchr(p, 'G')); p++) {
		size_t n = strspn(p + 1, digits);

		if (p > name && (p[-1] == 'F' || p[-1] == 'D') && n > 2 && p[n + 1] == '_')
			return true;
	}
	return false;
}

int demangle(const char *name, char **ret, bool *ret_rust)
{
	size_t len = strnlen(name, DEMANGLE_MAX), base, n;
	char text[DEMANGLE_MAX + 8], *copy = NULL;
	const char *version, *result = text;
	bool mangled = is_mangled(name), rust = false, plt;
	struct output out;

	if (len < DEMANGLE_MAX) {
		memcpy(text, name, len + 1);
		version = memchr(text + (len > 0), '@', len ? len - 1 : 0);
		plt = version && streq(version, "@plt");
		base = version ? (size_t)(version - text) : len;
		while ((n = suffix_len(text, base, mangled)) != 0)
			base -= n;
		text[base] = 0;
		if (text[strspn(text, "_")] == 'R' && has_huge_binder(text))
			mangled = false;
		if (mangled) {
			rust = run(rust_demangle_callback, text, &out);
			if (rust || run(cplus_demangle_v3_callback, text, &out))
				result = out.text;
		}
		n = strlen(result);
		if (result != name && (!streq(result, name) || plt)) {
			copy = malloc(n + sizeof("@plt"));
			if (!copy)
				return -ENOMEM;
			memcpy(copy, result, n);
			memcpy(copy + n, plt ? "@plt" : "", plt ? 5 : 1);
		}
	}
	*ret_rust = rust;
	*ret = copy;
	return 0;
}
