/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct secrets: the Secrets that somebody uses now, and no others. Each is read by name (GET)
 * when it is first used and then again and again; nothing is listed or watched, so that a Role can
 * name what may be read. Values are in memory as long as they are used, wiped when they go, never
 * logged. Loop thread only.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "operator/kube/client.h"

enum {
	SECRETS_MAX = 1024,	     /* at once; */
	SECRETS_NS_MAX = 128,	     /* of one namespace but the operator's, */
	SECRETS_TENANTS_MAX = 768,   /* and of all those: the operator's has the rest */
	SECRET_VALUE_MAX = 64 << 10, /* bytes of a value */
	SECRETS_REFRESH_MS = 3000,   /* how often each is read again, */
	SECRETS_SPACING_MS = 20,     /* but all of them together no more often than this */
	SECRETS_RETRY_MS = 2000,     /* after no answer */
	SECRETS_GRACE_MS = 60000,    /* values outlive refusals that long */
	SECRETS_SETTLE_MS = 5000,    /* a right to read that is new may come as late as that */
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
	uint64_t settle_ms;  /* a Secret that was never read is not FORBIDDEN before */
	/* The Secret NS/NAME is another than before, or its state is. */
	void (*changed)(void *arg, const char *ns, const char *name);
	void *arg;
};

struct secrets;
int secrets_new(const struct secrets_options *options, struct secrets **ret) _must_check_;
/* Nothing may use any more. The loop must run on. Takes NULL. */
struct secrets *secrets_free(struct secrets *s);

struct secret;
/* A reference. -ENOSPC: as many as there may be, in all or of NS, are used; -ENOMEM. */
int secrets_use(struct secrets *s, const char *ns, const char *name,
		struct secret **ret) _must_check_;
void secrets_leave(struct secrets *s, struct secret *secret); /* NULL is fine */
enum secret_state secret_state(const struct secret *secret);
const char *secret_ns(const struct secret *secret);
const char *secret_name(const struct secret *secret);
/* A text without NUL; NULL: the Secret is not there, has no such key, or one that is no text or too
 * long. Good until control goes back to the loop. */
const char *secret_get(const struct secret *secret, const char *key);
size_t secrets_count(const struct secrets *s);
