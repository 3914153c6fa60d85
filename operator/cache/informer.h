/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct informer: keeps a store equal to what the API server has of one kind. WatchList where the
 * server offers it, else pages of a list and then a watch; bookmarks, 410, 429, backoff with jitter
 * and the default timings of client-go (tools/cache/reflector.go, v0.34): watch timeout 5..10
 * minutes at random, backoff 0.8 s doubling to 30 s with full jitter and reset after 2 minutes.
 * Resource versions are opaque and only compared for equality.
 *
 * The store decodes and keeps; the informer only tells what came. After a relist everything that
 * the list did not name is removed by informer_ops.replaced(). All on the loop's thread.
 */
#pragma once

#include "operator/kube/client.h"
#include "operator/kube/decode.h"

struct informer_ops {
	/*
	 * An object is there (added or changed): -EBADMSG counts it as undecodable and goes on;
	 * so does -ESTALE, also remove()'s, and some seconds later all there is comes anew; other
	 * failures end the request, and it comes again. ops may not free the informer, but for
	 * synced().
	 */
	int (*put)(void *store, const struct kube_item *item, uint32_t generation);
	int (*remove)(void *store, const struct kube_item *item);
	/* A relist of GENERATION is whole: what has an older one is gone. 0, or -ESTALE as put().
	 */
	int (*replaced)(void *store, uint32_t generation);
	/* Cache and server agree for the first time. May be NULL. */
	void (*synced)(void *store);
};

struct informer_options {
	enum kube_kind kind;
	const char *ns;		    /* NULL: all */
	const char *field_selector; /* NULL: none */
	const char *label_selector; /* NULL: none */
	bool metadata_only;	    /* PartialObjectMetadata */
	bool json;		    /* also of kinds that the server has in protobuf */
	bool bulk;		    /* many of them: kube_request.bulk */
	unsigned int page;	    /* objects a page of a list; 0: 500 */
	bool no_watch_list;	    /* tests: the classic way at once */
	double (*random)(void);	    /* tests: [0, 1); NULL: real dice */
};

/* For /metrics and readiness. */
struct informer_stats {
	uint64_t lists; /* times that all there is was asked for: WatchLists, first pages */
	uint64_t watches, events, bookmarks, undecodable, expired, errors;
	uint64_t too_large; /* objects that were left out */
	bool synced;
	bool connected;	       /* a watch is under way */
	int64_t last_event_ms; /* uv_now() of the last byte; 0: never */
};

struct informer;
int informer_new(uv_loop_t *loop, struct kube_client *client,
		 const struct informer_options *options, const struct informer_ops *ops,
		 void *store, struct informer **ret, struct error *err) _must_check_;
void informer_start(struct informer *informer);
/* The store wants all objects anew: it keeps more of them than before. */
void informer_relist(struct informer *informer);
struct informer *informer_free(struct informer *informer);
DEFINE_CLEANUP(struct informer *, informer_free)
const struct informer_stats *informer_stats(const struct informer *informer);
