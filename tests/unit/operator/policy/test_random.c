/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random worlds of configs against an oracle without indexes, caches or layers: for each pod it
 * sorts all configs again and follows docs/policy.md sentence by sentence. Between questions
 * configs are added, changed and removed.
 */
#include "tests/unit/operator/policy/support.h"

enum { WORLDS = 300, STEPS = 60, CONFIGS_MAX = 40, NAMESPACES = 3 };

static uint64_t state;

static unsigned int any(unsigned int n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned int)(mix64(state) % n);
}

static bool one_in(unsigned int n)
{
	return any(n) == 0;
}

static const char *const ns_names[NAMESPACES] = {"prod", "dev", "test"};
static const char *const destination_names[] = {"main", "log", "own", "nowhere"};
static const char *const tracer_values[] = {"Auto", "Enabled", "Disabled"};
static const char *const mode_values[] = {"Enabled", "Disabled", "OptIn"};

/* A profile as the oracle sees it: indices of the words and values in the JSON. */
struct profile {
	int mode, hz, off, per_mille; /* -1: absent; `mode`, `off` index their words */
	int tracers[TRACER_COUNT];
	bool refs_set;
	size_t n_refs;
	int refs[4];
};
struct world_config {
	bool used, invalid, stands_in, selects, has_own;
	int ns, priority, created, name;
	/*
	 * A term on label k<key>: its value is in the set of bits `values`, is not in it, exists,
	 * or does not.
	 */
	size_t n_terms;
	struct {
		int key, op;
		unsigned int values;
	} terms[2];
	struct profile profile;
};
struct world {
	bool cluster, tenants, opt_out_forbidden, off_forbidden, allowed_set, rails_ns;
	int min_hz, max_hz, max_per_mille;
	unsigned int denied, allowed, present; /* bits */
	struct profile defaults;
	struct world_config configs[CONFIGS_MAX];
};

struct text {
	char s[4096];
	size_t n;
};

static void add(struct text *t, const char *format, ...) _printf_(2, 3);
static void add(struct text *t, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	t->n += (size_t)vsnprintf(t->s + t->n, sizeof(t->s) - t->n, format, ap);
	va_end(ap);
	assert_true(t->n < sizeof(t->s));
}

static void random_profile(struct profile *p, unsigned int refs)
{
	*p = (struct profile){.mode = -1, .hz = -1, .off = -1, .per_mille = -1};
	if (one_in(3))
		p->mode = (int)any(3);
	if (one_in(2))
		p->hz = 1 + (int)any(120);
	if (one_in(2))
		p->off = (int)any(2);
	if (one_in(2))
		p->per_mille = (int)any(100);
	for (size_t i = 0; i < TRACER_COUNT; i++)
		p->tracers[i] = one_in(3) ? (int)any(3) : -1;
	p->refs_set = one_in(2);
	for (size_t i = 0; p->refs_set && i < ARRAY_SIZE(destination_names); i++)
		if ((refs >> i & 1) && one_in(2))
			p->refs[p->n_refs++] = (int)i;
}

static void write_profile(struct text *t, const struct profile *p)
{
	bool tracers = false;

	add(t, "{'sampling':{");
	if (p->hz >= 0)
		add(t, "'hz':%d", p->hz);
	add(t, "},'offCPU':{'mode':%s", p->off < 0 ? "null" : p->off ? "'Enabled'" : "'Disabled'");
	if (p->per_mille >= 0)
		add(t, ",'perMille':%d", p->per_mille);
	add(t, "},'tracers':{");
	for (size_t i = 0; i < TRACER_COUNT; i++)
		if (p->tracers[i] >= 0) {
			add(t, "%s'%s':'%s'", tracers ? "," : "", tracer_names[i],
			    tracer_values[p->tracers[i]]);
			tracers = true;
		}
	add(t, "}");
	if (p->mode >= 0)
		add(t, ",'mode':'%s'", mode_values[p->mode]);
	if (p->refs_set) {
		add(t, ",'destinationRefs':[");
		for (size_t i = 0; i < p->n_refs; i++)
			add(t, "%s'%s'", i ? "," : "", destination_names[p->refs[i]]);
		add(t, "]");
	}
	add(t, "}");
}

static void write_bits(struct text *t, unsigned int bits, const char *const *names, size_t n)
{
	bool first = true;

	for (size_t i = 0; i < n; i++)
		if (bits >> i & 1) {
			add(t, "%s'%s'", first ? "" : ",", names[i]);
			first = false;
		}
}

static int remove_and_refuse_cluster(struct policy_set *set)
{
	policy_set_remove(set, "", "cluster");
	return policy_set_refuse_cluster(set, false, "why");
}

static void new_cluster(struct world *w, struct policy_set *set)
{
	struct text t = {.n = 0};

	w->cluster = !one_in(10);
	if (!w->cluster) {
		assert_int_equal(
		    one_in(2) ? policy_set_cluster(set, NULL) : remove_and_refuse_cluster(set), 0);
		return;
	}
	w->tenants = one_in(2);
	w->opt_out_forbidden = one_in(3);
	w->off_forbidden = one_in(3);
	w->rails_ns = one_in(3);
	w->min_hz = 1 + (int)any(30);
	w->max_hz = w->min_hz + (int)any(90);
	w->max_per_mille = (int)any(100);
	w->denied = one_in(2) ? any(1 << TRACER_COUNT) : 0;
	w->present = any(4); /* of main, log */
	w->allowed_set = one_in(2);
	w->allowed = w->present & any(4);
	random_profile(&w->defaults, w->present);
	add(&t, "{'defaults':");
	write_profile(&t, &w->defaults);
	add(&t, ",'destinations':[");
	for (size_t i = 0, n = 0; i < 2; i++)
		if (w->present >> i & 1)
			add(&t, "%s{'name':'%s','text':{}}", n++ ? "," : "", destination_names[i]);
	add(&t,
	    "],'guardrails':{'sampling':{'minHz':%d,'maxHz':%d},'offCPU':{'mode':'%s',"
	    "'maxPerMille':%d},'tenantDestinations':'%s','podOptOut':'%s'",
	    w->min_hz, w->max_hz, w->off_forbidden ? "Forbidden" : "Allowed", w->max_per_mille,
	    w->tenants ? "SameNamespaceSecret" : "Forbidden",
	    w->opt_out_forbidden ? "Forbidden" : "Allowed");
	add(&t, ",'deniedTracers':[");
	write_bits(&t, w->denied, tracer_names, TRACER_COUNT);
	add(&t, "]");
	if (w->allowed_set) {
		add(&t, ",'allowedDestinations':[");
		write_bits(&t, w->allowed, destination_names, 2);
		add(&t, "]");
	}
	if (w->rails_ns)
		add(&t, ",'namespaceSelector':{'matchLabels':{'kiln':'yes'}}");
	add(&t, "}}");
	assert_int_equal(policy_set_cluster(set, cluster_of(t.s)), 0);
}

static void write_selector(struct text *t, const struct world_config *c)
{
	static const char *const ops[] = {"In", "NotIn", "Exists", "DoesNotExist"};
	static const char *const values[] = {"v0", "v1", "v2"};

	add(t, "'podSelector':{'matchExpressions':[");
	for (size_t i = 0; i < c->n_terms; i++) {
		add(t, "%s{'key':'k%d','operator':'%s'", i ? "," : "", c->terms[i].key,
		    ops[c->terms[i].op]);
		if (c->terms[i].op < 2) {
			add(t, ",'values':[");
			write_bits(t, c->terms[i].values, values, 3);
			add(t, "]");
		}
		add(t, "}");
	}
	add(t, "]}");
}

/* The last good version stays, unless the object says Disabled; else it stands for Disabled. */
static void new_refused_config(struct world_config *c, struct policy_set *set, const char *name)
{
	bool disabled = one_in(2), selects = one_in(2);
	char spec[256];

	if (!c->used)
		*c = (struct world_config){.ns = (int)any(NAMESPACES), .created = (int)any(4)};
	snprintf(spec, sizeof(spec), "{%s'profile':{'mode':'%s','sampling':{'hz':0}}}",
		 selects ? "'priority':2,'podSelector':{'matchLabels':{'k0':'v1'}}," : "",
		 disabled ? "Disabled" : "Enabled");
	assert_int_equal(refuse(set, ns_names[c->ns], name, c->created, spec, "why"), 0);
	if (!c->used || c->stands_in || disabled) {
		*c = (struct world_config){
		    .ns = c->ns,
		    .created = c->created,
		    .stands_in = true,
		    .selects = selects,
		    .priority = selects ? 2 : 0,
		    .n_terms = selects,
		    .terms = {{.key = 0, .op = 0, .values = 2}},
		    .profile = {.mode = 1, .hz = -1, .off = -1, .per_mille = -1}};
		memset(c->profile.tracers, -1, sizeof(c->profile.tracers));
	}
	c->used = c->invalid = true;
}

static void new_config(struct world *w, struct policy_set *set)
{
	int at = (int)any(CONFIGS_MAX);
	struct world_config *c = &w->configs[at];
	struct text t = {.n = 0};
	char name[24];

	snprintf(name, sizeof(name), "c%02d", at);
	if (c->used && one_in(3)) {
		policy_set_remove(set, ns_names[c->ns], name);
		c->used = false;
		return;
	}
	if (one_in(10)) {
		new_refused_config(c, set, name);
		return;
	}
	/* An object keeps its namespace and age when it changes. */
	*c = (struct world_config){.used = true,
				   .ns = c->used     ? c->ns
					 : one_in(3) ? (int)any(NAMESPACES)
						     : 0,
				   .created = c->used ? c->created : (int)any(4)};
	c->selects = !one_in(8);
	c->priority = c->selects ? (int)any(4) : 0;
	c->n_terms = c->selects ? any(3) : 0;
	for (size_t i = 0; i < c->n_terms; i++) {
		c->terms[i].key = (int)any(3);
		c->terms[i].op = one_in(2) ? 0 : (int)any(4);
		c->terms[i].values = one_in(2) ? 1 + any(7) : 1U << any(3);
	}
	c->has_own = one_in(3);
	random_profile(&c->profile, one_in(5) ? 15 : c->has_own ? 7 : 3);
	add(&t, "{'profile':");
	write_profile(&t, &c->profile);
	if (c->selects) {
		add(&t, ",'priority':%d,", c->priority);
		write_selector(&t, c);
	}
	if (c->has_own)
		add(&t, ",'destinations':[{'name':'own','otlp':{'endpoint':'x:%d'}}]", at + 1);
	add(&t, "}");
	put(set, ns_names[c->ns], name, c->created, t.s);
}

/* The oracle */

struct oracle_pod {
	int ns, labels[3]; /* -1: no such label, else the number of its value */
	bool kiln;	   /* the namespace's label */
	const char *mode;
};

static bool oracle_matches(const struct world_config *c, const struct oracle_pod *pod)
{
	for (size_t i = 0; i < c->n_terms; i++) {
		int has = pod->labels[c->terms[i].key];
		bool in = has >= 0 && c->terms[i].values >> has & 1;
		const bool holds[] = {in, !in, has >= 0, has < 0};

		if (!holds[c->terms[i].op])
			return false;
	}
	return true;
}

static bool oracle_knows_its_destinations(const struct world *w, const struct world_config *c)
{
	for (size_t i = 0; i < c->profile.n_refs; i++) {
		int ref = c->profile.refs[i];

		if (ref == 3 || (ref == 2 && !c->has_own) || (ref < 2 && !(w->present >> ref & 1)))
			return false;
	}
	return true;
}

/* Does A come before B? Names are in the order of the places. */
static bool oracle_before(const struct world_config *a, const struct world_config *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->created != b->created)
		return a->created < b->created;
	return a < b;
}

static const struct world_config *oracle_best(const struct world *w, const struct oracle_pod *pod,
					      bool selects)
{
	const struct world_config *best = NULL;

	for (size_t i = 0; i < CONFIGS_MAX; i++) {
		const struct world_config *c = &w->configs[i];

		if (w->cluster && c->used && c->ns == pod->ns && c->selects == selects &&
		    (!selects || oracle_matches(c, pod)) && (!best || oracle_before(c, best)))
			best = c;
	}
	return best;
}

static const char *oracle_resolve(const struct world *w, const struct oracle_pod *pod)
{
	static const char letters[] = "aed", off[] = "off hz=0 off=0 tracers=ddddddddddd to= by=";
	static struct text t;
	const struct world_config *fallback = oracle_best(w, pod, false),
				  *best = oracle_best(w, pod, true), *layers[2], *author = NULL,
				  *by = best ? best : fallback;
	const struct profile *refs = w->defaults.refs_set ? &w->defaults : NULL;
	int mode = 0, hz = 20, off_cpu = 0, per_mille = 20, tracers[TRACER_COUNT] = {0};
	bool on, first = true;
	char name[24];

	t.n = 0;
	snprintf(name, sizeof(name), by ? "c%02d" : "cluster", by ? (int)(by - w->configs) : 0);
	if (!w->cluster) {
		add(&t, "%scluster", off);
		return t.s;
	}
	layers[0] = fallback;
	layers[1] = best;
	for (int i = -1; i < 2; i++) {
		const struct profile *p = i < 0	      ? &w->defaults
					  : layers[i] ? &layers[i]->profile
						      : NULL;

		if (!p)
			continue;
		mode = p->mode >= 0 ? p->mode : mode;
		hz = p->hz >= 0 ? p->hz : hz;
		off_cpu = p->off >= 0 ? p->off : off_cpu;
		per_mille = p->per_mille >= 0 ? p->per_mille : per_mille;
		for (size_t j = 0; j < TRACER_COUNT; j++)
			tracers[j] = p->tracers[j] >= 0 ? p->tracers[j] : tracers[j];
		if (p->refs_set) {
			refs = p;
			author = i < 0 ? NULL : layers[i];
		}
	}
	on = mode == 0 || (mode == 2 && pod->mode && streq(pod->mode, "enabled"));
	if (pod->mode && streq(pod->mode, "disabled") && !w->opt_out_forbidden)
		on = false;
	if (!on || (w->rails_ns && !pod->kiln)) {
		add(&t, "%s%s", off, name);
		return t.s;
	}
	hz = hz < w->min_hz ? w->min_hz : hz > w->max_hz ? w->max_hz : hz;
	per_mille = !off_cpu || w->off_forbidden   ? 0
		    : per_mille > w->max_per_mille ? w->max_per_mille
						   : per_mille;
	add(&t, "on hz=%d off=%d tracers=", hz, per_mille);
	for (size_t j = 0; j < TRACER_COUNT; j++)
		add(&t, "%c", w->denied >> j & 1 ? 'd' : letters[tracers[j]]);
	add(&t, " to=");
	for (int d = 0; d < 3; d++) {
		bool used = refs ? false : d < 2 && w->present >> d & 1;

		for (size_t j = 0; refs && j < refs->n_refs; j++)
			used = used || refs->refs[j] == d;
		if (d == 2 && (!author || !author->has_own || !w->tenants))
			used = false;
		if (d < 2 && !(w->present >> d & 1))
			used = false;
		if (author && d < 2 && w->allowed_set && !(w->allowed >> d & 1))
			used = false;
		if (used) {
			add(&t, "%s%s%s%s", first ? "" : ",", d == 2 ? ns_names[author->ns] : "",
			    d == 2 ? "/" : "", destination_names[d]);
			first = false;
		}
	}
	add(&t, " by=%s", name);
	return t.s;
}

static const char *oracle_reason(const struct world *w, const struct world_config *c)
{
	struct oracle_pod nobody = {.ns = c->ns};

	if (c->invalid)
		return "Invalid";
	if (!w->cluster)
		return "NoClusterConfig";
	if (!c->selects && oracle_best(w, &nobody, false) != c)
		return "Conflict";
	if (!oracle_knows_its_destinations(w, c))
		return "DestinationNotFound";
	return "Accepted";
}

static void ask(const struct world *w, struct policy_set *set, unsigned int *enabled)
{
	static const char *const modes[] = {NULL, NULL, "enabled", "disabled", "other"};
	struct oracle_pod pod = {
	    .ns = one_in(3) ? (int)any(NAMESPACES) : 0, .kiln = !one_in(4), .mode = modes[any(5)]};
	struct text labels = {.n = 0};
	const char *want, *got;

	for (int i = 0; i < 3; i++) {
		pod.labels[i] = (int)any(4) - 1;
		if (pod.labels[i] >= 0)
			add(&labels, "%sk%d=v%d", labels.n ? "," : "", i, pod.labels[i]);
	}
	want = oracle_resolve(w, &pod);
	got =
	    resolved(set, ns_names[pod.ns], labels.s, pod.kiln ? "kiln=yes" : "kiln=no", pod.mode);
	if (!streq(want, got))
		fail_msg("%s in %s:\nwant %s\ngot  %s", labels.s, ns_names[pod.ns], want, got);
	*enabled += has_prefix(want, "on");
}

static void test_random_worlds(void **test_state)
{
	const char *seed = getenv("KILN_TEST_SEED");
	unsigned int enabled = 0, asked = 0;

	state = seed ? strtoull(seed, NULL, 0) : 20261121;
	for (int i = 0; i < WORLDS; i++) {
		struct world w = {0};
		struct policy_set *set = set_of(NULL);

		for (int step = 0; step < STEPS; step++) {
			struct policy_verdict v;
			char name[24];
			int at = (int)any(CONFIGS_MAX);

			if (step == 5 || one_in(10))
				new_cluster(&w, set);
			new_config(&w, set);
			for (int j = 0; j < 5; j++, asked++)
				ask(&w, set, &enabled);
			if (!w.configs[at].used)
				continue;
			snprintf(name, sizeof(name), "c%02d", at);
			assert_int_equal(policy_verdict(set, ns_names[w.configs[at].ns], name, &v),
					 0);
			assert_string_equal(v.reason, oracle_reason(&w, &w.configs[at]));
		}
		policy_set_free(set);
	}
	/* The worlds must not be empty, or the test proves nothing. */
	assert_true(enabled > asked / 5 && enabled < asked * 4 / 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_worlds)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
