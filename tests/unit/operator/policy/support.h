/* SPDX-License-Identifier: Apache-2.0 */
/* Configs from text in which ' stands for ", and pods in one line. */
#pragma once

#include "operator/policy/policy.h"
#include "tests/support/test.h"

/* The caller frees; a test fails on text that is no JSON. */
cJSON *json_of(const char *text);
/* "{metadata}", "{spec}" go into an object of the kind. */
struct cluster_config *cluster_of(const char *spec);
struct namespace_config *config_of(const char *ns, const char *name, int64_t created,
				   const char *spec);

struct policy_set *set_of(const char *cluster_spec); /* NULL: no cluster config */
void put(struct policy_set *set, const char *ns, const char *name, int64_t created,
	 const char *spec);

/* The object of SPEC was refused because of CAUSE. */
int refuse(struct policy_set *set, const char *ns, const char *name, int64_t created,
	   const char *spec, const char *cause);

enum { TEST_LABELS_MAX = 16 };
struct pod {
	struct policy_subject subject;
	struct label labels[TEST_LABELS_MAX], ns_labels[TEST_LABELS_MAX];
	char text[2][512];
};
/* LABELS and NS_LABELS: "a=b,c=d" or NULL. */
void pod_init(struct pod *p, const char *ns, const char *labels, const char *ns_labels,
	      const char *mode);

/* What a pod gets, in one line: "on hz=20 off=0 tracers=aaaaaaaaaaa to=main,prod/mine by=NAME";
 * " labels=a,b timed" before by. */
const char *resolved(struct policy_set *set, const char *ns, const char *labels,
		     const char *ns_labels, const char *mode);
const char *describe(const struct effective_policy *policy, const struct namespace_config *by);
/* "Accepted: message" and one line for each clamp: "\nfield requested -> effective: reason". */
const char *verdict_of(struct policy_set *set, const char *ns, const char *name);
