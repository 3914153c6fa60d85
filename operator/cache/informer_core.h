/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct informer_core: decides the next request of an informer, and its time, from how the last
 * request ended. No network, no clock, no objects: times (ms) and random numbers are passed in.
 */
#pragma once

#include "lib/base.h"
#include "lib/buf.h"

enum { INFORMER_VERSION_MAX = 256 };

enum informer_step {
	INFORMER_WAIT,
	INFORMER_WATCH_LIST, /* a watch that begins with all existing objects */
	INFORMER_LIST,	     /* a page */
	INFORMER_WATCH,
};

enum informer_end {
	INFORMER_END_CLEAN,	  /* the response is complete */
	INFORMER_END_CUT,	  /* the connection, or the response, broke off */
	INFORMER_END_NO_ANSWER,	  /* nothing came: refused, unreachable, TLS, timeouts */
	INFORMER_END_EXPIRED,	  /* 410: the version or the continue token is too old */
	INFORMER_END_TOO_NEW,	  /* the server's state is older than the requested version */
	INFORMER_END_UNSUPPORTED, /* 400, 422, ...: not with these parameters */
	INFORMER_END_BUSY,	  /* 429 */
	INFORMER_END_SERVER,	  /* 5xx, and 401: a token that is being renewed */
	INFORMER_END_REFUSED,	  /* 403, 404 and the like */
	INFORMER_END_TOO_LARGE,	  /* an object does not fit */
	INFORMER_END_STORE,	  /* the store could not take it: out of memory */
	INFORMER_END_STALLED,	  /* a WatchList's initial events do not come to their end */
	INFORMER_ENDS
};

struct informer_core_options {
	unsigned int page;	/* objects; 0: 500 */
	bool no_watch_list;	/* never ask for one */
	double (*random)(void); /* [0, 1) */
};

struct informer_core {
	struct informer_core_options options;
	enum informer_step step;
	uint64_t next_ms;
	bool in_flight;
	uint64_t started_ms, last_byte_ms; /* of the request under way */
	bool eventful;			   /* it brought an event or a bookmark */

	char version[INFORMER_VERSION_MAX]; /* where the next watch starts; "": no version yet */
	bool initial; /* the initial events of the WatchList under way go on */
	bool no_more_watch_list;
	unsigned int unfinished;  /* WatchLists that ended in the middle, in a row */
	bool from_scratch;	  /* the next list must not refer to `version` */
	bool referred;		  /* the request under way refers to `version` or `token` */
	uint64_t started_over_ms; /* when a listing last followed a watch without a wait */
	bool unpaged;		  /* a continue token has expired: the next list has no pages */
	char *token;		  /* of the next page; NULL: the first */
	bool meta_seen;		  /* the page under way has shown its metadata */
	char list_version[INFORMER_VERSION_MAX];
	char *next_token;
	uint32_t generation;
	unsigned int timeout_s; /* of the watch under way */

	unsigned int failures; /* in a row, see informer_core.c */
	uint64_t failed_ms;
	bool back_soon; /* the last failure was one that ends without an administrator */
};

void informer_core_init(struct informer_core *c, const struct informer_core_options *options,
			uint64_t now_ms);
void informer_core_done(struct informer_core *c);
/*
 * The next step. With INFORMER_WAIT, *ret_ms is the time until the next call; UINT64_MAX: until the
 * request ends. 0: the WatchList under way has stalled and is to be cancelled.
 */
enum informer_step informer_core_next(struct informer_core *c, uint64_t now_ms, uint64_t *ret_ms);
/* Appends the query of the step that informer_core_next() returned. */
int informer_core_query(const struct informer_core *c, struct buf *path);
/* The request under way has received bytes. */
void informer_core_bytes(struct informer_core *c, uint64_t now_ms);
/* An event or a bookmark of a watch has VERSION. -EBADMSG: empty, too long, or with a NUL. */
int informer_core_version(struct informer_core *c, const char *version, size_t len);
/*
 * A bookmark ends the initial events. True: a WatchList is complete, and objects of older
 * generations are gone.
 */
bool informer_core_initial_end(struct informer_core *c);
/* -EBADMSG, -ENOMEM */
int informer_core_list_meta(struct informer_core *c, const char *version, const char *token);
/*
 * The request ended. True: it was the last page of a list, and objects of older generations are
 * gone.
 */
bool informer_core_ended(struct informer_core *c, enum informer_end end, uint64_t retry_after_ms,
			 uint64_t now_ms);
