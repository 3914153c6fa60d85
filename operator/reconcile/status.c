/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a config's status, in the terms of the API (crds/).
 *
 * Conditions: Accepted, the config itself is valid; Programmed, the nodes run it; Overridden,
 * guard-rails or another config change a field; Ready, all of it together. Three conditions are
 * added only once they were False: DestinationsResolved, the Secrets that destinations name exist;
 * Effective, every field that is set has an effect; Exporting, the tenant's own destinations accept
 * samples, which says nothing of the nodes.
 *
 * Agents' reports over the node stream count where there are any: a node is programmed when its
 * agent runs the configuration that is rendered for it (the cluster's), or applies the policy of
 * the config's pods there (a namespace's). Without reports the DaemonSets show the state of the
 * cluster's config, and how far a namespace's config is programmed is Unknown, not guessed.
 */
#include "operator/reconcile/status.h"

#include "operator/reconcile/condition.h"

static struct condition accepted(const struct status_input *in)
{
	const struct objects_state *o = in->objects;

	if (!in->verdict->accepted)
		return (struct condition){"Accepted", CONDITION_FALSE, in->verdict->reason,
					  in->verdict->message};
	if (in->is_cluster && o->invalid && o->error[0])
		return (struct condition){"Accepted", CONDITION_FALSE, "Invalid", o->error};
	return (struct condition){"Accepted", CONDITION_TRUE, in->verdict->reason,
				  in->verdict->message};
}

/* Nodes desired, programmed, degraded. */
struct nodes_count {
	uint32_t desired, programmed, degraded;
};

/* Nodes of an earlier setting may have reported, too: no number exceeds the desired one. */
static struct nodes_count count_nodes(const struct status_input *in)
{
	const struct objects_state *o = in->objects;
	const struct match_result *m = &in->matches;

	if (!in->is_cluster)
		return (struct nodes_count){m->nodes, MIN(m->programmed, m->nodes),
					    MIN(m->degraded, m->nodes)};
	if (!in->agents.nodes)
		return (struct nodes_count){o->desired, o->programmed, o->degraded};
	return (struct nodes_count){o->desired, MIN(o->programmed, in->agents.applied),
				    MIN(o->desired, MAX(o->degraded, in->agents.degraded))};
}

static struct condition cluster_programmed(const struct status_input *in, char *text, size_t size)
{
	const struct objects_state *o = in->objects;
	struct nodes_count n = count_nodes(in);

	if (o->error[0])
		return (struct condition){"Programmed", CONDITION_FALSE, "ApplyFailed", o->error};
	if (!o->applied)
		return (struct condition){"Programmed", CONDITION_UNKNOWN, "Applying",
					  "The agent's objects are being written."};
	snprintf(text, size, "%u of %u nodes run this configuration.", n.programmed, n.desired);
	if (!n.desired)
		return (struct condition){"Programmed", CONDITION_UNKNOWN, "NoNodes",
					  "No node is known to run an agent yet."};
	if (n.programmed < n.desired)
		return (struct condition){"Programmed", CONDITION_FALSE, "RollingOut", text};
	return (struct condition){"Programmed", CONDITION_TRUE, "RolledOut", text};
}

static struct condition namespace_programmed(const struct status_input *in, char *text, size_t size)
{
	struct nodes_count n = count_nodes(in);

	if (in->matches.held_off) {
		snprintf(text, size, "%u pod%s profiled because of this config.",
			 in->matches.held_off, in->matches.held_off == 1 ? " is not" : "s are not");
		return (struct condition){"Programmed", CONDITION_TRUE, "HeldOff", text};
	}
	if (!in->matches.pods)
		return (struct condition){"Programmed", CONDITION_TRUE, "NoPods",
					  "No running pod takes its policy from here."};
	if (!in->agents.nodes)
		return (struct condition){"Programmed", CONDITION_UNKNOWN, "NoReports",
					  "No agent has reported yet."};
	snprintf(text, size, "%u of %u nodes apply this policy to its pods.", n.programmed,
		 n.desired);
	if (n.programmed < n.desired)
		return (struct condition){"Programmed", CONDITION_FALSE, "RollingOut", text};
	return (struct condition){"Programmed", CONDITION_TRUE, "RolledOut", text};
}

static struct condition programmed(const struct status_input *in, bool is_accepted, char *text,
				   size_t size)
{
	if (!is_accepted)
		return (struct condition){"Programmed", CONDITION_FALSE, "NotAccepted",
					  "The configuration is not accepted."};
	return in->is_cluster ? cluster_programmed(in, text, size)
			      : namespace_programmed(in, text, size);
}

static struct condition ready(const struct status_input *in, const struct condition *is_accepted,
			      const struct condition *is_programmed, char *text, size_t size)
{
	struct nodes_count n = count_nodes(in);
	const struct condition *cause =
	    is_accepted->status != CONDITION_TRUE ? is_accepted : is_programmed;

	if (cause->status != CONDITION_TRUE)
		return (struct condition){"Ready", cause->status, cause->reason, cause->message};
	if (in->unresolved)
		return (struct condition){"Ready", CONDITION_FALSE, in->unresolved->reason,
					  in->unresolved->text};
	if (in->failing)
		return (struct condition){"Ready", CONDITION_FALSE, in->failing->reason,
					  in->failing->text};
	snprintf(text, size, "%u of %u nodes %s degraded, see kubectl get profilingnodes.",
		 n.degraded, n.desired, n.degraded == 1 ? "is" : "are");
	if (in->agents.nodes && n.degraded)
		return (struct condition){"Ready", CONDITION_FALSE, "NodesDegraded", text};
	return (struct condition){"Ready", CONDITION_TRUE, "Ready",
				  "The configuration is in effect."};
}

static struct condition overridden(const struct policy_verdict *v, char *text, size_t size)
{
	if (!v->n_clamped)
		return (struct condition){"Overridden", CONDITION_FALSE, "NotOverridden",
					  "Everything is as asked for."};
	snprintf(text, size,
		 "%zu field%s limited by the cluster's guard-rails, see status.clamped.",
		 v->n_clamped, v->n_clamped == 1 ? " is" : "s are");
	return (struct condition){"Overridden", CONDITION_TRUE, "Clamped", text};
}

/* Sets RET only for a config whose condition is or was False; true when it does. */
static bool destinations_resolved(const struct status_input *in, const cJSON *live,
				  struct condition *ret)
{
	if (in->unresolved)
		*ret = (struct condition){"DestinationsResolved", CONDITION_FALSE,
					  in->unresolved->reason, in->unresolved->text};
	else if (condition_find(live, "DestinationsResolved"))
		*ret = (struct condition){"DestinationsResolved", CONDITION_TRUE, "Resolved",
					  "Every destination in use has its Secrets."};
	else
		return false;
	return true;
}

/* As destinations_resolved(), for fields without effect. */
static bool effective(const struct status_input *in, const cJSON *live, struct condition *ret)
{
	if (in->verdict->ineffective[0])
		*ret = (struct condition){"Effective", CONDITION_FALSE, "PartlyIneffective",
					  in->verdict->ineffective};
	else if (condition_find(live, "Effective"))
		*ret = (struct condition){"Effective", CONDITION_TRUE, "Effective",
					  "Every field that is set has an effect."};
	else
		return false;
	return true;
}

/* As destinations_resolved(), for destinations that fail. */
static bool exporting(const struct status_input *in, const cJSON *live, struct condition *ret)
{
	if (in->failing)
		*ret = (struct condition){"Exporting", CONDITION_FALSE, in->failing->reason,
					  in->failing->text};
	else if (condition_find(live, "Exporting"))
		*ret =
		    (struct condition){"Exporting", CONDITION_TRUE, "Exporting",
				       "Every destination of this config takes what it is sent."};
	else
		return false;
	return true;
}

static int add_conditions(cJSON *status, const struct status_input *in)
{
	const cJSON *live = cJSON_GetObjectItemCaseSensitive(in->live, "conditions");
	cJSON *out = cJSON_AddArrayToObject(status, "conditions");
	char programmed_text[128], overridden_text[128], ready_text[128];
	struct condition conditions[7];
	size_t n = 0;
	int r = out ? 0 : -ENOMEM;

	conditions[n++] = accepted(in);
	conditions[n] = programmed(in, conditions[0].status == CONDITION_TRUE, programmed_text,
				   sizeof(programmed_text));
	n++;
	if (!in->is_cluster)
		conditions[n++] = overridden(in->verdict, overridden_text, sizeof(overridden_text));
	n += effective(in, live, &conditions[n]);
	n += destinations_resolved(in, live, &conditions[n]);
	n += exporting(in, live, &conditions[n]);
	conditions[n] = ready(in, &conditions[0], &conditions[1], ready_text, sizeof(ready_text));
	n++;
	for (size_t i = 0; i < n && !r; i++)
		r = condition_append(out, &conditions[i], in->generation, live, in->now);
	return r;
}

static int add_clamped(cJSON *status, const struct policy_verdict *v)
{
	cJSON *out;

	if (!v->n_clamped)
		return 0;
	out = cJSON_AddArrayToObject(status, "clamped");
	for (size_t i = 0; i < v->n_clamped; i++) {
		const struct policy_clamp *c = &v->clamped[i];
		cJSON *item = cJSON_CreateObject();

		if (!cJSON_AddItemToArray(out, item)) {
			cJSON_Delete(item);
			return -ENOMEM;
		}
		if (!cJSON_AddStringToObject(item, "field", c->field) ||
		    !cJSON_AddStringToObject(item, "requested", c->requested) ||
		    !cJSON_AddStringToObject(item, "effective", c->effective) ||
		    !cJSON_AddStringToObject(item, "reason", c->reason))
			return -ENOMEM;
	}
	return 0;
}

static int add_nodes(cJSON *status, const struct status_input *in)
{
	struct nodes_count n = count_nodes(in);
	cJSON *nodes = cJSON_AddObjectToObject(status, "nodes");

	if (!cJSON_AddNumberToObject(nodes, "desired", n.desired) ||
	    !cJSON_AddNumberToObject(nodes, "programmed", n.programmed) ||
	    !cJSON_AddNumberToObject(nodes, "degraded", n.degraded))
		return -ENOMEM;
	return 0;
}

static int add_effective_hash(cJSON *status, uint64_t id)
{
	char text[17];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)id);
	return cJSON_AddStringToObject(status, "effectiveHash", text) ? 0 : -ENOMEM;
}

int status_build(const struct status_input *in, cJSON **ret)
{
	cJSON *status = cJSON_CreateObject();
	int r = 0;

	if (!cJSON_AddNumberToObject(status, "observedGeneration", (double)in->generation) ||
	    !cJSON_AddNumberToObject(status, "matchedPods",
				     in->matches.pods + in->matches.held_off))
		r = -ENOMEM;
	if (!r && in->is_cluster && in->objects->config_hash[0] &&
	    !cJSON_AddStringToObject(status, "configHash", in->objects->config_hash))
		r = -ENOMEM;
	if (!r && in->verdict->effective)
		r = add_effective_hash(status, in->verdict->effective);
	if (!r)
		r = add_nodes(status, in);
	if (!r)
		r = add_clamped(status, in->verdict);
	if (!r)
		r = add_conditions(status, in);
	if (r < 0) {
		cJSON_Delete(status);
		return r;
	}
	*ret = status;
	return 0;
}

static bool same_member(const cJSON *a, const cJSON *b, const char *key)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(a, key);
	const cJSON *y = cJSON_GetObjectItemCaseSensitive(b, key);

	return (!x && !y) || cJSON_Compare(x, y, true);
}

bool status_differs_in_counts(const cJSON *before, const cJSON *now)
{
	static const char *const members[] = {"observedGeneration", "configHash", "effectiveHash",
					      "clamped"};
	static const char *const parts[] = {"type", "status", "reason", "observedGeneration"};
	const cJSON *a = cJSON_GetObjectItemCaseSensitive(before, "conditions"), *i;
	const cJSON *b = cJSON_GetObjectItemCaseSensitive(now, "conditions");

	for (size_t m = 0; m < ARRAY_SIZE(members); m++)
		if (!same_member(before, now, members[m]))
			return false;
	if (cJSON_GetArraySize(a) != cJSON_GetArraySize(b))
		return false;
	cJSON_ArrayForEach(i, b)
	{
		const cJSON *other = condition_find(
		    a, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(i, "type")));

		for (size_t p = 0; p < ARRAY_SIZE(parts); p++)
			if (!same_member(other, i, parts[p]))
				return false;
	}
	return true;
}

bool status_tells_over_quota(const cJSON *object)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(object, "status");
	const cJSON *accepted =
	    condition_find(cJSON_GetObjectItemCaseSensitive(status, "conditions"), "Accepted");
	const char *reason =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(accepted, "reason"));

	return reason && streq(reason, POLICY_OVER_QUOTA) &&
	       cJSON_Compare(cJSON_GetObjectItemCaseSensitive(meta, "generation"),
			     cJSON_GetObjectItemCaseSensitive(status, "observedGeneration"), true);
}
