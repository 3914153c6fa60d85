/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges layers into one profile and applies the guard-rails (docs/policy.md). Scalars are replaced
 * one by one, lists as a whole; the guard-rails come last, so no layer can undo them. A name in
 * destinationRefs is looked up for the config that has it: an inherited list keeps its author. Pure
 * functions.
 */
#include "operator/policy/merge.h"

#include <openssl/evp.h>
#include <strings.h>

#include "lib/buf.h"
#include "lib/parse.h"

enum { DIGEST_INPUT_MAX = 1 << 20 };

static void apply_layer(struct merged_profile *m, const struct profile_spec *p,
			const struct namespace_config *author)
{
	if (p->mode != MODE_ABSENT)
		m->mode = p->mode;
	if (p->hz != NUMBER_ABSENT)
		m->hz = p->hz;
	if (p->off_cpu != TOGGLE_ABSENT)
		m->off_cpu = p->off_cpu;
	if (p->off_cpu_per_mille != NUMBER_ABSENT)
		m->off_cpu_per_mille = p->off_cpu_per_mille;
	for (size_t i = 0; i < TRACER_COUNT; i++)
		if (p->tracers[i] != TOGGLE_ABSENT)
			m->tracers[i] = p->tracers[i];
	if (p->labels.set)
		m->labels = &p->labels;
	if (p->timestamps != TOGGLE_ABSENT)
		m->timestamps = p->timestamps == TOGGLE_ENABLED;
	if (p->destination_refs.set) {
		m->refs = &p->destination_refs;
		m->refs_of = author;
	}
}

void profile_merge(const struct cluster_config *cluster, const struct node_group *group,
		   const struct namespace_config *ns_default, const struct namespace_config *best,
		   struct merged_profile *ret)
{
	*ret = (struct merged_profile){.mode = MODE_ENABLED,
				       .hz = BUILT_IN_HZ,
				       .off_cpu = TOGGLE_DISABLED,
				       .off_cpu_per_mille = BUILT_IN_OFF_CPU_PER_MILLE};
	for (size_t i = 0; i < TRACER_COUNT; i++)
		ret->tracers[i] = TOGGLE_AUTO;
	apply_layer(ret, &cluster->defaults, NULL);
	if (group && group->hz != NUMBER_ABSENT)
		ret->hz = group->hz;
	if (ns_default)
		apply_layer(ret, &ns_default->profile, ns_default);
	if (best) {
		apply_layer(ret, &best->profile, best);
		ret->priority = MIN(MAX(best->priority, CONFIG_PRIORITY_MIN), CONFIG_PRIORITY_MAX);
	}
}

static const struct destination *find_in(const struct destination *d, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (streq(d[i].name, name))
			return &d[i];
	return NULL;
}

const struct destination *destination_find(const struct cluster_config *cluster,
					   const struct namespace_config *config, const char *name,
					   bool *ret_own)
{
	const struct destination *d = NULL;

	if (config)
		d = find_in(config->destinations, config->n_destinations, name);
	*ret_own = d;
	return d ? d : find_in(cluster->destinations, cluster->n_destinations, name);
}

/* True when the first N bytes of PATTERN match NAME of LEN bytes, whatever the letter case. */
static bool host_matches(const char *pattern, size_t n, const char *name, size_t len)
{
	if (*pattern == '[' && n > 1) {
		pattern++;
		n -= 2;
	} else if (n > 2 && pattern[0] == '*') {
		pattern++; /* what is left begins with the dot */
		n--;
		if (len <= n)
			return false;
		name += len - n;
		len = n;
	}
	return len == n && !strncasecmp(pattern, name, n);
}

bool endpoint_matches(const char *pattern, const struct destination *d)
{
	const char *end = strrchr(pattern, ']'), *port = strchr(end ? end : pattern, ':');
	size_t n = port ? (size_t)(port - pattern) : strlen(pattern), len;
	int64_t number;

	if (!d->host)
		return false;
	if (port && (parse_i64(port + 1, &number) < 0 || number != d->port))
		return false;
	len = strlen(d->host);
	if (len > 1 && d->host[len - 1] == '.') /* the same name, for DNS */
		len--;
	return host_matches(pattern, n, d->host, len);
}

static const char *endpoint_refused(const struct guardrails *g, const struct destination *own)
{
	if (!g->tenant_endpoints.set)
		return NULL;
	for (size_t i = 0; i < g->tenant_endpoints.n; i++)
		if (endpoint_matches(g->tenant_endpoints.items[i], own))
			return NULL;
	return "its endpoint is not in guardrails.tenantEndpoints";
}

const char *destination_refused(const struct guardrails *g, const char *name,
				const struct destination *own)
{
	if (own)
		return g->tenant_destinations ? endpoint_refused(g, own)
					      : "guardrails.tenantDestinations is Forbidden";
	if (!g->allowed_destinations.set)
		return NULL;
	for (size_t i = 0; i < g->allowed_destinations.n; i++)
		if (streq(g->allowed_destinations.items[i], name))
			return NULL;
	return "guardrails.allowedDestinations does not name it";
}

static void add_destination(struct effective_policy *p, const char *ns, const struct destination *d)
{
	if (p->n_destinations < CONFIG_DESTINATIONS_MAX)
		p->destinations[p->n_destinations++] =
		    (struct policy_destination){.ns = ns, .destination = d};
}

static void clamp_destinations(const struct cluster_config *cluster, const struct merged_profile *m,
			       struct effective_policy *ret)
{
	for (size_t i = 0; !m->refs && i < cluster->n_destinations; i++)
		add_destination(ret, "", &cluster->destinations[i]);
	for (size_t i = 0; m->refs && i < m->refs->n; i++) {
		const char *name = m->refs->items[i];
		bool own;
		const struct destination *d = destination_find(cluster, m->refs_of, name, &own);

		/* The guard-rails limit only the refs of a namespace's config. */
		if (d && (!m->refs_of ||
			  !destination_refused(&cluster->guardrails, name, own ? d : NULL)))
			add_destination(ret, own ? m->refs_of->id.ns : "", d);
	}
}

static bool has_key(const struct string_list *l, const char *key)
{
	for (size_t i = 0; i < l->n; i++)
		if (streq(l->items[i], key))
			return true;
	return false;
}

bool label_allowed(const struct guardrails *g, const char *key)
{
	const struct string_list *rails = &g->allowed_labels;

	return !rails->set || has_key(rails, key) || has_key(rails, "*");
}

/* A config that asks for all keys gets those that are allowed. */
static void clamp_labels(const struct guardrails *g, const struct string_list *asked,
			 struct effective_policy *ret)
{
	if (asked && has_key(asked, "*") && !label_allowed(g, "*"))
		asked = &g->allowed_labels;
	for (size_t i = 0; asked && i < asked->n; i++)
		if (label_allowed(g, asked->items[i]) && ret->n_labels < CONFIG_LABELS_MAX)
			ret->labels[ret->n_labels++] = asked->items[i];
}

int hz_clamp(const struct guardrails *g, int hz)
{
	return MIN(MAX(hz, g->min_hz), g->max_hz);
}

void profile_clamp(const struct cluster_config *cluster, const struct merged_profile *m,
		   struct effective_policy *ret)
{
	const struct guardrails *g = &cluster->guardrails;

	*ret = (struct effective_policy){
	    .enabled = true, .hz = hz_clamp(g, m->hz), .priority = m->priority};
	if (m->off_cpu == TOGGLE_ENABLED && !g->off_cpu_forbidden)
		ret->off_cpu_per_mille = MIN(m->off_cpu_per_mille, g->max_off_cpu_per_mille);
	for (size_t i = 0; i < TRACER_COUNT; i++)
		ret->tracers[i] = g->tracer_denied[i] ? TOGGLE_DISABLED : m->tracers[i];
	ret->timestamps = m->timestamps;
	clamp_labels(g, m->labels, ret);
	clamp_destinations(cluster, m, ret);
}

/* The input of the digest: numbers as eight bytes, least significant first, and strings, each with
 * its length before it. */
static void put_number(struct buf *b, int64_t v)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < 8; i++)
		bytes[i] = (uint8_t)((uint64_t)v >> (8 * i));
	buf_append(b, bytes, sizeof(bytes));
}

static void put_string(struct buf *b, const char *s)
{
	put_number(b, s ? (int64_t)strlen(s) : -1);
	if (s)
		buf_puts(b, s);
}

static void put_destination(struct buf *b, const struct policy_destination *p)
{
	const struct destination *d = p->destination;

	put_string(b, p->ns);
	put_string(b, d->name);
	put_number(b, d->type);
	put_string(b, d->endpoint);
	put_number(b, d->protocol);
	put_string(b, d->compression);
	put_number(b, d->timeout_s);
	put_number(b, d->tls);
	put_string(b, d->server_name);
	put_string(b, d->ca.name);
	put_string(b, d->ca.key);
	put_string(b, d->client_certificate_secret);
	put_string(b, d->proto_generation);
	put_number(b, (int64_t)d->n_headers);
	for (size_t i = 0; i < d->n_headers; i++) {
		put_string(b, d->headers[i].name);
		put_string(b, d->headers[i].value);
		put_string(b, d->headers[i].ref.name);
		put_string(b, d->headers[i].ref.key);
	}
}

int policy_digest(const struct effective_policy *p, uint8_t ret[POLICY_DIGEST_SIZE])
{
	_cleanup_(buf_done) struct buf b;
	uint8_t digest[EVP_MAX_MD_SIZE];

	buf_init(&b, DIGEST_INPUT_MAX);
	put_number(&b, p->enabled);
	put_number(&b, p->hz);
	put_number(&b, p->off_cpu_per_mille);
	for (size_t i = 0; i < TRACERS_FIRST; i++)
		put_number(&b, p->tracers[i]);
	put_number(&b, (int64_t)p->n_destinations);
	for (size_t i = 0; i < p->n_destinations; i++)
		put_destination(&b, &p->destinations[i]);
	/* Later tracers count only when they are set: other policies keep their ids. */
	for (size_t i = TRACERS_FIRST; i < TRACER_COUNT && p->enabled; i++) {
		if (p->tracers[i] == TOGGLE_AUTO)
			continue;
		put_number(&b, (int64_t)i);
		put_number(&b, p->tracers[i]);
	}
	if (p->priority && p->enabled) {
		put_string(&b, "priority");
		put_number(&b, p->priority);
	}
	/* The same for labels and timestamps. */
	if (p->enabled && (p->n_labels || p->timestamps)) {
		put_string(&b, "labels");
		put_number(&b, p->timestamps);
		for (size_t i = 0; i < p->n_labels; i++)
			put_string(&b, p->labels[i]);
	}
	if (buf_error(&b))
		return buf_error(&b);
	if (EVP_Digest(b.data, b.len, digest, NULL, EVP_sha256(), NULL) != 1)
		return -ENOMEM;
	memcpy(ret, digest, POLICY_DIGEST_SIZE);
	return 0;
}

uint64_t policy_id(const uint8_t digest[POLICY_DIGEST_SIZE])
{
	uint64_t id = 0;

	for (size_t i = 0; i < 8; i++)
		id = id << 8 | digest[i];
	return id ? id : 1; /* 0 means no policy */
}
