/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects that all DaemonSets share: a ServiceAccount without rights, a headless Service by
 * which monitoring finds every agent's /metrics, and a NetworkPolicy. Pure; any thread.
 */
#include "operator/render/internal.h"

int service_account_make(cJSON **ret)
{
	return json_make(ret, "{'automountServiceAccountToken': false}");
}

int service_make(cJSON **ret)
{
	/* An agent that is not ready is scraped too: its metrics tell why. */
	return json_make(ret,
			 "{'spec': {"
			 "  'type': 'ClusterIP',"
			 "  'clusterIP': 'None',"
			 "  'publishNotReadyAddresses': true,"
			 "  'selector': {'app.kubernetes.io/name': 'kiln-agent',"
			 "               '" KILN_LABEL_METRICS "': 'enabled'},"
			 "  'ports': [{'name': 'metrics', 'port': %d, 'protocol': 'TCP',"
			 "             'targetPort': 'metrics'}]}}",
			 AGENT_PORT);
}

/*
 * Ingress: health and metrics only. Egress is not limited: destinations may be anywhere, and a
 * policy would have to name the ports of the pods behind a Service, which are not known here.
 */
int network_policy_make(const struct agent_target *targets, size_t n, cJSON **ret)
{
	_cleanup_json_ cJSON *without = NULL, *expressions = NULL;
	bool any = false;
	int r = json_make(&without, "[]");

	for (size_t i = 0; r == 0 && i < n; i++) {
		if (targets[i].agent.network_policy != TOGGLE_DISABLED)
			continue;
		any = true;
		r = json_append(without, "%s", targets[i].group);
	}
	if (r == 0 && any)
		r = json_make(&expressions,
			      "[{'key': '" KILN_LABEL_GROUP "', 'operator': 'NotIn',"
			      "  'values': %j}]",
			      without);
	return r < 0 ? r
		     : json_make(ret,
				 "{'spec': {"
				 "  'podSelector': {"
				 "    'matchLabels': {'app.kubernetes.io/name': 'kiln-agent'},"
				 "    'matchExpressions': %j},"
				 "  'policyTypes': ['Ingress'],"
				 "  'ingress': [{'ports': [{'port': %d, 'protocol': 'TCP'}]}]}}",
				 expressions, AGENT_PORT);
}
