/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct destination_table: the destinations of policies in the form that is sent to agents:
 * kiln.node.v1.Destination with the values of the Secrets that the config names. The Secrets of the
 * cluster's destinations are read from the operator's namespace, those of a tenant's from the
 * tenant's own and nowhere else. Each destination is made once and shared by all nodes. Loop thread
 * only.
 *
 * A destination whose Secret or key is missing is left out: it is not sent to agents, and reported
 * by name, never with a value. The others are sent.
 */
#pragma once

#include "lib/buf.h"
#include "operator/policy/policy.h"
#include "operator/secrets/secrets.h"

enum {
	DESTINATION_ID_MAX = 192,
	DESTINATION_CAUSE_MAX = 896,
	LEFT_OUT_MAX = 64, /* reported for a node */
	LEFT_OUT_NAMESPACE_MAX = 4,
};

/* A destination that agents need and that is left out. */
struct left_out {
	struct left_out *next, *prev;
	const char *id, *ns, *name;	  /* NS "" for the cluster's */
	const char *reason;		  /* of a condition */
	char text[DESTINATION_CAUSE_MAX]; /* which Secret, the cause, what to do; never a value */
};

struct destination_table_options {
	struct secrets *secrets; /* NULL: none can be read */
	const char *ns;		 /* the operator's */
	/* The destination ID may have changed, or be left out, or be complete again. */
	void (*changed)(void *arg, const char *id);
	/*
	 * A destination is left out because of CAUSE; NS "" for the cluster's. Called once each
	 * time.
	 */
	void (*left_out)(void *arg, const char *ns, const char *name, const char *cause);
	void *arg;
};

struct destination_table;
int destination_table_new(const struct destination_table_options *options,
			  struct destination_table **ret) _must_check_;
struct destination_table *destination_table_free(struct destination_table *d);

struct view_destination;
/*
 * Takes a reference on the destination, made if needed. One without room for its Secrets is left
 * out. -ENOMEM, -ENOSPC.
 */
int destination_table_ref(struct destination_table *d, const struct policy_destination *from,
			  struct view_destination **ret) _must_check_;
struct view_destination *destination_table_find(struct destination_table *d, const char *id);
/* "main"; "namespace/name@12345678" for a tenant's: the settings are part of it, since two configs
 * of a namespace may mean different things by one name. */
const char *view_destination_id(const struct view_destination *v);
struct view_destination *view_destination_ref(struct view_destination *v);
void destination_table_unref(struct destination_table *d,
			     struct view_destination *v); /* NULL is fine */
/*
 * Encodes V with its secrets into OUT, which is emptied first. -ENOENT: it is left out. The caller
 * wipes OUT.
 */
int destination_table_encode(struct destination_table *d, struct view_destination *v,
			     struct buf *out) _must_check_;
/*
 * The list of all destinations that are left out, for any node; NULL: none is. Valid until a
 * Secret, a config or a reference changes.
 */
const struct left_out *destination_table_left_out(const struct destination_table *d);
/* Called now and then: uses the Secrets for which there was no room before. */
void destination_table_look_for_room(struct destination_table *d);
/* The values or the state of a Secret have changed. */
void destination_table_secret(struct destination_table *d, const char *ns, const char *name);
size_t destination_table_count(const struct destination_table *d);
