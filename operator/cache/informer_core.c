/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sequence of requests: all objects (a WatchList, or a list in pages), then watches, each from
 * the last version seen. When the server refuses that version, all objects again.
 *
 *   generation   goes up with each new listing; a page that is requested again belongs to the
 *                generation of its list
 *   version      opaque; only a list's end, an event or a bookmark moves it
 *   from_scratch the server does not have the version any more (or not yet): the list asks for the
 *                newest
 *
 * Waits: 0.8 s doubling to 30 s, plus up to as much again at random, reset after 2 minutes without
 * a failure, as in client-go v0.34 (tools/cache/reflector.go). With one difference: a server that
 * is unreachable, fails, or names the time to retry is asked at least every 2 s (or at that time),
 * and an expired version is followed by a list at once, so that the cache is right within 5 s of
 * the server's return. There are only two operators a cluster, so longer waits are not needed to
 * spread their requests. After errors that an administrator has to repair (403, 404) the wait grows
 * to a minute.
 *
 * A relist refers to the last version without a limit, which means "not older than" and is served
 * from memory. With a limit it would mean "exactly", and that version has just been refused.
 */
#include "operator/cache/informer_core.h"

#include "operator/kube/resource.h"

enum {
	PAGE = 500,
	WATCH_TIMEOUT_S = 300, /* plus up to as much again at random */
	WAIT_MS = 800,
	WAIT_MAX_MS = 30000,
	WAIT_RETURN_MAX_MS = 1000,
	RELIST_MS = 10000, /* between two listings without a wait */
	WAIT_RESET_MS = 120000,
	RETRY_AFTER_MAX_MS = 300000,
	SHORT_WATCH_MS = 1000,
	STALL_MS = 30000, /* without a byte, during initial events */
	UNFINISHED_MAX = 3,
};

void informer_core_init(struct informer_core *c, const struct informer_core_options *options,
			uint64_t now_ms)
{
	*c = (struct informer_core){.options = *options, .next_ms = now_ms};
	if (c->options.page == 0)
		c->options.page = PAGE;
	c->no_more_watch_list = options->no_watch_list;
	c->step = c->no_more_watch_list ? INFORMER_LIST : INFORMER_WATCH_LIST;
}

void informer_core_done(struct informer_core *c)
{
	free(c->token);
	free(c->next_token);
	c->token = c->next_token = NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

enum informer_step informer_core_next(struct informer_core *c, uint64_t now_ms, uint64_t *ret_ms)
{
	uint64_t wake = c->next_ms;

	if (c->in_flight)
		wake = c->initial ? c->last_byte_ms + STALL_MS : UINT64_MAX;
	if (c->in_flight || now_ms < wake) {
		*ret_ms = wake == UINT64_MAX ? wake : wake - MIN(wake, now_ms);
		return INFORMER_WAIT;
	}
	c->in_flight = true;
	c->started_ms = c->last_byte_ms = now_ms;
	c->eventful = c->meta_seen = false;
	c->timeout_s = WATCH_TIMEOUT_S + (unsigned int)(WATCH_TIMEOUT_S * c->options.random());
	c->initial = c->step == INFORMER_WATCH_LIST;
	c->referred = (c->token && !c->unpaged) || (!c->from_scratch && c->version[0]);
	if (c->initial || (c->step == INFORMER_LIST && !c->token))
		c->generation++;
	return c->step;
}

static int add_number(struct buf *path, const char *key, unsigned int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	return kube_path_query(path, key, text);
}

static void query_list(const struct informer_core *c, struct buf *path)
{
	const char *version = c->from_scratch ? "" : c->version;

	if (c->token) {
		add_number(path, "limit", c->options.page);
		kube_path_query(path, "continue", c->token);
	} else if (*version) {
		kube_path_query(path, "resourceVersion", version);
		kube_path_query(path, "resourceVersionMatch", "NotOlderThan");
	} else if (!c->unpaged) {
		add_number(path, "limit", c->options.page);
	}
}

int informer_core_query(const struct informer_core *c, struct buf *path)
{
	if (c->step == INFORMER_LIST) {
		query_list(c, path);
		return buf_error(path);
	}
	kube_path_query(path, "watch", "true");
	kube_path_query(path, "allowWatchBookmarks", "true");
	if (c->step == INFORMER_WATCH_LIST) {
		kube_path_query(path, "sendInitialEvents", "true");
		kube_path_query(path, "resourceVersionMatch", "NotOlderThan");
		kube_path_query(path, "resourceVersion", c->from_scratch ? "" : c->version);
	} else {
		kube_path_query(path, "resourceVersion", c->version);
	}
	return add_number(path, "timeoutSeconds", c->timeout_s);
}

/* ---- received data --------------------------------------------------------------------------- */

void informer_core_bytes(struct informer_core *c, uint64_t now_ms)
{
	c->last_byte_ms = now_ms;
}

int informer_core_version(struct informer_core *c, const char *version, size_t len)
{
	c->eventful = true;
	if (len == 0 || len >= sizeof(c->version) || memchr(version, '\0', len))
		return -EBADMSG;
	memcpy(c->version, version, len);
	c->version[len] = '\0';
	return 0;
}

static void told_all(struct informer_core *c)
{
	c->from_scratch = c->unpaged = c->initial = false;
	c->unfinished = 0;
	free(c->token);
	c->token = NULL;
}

bool informer_core_initial_end(struct informer_core *c)
{
	if (!c->initial)
		return false;
	told_all(c);
	c->step = INFORMER_WATCH;
	return true;
}

int informer_core_list_meta(struct informer_core *c, const char *version, const char *token)
{
	char *copy = NULL;

	if (!*version || strlen(version) >= sizeof(c->list_version))
		return -EBADMSG;
	if (*token) {
		copy = strdup(token);
		if (!copy)
			return -ENOMEM;
	}
	free(c->next_token);
	c->next_token = copy;
	memcpy(c->list_version, version, strlen(version) + 1);
	c->meta_seen = true;
	return 0;
}

/* ---- the end of a request -------------------------------------------------------------------- */

static bool returns(enum informer_end end, uint64_t retry_after_ms)
{
	switch (end) {
	case INFORMER_END_CUT:
	case INFORMER_END_NO_ANSWER:
	case INFORMER_END_SERVER:
	case INFORMER_END_EXPIRED:
	case INFORMER_END_TOO_NEW:
		return true;
	default:
		return retry_after_ms > 0;
	}
}

static uint64_t wait_ms(struct informer_core *c, enum informer_end end, uint64_t retry_after_ms,
			uint64_t now_ms)
{
	bool back_soon = returns(end, retry_after_ms);
	uint64_t max = back_soon ? WAIT_RETURN_MAX_MS : WAIT_MAX_MS, ms;

	if (c->failures > 0 && now_ms - c->failed_ms > WAIT_RESET_MS)
		c->failures = 0;
	/* A server that has just come back refuses all requests until it has loaded its roles. */
	if (c->back_soon && !back_soon)
		c->failures = 0;
	c->back_soon = back_soon;
	ms = MIN((uint64_t)WAIT_MS << MIN(c->failures, 10U), max);
	ms += (uint64_t)((double)ms * c->options.random());
	c->failures++;
	c->failed_ms = now_ms + ms;
	return MAX(ms, MIN(retry_after_ms, RETRY_AFTER_MAX_MS));
}

/* Lists all objects again. CLASSIC: by a list, without WatchList. */
static void start_over(struct informer_core *c, bool classic)
{
	free(c->token);
	c->token = NULL;
	c->step = classic || c->no_more_watch_list ? INFORMER_LIST : INFORMER_WATCH_LIST;
}

static void watch_list_ended(struct informer_core *c, enum informer_end end)
{
	/* A watch cannot skip an object that is too large, a list can. */
	bool classic = end == INFORMER_END_TOO_LARGE || end == INFORMER_END_STALLED;

	if (end == INFORMER_END_UNSUPPORTED)
		c->no_more_watch_list = true;
	if (end == INFORMER_END_EXPIRED || end == INFORMER_END_TOO_NEW)
		c->from_scratch = true;
	/* A proxy cuts long responses: fall back to a paginated LIST. */
	if (end == INFORMER_END_CLEAN || end == INFORMER_END_CUT)
		classic = ++c->unfinished >= UNFINISHED_MAX;
	start_over(c, classic);
}

/* `version` moves only with events that the store took, so the same watch can be repeated. */
static void watch_ended(struct informer_core *c, enum informer_end end)
{
	switch (end) {
	case INFORMER_END_TOO_NEW:
	case INFORMER_END_UNSUPPORTED:
	case INFORMER_END_TOO_LARGE:
		c->from_scratch = true;
		start_over(c, end == INFORMER_END_TOO_LARGE);
		break;
	case INFORMER_END_EXPIRED:
		start_over(c, false);
		break;
	default:
		c->step = INFORMER_WATCH;
		break;
	}
}

static void list_failed(struct informer_core *c, enum informer_end end)
{
	switch (end) {
	case INFORMER_END_EXPIRED:
		if (c->token)
			c->unpaged = true;
		c->from_scratch = true;
		start_over(c, true);
		break;
	case INFORMER_END_TOO_NEW:
	case INFORMER_END_UNSUPPORTED:
	case INFORMER_END_TOO_LARGE:
	case INFORMER_END_CLEAN: /* complete, but not a list */
		c->from_scratch = true;
		start_over(c, true);
		break;
	default:
		break; /* the same page again */
	}
}

/* True at the end of the last page. */
static bool page_ended(struct informer_core *c)
{
	free(c->token);
	c->token = TAKE_PTR(c->next_token);
	if (c->token)
		return false;
	memcpy(c->version, c->list_version, sizeof(c->version));
	told_all(c);
	c->step = INFORMER_WATCH;
	return true;
}

/* True when the next request may go out without a wait: it differs from the one that expired. */
static bool goes_on(struct informer_core *c, enum informer_end end, uint64_t now_ms)
{
	bool long_ago = c->started_over_ms == 0 || now_ms - c->started_over_ms >= RELIST_MS;

	if (end != INFORMER_END_EXPIRED && end != INFORMER_END_TOO_NEW)
		return false;
	/*
	 * A list that referred to a version or token is retried without it; else nothing differs.
	 */
	if (c->step != INFORMER_WATCH && c->referred)
		return true;
	if (c->step == INFORMER_WATCH && long_ago) {
		c->started_over_ms = now_ms;
		return true;
	}
	return false;
}

bool informer_core_ended(struct informer_core *c, enum informer_end end, uint64_t retry_after_ms,
			 uint64_t now_ms)
{
	bool initial = c->initial, at_once = goes_on(c, end, now_ms), whole = false;

	c->in_flight = c->initial = false;
	if (c->step == INFORMER_LIST && end == INFORMER_END_CLEAN && c->meta_seen) {
		whole = page_ended(c);
		at_once = true;
	} else if (c->step == INFORMER_LIST) {
		list_failed(c, end);
	} else if (initial) {
		watch_list_ended(c, end);
		at_once |= end == INFORMER_END_UNSUPPORTED || end == INFORMER_END_STALLED;
	} else {
		watch_ended(c, end);
		/* The end of a watch is no failure, unless the watch was short. */
		at_once |= (end == INFORMER_END_CLEAN || end == INFORMER_END_CUT) &&
			   now_ms - c->started_ms >= SHORT_WATCH_MS;
	}
	c->next_ms = now_ms + (at_once ? MIN(retry_after_ms, (uint64_t)RETRY_AFTER_MAX_MS)
				       : wait_ms(c, end, retry_after_ms, now_ms));
	return whole;
}
