/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration's probes. Without an operator the agent ends at once when one cannot be
 * attached, so that the user sees the reason. With an operator it runs on, reports the reason
 * (agent/report.c), and tries again once a minute, because the probed file may appear later. Loop
 * thread.
 */
#include "agent/agent_internal.h"

enum { PROBES_RETRY_MS = 60000 };

/* The kernel lacks something: exit code 3. Anything else is a mistake in the configuration. */
static int failure_code(const struct probe_status *s)
{
	return s->code == -EPERM || s->code == -ENOTSUP || s->code == -ENOMEM ? s->code : -EINVAL;
}

int agent_probes_failure(const struct probes *p, struct error *err)
{
	for (size_t i = 0; i < probes_count(p); i++) {
		struct probe_status s;

		probes_status(p, i, &s);
		if (s.reason)
			return error_set(err, failure_code(&s), "probe %s: %s", s.name, s.reason);
	}
	return 0;
}

int agent_start_probes(struct agent *a, struct error *err)
{
	const struct receiver_config *receiver = &a->config->receiver;
	int r = probes_new(a->sampler, &a->probes);

	if (r < 0)
		return error_set(err, r, "out of memory");
	probes_set(a->probes, receiver->probes, receiver->n_probes);
	a->probes_tried_ms = uv_now(&a->loop);
	if (a->cluster) {
		cluster_use_probes(a->cluster, a->probes);
		return 0;
	}
	return agent_probes_failure(a->probes, err);
}

void agent_name_probes(struct agent *a, struct window *w)
{
	uint64_t now = uv_now(&a->loop);

	if (!a->probes || (!w->probes && !probes_count(a->probes)))
		return;
	if (a->phase == RUNNING && now - a->probes_tried_ms >= PROBES_RETRY_MS) {
		a->probes_tried_ms = now;
		probes_retry(a->probes);
	}
	if (!w->probes)
		w->probes = calloc(1, sizeof(*w->probes));
	for (uint32_t i = 0; w->probes && i < KILN_MAX_PROBES; i++)
		strcpy(w->probes->names[i], probes_name(a->probes, i));
}
