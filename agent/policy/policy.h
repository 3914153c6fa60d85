/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct policies: which policy holds for which cgroup, in the kernel and here, and which pod a
 * container is of. Fed by cgroup_watch and the pod table; live. Owned by the loop thread.
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
	POLICY_OWN, /* of the agent's own configuration: while the operator has told no default */
	POLICY_OFF, /* all that are disabled */
	POLICY_FIRST,
	/* A slot is given out anew when no window can hold samples of its former owner. */
	POLICY_REUSE_WINDOWS = 6,
	/* So many windows a sample waits for the policy of its pod. One that is being named and the
	 * current one come on top: POLICY_REUSE_WINDOWS. */
	POLICY_HOLD_WINDOWS = 3,
	POLICY_LOWER_MS = 10000, /* the timers stay fast that long when nobody asks for it */
};

/* What policies are put into: the sampler. Each returns 0 or a negative errno. */
struct policy_kernel {
	int (*set_policy)(void *arg, uint32_t index, const struct kiln_policy *policy);
	int (*set_default)(void *arg, uint32_t index); /* for cgroups without one */
	int (*set_cgroup)(void *arg, uint64_t cgroup, uint32_t index);
	int (*delete_cgroup)(void *arg, uint64_t cgroup);
	int (*set_rate)(void *arg, uint32_t hz); /* of the timers; 0: nobody wants a sample */
	int (*set_off_cpu)(void *arg, bool on);	 /* NULL: there is none */
	void *arg;
};

struct policies;
/*
 * The configuration's own policy: HZ, TRACERS. The pods' policies name tracers as KNOWN_TRACERS do.
 * PODS may be NULL: then the own policy holds for everything.
 */
int policies_new(const struct policy_kernel *kernel, uint32_t hz, uint32_t tracers,
		 const struct tracer *known_tracers, const struct pod_table *pods,
		 struct policies **ret) _must_check_;
struct policies *policies_free(struct policies *p);
DEFINE_CLEANUP(struct policies *, policies_free)

/* The own policy's off-CPU rate: struct kiln_policy. */
void policies_set_own_off_cpu(struct policies *p, uint32_t off_cpu);

/* Where samples of POLICY go: bits whose meaning is the caller's (agent/export/route.h). */
typedef uint64_t (*policy_route)(void *arg, const struct pod_policy *policy);
void policies_use_routes(struct policies *p, policy_route route, void *arg);
/* Of a policy's samples, as long as a window may have some. 0: no policy said anything. */
uint64_t policies_route_of(const struct policies *p, uint32_t index);
/* All bits of those. */
uint64_t policies_routes(const struct policies *p);

/* What samples of each policy may tell, as long as a window may have some: its keys, its times.
 * KILN_MAX_POLICIES, by index; follows what changes, and lives as long as P. */
const struct sample_rules *policies_rules(const struct policies *p);
/* RULES hold for POLICY_OWN; they outlive P. */
void policies_set_own_rules(struct policies *p, struct sample_rules rules);

/* A cgroup is there, or is gone: what cgroup_watch tells. */
void policies_cgroup_made(struct policies *p, uint64_t id, const char *path);
void policies_cgroup_removed(struct policies *p, uint64_t id, uint64_t now_ms);
void policies_scan_begins(struct policies *p);
void policies_scan_ends(struct policies *p, uint64_t now_ms);

/* The pod table has changed. */
void policies_changed(struct policies *p);
/* Window NUMBER begins. */
void policies_window(struct policies *p, uint32_t number, uint64_t now_ms);
/* Some policy had no place when policies_changed() was called last: there may be one now. */
bool policies_refused(const struct policies *p);

/* What the budget is divided among: each policy that something refers to. */
struct policy_rate {
	uint64_t id;
	uint32_t index, priority;
	uint32_t hz, limit_hz; /* what it asks for, and what it has; 0: it is left out */
	uint64_t born;	       /* order in which they came */
};
void policies_each(const struct policies *p,
		   void (*each)(const struct policy_rate *rate, void *arg), void *arg);
/* Another value: other policies than before, or others of their words. */
uint64_t policies_generation(const struct policies *p);
/* The policy of the kernel's entry INDEX gets HZ at most; 0: no sample. Call the second function
 * after the last one: the timers follow. */
void policies_limit(struct policies *p, uint32_t index, uint32_t hz);
void policies_limits_end(struct policies *p);

uint32_t policies_rate(const struct policies *p);
/* Whose the cgroup ID is: with empty ids when it is no pod's or container's. NULL: the cgroup is
 * not known. */
const struct container_identity *policies_cgroup(const struct policies *p, uint64_t id);

enum policies_knowledge {
	KNOWN_OUTSIDE,	 /* in no pod: nobody will tell more */
	KNOWN_NOTHING,	 /* in a pod of which nobody has told yet */
	KNOWN_POD,	 /* the pod, but not this container of it */
	KNOWN_CONTAINER, /* all */
};

struct identity {
	const struct pod_entry *pod; /* NULL: not known */
	const struct pod_container *container;
	bool forbidden; /* its policy says: no samples */
	bool untold;	/* the operator has told no policy: no sample may leave the node */
	uint64_t route; /* its policy's, 0: none */
};

/* Pointers are good until control goes back to the loop. CONTAINER NULL: nobody knows where the
 * process ran, it may have been a pod. */
enum policies_knowledge policies_identify(const struct policies *p,
					  const struct container_identity *container,
					  struct identity *ret);
/* Was a sample under INDEX taken because nothing was known of the pod? */
bool policies_is_default(const struct policies *p, uint32_t index);
/* Samples that no policy was told for are exported as the default says (`when_unknown: default`),
 * instead of held and given up. Without an operator they are exported in any case. */
void policies_export_untold(struct policies *p);

/* EACH for every policy that holds for a container here, with the number of those. */
void policies_applied(const struct policies *p,
		      void (*each)(uint64_t id, uint32_t containers, void *arg), void *arg);
