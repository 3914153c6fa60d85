/* SPDX-License-Identifier: Apache-2.0 */
/* Short forms for the tests; see the header. */
#include "tests/unit/operator/policy/support.h"

#include <time.h>

cJSON *json_of(const char *text)
{
	_cleanup_free_ char *copy = strdup(text);
	cJSON *object;

	assert_non_null(copy);
	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	object = cJSON_Parse(copy);
	if (!object)
		fail_msg("not JSON: %s", text);
	return object;
}

static void format_time(int64_t t, char out[32])
{
	struct tm tm;
	time_t seconds = (time_t)t;

	strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
}

struct cluster_config *cluster_of(const char *spec)
{
	_cleanup_free_ char *text = NULL;
	struct cluster_config *c = NULL;
	struct error err = {0};
	cJSON *object;

	assert_true(asprintf(&text, "{'metadata':{'name':'cluster'},'spec':%s}", spec) > 0);
	object = json_of(text);
	if (cluster_config_parse(object, &c, &err) < 0)
		fail_msg("%s: %s", spec, err.message);
	cJSON_Delete(object);
	return c;
}

static cJSON *object_of(const char *ns, const char *name, int64_t created, const char *spec)
{
	_cleanup_free_ char *text = NULL;
	char when[32];

	format_time(created, when);
	assert_true(asprintf(&text,
			     "{'metadata':{'name':'%s','namespace':'%s','uid':'u',"
			     "'creationTimestamp':'%s'},'spec':%s}",
			     name, ns, when, spec) > 0);
	return json_of(text);
}

struct namespace_config *config_of(const char *ns, const char *name, int64_t created,
				   const char *spec)
{
	cJSON *object = object_of(ns, name, created, spec);
	struct namespace_config *c = NULL;
	struct error err = {0};

	if (namespace_config_parse(object, &c, &err) < 0)
		fail_msg("%s: %s", spec, err.message);
	cJSON_Delete(object);
	return c;
}

int refuse(struct policy_set *set, const char *ns, const char *name, int64_t created,
	   const char *spec, const char *cause)
{
	cJSON *object = object_of(ns, name, created, spec);
	struct namespace_config *standin = NULL;
	bool disabled = false;

	assert_int_equal(namespace_config_salvage(object, &standin, &disabled), 0);
	cJSON_Delete(object);
	return policy_set_refuse(set, standin, disabled, cause);
}

struct policy_set *set_of(const char *cluster_spec)
{
	struct policy_set *set;

	assert_int_equal(policy_set_new(&set), 0);
	if (cluster_spec)
		assert_int_equal(policy_set_cluster(set, cluster_of(cluster_spec)), 0);
	return set;
}

void put(struct policy_set *set, const char *ns, const char *name, int64_t created,
	 const char *spec)
{
	assert_int_equal(policy_set_put(set, config_of(ns, name, created, spec)), 0);
}

static size_t split_labels(const char *text, char *copy, size_t size, struct label *out)
{
	size_t n = 0;
	char *rest, *pair;

	if (!text || !*text)
		return 0;
	assert_true(strlen(text) < size);
	strcpy(copy, text);
	for (rest = copy; (pair = strsep(&rest, ","));) {
		assert_true(n < TEST_LABELS_MAX);
		out[n].value = strchr(pair, '=') + 1;
		*strchr(pair, '=') = 0;
		out[n++].key = pair;
	}
	return n;
}

void pod_init(struct pod *p, const char *ns, const char *labels, const char *ns_labels,
	      const char *mode)
{
	memset(p, 0, sizeof(*p));
	p->subject = (struct policy_subject){
	    .ns = ns,
	    .namespace_labels = p->ns_labels,
	    .n_namespace_labels =
		split_labels(ns_labels, p->text[0], sizeof(p->text[0]), p->ns_labels),
	    .pod_labels = p->labels,
	    .n_pod_labels = split_labels(labels, p->text[1], sizeof(p->text[1]), p->labels),
	    .mode_annotation = mode,
	};
}

const char *describe(const struct effective_policy *p, const struct namespace_config *by)
{
	static const char letters[] = "?aed";
	static char text[1024];
	char tracers[TRACER_COUNT + 1] = "";
	size_t n;

	for (size_t i = 0; i < TRACER_COUNT; i++)
		tracers[i] = letters[p->tracers[i]];
	n = (size_t)snprintf(text, sizeof(text),
			     "%s hz=%d off=%d tracers=%s to=", p->enabled ? "on" : "off", p->hz,
			     p->off_cpu_per_mille, tracers);
	for (size_t i = 0; i < p->n_destinations; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s%s%s", i ? "," : "",
				      p->destinations[i].ns, *p->destinations[i].ns ? "/" : "",
				      p->destinations[i].destination->name);
	for (size_t i = 0; i < p->n_labels; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s",
				      i ? "," : " labels=", p->labels[i]);
	if (p->timestamps)
		n += (size_t)snprintf(text + n, sizeof(text) - n, " timed");
	snprintf(text + n, sizeof(text) - n, " by=%s", by ? by->id.name : "cluster");
	assert_true(p->id != 0);
	return text;
}

const char *resolved(struct policy_set *set, const char *ns, const char *labels,
		     const char *ns_labels, const char *mode)
{
	const struct effective_policy *policy;
	const struct namespace_config *by;
	struct pod pod;

	pod_init(&pod, ns, labels, ns_labels, mode);
	assert_int_equal(policy_resolve(set, &pod.subject, &policy, &by), 0);
	return describe(policy, by);
}

const char *verdict_of(struct policy_set *set, const char *ns, const char *name)
{
	static char text[8192];
	struct policy_verdict v;
	size_t n;
	int r = policy_verdict(set, ns, name, &v);

	if (r == -ENOENT)
		return "none";
	assert_int_equal(r, 0);
	assert_int_equal(v.accepted, streq(v.reason, "Accepted"));
	n = (size_t)snprintf(text, sizeof(text), "%s: %s", v.reason, v.message);
	for (size_t i = 0; i < v.n_clamped; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "\n%s %s -> %s: %s",
				      v.clamped[i].field, v.clamped[i].requested,
				      v.clamped[i].effective, v.clamped[i].reason);
	return text;
}
