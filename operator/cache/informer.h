/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct informer: keeps a store equal to the API server's objects of one kind. WatchList where the
 * server offers it, else a list in pages and then a watch; bookmarks, 410, 429, backoff with jitter
 * and the default timings of client-go (tools/cache/reflector.go, v0.34): watch timeout 5..10
 * minutes at random, backoff 0.8 s doubling to 30 s with full jitter and reset after 2 minutes.
 * Resource versions are opaque and only compared for equality.
 *
 * The informer passes on encoded objects; the store decodes and keeps them. After a relist
 * informer_ops.replaced() removes every object that the list did not contain. All on the loop's
 * thread.
 */
#pragma once

#include "operator/kube/client.h"
#include "operator/kube/decode.h"

struct informer_ops {
	/*
	 * An object was added or changed. -EBADMSG counts it as undecodable. -ESTALE, also from
	 * remove(), asks for a relist some seconds later. The request goes on after both; any other
	 * error ends it, and it is retried. Only synced() may free the informer.
	 */
	int (*put)(void *store, const struct kube_item *item, uint32_t generation);
	int (*remove)(void *store, const struct kube_item *item);
	/*
	 * The relist of GENERATION is complete: objects with an older generation are gone. 0, or
	 * -ESTALE as put().
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
	bool bulk;		    /* many objects: kube_request.bulk */
	unsigned int page;	    /* objects per page of a list; 0: 500 */
	bool no_watch_list;	    /* tests: list and watch only */
	double (*random)(void);	    /* tests: [0, 1); NULL: the system's random bytes */
};

/* For /metrics and readiness. */
struct informer_stats {
	uint64_t lists; /* full listings begun: WatchLists, first pages of lists */
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
/* Lists all objects again, when the store keeps more of them than before. */
void informer_relist(struct informer *informer);
struct informer *informer_free(struct informer *informer);
DEFINE_CLEANUP(struct informer *, informer_free)
const struct informer_stats *informer_stats(const struct informer *informer);
