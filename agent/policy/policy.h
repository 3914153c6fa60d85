/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct policies: which policy applies to which cgroup, here and in the kernel, and which pod a
 * container belongs to. Follows cgroup_watch and the pod table. Owned by the loop thread.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/labels/allow.h"
#include "agent/meta/pods.h"
#include "agent/policy/cgroup_table.h"
#include "bpf/types.h"

/*
 * A route: one bit for each destination that gets the samples. This bit is set when the policy's
 * list of destinations is empty: the samples are exported nowhere.
 */
#define ROUTE_NOWHERE (1ULL << 63)

enum {
	/* Of the agent's own configuration, used until the operator has sent a default. */
	POLICY_OWN,
	POLICY_OFF, /* of all disabled policies */
	POLICY_FIRST,
	/* An entry is reused when no window can hold samples of its former policy. */
	POLICY_REUSE_WINDOWS = 6,
	/* How many windows a sample waits for the policy of its pod. The window that is being named
	 * and the current one come on top: POLICY_REUSE_WINDOWS. */
	POLICY_HOLD_WINDOWS = 3,
	/* The timers stay fast this long after the last policy that needed it. */
	POLICY_LOWER_MS = 10000,
};

/* The functions of the sampler that apply policies. Each returns 0 or a negative errno. */
struct policy_kernel {
	int (*set_policy)(void *arg, uint32_t index, const struct kiln_policy *policy);
	int (*set_default)(void *arg, uint32_t index); /* of cgroups without their own */
	int (*set_cgroup)(void *arg, uint64_t cgroup, uint32_t index);
	int (*delete_cgroup)(void *arg, uint64_t cgroup);
	int (*set_rate)(void *arg, uint32_t hz); /* of the timers; 0: no sample is wanted */
	int (*set_off_cpu)(void *arg, bool on);	 /* NULL: no off-CPU sampling */
	void *arg;
};

struct policies;
/*
 * The configuration's own policy has HZ and TRACERS. The pods' policies name tracers as
 * KNOWN_TRACERS does. PODS may be NULL: then the own policy applies to everything.
 */
int policies_new(const struct policy_kernel *kernel, uint32_t hz, uint32_t tracers,
		 const struct tracer *known_tracers, const struct pod_table *pods,
		 struct policies **ret) _must_check_;
struct policies *policies_free(struct policies *p);
DEFINE_CLEANUP(struct policies *, policies_free)

/* The own policy's off-CPU rate: struct kiln_policy. */
void policies_set_own_off_cpu(struct policies *p, uint32_t off_cpu);

/* The route of POLICY's samples: bits whose meaning is the caller's (agent/export/route.h). */
typedef uint64_t (*policy_route)(void *arg, const struct pod_policy *policy);
void policies_use_routes(struct policies *p, policy_route route, void *arg);
/* The route of the entry INDEX, as long as a window may hold samples of it. 0: the default
 * route. */
uint64_t policies_route_of(const struct policies *p, uint32_t index);
/* All bits of the routes that may be in use. */
uint64_t policies_routes(const struct policies *p);

/* What samples of each policy may export (labels, times), as long as a window may hold some.
 * KILN_MAX_POLICIES entries, by index; updated in place, and valid as long as P. */
const struct sample_rules *policies_rules(const struct policies *p);
/* RULES apply to POLICY_OWN; they must outlive P. */
void policies_set_own_rules(struct policies *p, struct sample_rules rules);

/* Events of cgroup_watch: a cgroup exists, or was removed. */
void policies_cgroup_made(struct policies *p, uint64_t id, const char *path);
void policies_cgroup_removed(struct policies *p, uint64_t id, uint64_t now_ms);
void policies_scan_begins(struct policies *p);
void policies_scan_ends(struct policies *p, uint64_t now_ms);

/* The pod table has changed. */
void policies_changed(struct policies *p);
/* Window NUMBER begins. */
void policies_window(struct policies *p, uint32_t number, uint64_t now_ms);
/* Some policy found no free entry when policies_changed() was called last: there may be one now. */
bool policies_refused(const struct policies *p);

/* A policy that the CPU budget is divided among. */
struct policy_rate {
	uint64_t id;
	uint32_t index, priority;
	/* The rate that it asks for, and the rate that it has; 0: no samples. */
	uint32_t hz, limit_hz;
	uint64_t born; /* order of arrival */
};
void policies_each(const struct policies *p,
		   void (*each)(const struct policy_rate *rate, void *arg), void *arg);
/* Changes whenever the policies or their content change. */
uint64_t policies_generation(const struct policies *p);
/* Limits the policy of the kernel's entry INDEX to HZ; 0: no samples. Call policies_limits_end()
 * after the last one: it adjusts the timers. */
void policies_limit(struct policies *p, uint32_t index, uint32_t hz);
void policies_limits_end(struct policies *p);

/* The rate of the timers, Hz. */
uint32_t policies_rate(const struct policies *p);
/* The pod and container of the cgroup ID; with empty ids if it belongs to neither. NULL: the cgroup
 * is not known. */
const struct container_identity *policies_cgroup(const struct policies *p, uint64_t id);

enum policies_knowledge {
	KNOWN_OUTSIDE,	 /* not in a pod: nothing more will become known */
	KNOWN_NOTHING,	 /* in a pod that the operator has not sent yet */
	KNOWN_POD,	 /* the pod is known, but not this container of it */
	KNOWN_CONTAINER, /* pod and container are known */
};

struct identity {
	const struct pod_entry *pod; /* NULL: not known */
	const struct pod_container *container;
	bool forbidden; /* its policy is disabled: no samples */
	/* The operator has sent no policy that applies: no sample may leave the node. */
	bool untold;
	uint64_t route; /* its policy's route; 0: the default */
};

/* *RET's pointers are valid until control returns to the loop. CONTAINER NULL: it is unknown where
 * the process ran, which may have been a pod. */
enum policies_knowledge policies_identify(const struct policies *p,
					  const struct container_identity *container,
					  struct identity *ret);
/* Whether a sample under INDEX was taken under the default policy, because the pod was not
 * known. */
bool policies_is_default(const struct policies *p, uint32_t index);
/* Samples without a policy of the operator are exported under the default policy (`when_unknown:
 * default`), instead of held and dropped. Without an operator they are always exported. */
void policies_export_untold(struct policies *p);

/* Calls EACH for every policy that applies to a container on this node, with the number of these
 * containers. */
void policies_applied(const struct policies *p,
		      void (*each)(uint64_t id, uint32_t containers, void *arg), void *arg);
