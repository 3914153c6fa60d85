/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can still be read of an object that was refused. A refused config must not start profiling
 * that its author never asked for: `mode: Disabled` holds whatever else is wrong with the object,
 * and a config of which no good version is known stands for Disabled too. Each part is read on its
 * own: a part that cannot be read widens what is off, never narrows it. Pure functions.
 */
#include <limits.h>

#include "operator/policy/config_internal.h"

static bool is_disabled(const cJSON *profile)
{
	const char *mode = cJSON_GetStringValue(json_get(profile, "mode"));

	return mode && streq(mode, "Disabled");
}

bool cluster_config_is_disabled(const cJSON *object)
{
	return is_disabled(json_get(json_get(object, "spec"), "defaults"));
}

/* The selector and priority of SPEC; else all pods of the namespace, before all other configs. */
static int salvage_place(const cJSON *spec, struct namespace_config *c)
{
	const struct json_row priority = {"priority", JSON_INT, .min = CONFIG_PRIORITY_MIN,
					  .max = CONFIG_PRIORITY_MAX};
	const cJSON *selector = json_get(spec, "podSelector"), *number = json_get(spec, "priority");
	struct error err = {0};
	struct json_fields f = {.err = &err};
	int r = 0;

	if (selector)
		r = selector_decode(&f, selector, &c->pods);
	if (r == 0 && number)
		r = json_decode_value(&f, number, &priority, &c->priority);
	if (r == -ENOMEM)
		return r;
	if (r == 0 && cJSON_IsObject(spec) && !f.n_unknown && (c->pods.set || !number))
		return 0;
	selector_done(&c->pods);
	c->pods = (struct selector){.set = true};
	c->priority = INT_MAX;
	return 0;
}

int namespace_config_salvage(const cJSON *object, struct namespace_config **ret, bool *ret_disabled)
{
	_cleanup_(namespace_config_freep) struct namespace_config *c = calloc(1, sizeof(*c));
	const cJSON *meta = json_get(object, "metadata"), *spec = json_get(object, "spec");
	struct error err = {0};
	struct json_fields f = {.err = &err};
	int r;

	if (!c)
		return -ENOMEM;
	profile_spec_init(&c->profile);
	c->profile.mode = MODE_DISABLED;
	/* A generation or time that cannot be read stays 0, the oldest. */
	r = object_id_decode(&f, meta, &c->id);
	if (r == -ENOMEM)
		return r;
	r = object_id_finish(&f, &c->id, "default");
	if (r == 0 && !c->id.name)
		r = -EINVAL;
	if (r == 0)
		r = salvage_place(spec, c);
	if (r < 0)
		return r;
	*ret_disabled = is_disabled(json_get(spec, "profile"));
	*ret = TAKE_PTR(c);
	return 0;
}
