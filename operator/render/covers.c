/* SPDX-License-Identifier: Apache-2.0 */
/*
 * render_covers(): has anybody changed what we rendered? The API server adds defaults, other
 * managers add fields, and some values come back written another way:
 *
 *	quantities	"0.1" comes back as "100m", 1 as "1"; compared by value where they can be
 *	empty values	"" and [] are not stored; they equal a missing field, but not a missing
 *			label, annotation or key of another map of strings. The false and 0 that we
 *			render are values of pointers (runAsUser, allowPrivilegeEscalation): stored
 *	keyed lists	server-side apply merges these element by element (x-kubernetes-list-type
 *			map); elements that others added are theirs. All other lists are compared
 *			whole, in order.
 *
 * Recursion is as deep as WANT, which is ours. Pure; any thread.
 */
#include "operator/render/internal.h"

/* Lists of core/v1 and meta/v1 that are maps, and their keys (OpenAPI of Kubernetes 1.32). */
static const struct keyed_list {
	const char *name;
	const char *keys[2];
} keyed_lists[] = {
    {"containers", {"name"}},	     {"volumes", {"name"}},	     {"env", {"name"}},
    {"volumeMounts", {"mountPath"}}, {"imagePullSecrets", {"name"}}, {"ownerReferences", {"uid"}},
};

/* Maps of strings whose empty values mean something. */
static const char *const string_maps[] = {"labels",	  "annotations", "matchLabels",
					  "nodeSelector", "selector",	 "data"};

/* The place of a value in the object: the names of its field and of the enclosing fields. */
struct place {
	const struct place *parent;
	const char *name; /* NULL: an element of a list */
};

static bool is_named(const struct place *p, const char *name)
{
	return p && p->name && streq(p->name, name);
}

/* True when the value at P is a quantity, such as resources.limits.cpu or emptyDir.sizeLimit. */
static bool is_quantity(const struct place *p)
{
	const struct place *of = p->parent;

	if (is_named(p, "sizeLimit"))
		return true;
	return of && (is_named(of, "limits") || is_named(of, "requests")) &&
	       is_named(of->parent, "resources");
}

static bool in_string_map(const struct place *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(string_maps); i++)
		if (is_named(p->parent, string_maps[i]))
			return true;
	return false;
}

static int quantity_of(const cJSON *json, struct quantity *ret)
{
	char text[32];

	if (cJSON_IsString(json))
		return quantity_parse(json->valuestring, ret);
	if (!cJSON_IsNumber(json))
		return -EINVAL;
	snprintf(text, sizeof(text), "%.15g", json->valuedouble);
	return quantity_parse(text, ret);
}

static bool same_quantity(const cJSON *live, const cJSON *want)
{
	struct quantity a, b;

	return quantity_of(live, &a) == 0 && quantity_of(want, &b) == 0 && quantity_equal(&a, &b);
}

/* True for a value that the API server does not store. */
static bool is_empty(const cJSON *want)
{
	return (cJSON_IsString(want) && !want->valuestring[0]) ||
	       (cJSON_IsArray(want) && !want->child);
}

static const struct keyed_list *find_keyed(const struct place *p, const cJSON *want)
{
	if (!p->name || !cJSON_IsObject(want->child))
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(keyed_lists); i++)
		if (streq(keyed_lists[i].name, p->name))
			return &keyed_lists[i];
	return NULL;
}

static bool same_key(const cJSON *live, const cJSON *want, const struct keyed_list *list)
{
	for (size_t i = 0; i < ARRAY_SIZE(list->keys) && list->keys[i]; i++)
		if (!cJSON_Compare(cJSON_GetObjectItemCaseSensitive(live, list->keys[i]),
				   cJSON_GetObjectItemCaseSensitive(want, list->keys[i]), true))
			return false;
	return true;
}

static bool covers(const struct place *p, const cJSON *live, const cJSON *want);

static bool covers_keyed(const struct place *p, const cJSON *live, const cJSON *want,
			 const struct keyed_list *list) // NOLINT(misc-no-recursion)
{
	const struct place element = {.parent = p};

	for (const cJSON *w = want->child; w; w = w->next) {
		const cJSON *l = live->child;

		while (l && !same_key(l, w, list))
			l = l->next;
		if (!l || !covers(&element, l, w))
			return false;
	}
	return true;
}

static bool covers_list(const struct place *p, const cJSON *live,
			const cJSON *want) // NOLINT(misc-no-recursion)
{
	const struct keyed_list *list = find_keyed(p, want);
	const struct place element = {.parent = p};
	const cJSON *l = live->child, *w = want->child;

	if (list)
		return covers_keyed(p, live, want, list);
	for (; l && w; l = l->next, w = w->next)
		if (!covers(&element, l, w))
			return false;
	return !l && !w;
}

static bool covers_members(const struct place *p, const cJSON *live,
			   const cJSON *want) // NOLINT(misc-no-recursion)
{
	for (const cJSON *w = want->child; w; w = w->next) {
		const struct place member = {.parent = p, .name = w->string};
		const cJSON *l = cJSON_GetObjectItemCaseSensitive(live, w->string);

		if (!l ? in_string_map(&member) || !is_empty(w) : !covers(&member, l, w))
			return false;
	}
	return true;
}

static bool covers(const struct place *p, const cJSON *live,
		   const cJSON *want) // NOLINT(misc-no-recursion)
{
	if (is_quantity(p) && same_quantity(live, want))
		return true;
	if (cJSON_IsObject(want))
		return cJSON_IsObject(live) && covers_members(p, live, want);
	if (cJSON_IsArray(want))
		return cJSON_IsArray(live) && covers_list(p, live, want);
	return cJSON_Compare(live, want, true);
}

bool render_covers(const cJSON *live, const cJSON *want)
{
	const struct place root = {.parent = NULL};

	if (!cJSON_IsObject(live) || !cJSON_IsObject(want))
		return false;
	for (const cJSON *w = want->child; w; w = w->next) {
		const struct place member = {.parent = &root, .name = w->string};
		const cJSON *l = cJSON_GetObjectItemCaseSensitive(live, w->string);

		/* Objects from a list have no apiVersion and kind. */
		if (streq(w->string, "apiVersion") || streq(w->string, "kind"))
			continue;
		if (!l ? !is_empty(w) : !covers(&member, l, w))
			return false;
	}
	return true;
}
