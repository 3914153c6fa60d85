/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ${env:NAME}, ${NAME} and ${env:NAME:-default} in scalars, $$ for a dollar sign, as the
 * Collector's env provider does. What a variable brings in is not expanded again and cannot add
 * structure: it is text of the scalar that it stands in. An unset variable is empty, with a warning
 * that names it.
 */
#include "agent/config/internal.h"
#include "lib/buf.h"

const char *config_getenv(const char *const *envp, const char *name)
{
	size_t n = strlen(name);

	for (; envp && *envp; envp++)
		if (strncmp(*envp, name, n) == 0 && (*envp)[n] == '=')
			return *envp + n + 1;
	return NULL;
}

static bool is_name(const char *s, size_t n)
{
	if (!n || (s[0] >= '0' && s[0] <= '9'))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!(s[i] == '_' || (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') ||
		      (s[i] >= 'A' && s[i] <= 'Z')))
			return false;
	return true;
}

/* BODY: what stands between ${ and }. */
static int expand_one(struct fields *f, const struct yaml_node *node, char *body,
		      const char *const *envp, struct buf *out)
{
	char *name = body, *fallback = NULL, *colon = strstr(body, ":-");
	const char *value;

	if (colon) {
		*colon = 0;
		fallback = colon + 2;
	}
	if (has_prefix(name, "env:"))
		name += 4;
	else if ((colon = strchr(name, ':'))) {
		*colon = 0;
		return fields_error(f, node, "${%.32s:...}: only ${env:NAME} is supported", name);
	}
	if (!is_name(name, strlen(name)))
		return fields_error(f, node, "${%.32s}: not the name of an environment variable",
				    name);
	value = config_getenv(envp, name);
	if (!value || (fallback && !*value))
		value = fallback;
	if (!value)
		fields_warn(f, node, "the environment variable %.64s is not set", name);
	else
		(void)buf_puts(out, value); /* the buffer keeps its error */
	return 0;
}

static int expand_text(struct fields *f, struct yaml_node *node, const char *const *envp)
{
	_cleanup_(buf_done) struct buf out;
	_cleanup_free_ char *copy = strdup(node->text);
	char *p = copy, *dollar, *text;

	buf_init(&out, CONFIG_FILE_MAX);
	if (!copy)
		return fields_no_memory(f);
	while ((dollar = strchr(p, '$'))) {
		char *end;
		int r;

		(void)buf_append(&out, p, (size_t)(dollar - p));
		if (dollar[1] != '{') {
			(void)buf_puts(&out, "$");
			p = dollar + (dollar[1] == '$' ? 2 : 1);
			continue;
		}
		end = strchr(dollar, '}');
		if (!end)
			return fields_error(f, node, "${ without }");
		*end = 0;
		if (strstr(dollar + 2, "${"))
			return fields_error(f, node, "${} inside ${} is not supported");
		r = expand_one(f, node, dollar + 2, envp, &out);
		if (r < 0)
			return r;
		p = end + 1;
	}
	(void)buf_puts(&out, p);
	if (buf_error(&out) == -E2BIG)
		return fields_error(f, node, "longer than %d bytes when expanded", CONFIG_FILE_MAX);
	if (buf_error(&out) < 0)
		return fields_no_memory(f);
	text = buf_take(&out);
	if (!text) {
		text = strdup("");
		if (!text)
			return fields_no_memory(f);
	}
	yaml_set_text(node, text);
	return 0;
}

int config_expand(struct fields *f, struct yaml_node *root, const char *const *envp)
{
	unsigned int i = 0;
	int r;

	if (root->kind == YAML_SCALAR && strchr(root->text, '$'))
		return expand_text(f, root, envp);
	for (struct yaml_node *n = root->child; n; n = n->next, i++) {
		char number[24];
		size_t mark;

		snprintf(number, sizeof(number), "[%u]", i);
		mark = fields_enter(f, n->key ? n->key : number);
		r = config_expand(f, n, envp);
		if (r < 0)
			return r;
		fields_leave(f, mark);
	}
	return 0;
}
