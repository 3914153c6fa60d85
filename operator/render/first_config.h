/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct first_config: the ClusterProfilingConfig that a new installation begins with. kubectl
 * cannot apply one together with its CRD, so it comes as ConfigMap kiln-first-config (key
 * cluster.yaml), and the leader creates it, once: afterwards the ConfigMap is annotated
 * profiling.kiln.dev/used, and an admin who deletes the config has no profiling, not a new config.
 * Loop thread only.
 */
#pragma once

#include "operator/kube/write.h"

#define FIRST_CONFIG_NAME "kiln-first-config"
#define FIRST_CONFIG_KEY  "cluster.yaml"
#define FIRST_CONFIG_USED "profiling.kiln.dev/used"

struct first_config;

/*
 * Starts one attempt; called by the leader once its caches are synced. DONE is called once, from
 * the loop. Result 0: nothing is left to do (also: no ConfigMap). -EINVAL: the ConfigMap holds no
 * config, or the API server refuses it (MESSAGE says why); a retry would fail again. Any other
 * errno: to be retried. MESSAGE is "" or one line, valid during the call. CREATED: this attempt
 * created the config.
 */
typedef void first_config_done_fn(void *arg, int result, bool created, const char *message);

int first_config_start(struct kube_client *client, const char *ns, first_config_done_fn *done,
		       void *arg, struct first_config **ret) _must_check_;
/* Cancels an attempt that is under way; after DONE it only frees. */
struct first_config *first_config_free(struct first_config *f);
DEFINE_CLEANUP(struct first_config *, first_config_free)

/* The object in a ConfigMap's text: YAML as kubectl takes it. -EINVAL. */
int first_config_parse(const char *text, size_t len, cJSON **ret, struct error *err) _must_check_;
