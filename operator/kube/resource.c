/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of the kinds. A path is built part by part: a part that would change its meaning ("..",
 * an empty part, a slash) is refused, as the API server refuses it in names; all characters but the
 * unreserved ones of RFC 3986 are percent-encoded. Constant data, any thread.
 */
#include "operator/kube/resource.h"

const struct kube_resource kube_resources[KUBE_KIND_COUNT] = {
#define X(id, g, v, p, k, n)                                                                       \
	[KUBE_##id] = {.group = (g), .version = (v), .plural = (p), .kind = (k), .namespaced = (n)},
    KUBE_RESOURCES(X)
#undef X
};

static bool unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

static void encode(struct buf *out, const char *text)
{
	for (; *text; text++) {
		if (unreserved(*text))
			buf_append(out, text, 1);
		else
			buf_printf(out, "%%%02X", (unsigned char)*text);
	}
}

/* The rule of names in paths: k8s.io/apimachinery pkg/api/validation/path/name.go (0.34). */
static int add_part(struct buf *out, const char *part)
{
	if (!*part || streq(part, ".") || streq(part, "..") || strpbrk(part, "/%"))
		return -EINVAL;
	buf_puts(out, "/");
	encode(out, part);
	return 0;
}

int kube_path(struct buf *out, enum kube_kind kind, const char *ns, const char *name,
	      const char *sub)
{
	const struct kube_resource *k = &kube_resources[kind];
	int r = 0;

	if ((sub && !name) || (ns && !k->namespaced))
		return -EINVAL;
	buf_puts(out, *k->group ? "/apis" : "/api");
	if (*k->group)
		r = add_part(out, k->group);
	if (r == 0)
		r = add_part(out, k->version);
	if (r == 0 && ns) {
		buf_puts(out, "/namespaces");
		r = add_part(out, ns);
	}
	if (r == 0)
		r = add_part(out, k->plural);
	if (r == 0 && name)
		r = add_part(out, name);
	if (r == 0 && sub)
		r = add_part(out, sub);
	return r < 0 ? r : buf_error(out);
}

int kube_path_query(struct buf *out, const char *key, const char *value)
{
	buf_puts(out, out->data && strchr(out->data, '?') ? "&" : "?");
	encode(out, key);
	buf_puts(out, "=");
	encode(out, value);
	return buf_error(out);
}
