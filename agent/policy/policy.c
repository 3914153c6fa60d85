/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two facts decide everything: which cgroups a pod has (cgroup_table), and which policy it has
 * (pod_table). When one of them changes, the pod's cgroups get the policy's entry. The cgroups of
 * pods that the operator has not sent, and those outside of pods, have no entry in the kernel: the
 * default policy applies to them.
 *
 * All disabled policies share one entry. A pod that is not known yet may turn out to be disabled:
 * samples taken meanwhile are held until its policy is known, and dropped when that does not happen
 * (policies_identify(), agent/window/identify.c).
 *
 * The timers are made faster before a policy that needs it takes effect, and slower long after:
 * samples that are taken too seldom stand for too little time, but thinning out too many samples is
 * exact.
 */
#include "agent/policy/policy.h"

#include "agent/config/config.h"
#include "agent/policy/slots.h"
#include "lib/metrics.h"

#define NO_POLICY UINT32_MAX /* policy of a pod that has none: the default policy applies */

struct policies {
	struct policy_kernel kernel;
	const struct tracer *known_tracers; /* up to one without a name */
	const struct pod_table *pods;
	struct cgroup_table *cgroups;
	struct policy_slots slots;
	/* Stored with the entry: a sample is exported as its policy said when it was taken. */
	uint64_t routes[KILN_MAX_POLICIES];
	struct label_allow *labels[KILN_MAX_POLICIES]; /* NULL: none */
	bool timestamps[KILN_MAX_POLICIES];
	/* Derived from labels and timestamps above, and from the agent's own rules. */
	struct sample_rules rules[KILN_MAX_POLICIES];
	bool export_untold;
	bool limited;	    /* some policy has less than it asks for */
	bool off_cpu;	    /* off-CPU sampling is on */
	bool refused;	    /* some policy has no slot */
	policy_route route; /* NULL: every route is 0 */
	void *route_arg;
	uint32_t default_index, rate;
	uint64_t now_ms, lower_at_ms; /* 0: nothing to lower */
	uint64_t changes;
	/* Entries that have been the default policy, for samples taken then. */
	uint64_t defaults[KILN_MAX_POLICIES / 64];
};

/* ---- policies -------------------------------------------------------------------------------- */

static uint32_t tracers_of(const struct policies *p, const struct pod_policy *policy)
{
	uint32_t all = p->slots.slots[POLICY_OWN].tracers;

	for (size_t i = 0; i < policy->n_disabled_tracers; i++)
		for (const struct tracer *t = p->known_tracers; t->name; t++)
			if (t->id && streq(policy->disabled_tracers[i], t->api_name))
				all &= ~(1U << t->id);
	return all;
}

/* The agent's own configuration may enable timestamps for all policies. */
static void derive_rules(struct policies *p, uint32_t index)
{
	p->rules[index].labels = p->labels[index];
	p->rules[index].timestamps = p->timestamps[index] || p->rules[POLICY_OWN].timestamps;
}

/* Sets what samples of the new entry INDEX may export. Without memory: no labels. */
static void set_rules(struct policies *p, uint32_t index, const struct pod_policy *policy)
{
	label_allow_free(p->labels[index]);
	p->labels[index] =
	    policy->n_labels ? label_allow_new(policy->labels, policy->n_labels) : NULL;
	p->timestamps[index] = policy->timestamps;
	derive_rules(p, index);
}

static void write_slot(struct policies *p, uint32_t index, enum kiln_policy_mode mode)
{
	const struct policy_slot *slot = &p->slots.slots[index];
	const struct kiln_policy policy = {
	    .mode = slot->limit_hz ? mode : KILN_POLICY_DISABLED,
	    .hz = slot->limit_hz,
	    .runtimes = slot->tracers,
	    /* The budget reduces it by the same factor as the rate. */
	    .off_cpu = (uint32_t)((uint64_t)slot->off_cpu * slot->limit_hz / MAX(slot->hz, 1U))};

	if (p->kernel.set_policy(p->kernel.arg, index, &policy) < 0)
		metric_add(M_POLICIES_FULL, 1);
}

/* The entry of POLICY, which is written to the kernel if it is new; POLICY_OFF if POLICY is
 * disabled or no entry is free; NO_POLICY for NULL. */
static uint32_t want_policy(struct policies *p, const struct pod_policy *policy)
{
	struct policy_slot want = {};
	uint32_t index;
	int r;

	if (!policy)
		return NO_POLICY;
	if (!policy->enabled)
		return POLICY_OFF;
	want.id = policy->id;
	want.hz = MIN(MAX(policy->hz, 1U), (uint32_t)POD_HZ_MAX);
	want.tracers = tracers_of(p, policy) & ~KILN_LABEL_KEYS;
	if (policy->n_labels)
		want.tracers |= KILN_LABEL_KEYS;
	want.off_cpu = KILN_OFF_CPU_RATE(MIN(policy->off_cpu_per_mille, 1000U));
	r = policy_slots_get(&p->slots, &want, &index);
	if (r < 0) {
		/* Taking no samples is better than taking them under another policy's rules. */
		metric_add(M_POLICIES_FULL, 1);
		p->refused = true;
		return POLICY_OFF;
	}
	p->slots.slots[index].priority = policy->priority;
	if (r > 0) {
		p->defaults[index / 64] &= ~(1ULL << index % 64);
		set_rules(p, index, policy);
		write_slot(p, index, KILN_POLICY_ENABLED);
	}
	p->routes[index] = p->route ? p->route(p->route_arg, policy) : 0;
	return index;
}

static bool want_each(const struct pod_policy *policy, void *arg)
{
	(void)want_policy(arg, policy);
	return true;
}

static void set_rate(struct policies *p, uint32_t hz)
{
	p->lower_at_ms = 0;
	if (hz != p->rate && p->kernel.set_rate(p->kernel.arg, hz) == 0)
		p->rate = hz;
	metric_set(M_POLICY_RATE, p->rate);
}

static void adjust_rate(struct policies *p)
{
	uint32_t want = policy_slots_rate(&p->slots);

	/* Under a CPU budget, a timer that is too fast uses CPU time that samples need. */
	if (want >= p->rate || p->limited)
		set_rate(p, want);
	else if (!p->lower_at_ms)
		p->lower_at_ms = p->now_ms + POLICY_LOWER_MS;
}

/* Switches off-CPU sampling on before the first policy that wants it takes effect, and off after
 * the last. */
static void adjust_off_cpu(struct policies *p)
{
	bool want = policy_slots_off_cpu(&p->slots);

	if (want != p->off_cpu && p->kernel.set_off_cpu &&
	    p->kernel.set_off_cpu(p->kernel.arg, want) == 0)
		p->off_cpu = want;
}

static void set_default(struct policies *p, uint32_t index)
{
	p->defaults[index / 64] |= 1ULL << index % 64;
	if (index != p->default_index && p->kernel.set_default(p->kernel.arg, index) == 0)
		p->default_index = index;
}

/* ---- pods ------------------------------------------------------------------------------------ */

static void set_cgroup(struct policies *p, const struct cgroup *c, uint32_t index)
{
	int r;

	if (c->removed_ms)
		return;
	if (index == NO_POLICY)
		r = p->kernel.delete_cgroup(p->kernel.arg, c->id);
	else
		r = p->kernel.set_cgroup(p->kernel.arg, c->id, index);
	if (r < 0 && r != -ENOENT)
		metric_add(M_CGROUPS_FULL, 1);
}

static uint32_t policy_of_pod(struct policies *p, const struct pod_cgroups *pod)
{
	const struct pod_entry *entry = p->pods ? pod_table_find_uid(p->pods, pod->uid) : NULL;

	return entry ? want_policy(p, pod_table_policy(p->pods, entry->policy)) : NO_POLICY;
}

static void set_pod(struct policies *p, struct pod_cgroups *pod, uint32_t index)
{
	struct cgroup *c;

	pod->policy = index;
	for (c = pod->cgroups; c; c = c->pod_next)
		set_cgroup(p, c, index);
}

void policies_cgroup_made(struct policies *p, uint64_t id, const char *path)
{
	struct cgroup *c;
	uint32_t index;

	if (cgroup_table_add(p->cgroups, id, path, &c) <= 0)
		return;
	c->seen = true;
	metric_set(M_CGROUPS, (int64_t)cgroup_table_count(p->cgroups));
	if (!c->pod)
		return;
	index = policy_of_pod(p, c->pod);
	adjust_rate(p);
	adjust_off_cpu(p);
	/* The kernel has already given the new cgroup its parent's entry, which may be outdated. */
	if (index != c->pod->policy)
		set_pod(p, c->pod, index);
	else
		set_cgroup(p, c, index);
}

void policies_cgroup_removed(struct policies *p, uint64_t id, uint64_t now_ms)
{
	if (cgroup_table_remove(p->cgroups, id, now_ms))
		(void)p->kernel.delete_cgroup(p->kernel.arg, id);
}

void policies_scan_begins(struct policies *p)
{
	struct cgroup *c, *next, *all = cgroup_table_all(p->cgroups);

	HASH_ITER (hh, all, c, next)
		c->seen = false;
	cgroup_table_begin_scan(p->cgroups);
}

void policies_scan_ends(struct policies *p, uint64_t now_ms)
{
	struct cgroup *c, *next, *all = cgroup_table_all(p->cgroups);

	HASH_ITER (hh, all, c, next)
		if (!c->seen && !c->removed_ms)
			policies_cgroup_removed(p, c->id, now_ms);
	cgroup_table_end_scan(p->cgroups, now_ms);
}

void policies_changed(struct policies *p)
{
	struct pod_cgroups *pod, *next, *all = cgroup_table_pods(p->cgroups);
	const struct pod_policy *fallback = p->pods ? pod_table_default_policy(p->pods) : NULL;
	uint32_t index;

	p->refused = false;
	p->changes++;
	policy_slots_begin(&p->slots);
	p->slots.slots[POLICY_OWN].wanted = !fallback;
	if (p->pods)
		pod_table_policies(p->pods, want_each, p);
	index = fallback ? want_policy(p, fallback) : POLICY_OWN;
	adjust_rate(p);
	adjust_off_cpu(p);
	set_default(p, index);
	HASH_ITER (hh, all, pod, next) {
		index = policy_of_pod(p, pod);
		if (index != pod->policy)
			set_pod(p, pod, index);
	}
	policy_slots_end(&p->slots);
	metric_set(M_POLICIES, policy_slots_count(&p->slots));
}

void policies_window(struct policies *p, uint32_t number, uint64_t now_ms)
{
	p->slots.window = number;
	p->now_ms = now_ms;
	cgroup_table_sweep(p->cgroups, now_ms);
	metric_set(M_CGROUPS, (int64_t)cgroup_table_count(p->cgroups));
	if (p->lower_at_ms && now_ms >= p->lower_at_ms)
		set_rate(p, policy_slots_rate(&p->slots));
}

/* ---- the budget ------------------------------------------------------------------------------ */

uint64_t policies_generation(const struct policies *p)
{
	return p->changes;
}

void policies_each(const struct policies *p,
		   void (*each)(const struct policy_rate *rate, void *arg), void *arg)
{
	for (uint32_t i = 0; i < KILN_MAX_POLICIES; i++) {
		const struct policy_slot *slot = &p->slots.slots[i];
		const struct policy_rate rate = {.index = i,
						 .id = slot->id,
						 .hz = slot->hz,
						 .limit_hz = slot->limit_hz,
						 .priority = slot->priority,
						 .born = slot->born};

		if (slot->wanted && i != POLICY_OFF)
			each(&rate, arg);
	}
}

void policies_limit(struct policies *p, uint32_t index, uint32_t hz)
{
	struct policy_slot *slot = &p->slots.slots[index];

	if (index >= KILN_MAX_POLICIES || index == POLICY_OFF || slot->limit_hz == hz)
		return;
	slot->limit_hz = MIN(hz, slot->hz);
	write_slot(p, index, KILN_POLICY_ENABLED);
}

void policies_limits_end(struct policies *p)
{
	p->limited = false;
	for (uint32_t i = 0; i < KILN_MAX_POLICIES; i++)
		p->limited |=
		    p->slots.slots[i].wanted && p->slots.slots[i].limit_hz < p->slots.slots[i].hz;
	adjust_rate(p);
}

void policies_use_routes(struct policies *p, policy_route route, void *arg)
{
	p->route = route;
	p->route_arg = arg;
	policies_changed(p);
}

uint64_t policies_route_of(const struct policies *p, uint32_t index)
{
	return index < KILN_MAX_POLICIES ? p->routes[index] : 0;
}

const struct sample_rules *policies_rules(const struct policies *p)
{
	return p->rules;
}

void policies_set_own_rules(struct policies *p, struct sample_rules rules)
{
	p->rules[POLICY_OWN] = rules;
	for (uint32_t i = 0; i < KILN_MAX_POLICIES; i++)
		if (i != POLICY_OWN)
			derive_rules(p, i);
}

uint64_t policies_routes(const struct policies *p)
{
	uint64_t all = 0;

	for (uint32_t i = POLICY_FIRST; i < KILN_MAX_POLICIES; i++)
		if (!policy_slots_free(&p->slots, i))
			all |= p->routes[i];
	return all;
}

/* ---- making ---------------------------------------------------------------------------------- */

int policies_new(const struct policy_kernel *kernel, uint32_t hz, uint32_t tracers,
		 const struct tracer *known_tracers, const struct pod_table *pods,
		 struct policies **ret)
{
	_cleanup_(policies_freep) struct policies *p = calloc(1, sizeof(*p));
	int r = p ? cgroup_table_new(&p->cgroups) : -ENOMEM;

	if (r < 0)
		return r;
	p->kernel = *kernel;
	p->known_tracers = known_tracers;
	p->pods = pods;
	p->rate = hz;
	p->slots.slots[POLICY_OWN] = (struct policy_slot){
	    .hz = hz, .limit_hz = hz, .tracers = tracers, .used = true, .wanted = true};
	/* No samples are taken under it; a rate of 0 would not be valid. */
	p->slots.slots[POLICY_OFF] = (struct policy_slot){.hz = hz, .limit_hz = hz, .used = true};
	write_slot(p, POLICY_OWN, KILN_POLICY_ENABLED);
	write_slot(p, POLICY_OFF, KILN_POLICY_DISABLED);
	p->default_index = POLICY_OWN;
	policies_changed(p);
	*ret = TAKE_PTR(p);
	return 0;
}

struct policies *policies_free(struct policies *p)
{
	if (!p)
		return NULL;
	cgroup_table_free(p->cgroups);
	for (size_t i = 0; i < KILN_MAX_POLICIES; i++)
		label_allow_free(p->labels[i]);
	free(p);
	return NULL;
}

/* ---- asking ---------------------------------------------------------------------------------- */

void policies_set_own_off_cpu(struct policies *p, uint32_t off_cpu)
{
	p->slots.slots[POLICY_OWN].off_cpu = off_cpu;
	write_slot(p, POLICY_OWN, KILN_POLICY_ENABLED);
	policies_changed(p);
}

uint32_t policies_rate(const struct policies *p)
{
	return p->rate;
}

bool policies_refused(const struct policies *p)
{
	return p->refused;
}

const struct container_identity *policies_cgroup(const struct policies *p, uint64_t id)
{
	static const struct container_identity nobody;
	const struct cgroup *c = cgroup_table_find(p->cgroups, id);

	if (c)
		return &c->identity;
	return cgroup_table_is_other(p->cgroups, id) ? &nobody : NULL;
}

bool policies_is_default(const struct policies *p, uint32_t index)
{
	return index < KILN_MAX_POLICIES && (p->defaults[index / 64] & 1ULL << index % 64);
}

void policies_export_untold(struct policies *p)
{
	p->export_untold = true;
}

static int nibble(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Kubernetes' container runtimes all use 64 hex digits. */
static bool container_bytes(const char *text, uint8_t ret[POD_CONTAINER_ID_BYTES])
{
	if (strlen(text) != (size_t)POD_CONTAINER_ID_BYTES * 2)
		return false;
	for (size_t i = 0; i < POD_CONTAINER_ID_BYTES; i++) {
		int high = nibble(text[2 * i]), low = nibble(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		ret[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static uint64_t route_of_id(const struct policies *p, uint64_t id)
{
	for (uint32_t i = POLICY_FIRST; i < KILN_MAX_POLICIES; i++)
		if (p->slots.slots[i].live && p->slots.slots[i].id == id)
			return p->routes[i];
	return 0;
}

enum policies_knowledge policies_identify(const struct policies *p,
					  const struct container_identity *container,
					  struct identity *ret)
{
	uint8_t id[POD_CONTAINER_ID_BYTES];
	const struct pod_policy *policy = NULL;

	*ret = (struct identity){};
	if (!p->pods)
		return KNOWN_OUTSIDE;
	if (!container) {
		ret->untold = !p->export_untold;
		return KNOWN_NOTHING;
	}
	if (container_bytes(container->container_id, id)) {
		ret->pod = pod_table_find_container(p->pods, id);
		if (ret->pod)
			ret->container = pod_entry_container(ret->pod, id);
	}
	if (!ret->pod && container->pod_uid[0])
		ret->pod = pod_table_find_uid(p->pods, container->pod_uid);
	if (ret->pod)
		policy = pod_table_policy(p->pods, ret->pod->policy);
	else if (!container->pod_uid[0])
		policy = pod_table_default_policy(p->pods);
	ret->forbidden = policy && !policy->enabled;
	ret->untold = !policy && !p->export_untold;
	if (!ret->pod)
		return container->pod_uid[0] ? KNOWN_NOTHING : KNOWN_OUTSIDE;
	ret->route = policy && policy->enabled ? route_of_id(p, policy->id) : 0;
	return ret->container ? KNOWN_CONTAINER : KNOWN_POD;
}

/* How many containers POD has: cgroups below a container's carry its id too. */
static uint32_t count_containers(const struct pod_cgroups *pod)
{
	const struct cgroup *c, *other;
	uint32_t n = 0;

	for (c = pod->cgroups; c; c = c->pod_next) {
		if (c->removed_ms || !c->identity.container_id[0])
			continue;
		for (other = pod->cgroups; other != c; other = other->pod_next)
			if (!other->removed_ms &&
			    streq(other->identity.container_id, c->identity.container_id))
				break;
		n += other == c;
	}
	return n;
}

void policies_applied(const struct policies *p,
		      void (*each)(uint64_t id, uint32_t containers, void *arg), void *arg)
{
	struct pod_cgroups *pod, *next, *all = cgroup_table_pods(p->cgroups);
	uint32_t counts[KILN_MAX_POLICIES] = {};

	HASH_ITER (hh, all, pod, next)
		if (pod->policy >= POLICY_FIRST && pod->policy < KILN_MAX_POLICIES)
			counts[pod->policy] += count_containers(pod);
	for (uint32_t i = POLICY_FIRST; i < KILN_MAX_POLICIES; i++)
		if (counts[i])
			each(p->slots.slots[i].id, counts[i], arg);
}
