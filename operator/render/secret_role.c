/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Role by which the role stream may read the Secrets that the cluster's destinations name, and no
 * other, and its binding: they come and go with the destinations. Pure; any thread.
 */
#include "operator/render/internal.h"

enum { NAMES_MAX = CONFIG_DESTINATIONS_MAX * (CONFIG_HEADERS_MAX + 2) };

struct names {
	const char *items[NAMES_MAX];
	size_t n;
};

static void add_name(struct names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (name && streq(names->items[i], name))
			return;
	if (name && names->n < NAMES_MAX)
		names->items[names->n++] = name;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted: the same bytes for the same names. */
static void find_names(const struct cluster_config *c, struct names *ret)
{
	for (size_t i = 0; i < c->n_destinations; i++) {
		const struct destination *d = &c->destinations[i];

		add_name(ret, d->ca.name);
		add_name(ret, d->client_certificate_secret);
		for (size_t k = 0; k < d->n_headers; k++)
			add_name(ret, d->headers[k].ref.name);
	}
	qsort(ret->items, ret->n, sizeof(ret->items[0]), compare);
}

int secret_role_make(const struct cluster_config *config, cJSON **ret)
{
	_cleanup_json_ cJSON *list = NULL;
	struct names names = {.n = 0};
	int r;

	find_names(config, &names);
	if (!names.n) {
		*ret = NULL;
		return 0;
	}
	r = json_make(&list, "[]");
	for (size_t i = 0; r == 0 && i < names.n; i++)
		r = json_append(list, "%s", names.items[i]);
	return r < 0 ? r
		     : json_make(ret,
				 "{'rules': [{'apiGroups': [''], 'resources': ['secrets'],"
				 "            'resourceNames': %j, 'verbs': ['get']}]}",
				 list);
}

int secret_binding_make(const char *ns, cJSON **ret)
{
	return json_make(ret,
			 "{'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Role',"
			 "             'name': '" KILN_SECRET_ROLE "'},"
			 " 'subjects': [{'kind': 'ServiceAccount', 'name': '" KILN_STREAM_ACCOUNT
			 "', 'namespace': %s}]}",
			 ns);
}
