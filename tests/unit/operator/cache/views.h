/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded objects made by hand, for the tests of the stores. */
#pragma once

#include "operator/kube/decode.h"

static inline struct slice text(const char *s)
{
	return (struct slice){s, s ? (uint32_t)strlen(s) : 0};
}

static inline void view_label(struct pod_view *v, const char *key, const char *value)
{
	v->meta.labels[v->meta.n_labels++] = (struct slice_pair){text(key), text(value)};
}

static inline void view_annotation(struct pod_view *v, const char *key, const char *value)
{
	v->meta.annotations[v->meta.n_annotations++] = (struct slice_pair){text(key), text(value)};
}

static inline void view_container(struct pod_view *v, const char *name, const char *image,
				  const char *id)
{
	v->containers[v->n_containers++] =
	    (struct container_view){.name = text(name), .image = text(image), .id = text(id)};
}

static inline void view_owner(struct meta_view *m, const char *kind, const char *name,
			      const char *uid)
{
	m->owners[m->n_owners++] = (struct owner_view){
	    .kind = text(kind), .name = text(name), .uid = text(uid), .controller = true};
}

/* A pod with nothing but names. */
static inline void view_pod(struct pod_view *v, const char *ns, const char *name, const char *uid,
			    const char *node)
{
	memset(v, 0, sizeof(*v));
	v->meta.ns = text(ns);
	v->meta.name = text(name);
	v->meta.uid = text(uid);
	v->node_name = text(node);
	v->phase = text("Running");
}
