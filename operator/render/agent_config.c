/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's YAML (docs/configuration.md) for one group of nodes. Text of users is written as a
 * quoted scalar with each '$' doubled, so that it can neither add structure nor read the agent's
 * environment; secrets are named, never copied. Pure; any thread.
 */
#include "lib/buf.h"
#include "operator/policy/merge.h"
#include "lib/probe_spec.h"
#include "operator/render/internal.h"

enum { YAML_MAX = 1 << 19 }; /* half of what a ConfigMap may hold */

/* A double-quoted scalar (YAML 1.2 §7.3.1), not expanded by the agent. */
static int quote(struct buf *out, const char *text)
{
	buf_puts(out, "\"");
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '$')
			buf_puts(out, "$$");
		else if (*p == '"' || *p == '\\')
			buf_printf(out, "\\%c", *p);
		else if (*p < ' ' || *p == 0x7f)
			buf_printf(out, "\\x%02x", *p);
		else
			buf_append(out, p, 1);
	}
	return buf_puts(out, "\"");
}

static void member(struct buf *out, const char *key, const char *text)
{
	if (!text)
		return;
	buf_puts(out, key);
	quote(out, text);
	buf_puts(out, "\n");
}

/* The agent's name of a tracer: that of the API, with one exception. */
static const char *agent_tracer(enum tracer t)
{
	return t == TRACER_JVM ? "hotspot" : tracer_names[t];
}

/* 0: the agent's container has no memory limit. */
static int memory_limit_mib(const struct agent_spec *agent)
{
	const cJSON *limit = cJSON_GetObjectItemCaseSensitive(
	    cJSON_GetObjectItemCaseSensitive(agent->resources, "limits"), "memory");
	struct quantity q;
	double bytes = 0;

	if (!agent->resources)
		return 512;
	if (cJSON_IsNumber(limit))
		bytes = limit->valuedouble;
	else if (cJSON_IsString(limit) && quantity_parse(limit->valuestring, &q) == 0)
		bytes = quantity_value(&q);
	bytes /= 1 << 20;
	return bytes >= 1 << 30 || bytes < 0 ? 0 : (int)bytes;
}

static void put_probes(struct buf *out, const struct cluster_config *c)
{
	if (c->n_probes)
		buf_puts(out, "    probes:\n");
	for (size_t i = 0; i < c->n_probes; i++) {
		char text[PROBE_TEXT_MAX + 32];

		snprintf(text, sizeof(text), "%s,rate=%d", c->probes[i].probe,
			 c->probes[i].rate == NUMBER_ABSENT ? PROBE_RATE_DEFAULT
							    : c->probes[i].rate);
		buf_puts(out, "      - ");
		quote(out, text);
		buf_puts(out, "\n");
	}
}

/* Labels and timestamps of all samples, for agents without a node stream. */
static void put_rules(struct buf *out, const struct cluster_config *c)
{
	struct merged_profile merged;
	struct effective_policy p;

	profile_merge(c, NULL, NULL, NULL, &merged);
	profile_clamp(c, &merged, &p);
	if (p.timestamps)
		buf_puts(out, "    timestamps: true\n");
	for (size_t i = 0; i < p.n_labels; i++) {
		buf_puts(out, i ? ", " : "    labels: [");
		(void)quote(out, p.labels[i]);
	}
	if (p.n_labels)
		buf_puts(out, "]\n");
}

/*
 * Names every tracer that is allowed: the node stream selects those of a pod's policy while the
 * agent runs.
 */
static void put_receiver(struct buf *out, const struct render_input *in,
			 const struct agent_target *target)
{
	const struct cluster_config *c = in->config;
	int interval = target->agent.report_interval_s;
	int limit = memory_limit_mib(&target->agent) / 5 * 4;
	int off_cpu = c->defaults.off_cpu_per_mille == NUMBER_ABSENT
			  ? BUILT_IN_OFF_CPU_PER_MILLE
			  : c->defaults.off_cpu_per_mille;

	if (c->defaults.off_cpu != TOGGLE_ENABLED || c->guardrails.off_cpu_forbidden)
		off_cpu = 0;
	if (c->guardrails.max_off_cpu_per_mille != NUMBER_ABSENT)
		off_cpu = MIN(off_cpu, c->guardrails.max_off_cpu_per_mille);
	buf_printf(out, "receivers:\n  profiling:\n    samples_per_second: %d\n", target->hz);
	/* Every stack needs the first two. */
	buf_puts(out, "    tracers: [native, kernel");
	for (int t = 0; t < TRACER_COUNT; t++)
		if (t != TRACER_NATIVE && !c->guardrails.tracer_denied[t] &&
		    (in->stream || c->defaults.tracers[t] != TOGGLE_DISABLED))
			buf_printf(out, ", %s", agent_tracer(t));
	buf_printf(out, "]\n    reporter_interval: %ds\n",
		   interval == NUMBER_ABSENT ? 5 : interval);
	/* The container's limit includes BPF maps; the limiter below measures only the process. */
	if (limit >= 20)
		buf_printf(out, "    budget: {memory: %dMiB}\n", MIN(limit, 65536));
	if (!in->stream)
		put_rules(out, c);
	if (off_cpu > 0)
		buf_printf(out, "    off_cpu_threshold: %d.%03d\n", off_cpu / 1000, off_cpu % 1000);
	put_probes(out, c);
}

/* The API's names of the levels are the agent's, apart from letter case, which it ignores. */
static void put_log_level(struct buf *out, const struct agent_spec *agent)
{
	if (agent->log_level)
		buf_printf(out, "  telemetry:\n    logs:\n      level: %s\n", agent->log_level);
}

static bool put_limiter(struct buf *out, const struct agent_target *target)
{
	int limit = memory_limit_mib(&target->agent) / 5 * 4;

	/*
	 * Near the limit the agent drops data that it can read again, before the kernel kills it.
	 */
	if (limit < 5)
		return false;
	buf_printf(out, "  memory_limiter:\n    check_interval: 1s\n    limit_mib: %d\n", limit);
	return true;
}

static const char *const metadata_names[] = {
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.pod.start_time",
    "k8s.deployment.name",
    "k8s.replicaset.name",
    "k8s.statefulset.name",
    "k8s.daemonset.name",
    "k8s.job.name",
    "k8s.cronjob.name",
    "k8s.node.name",
    "k8s.cluster.uid",
    "k8s.container.name",
    "container.id",
    "container.image.name",
    "container.image.tag",
    "container.image.repo_digests",
    "service.namespace",
    "service.name",
    "service.version",
    "service.instance.id",
};

static void put_keys(struct buf *out, const struct string_list *keys, const char *from,
		     const char *kind)
{
	for (size_t i = 0; i < keys->n; i++) {
		_cleanup_(buf_done) struct buf tag;

		buf_init(&tag, 1024);
		buf_printf(&tag, "k8s.%s.%s.%s", from, kind, keys->items[i]);
		buf_puts(out, "        - {tag_name: ");
		quote(out, tag.data ? tag.data : "");
		buf_puts(out, ", key: ");
		quote(out, keys->items[i]);
		buf_printf(out, ", from: %s}\n", from);
	}
}

/*
 * The endpoint is a DNS name and not the Service's address from the environment, which would have
 * to exist before the pod and never change. The name is without the cluster's domain, which differs
 * between clusters: the pod's search list completes it.
 */
static void put_stream(struct buf *out, const char *ns, const struct agent_spec *agent)
{
	buf_printf(out,
		   "    operator:\n"
		   "      endpoint: kiln-operator-stream.%s.svc:8443\n"
		   "      ca_file: " STREAM_DIR "/ca.crt\n"
		   "      token_file: " STREAM_DIR "/token\n"
		   "      snapshot_file: " STREAM_KEPT_DIR "/node.snapshot\n",
		   ns);
	if (agent->when_unknown)
		buf_printf(out, "      when_unknown: %s\n", agent->when_unknown);
}

static void put_metadata(struct buf *out, const struct render_input *in,
			 const struct agent_spec *agent)
{
	const struct metadata_spec *m = &in->config->metadata;

	buf_puts(out, "  k8sattributes:\n");
	if (in->stream)
		put_stream(out, in->ns, agent);
	buf_puts(out, "    extract:\n      metadata:\n");
	for (size_t i = 0; i < ARRAY_SIZE(metadata_names); i++)
		buf_printf(out, "        - %s\n", metadata_names[i]);
	if (m->cluster_name)
		buf_puts(out, "        - k8s.cluster.name\n");
	buf_printf(out, "      otel_annotations: %s\n",
		   m->otel_annotations == TOGGLE_DISABLED ? "false" : "true");
	if (m->pod_labels.n || m->namespace_labels.n)
		buf_puts(out, "      labels:\n");
	put_keys(out, &m->pod_labels, "pod", "label");
	put_keys(out, &m->namespace_labels, "namespace", "label");
	if (m->pod_annotations.n || m->namespace_annotations.n)
		buf_puts(out, "      annotations:\n");
	put_keys(out, &m->pod_annotations, "pod", "annotation");
	put_keys(out, &m->namespace_annotations, "namespace", "annotation");
}

static const char *exporter_type(const struct destination *d)
{
	if (d->type == DESTINATION_TEXT)
		return "customprofilesexporter";
	return d->protocol == OTLP_HTTP ? "otlp_http" : "otlp_grpc";
}

static void put_tls(struct buf *out, const struct destination *d)
{
	if (destination_is_plaintext(d)) {
		buf_puts(out, "    tls:\n      insecure: true\n");
		return;
	}
	if (d->tls != TLS_SKIP_VERIFY && !d->server_name && !destination_has_files(d))
		return;
	buf_puts(out, "    tls:\n");
	if (d->tls == TLS_SKIP_VERIFY)
		buf_puts(out, "      insecure_skip_verify: true\n");
	member(out, "      server_name_override: ", d->server_name);
	if (d->ca.name)
		buf_printf(out, "      ca_file: " TLS_DIR "/%s/ca.crt\n", d->name);
	if (d->client_certificate_secret)
		buf_printf(out,
			   "      cert_file: " TLS_DIR "/%s/tls.crt\n"
			   "      key_file: " TLS_DIR "/%s/tls.key\n",
			   d->name, d->name);
}

static void put_headers(struct buf *out, const struct destination *d, bool stream)
{
	char env[HEADER_ENV_MAX];

	if (d->n_headers)
		buf_puts(out, "    headers:\n");
	for (size_t i = 0; i < d->n_headers; i++) {
		buf_puts(out, "      - name: ");
		quote(out, d->headers[i].name);
		buf_puts(out, "\n        value: ");
		header_env_name(d, i, env);
		if (d->headers[i].value)
			quote(out, d->headers[i].value);
		else
			/*
			 * If the variable is unset the value is "", and the agent waits for the
			 * operator.
			 */
			buf_printf(out, "\"${env:%s%s}\"", env, stream ? ":-" : "");
		buf_puts(out, "\n");
	}
}

static void put_exporter(struct buf *out, const struct destination *d, size_t n_otlp, bool stream)
{
	buf_printf(out, "  %s/%s:", exporter_type(d), d->name);
	if (d->type == DESTINATION_TEXT) {
		buf_puts(out, " {}\n");
		return;
	}
	buf_puts(out, "\n");
	member(out, "    endpoint: ", d->endpoint);
	put_tls(out, d);
	put_headers(out, d, stream);
	member(out, "    compression: ", d->compression);
	if (d->timeout_s > 0)
		buf_printf(out, "    timeout: %ds\n", d->timeout_s);
	member(out, "    proto_generation: ", d->proto_generation);
	/* While a receiver is down no sample is lost until the spool is full. */
	buf_printf(out,
		   "    retry_on_failure:\n      max_elapsed_time: 0s\n"
		   "    sending_queue:\n      storage: /var/lib/kiln/spool\n"
		   "      storage_max_bytes: %zuMiB\n",
		   AGENT_SPOOL_MIB / n_otlp);
}

static const struct destination *find_destination(const struct cluster_config *c, const char *name)
{
	for (size_t i = 0; i < c->n_destinations; i++)
		if (streq(c->destinations[i].name, name))
			return &c->destinations[i];
	return NULL;
}

/*
 * The pipeline's exporters: the destinations that the defaults name, else all; without any, one
 * that discards its input.
 */
static int put_pipeline_exporters(struct buf *out, const struct cluster_config *c,
				  struct error *err)
{
	const struct string_list *refs = &c->defaults.destination_refs;
	size_t n = refs->set ? refs->n : c->n_destinations;

	buf_puts(out, "      exporters: [");
	for (size_t i = 0; i < n; i++) {
		const struct destination *d =
		    refs->set ? find_destination(c, refs->items[i]) : &c->destinations[i];

		if (!d)
			return error_set(err, -EINVAL,
					 "spec.defaults.destinationRefs: no destination is called "
					 "\"%.64s\"",
					 refs->items[i]);
		buf_printf(out, "%s%s/%s", i ? ", " : "", exporter_type(d), d->name);
	}
	buf_puts(out, n ? "]\n" : "customprofilesexporter/none]\n");
	return 0;
}

static void put_exporters(struct buf *out, const struct render_input *in)
{
	const struct cluster_config *c = in->config;
	size_t n_otlp = 0;

	for (size_t i = 0; i < c->n_destinations; i++)
		n_otlp += c->destinations[i].type == DESTINATION_OTLP;
	buf_puts(out, "exporters:\n");
	for (size_t i = 0; i < c->n_destinations; i++)
		put_exporter(out, &c->destinations[i], MAX(n_otlp, 1), in->stream);
	if (!c->n_destinations ||
	    (c->defaults.destination_refs.set && !c->defaults.destination_refs.n))
		buf_puts(out, "  customprofilesexporter/none:\n    output: /dev/null\n");
}

int agent_config_text(const struct render_input *in, const struct agent_target *target, char **ret,
		      struct error *err)
{
	const struct cluster_config *c = in->config;
	_cleanup_(buf_done) struct buf out;
	bool limiter;
	int r;

	buf_init(&out, YAML_MAX);
	buf_puts(&out,
		 "# Made by kiln-operator from ClusterProfilingConfig/cluster, which is where "
		 "to change it.\n");
	put_receiver(&out, in, target);
	buf_puts(&out, "processors:\n");
	limiter = put_limiter(&out, target);
	put_metadata(&out, in, &target->agent);
	/* Without hostNetwork, the host name is the pod's name. */
	buf_puts(&out, "  resource:\n    attributes:\n      - {key: host.name, "
		       "value: \"${env:NODE_NAME}\", action: upsert}\n");
	put_exporters(&out, in);
	/* All addresses of either family: the kubelet's probes come from outside the pod. */
	buf_printf(&out,
		   "extensions:\n  health_check:\n    endpoint: \":%d\"\n"
		   "service:\n  extensions: [health_check]\n",
		   AGENT_PORT);
	put_log_level(&out, &target->agent);
	buf_printf(&out,
		   "  pipelines:\n    profiles:\n"
		   "      receivers: [profiling]\n      processors: [%sk8sattributes, resource]\n",
		   limiter ? "memory_limiter, " : "");
	r = put_pipeline_exporters(&out, c, err);
	if (r < 0)
		return r;
	if (buf_error(&out) < 0)
		return error_set(err, buf_error(&out) == -E2BIG ? -EINVAL : buf_error(&out),
				 "the agent's configuration: %s",
				 buf_error(&out) == -E2BIG ? "too long" : "out of memory");
	*ret = buf_take(&out);
	return 0;
}
