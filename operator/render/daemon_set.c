/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DaemonSet of one group of nodes. What the agent reads, and how it gets there:
 *
 *	other processes		/proc, by hostPID; their files by /proc/PID/root and map_files
 *	BPF and perf events	system calls; kernel types from /sys/kernel/btf, which every
 *				container's /sys has; nothing is pinned and no tracepoint is opened
 *				by name, so that neither bpffs nor tracefs is mounted
 *	the cgroup tree		the host's /sys/fs/cgroup: a container's own shows its own part only
 *	settings, secrets	ConfigMap, projected Secrets, environment
 *	spool, last snapshot	an emptyDir
 *	the node stream		a projected token and CA
 *
 * The agent is root: Kubernetes gives added capabilities to root only. seccomp and AppArmor are
 * off: the default profile of CRI-O up to 2025 (containers/common PR 2534) refuses perf_event_open
 * without CAP_SYS_ADMIN, that of AppArmor reading processes of another profile; spc_t is SELinux's
 * type for containers that look at the host. Pure; any thread.
 */
#include "operator/render/internal.h"

/* docs/configuration.md, deploy/kiln-agent.service. CAP_SYS_RESOURCE is not needed. */
static const char capabilities[] = "{"
				   "  'capabilities': {"
				   "    'add': ['BPF', 'PERFMON', 'SYS_PTRACE', 'SYSLOG',"
				   "            'DAC_READ_SEARCH', 'CHECKPOINT_RESTORE'],"
				   "    'drop': ['ALL']},"
				   "  'allowPrivilegeEscalation': false,"
				   "  'readOnlyRootFilesystem': true,"
				   "  'runAsUser': 0,"
				   "  'seccompProfile': {'type': 'Unconfined'},"
				   "  'appArmorProfile': {'type': 'Unconfined'},"
				   "  'seLinuxOptions': {'type': 'spc_t', 'level': 's0'}}";
static const char privileged[] = "{"
				 "  'privileged': true,"
				 "  'readOnlyRootFilesystem': true,"
				 "  'runAsUser': 0,"
				 "  'seccompProfile': {'type': 'Unconfined'}}";

static const char default_resources[] = "{'requests': {'cpu': '50m', 'memory': '128Mi'},"
					" 'limits': {'memory': '512Mi'}}";

/*
 * Values of headers that come from Secrets. With the node stream a Secret may be missing: the agent
 * starts, keeps that destination's profiles, and gets the value from the stream when it exists.
 * Without the stream a missing Secret keeps the pod from starting and stops a rollout: that is
 * better than agents whose profiles no receiver accepts.
 */
static int make_env(const struct render_input *in, cJSON **ret)
{
	const struct cluster_config *c = in->config;
	_cleanup_json_ cJSON *env = NULL;
	int r = json_make(&env, "[{'name': 'NODE_NAME',"
				"  'valueFrom': {'fieldRef': {'fieldPath': 'spec.nodeName'}}}]");

	for (size_t i = 0; i < c->n_destinations; i++) {
		const struct destination *d = &c->destinations[i];

		for (size_t h = 0; r == 0 && h < d->n_headers; h++) {
			char name[HEADER_ENV_MAX];

			if (d->headers[h].value)
				continue;
			header_env_name(d, h, name);
			r = json_append(env,
					in->stream ? "{'name': %s, 'valueFrom': {'secretKeyRef':"
						     "  {'name': %s, 'key': %s,"
						     "   'optional': true}}}"
						   : "{'name': %s, 'valueFrom': {'secretKeyRef':"
						     "  {'name': %s, 'key': %s}}}",
					name, d->headers[h].ref.name, d->headers[h].ref.key);
		}
	}
	if (r < 0)
		return r;
	*ret = TAKE_PTR(env);
	return 0;
}

/*
 * One volume for each destination: ca.crt, tls.crt, tls.key. A Secret may be missing as in
 * make_env().
 */
static int add_tls_volume(const struct render_input *in, cJSON *volumes, cJSON *mounts,
			  size_t index)
{
	const struct destination *d = &in->config->destinations[index];
	_cleanup_json_ cJSON *sources = NULL;
	char name[32], path[128];
	int r = json_make(&sources, "[]");

	snprintf(name, sizeof(name), "tls-%zu", index);
	snprintf(path, sizeof(path), TLS_DIR "/%s", d->name);
	if (r == 0 && d->ca.name)
		r = json_append(sources,
				in->stream ? "{'secret': {'name': %s, 'optional': true,"
					     "  'items': [{'key': %s, 'path': 'ca.crt'}]}}"
					   : "{'secret': {'name': %s,"
					     "  'items': [{'key': %s, 'path': 'ca.crt'}]}}",
				d->ca.name, d->ca.key ? d->ca.key : "ca.crt");
	if (r == 0 && d->client_certificate_secret)
		r = json_append(sources,
				in->stream ? "{'secret': {'name': %s, 'optional': true, 'items': ["
					     "  {'key': 'tls.crt', 'path': 'tls.crt'},"
					     "  {'key': 'tls.key', 'path': 'tls.key'}]}}"
					   : "{'secret': {'name': %s, 'items': ["
					     "  {'key': 'tls.crt', 'path': 'tls.crt'},"
					     "  {'key': 'tls.key', 'path': 'tls.key'}]}}",
				d->client_certificate_secret);
	if (r == 0)
		r = json_append(volumes,
				"{'name': %s, 'projected': {'defaultMode': 256, 'sources': %j}}",
				name, sources);
	return r < 0 ? r
		     : json_append(mounts, "{'name': %s, 'mountPath': %s, 'readOnly': true}", name,
				   path);
}

/*
 * Without subPath, so that the kubelet refreshes token and CA. The CA is optional: an agent without
 * one retries. The token is valid only for the operator.
 */
static int add_stream_volumes(cJSON *volumes, cJSON *mounts)
{
	int r = json_append(volumes,
			    "{'name': 'operator', 'projected': {'defaultMode': 256, 'sources': ["
			    "  {'serviceAccountToken': {'audience': '" STREAM_AUDIENCE "',"
			    "    'expirationSeconds': 3600, 'path': 'token'}},"
			    "  {'configMap': {'name': 'kiln-stream-ca', 'optional': true,"
			    "    'items': [{'key': 'ca.crt', 'path': 'ca.crt'}]}}]}}");

	if (r == 0)
		r = json_append(mounts, "{'name': 'operator', 'mountPath': '" STREAM_DIR "',"
					" 'readOnly': true}");
	return r;
}

static int make_volumes(const struct render_input *in, const struct agent_target *target,
			cJSON **ret_volumes, cJSON **ret_mounts)
{
	const struct cluster_config *c = in->config;
	_cleanup_json_ cJSON *volumes = NULL, *mounts = NULL;
	char size[16];
	int r;

	snprintf(size, sizeof(size), "%dMi", AGENT_STATE_MIB);
	r = json_make(&volumes,
		      "[{'name': 'config', 'configMap': {'name': %s, 'defaultMode': 292}},"
		      " {'name': 'state', 'emptyDir': {'sizeLimit': %s}},"
		      " {'name': 'cgroup', 'hostPath': {'path': '/sys/fs/cgroup',"
		      "                                 'type': 'Directory'}}]",
		      target->name, size);
	if (r == 0)
		r = json_make(&mounts,
			      "[{'name': 'config', 'mountPath': '/etc/kiln', 'readOnly': true},"
			      " {'name': 'state', 'mountPath': '/var/lib/kiln'},"
			      " {'name': 'cgroup', 'mountPath': '/sys/fs/cgroup',"
			      "  'readOnly': true}]");
	if (r == 0 && in->stream)
		r = add_stream_volumes(volumes, mounts);
	for (size_t i = 0; r == 0 && i < c->n_destinations; i++)
		if (destination_has_files(&c->destinations[i]))
			r = add_tls_volume(in, volumes, mounts, i);
	if (r < 0)
		return r;
	*ret_volumes = TAKE_PTR(volumes);
	*ret_mounts = TAKE_PTR(mounts);
	return 0;
}

static int make_container(const struct render_input *in, const struct agent_target *target,
			  const char *image, const cJSON *mounts, cJSON **ret)
{
	const struct agent_spec *agent = &target->agent;
	bool all = agent->security_mode && streq(agent->security_mode, "Privileged");
	_cleanup_json_ cJSON *env = NULL, *security = NULL, *resources = NULL;
	int r = make_env(in, &env);

	if (r == 0)
		r = json_make(&security, all ? privileged : capabilities);
	if (r == 0)
		r = agent->resources ? json_make(&resources, "%j", agent->resources)
				     : json_make(&resources, default_resources);
	return r < 0 ? r
		     : json_make(ret,
				 "{'name': 'agent', 'image': %s, 'imagePullPolicy': %s,"
				 " 'command': ['/usr/local/bin/kiln-agent'],"
				 " 'args': ['--config', '/etc/kiln/agent.yaml'],"
				 " 'env': %j,"
				 " 'ports': [{'name': 'metrics', 'containerPort': %d,"
				 "            'protocol': 'TCP'}],"
				 " 'livenessProbe': {"
				 "   'httpGet': {'path': '/healthz', 'port': 'metrics'},"
				 "   'initialDelaySeconds': 10, 'periodSeconds': 30,"
				 "   'timeoutSeconds': 10, 'failureThreshold': 4},"
				 " 'readinessProbe': {"
				 "   'httpGet': {'path': '/readyz', 'port': 'metrics'},"
				 "   'periodSeconds': 5, 'timeoutSeconds': 5,"
				 "   'failureThreshold': 3},"
				 " 'resources': %j,"
				 " 'securityContext': %j,"
				 " 'volumeMounts': %j}",
				 image, agent->image_pull_policy, env, AGENT_PORT, resources,
				 security, mounts);
}

/* Adds the members of FROM (the user's) that TO (ours) does not have. */
static int merge_strings(cJSON *to, const cJSON *from)
{
	for (const cJSON *i = from ? from->child : NULL; i; i = i->next)
		if (cJSON_IsString(i) && !cJSON_GetObjectItemCaseSensitive(to, i->string) &&
		    !cJSON_AddStringToObject(to, i->string, i->valuestring))
			return -ENOMEM;
	return 0;
}

static int make_pod_metadata(const struct agent_target *target, cJSON **ret)
{
	bool metrics = target->agent.metrics_service != TOGGLE_DISABLED;
	_cleanup_json_ cJSON *labels = NULL, *annotations = NULL;
	int r = json_make(&labels,
			  "{'app.kubernetes.io/name': 'kiln-agent',"
			  " 'app.kubernetes.io/part-of': 'kiln',"
			  " 'app.kubernetes.io/managed-by': 'kiln-operator',"
			  " 'app.kubernetes.io/component': 'agent',"
			  " '" KILN_LABEL_GROUP "': %s,"
			  " '" KILN_LABEL_METRICS "': %s}",
			  target->group, metrics ? "enabled" : NULL);

	if (r == 0)
		r = merge_strings(labels, target->agent.pod_labels);
	if (r == 0)
		r = json_make(&annotations, "{'" KILN_CONFIG_HASH "': %s}", target->config_hash);
	if (r == 0)
		r = merge_strings(annotations, target->agent.pod_annotations);
	return r < 0 ? r : json_make(ret, "{'labels': %j, 'annotations': %j}", labels, annotations);
}

static int make_pod_spec(const struct render_input *in, const struct agent_target *target,
			 cJSON **ret)
{
	const struct agent_spec *agent = &target->agent;
	_cleanup_json_ cJSON *volumes = NULL, *mounts = NULL, *container = NULL, *selector = NULL;
	_cleanup_json_ cJSON *everywhere = NULL;
	int r = make_volumes(in, target, &volumes, &mounts);

	if (r == 0)
		r = make_container(in, target, agent->image ? agent->image : in->image, mounts,
				   &container);
	if (r == 0)
		r = agent->node_selector ? json_make(&selector, "%j", agent->node_selector)
					 : json_make(&selector, "{}");
	if (r == 0 && !cJSON_GetObjectItemCaseSensitive(selector, "kubernetes.io/os") &&
	    !cJSON_AddStringToObject(selector, "kubernetes.io/os", "linux"))
		r = -ENOMEM;
	if (r == 0)
		r = json_make(&everywhere, "[{'operator': 'Exists'}]");
	return r < 0
		   ? r
		   : json_make(ret,
			       "{'serviceAccountName': 'kiln-agent',"
			       " 'automountServiceAccountToken': false,"
			       " 'enableServiceLinks': false,"
			       " 'hostPID': true,"
			       " 'imagePullSecrets': %j,"
			       " 'priorityClassName': %s,"
			       " 'terminationGracePeriodSeconds': 30,"
			       " 'nodeSelector': %j,"
			       " 'affinity': {'nodeAffinity': {"
			       "   'requiredDuringSchedulingIgnoredDuringExecution':"
			       "     {'nodeSelectorTerms': %j}}},"
			       " 'tolerations': %j,"
			       " 'containers': [%j],"
			       " 'volumes': %j}",
			       agent->image_pull_secrets, agent->priority_class, selector,
			       target->terms, agent->tolerations ? agent->tolerations : everywhere,
			       container, volumes);
}

/* "5" is a count, "5%" a share. */
static int make_unavailable(const char *text, cJSON **ret)
{
	if (!text)
		return json_make(ret, "1");
	if (*text && strspn(text, "0123456789") == strlen(text))
		return json_make(ret, "%d", atoi(text));
	return json_make(ret, "%s", text);
}

int daemon_set_make(const struct render_input *in, const struct agent_target *target, cJSON **ret)
{
	_cleanup_json_ cJSON *metadata = NULL, *spec = NULL, *unavailable = NULL;
	int r = make_pod_metadata(target, &metadata);

	if (r == 0)
		r = make_pod_spec(in, target, &spec);
	if (r == 0)
		r = make_unavailable(target->agent.max_unavailable, &unavailable);
	return r < 0 ? r
		     : json_make(ret,
				 "{'spec': {"
				 "  'selector': {'matchLabels': {"
				 "    'app.kubernetes.io/name': 'kiln-agent',"
				 "    '" KILN_LABEL_GROUP "': %s}},"
				 "  'revisionHistoryLimit': 3,"
				 "  'updateStrategy': {'type': 'RollingUpdate',"
				 "    'rollingUpdate': {'maxUnavailable': %j}},"
				 "  'template': {'metadata': %j, 'spec': %j}}}",
				 target->group, unavailable, metadata, spec);
}
