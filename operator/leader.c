/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leadership. Only the leader writes, and creates the first ClusterProfilingConfig of a cluster
 * that has none. Without leader election every replica is the leader; in the role stream none is.
 * Loop thread only.
 */
#include "operator/operator_internal.h"

enum { FIRST_CONFIG_RETRY_MS = 5000 };

bool operator_may_write(void *arg)
{
	const struct operator* op = arg;

	return operator_controls(op) && !op->ending && (!op->lease || lease_held(op->lease));
}

/* ---- the first config ------------------------------------------------------------------------ */

static void try_first_config(uv_timer_t *timer);

static void first_config_done(void *arg, int result, bool created, const char *message)
{
	struct operator* op = arg;

	if (created)
		log_info("operator", "made the first ClusterProfilingConfig of this cluster");
	else if (result < 0)
		log_warn("operator", "ConfigMap %s: %s", FIRST_CONFIG_NAME, message);
	if (result < 0 && result != -EINVAL && !op->ending)
		uv_timer_start(&op->first_config_timer, try_first_config, FIRST_CONFIG_RETRY_MS, 0);
}

static void try_first_config(uv_timer_t *timer)
{
	struct operator* op = timer->data;

	op->first_config = first_config_free(op->first_config);
	if (first_config_start(op->client, op->ns, first_config_done, op, &op->first_config) < 0)
		uv_timer_start(timer, try_first_config, FIRST_CONFIG_RETRY_MS, 0);
}

/* ---- the lease ------------------------------------------------------------------------------- */

void operator_lead(void *arg)
{
	struct operator* op = arg;

	log_info("lease", "%s holds the lease: it writes objects and statuses", op->identity);
	operator_set_working(op, true);
	operator_objects_due(op);
	operator_statuses_due(op, 0);
	stream_service_lead(op->stream);
	peers_start(op->peers);
	uv_timer_start(&op->first_config_timer, try_first_config, 0, 0);
}

static void lead_lost(void *arg)
{
	struct operator* op = arg;

	operator_set_working(op, false);
	uv_timer_stop(&op->first_config_timer);
	if (op->ending)
		return;
	op->ending = true;
	op->result = error_set(op->err, -ECANCELED,
			       "lost the lease %s/%s: another replica may lead; start again",
			       op->ns, OPERATOR_LEASE);
	uv_stop(&op->loop);
}

int operator_create_lease(struct operator* op)
{
	struct lease_options lease = {.ns = op->ns,
				      .name = OPERATOR_LEASE,
				      .identity = op->identity,
				      .gained = operator_lead,
				      .lost = lead_lost,
				      .arg = op};

	if (!op->options->leader_elect || !operator_controls(op))
		return 0;
	return lease_new(&op->loop, op->client, &lease, &op->lease, op->err);
}
