/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The election on its loop: one timer, one call at a time, and the Lease object as last read, which
 * the next write is based on. Its unknown fields are preserved. lease_core.c makes all decisions.
 * Loop thread throughout.
 *
 * The clock is CLOCK_BOOTTIME: the lease of a holder runs out while its machine sleeps, and the
 * holder must see that on waking up.
 */
#include "operator/lease/lease.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <time.h>

#include "lib/log.h"
#include "operator/kube/json.h"
#include "operator/lease/lease_core.h"

enum {
	DURATION_MS = 12000,
	RENEW_DEADLINE_MS = 8000,
	RETRY_MS = 2000,
	REQUEST_MIN_MS = 1000,
	PATH_MAX_BYTES = 2048,
	LOG_INTERVAL_S = 30,
	WAIT_MAX_MS = 60000,
};

struct lease {
	uv_timer_t timer;
	struct kube_client *client;
	char *ns, *name, *identity;
	void (*gained)(void *arg);
	void (*lost)(void *arg);
	void *arg;
	void (*released)(void *arg);
	void *released_arg;
	struct lease_core core;
	cJSON *object; /* as last read or written */
	struct kube_call *call;
	bool started, closing;
	struct log_limit log;
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* [0, 1). Random bytes of the system: candidates that started together must not retry together. */
static double random_unit(void)
{
	uint32_t n = 0;

	(void)uv_random(NULL, NULL, &n, sizeof(n), 0, NULL);
	return (double)n / ((double)UINT32_MAX + 1);
}

/* ---- the object ------------------------------------------------------------------------------ */

/* MicroTime of k8s.io/apimachinery: always six digits. */
static void format_now(char out[LEASE_TIME_MAX])
{
	struct timespec ts;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(out, LEASE_TIME_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, LEASE_TIME_MAX - n, ".%06ldZ", ts.tv_nsec / 1000);
}

static const char *text_of(const cJSON *object, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

	return text ? text : "";
}

static int64_t number_of(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	/* leaseDurationSeconds and leaseTransitions are int32 */
	if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= INT32_MAX))
		return 0;
	return (int64_t)item->valuedouble;
}

static void read_record(const cJSON *object, struct lease_record *ret)
{
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(object, "spec");

	*ret = (struct lease_record){.duration_s = number_of(spec, "leaseDurationSeconds"),
				     .transitions = number_of(spec, "leaseTransitions")};
	snprintf(ret->holder, sizeof(ret->holder), "%s", text_of(spec, "holderIdentity"));
	snprintf(ret->renewed, sizeof(ret->renewed), "%s", text_of(spec, "renewTime"));
}

static int set_item(cJSON *object, const char *key, cJSON *value)
{
	if (!value)
		return -ENOMEM;
	cJSON_DeleteItemFromObjectCaseSensitive(object, key);
	if (!cJSON_AddItemToObject(object, key, value)) {
		cJSON_Delete(value);
		return -ENOMEM;
	}
	return 0;
}

static int new_object(const struct lease *lease, cJSON **ret)
{
	_cleanup_(cJSON_Deletep) cJSON *object = cJSON_CreateObject();
	cJSON *meta;

	if (!cJSON_AddStringToObject(object, "apiVersion", "coordination.k8s.io/v1") ||
	    !cJSON_AddStringToObject(object, "kind", "Lease"))
		return -ENOMEM;
	meta = cJSON_AddObjectToObject(object, "metadata");
	if (!cJSON_AddStringToObject(meta, "name", lease->name) ||
	    !cJSON_AddStringToObject(meta, "namespace", lease->ns))
		return -ENOMEM;
	*ret = TAKE_PTR(object);
	return 0;
}

/* Renders the Lease that STEP writes, as JSON; the caller frees *RET. */
static int render(const struct lease *lease, enum lease_step step, char **ret)
{
	const struct lease_core *core = &lease->core;
	bool give = step == LEASE_GIVE, same = step != LEASE_CREATE && lease_core_is_ours(core);
	double transitions = step == LEASE_CREATE ? 0 : (double)core->seen.transitions + !same;
	uint64_t duration_s = give ? 1 : (core->options.duration_ms + 999) / 1000;
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	char now[LEASE_TIME_MAX];
	cJSON *spec;
	int r = 0;

	if (step == LEASE_CREATE)
		r = new_object(lease, &object);
	else
		object = cJSON_Duplicate(lease->object, true);
	if (r < 0 || !object)
		return -ENOMEM;
	spec = cJSON_GetObjectItemCaseSensitive(object, "spec");
	if (!cJSON_IsObject(spec)) {
		cJSON_DeleteItemFromObjectCaseSensitive(object, "spec");
		spec = cJSON_AddObjectToObject(object, "spec");
	}
	format_now(now);
	if (!spec ||
	    set_item(spec, "holderIdentity", cJSON_CreateString(give ? "" : lease->identity)) < 0 ||
	    set_item(spec, "leaseDurationSeconds", cJSON_CreateNumber((double)duration_s)) < 0 ||
	    set_item(spec, "leaseTransitions", cJSON_CreateNumber(MIN(transitions, INT32_MAX))) <
		0 ||
	    set_item(spec, "renewTime", cJSON_CreateString(now)) < 0)
		return -ENOMEM;
	if ((!same || give) && set_item(spec, "acquireTime", cJSON_CreateString(now)) < 0)
		return -ENOMEM;
	*ret = cJSON_PrintUnformatted(object);
	return *ret ? 0 : -ENOMEM;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void advance(struct lease *lease);

static void tell(struct lease *lease, enum lease_change change)
{
	if (change == LEASE_GAINED && lease->gained)
		lease->gained(lease->arg);
	else if (change == LEASE_LOST && lease->lost)
		lease->lost(lease->arg);
}

static void complain(struct lease *lease, const struct kube_answer *answer)
{
	unsigned int held_back = 0;

	if (answer->status == 404 || answer->status == 409 ||
	    !log_allowed(&lease->log, LOG_INTERVAL_S, &held_back))
		return;
	log_warn("lease", "lease %s/%s: HTTP %d: %s (%u more like it)", lease->ns, lease->name,
		 answer->status,
		 answer->message && *answer->message ? answer->message : "not a Lease", held_back);
}

/* A 200 whose body is not a Lease with a resource version counts as LEASE_FAILED. */
static enum lease_outcome judge(struct lease *lease, const struct kube_answer *answer,
				struct lease_record *ret)
{
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;

	if (answer->status == 404)
		return LEASE_NOT_FOUND;
	if (answer->status == 409)
		return LEASE_CONFLICT;
	if (answer->status < 200 || answer->status > 299 || !answer->body)
		return LEASE_FAILED;
	object = cJSON_ParseWithLength((const char *)answer->body, answer->len);
	if (!*text_of(cJSON_GetObjectItemCaseSensitive(object, "metadata"), "resourceVersion"))
		return LEASE_FAILED;
	read_record(object, ret);
	cJSON_Delete(lease->object);
	lease->object = TAKE_PTR(object);
	return LEASE_DONE;
}

static void on_answer(void *arg, const struct kube_answer *answer)
{
	struct lease *lease = arg;
	struct lease_record record = {0};
	enum lease_outcome outcome = judge(lease, answer, &record);

	lease->call = NULL;
	if (outcome != LEASE_DONE)
		complain(lease, answer);
	tell(lease,
	     lease_core_answer(&lease->core, outcome, &record, answer->retry_after_ms, now_ms()));
	advance(lease);
}

static int call(struct lease *lease, enum lease_step step)
{
	static const char *const methods[] = {[LEASE_READ] = "GET",
					      [LEASE_CREATE] = "POST",
					      [LEASE_TAKE] = "PUT",
					      [LEASE_GIVE] = "PUT"};
	struct kube_request request = {
	    .method = methods[step],
	    .timeout_ms = lease->core.options.request_ms,
	    .unlimited = true,
	    .no_retry = true,
	    .done = on_answer,
	    .arg = lease,
	};
	_cleanup_(buf_done) struct buf path;
	_cleanup_free_ char *body = NULL;
	int r;

	buf_init(&path, PATH_MAX_BYTES);
	r = kube_path(&path, KUBE_LEASES, lease->ns, step == LEASE_CREATE ? NULL : lease->name,
		      NULL);
	if (r >= 0 && step != LEASE_READ)
		r = render(lease, step, &body);
	if (r < 0)
		return r;
	request.path = path.data;
	if (body) {
		request.content_type = "application/json";
		request.body = body;
		request.len = strlen(body);
	}
	return kube_call(lease->client, &request, &lease->call);
}

static void on_timer(uv_timer_t *timer)
{
	advance(timer->data);
}

static void finish(struct lease *lease)
{
	void (*released)(void *) = TAKE_PTR(lease->released);

	if (lease->call) {
		kube_cancel(lease->call);
		lease->call = NULL;
	}
	uv_timer_stop(&lease->timer);
	if (released)
		released(lease->released_arg);
}

/* Runs the steps that are due, and sets the timer for the next one. tell() may free the lease. */
static void advance(struct lease *lease)
{
	enum lease_step step;
	uint64_t ms = 0;

	while (!lease->closing) {
		tell(lease, lease_core_tick(&lease->core, now_ms()));
		if (lease->closing)
			return;
		step = lease_core_next(&lease->core, now_ms(), &ms);
		if (step == LEASE_RELEASED) {
			finish(lease);
			return;
		}
		if (step == LEASE_WAIT) {
			uv_update_time(lease->timer.loop);
			uv_timer_start(&lease->timer, on_timer, MIN(ms, WAIT_MAX_MS), 0);
			return;
		}
		if (call(lease, step) < 0)
			tell(lease,
			     lease_core_answer(&lease->core, LEASE_FAILED, NULL, 0, now_ms()));
	}
}

/* ---- the lease ------------------------------------------------------------------------------- */

int lease_new(uv_loop_t *loop, struct kube_client *client, const struct lease_options *options,
	      struct lease **ret, struct error *err)
{
	struct lease_core_options core = {
	    .duration_ms = options->duration_ms ? options->duration_ms : DURATION_MS,
	    .renew_deadline_ms =
		options->renew_deadline_ms ? options->renew_deadline_ms : RENEW_DEADLINE_MS,
	    .retry_ms = options->retry_ms ? options->retry_ms : RETRY_MS,
	    .random = random_unit,
	};
	size_t len = strlen(options->identity);
	_cleanup_free_ struct lease *lease = NULL;
	_cleanup_free_ char *ns = NULL, *name = NULL, *identity = NULL;

	if (len == 0 || len >= LEASE_HOLDER_MAX)
		return error_set(err, -EINVAL, "lease identity: want 1..%d characters, got %zu",
				 LEASE_HOLDER_MAX - 1, len);
	/* client-go requires the same: otherwise the lease is lost between two renewals. */
	if (core.duration_ms <= core.renew_deadline_ms ||
	    (double)core.renew_deadline_ms <= (double)core.retry_ms * (1 + 0.2))
		return error_set(err, -EINVAL,
				 "lease times: want duration > renew deadline > 1.2 * retry, got "
				 "%llu, %llu and %llu ms",
				 (unsigned long long)core.duration_ms,
				 (unsigned long long)core.renew_deadline_ms,
				 (unsigned long long)core.retry_ms);
	core.request_ms = MAX(core.renew_deadline_ms / 2, REQUEST_MIN_MS);
	lease = calloc(1, sizeof(*lease));
	ns = strdup(options->ns);
	name = strdup(options->name);
	identity = strdup(options->identity);
	if (!lease || !ns || !name || !identity)
		return error_set(err, -ENOMEM, "out of memory");
	lease->ns = TAKE_PTR(ns);
	lease->name = TAKE_PTR(name);
	core.identity = lease->identity = TAKE_PTR(identity);
	lease->client = client;
	lease->gained = options->gained;
	lease->lost = options->lost;
	lease->arg = options->arg;
	lease_core_init(&lease->core, &core, now_ms());
	(void)uv_timer_init(loop, &lease->timer);
	lease->timer.data = lease;
	*ret = TAKE_PTR(lease);
	return 0;
}

void lease_start(struct lease *lease)
{
	if (lease->started)
		return;
	lease->started = true;
	advance(lease);
}

bool lease_held(const struct lease *lease)
{
	return lease_core_held(&lease->core, now_ms());
}

const char *lease_holder(const struct lease *lease)
{
	return lease->core.seen.holder;
}

void lease_release(struct lease *lease, void (*done)(void *arg), void *arg)
{
	if (lease->call) {
		kube_cancel(lease->call);
		lease->call = NULL;
	}
	lease->released = done;
	lease->released_arg = arg;
	tell(lease, lease_core_release(&lease->core, now_ms()));
	advance(lease);
}

static void on_closed(uv_handle_t *handle)
{
	struct lease *lease = handle->data;

	cJSON_Delete(lease->object);
	free(lease->ns);
	free(lease->name);
	free(lease->identity);
	free(lease);
}

struct lease *lease_free(struct lease *lease)
{
	if (!lease || lease->closing)
		return NULL;
	lease->closing = true;
	if (lease->call)
		kube_cancel(lease->call);
	uv_close((uv_handle_t *)&lease->timer, on_closed);
	return NULL;
}
