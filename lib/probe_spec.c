/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function's name may have any character that linkers accept: "main.(*T).Get", "_ZN3fooC2Ev",
 * "memcpy". So the rate is parsed first, from the end, then the kind, from the beginning. In the
 * remaining text the last colon ends the path, which may have colons itself.
 */
#include "lib/probe_spec.h"

#include "lib/fields.h"
#include "lib/parse.h"

static const char *const kind_names[PROBE_KIND_COUNT] = {
    [PROBE_UPROBE] = "uprobe",
    [PROBE_URETPROBE] = "uretprobe",
    [PROBE_KPROBE] = "kprobe",
    [PROBE_TRACEPOINT] = "tracepoint",
};

const char *probe_kind_name(enum probe_kind kind)
{
	return (unsigned int)kind < PROBE_KIND_COUNT ? kind_names[kind] : "";
}

static bool is_printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f)
			return false;
	return true;
}

/* Whether S can be the name of a C function or a tracepoint. */
static bool is_identifier(const char *s)
{
	static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
	static const char rest[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789.";

	return *s && strchr(first, *s) && strspn(s, rest) == strlen(s);
}

/* Cuts ",rate=N" off TEXT. */
static int take_rate(char *text, uint32_t *ret, struct error *err)
{
	static const char key[] = ",rate=";
	char *comma = strrchr(text, ',');
	uint64_t rate;

	if (!comma || !has_prefix(comma, key))
		return 0;
	if (parse_u64(comma + strlen(key), &rate) < 0 || rate < 1 || rate > PROBE_RATE_MAX)
		return error_set(err, -EINVAL, "rate: want 1..%d samples a second, got %s",
				 PROBE_RATE_MAX, quote_text(comma + strlen(key)).text);
	*comma = 0;
	*ret = (uint32_t)rate;
	return 0;
}

static int take_kind(const char *text, enum probe_kind *ret, const char **ret_rest,
		     struct error *err)
{
	const char *colon = strchr(text, ':');

	for (int i = 0; colon && i < PROBE_KIND_COUNT; i++) {
		if ((size_t)(colon - text) != strlen(kind_names[i]) ||
		    !has_prefix(text, kind_names[i]))
			continue;
		*ret = (enum probe_kind)i;
		*ret_rest = colon + 1;
		return 0;
	}
	return error_set(err, -EINVAL,
			 "want uprobe:PATH:FUNCTION, uretprobe:PATH:FUNCTION, kprobe:FUNCTION or "
			 "tracepoint:SUBSYSTEM:NAME, got %s",
			 quote_text(text).text);
}

static int check_names(const struct probe_spec *p, struct error *err)
{
	bool is_user = p->kind == PROBE_UPROBE || p->kind == PROBE_URETPROBE;

	if (is_user && (p->target[0] != '/' || strlen(p->target) < 2))
		return error_set(err, -EINVAL, "want an absolute path after %s:, got %s",
				 kind_names[p->kind], quote_text(p->target).text);
	if (p->kind == PROBE_TRACEPOINT && !is_identifier(p->target))
		return error_set(err, -EINVAL, "want the tracepoint's subsystem, got %s",
				 quote_text(p->target).text);
	if (!p->name[0])
		return error_set(err, -EINVAL, "want the name of a %s after the last colon",
				 p->kind == PROBE_TRACEPOINT ? "tracepoint" : "function");
	if (!is_user && !is_identifier(p->name))
		return error_set(err, -EINVAL, "want the name of a %s, got %s",
				 p->kind == PROBE_TRACEPOINT ? "tracepoint" : "function",
				 quote_text(p->name).text);
	return 0;
}

int probe_spec_parse(const char *text, struct probe_spec *ret, struct error *err)
{
	struct probe_spec p = {.rate = PROBE_RATE_DEFAULT};
	const char *rest = p.text, *name;
	int r;

	if (strlen(text) > PROBE_TEXT_MAX)
		return error_set(err, -EINVAL, "want at most %d characters, got %zu",
				 PROBE_TEXT_MAX, strlen(text));
	if (!is_printable(text))
		return error_set(err, -EINVAL, "want printable ASCII without blanks, got %s",
				 quote_text(text).text);
	strcpy(p.text, text);
	r = take_rate(p.text, &p.rate, err);
	if (!r)
		r = take_kind(p.text, &p.kind, &rest, err);
	if (r < 0)
		return r;
	name = p.kind == PROBE_KPROBE ? rest : strrchr(rest, ':');
	if (!name)
		return error_set(err, -EINVAL, "want %s, got %s",
				 p.kind == PROBE_TRACEPOINT ? "tracepoint:SUBSYSTEM:NAME"
							    : "PATH:FUNCTION after the kind",
				 quote_text(p.text).text);
	if (p.kind != PROBE_KPROBE) {
		memcpy(p.target, rest, (size_t)(name - rest));
		name++;
	}
	if (strlen(name) > PROBE_NAME_MAX)
		return error_set(err, -EINVAL, "want a name of at most %d characters, got %zu",
				 PROBE_NAME_MAX, strlen(name));
	strcpy(p.name, name);
	r = check_names(&p, err);
	if (r < 0)
		return r;
	*ret = p;
	return 0;
}
