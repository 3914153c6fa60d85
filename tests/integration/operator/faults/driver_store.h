/* SPDX-License-Identifier: Apache-2.0 */
/* A store that keeps of each object what tells two states of it apart: uid and resource version. */
#pragma once

#include "operator/cache/informer.h"

struct driver_store;
struct driver_store *driver_store_new(enum kube_kind kind);
struct driver_store *driver_store_free(struct driver_store *store);
extern const struct informer_ops driver_store_ops;
/* "PLURAL NAMESPACE/NAME UID VERSION NODE" a line, "-" for what is absent. */
void driver_store_dump(const struct driver_store *store, FILE *out);
size_t driver_store_count(const struct driver_store *store);
