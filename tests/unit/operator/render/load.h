/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of operator/render share: configs from files, objects by kind and name. */
#pragma once

#include "operator/render/render.h"

#define RENDER_DATA TEST_DATA "/render/"

/* A file's bytes and a NUL; exits when there are none. */
char *load_file(const char *path);
cJSON *load_json(const char *path);
/* A ClusterProfilingConfig's object; a message on standard error and exit when it is refused. */
struct cluster_config *load_config(const cJSON *object);
/* render() with the names that all tests use, at the rate that CONFIG's defaults ask for. */
struct rendered *render_config(const struct cluster_config *config);
/* NULL: there is no such object. */
const struct rendered_object *find_object(const struct rendered *r, enum kube_kind kind,
					  const char *name);
const char *agent_yaml(const struct rendered *r, const char *name);
/* The object of the kind of LIKE that is called NAME in a v1 List. NULL: none. */
const cJSON *find_in_list(const cJSON *list, const cJSON *like, const char *name);
