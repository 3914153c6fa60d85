/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the structs of configs with ABSENT values, and frees them. Pure data, any thread. */
#include "operator/policy/config.h"

#include "operator/policy/config_internal.h"

const char *const tracer_names[TRACER_COUNT + 1] = {
    "native", "go", "jvm", "python", "v8", "ruby", "php", "perl", "dotnet", "beam", "luajit", NULL};

void profile_spec_init(struct profile_spec *p)
{
	*p = (struct profile_spec){.hz = NUMBER_ABSENT, .off_cpu_per_mille = NUMBER_ABSENT};
}

void agent_spec_init(struct agent_spec *a)
{
	*a = (struct agent_spec){.report_interval_s = NUMBER_ABSENT};
}

static void strings_done(struct string_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->items[i]);
	free(l->items);
}

void selector_done(struct selector *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct selector_requirement *q = &s->requirements[i];

		free(q->key);
		for (size_t j = 0; j < q->n_values; j++)
			free(q->values[j]);
		free(q->values);
	}
	free(s->requirements);
}

void destinations_free(struct destination *d, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < d[i].n_headers; j++) {
			free(d[i].headers[j].name);
			free(d[i].headers[j].value);
			free(d[i].headers[j].ref.name);
			free(d[i].headers[j].ref.key);
		}
		free(d[i].headers);
		free(d[i].name);
		free(d[i].endpoint);
		free(d[i].host);
		free(d[i].compression);
		free(d[i].server_name);
		free(d[i].ca.name);
		free(d[i].ca.key);
		free(d[i].client_certificate_secret);
		free(d[i].proto_generation);
	}
	free(d);
}

void agent_spec_done(struct agent_spec *a)
{
	free(a->image);
	free(a->image_pull_policy);
	free(a->priority_class);
	free(a->log_level);
	free(a->max_unavailable);
	free(a->security_mode);
	free(a->when_unknown);
	cJSON_Delete(a->image_pull_secrets);
	cJSON_Delete(a->node_selector);
	cJSON_Delete(a->tolerations);
	cJSON_Delete(a->resources);
	cJSON_Delete(a->pod_labels);
	cJSON_Delete(a->pod_annotations);
}

static void object_id_done(struct object_id *id)
{
	free(id->ns);
	free(id->name);
	free(id->uid);
	free(id->ignored);
}

struct cluster_config *cluster_config_free(struct cluster_config *c)
{
	if (!c)
		return NULL;
	object_id_done(&c->id);
	strings_done(&c->defaults.destination_refs);
	strings_done(&c->defaults.labels);
	free(c->metadata.cluster_name);
	strings_done(&c->metadata.pod_labels);
	strings_done(&c->metadata.pod_annotations);
	strings_done(&c->metadata.namespace_labels);
	strings_done(&c->metadata.namespace_annotations);
	destinations_free(c->destinations, c->n_destinations);
	probes_free(c->probes, c->n_probes);
	selector_done(&c->guardrails.namespaces);
	strings_done(&c->guardrails.allowed_destinations);
	strings_done(&c->guardrails.allowed_labels);
	strings_done(&c->guardrails.tenant_endpoints);
	agent_spec_done(&c->agent);
	for (size_t i = 0; i < c->n_groups; i++) {
		free(c->groups[i].name);
		selector_done(&c->groups[i].nodes);
		agent_spec_done(&c->groups[i].agent);
	}
	free(c->groups);
	free(c);
	return NULL;
}

struct namespace_config *namespace_config_free(struct namespace_config *c)
{
	if (!c)
		return NULL;
	object_id_done(&c->id);
	selector_done(&c->pods);
	strings_done(&c->profile.destination_refs);
	strings_done(&c->profile.labels);
	destinations_free(c->destinations, c->n_destinations);
	free(c);
	return NULL;
}
