/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct secrets: the Secrets in use, and no others. Each is read by name (GET) when it is first
 * used and then periodically; nothing is listed or watched, so that a Role can name the Secrets
 * that may be read. Values are in memory as long as they are used, wiped when they are freed, never
 * logged. Loop thread only.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "operator/kube/client.h"

enum {
	SECRETS_MAX = 1024,	     /* in use at once */
	SECRETS_NS_MAX = 128,	     /* of these in one namespace, except the operator's */
	SECRETS_TENANTS_MAX = 768,   /* of these in all namespaces except the operator's */
	SECRET_VALUE_MAX = 64 << 10, /* bytes of a value */
	/* between two reads of a Secret; longer when many are in use */
	SECRETS_REFRESH_MS = 3000,
	SECRETS_SPACING_MS = 20,  /* the interval is at least this times the number in use */
	SECRETS_RETRY_MS = 2000,  /* wait before a read is repeated, when no answer came */
	SECRETS_GRACE_MS = 60000, /* values are kept during refusals for this long */
	SECRETS_SETTLE_MS = 5000, /* a new right to read may take effect this late */
};

enum secret_state {
	SECRET_PENDING, /* not answered yet */
	SECRET_FOUND,
	SECRET_MISSING,	  /* there is no such Secret */
	SECRET_FORBIDDEN, /* the operator may not read it */
};

struct secrets_options {
	uv_loop_t *loop;
	struct kube_client *client;
	const char *ns;	     /* the operator's; borrowed, NULL: none is special */
	uint64_t refresh_ms; /* 0: SECRETS_REFRESH_MS */
	uint64_t grace_ms;   /* 0: SECRETS_GRACE_MS */
	uint64_t settle_ms;  /* a Secret that was never read is FORBIDDEN only after this */
	/* The values or the state of the Secret NS/NAME have changed. */
	void (*changed)(void *arg, const char *ns, const char *name);
	void *arg;
};

struct secrets;
int secrets_new(const struct secrets_options *options, struct secrets **ret) _must_check_;
/* No Secret may be in use any more. The loop must run on. Takes NULL. */
struct secrets *secrets_free(struct secrets *s);

struct secret;
/* Takes a reference. -ENOSPC: too many Secrets are in use, in all or in NS; -ENOMEM. */
int secrets_use(struct secrets *s, const char *ns, const char *name,
		struct secret **ret) _must_check_;
void secrets_leave(struct secrets *s, struct secret *secret); /* NULL is fine */
enum secret_state secret_state(const struct secret *secret);
const char *secret_ns(const struct secret *secret);
const char *secret_name(const struct secret *secret);
/*
 * The value of KEY: a text without NUL. NULL: the Secret has no values or no such KEY, or the value
 * is no text or too long. Valid until control returns to the loop.
 */
const char *secret_get(const struct secret *secret, const char *key);
size_t secrets_count(const struct secrets *s);
