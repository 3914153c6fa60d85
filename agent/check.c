/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --check: loads and attaches the BPF programs as a real start does, asks the receivers, and stops.
 * The result is a table for people to read; scripts use the exit code. A failure gets a row, and
 * the table goes on with the checks that are still possible; the first failure is the result.
 */
#include "agent/agent.h"

#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "agent/export/otlp_probe.h"
#include "agent/live/access.h"
#include "agent/process/pid_namespace.h"
#include "agent/process/procfs.h"

enum { PROBE_MS = 5000 };

#define ROW "%-13s "

static void put_machine(struct buf *out)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	struct utsname u;

	if (uname(&u) == 0)
		buf_printf(out, ROW "%s, %s, %ld CPUs online\n", "kernel", u.release, u.machine,
			   online);
}

static void put_cgroups(struct buf *out, enum cgroup_mode mode)
{
	static const char *const words[] = {
	    [CGROUP_V1] = "v1", [CGROUP_HYBRID] = "v1 and v2 (hybrid)", [CGROUP_V2] = "v2"};

	buf_printf(out, ROW "%s\n", "cgroups", words[mode]);
	if (pid_namespace_nested("/proc"))
		buf_printf(out, ROW "%s\n", "processes", pid_namespace_advice());
}

/* One row: the enabled tracers that this version has (WALKED), or those that it lacks. */
static void put_tracers(struct buf *out, const struct config *c, const char *title, bool walked)
{
	bool first = true;

	for (const struct tracer *t = c->known_tracers; t->name; t++) {
		bool on = !t->id || c->receiver.tracers & 1U << t->id;

		if (!on || t->walked != walked)
			continue;
		if (first)
			buf_printf(out, ROW, title);
		buf_printf(out, "%s%s", first ? "" : ", ", t->name);
		first = false;
	}
	if (!first)
		buf_puts(out, walked ? "\n" : ": not in this version\n");
}

static void put_off_cpu(struct buf *out, const struct config *c)
{
	double walks = c->receiver.off_cpu_threshold * 1000;

	/* With an operator, the policy of each pod sets this. */
	if (walks > 0 && !c->processors.node_stream.enabled)
		buf_printf(out, ROW "%.3g stacks for each second that a thread waits\n", "off-CPU",
			   walks);
}

/* One row for each probe. They are attached as in a real start, and detached at the end. */
static int put_probes(struct buf *out, const struct config *c, struct sampler *s, struct error *err)
{
	_cleanup_(probes_freep) struct probes *p = NULL;
	int r = c->receiver.n_probes ? probes_new(s, &p) : 0;

	if (r < 0)
		return error_set(err, r, "out of memory");
	if (!p)
		return 0;
	probes_set(p, c->receiver.probes, c->receiver.n_probes);
	for (size_t i = 0; i < probes_count(p); i++) {
		struct probe_status status;

		probes_status(p, i, &status);
		if (status.reason)
			buf_printf(out, ROW "%s: %s\n", "probe", status.name, status.reason);
		else
			buf_printf(out,
				   ROW "%s can be attached: %u stacks a second and CPU at most\n",
				   "probe", status.name, status.rate);
	}
	/* With an operator the agent runs without the probe, and retries once a minute. */
	return c->processors.node_stream.enabled ? 0 : agent_probes_failure(p, err);
}

static void put_labels(struct buf *out, const struct config *c)
{
	const struct config_strings *labels = &c->receiver.labels;

	for (size_t i = 0; i < labels->n; i++) {
		if (!i)
			buf_printf(out, ROW "trace id, span id", "labels");
		buf_printf(out, ", %s", streq(labels->items[i], "*") ? "all" : labels->items[i]);
		if (i + 1 == labels->n)
			buf_puts(out, "\n");
	}
}

static void put_pods(struct buf *out, const struct operator_config *o)
{
	buf_printf(out, ROW, "pods");
	if (!o->enabled)
		buf_puts(out, "container ids only: no operator is configured\n");
	else if (o->endpoint)
		buf_printf(out, "names and policies come from the operator at %s\n", o->endpoint);
	else
		buf_printf(out, "names and policies come from %s\n", o->snapshot_file);
}

/* An empty request does not tell which generation a receiver reads: only the first request with
 * samples does. */
static void put_generation(struct buf *out, const char *wanted)
{
	if (!wanted || streq(wanted, "auto"))
		buf_printf(out, ROW "%s\n", "",
			   "as OTLP v1.11 (G6), or as v1.8 (G5) when that is refused");
	else
		buf_printf(out, ROW "as proto_generation says: %s\n", "", wanted);
}

static void put_exporter(struct buf *out, const struct exporter_config *e)
{
	const char *where = e->profiles_endpoint ? e->profiles_endpoint : e->endpoint;
	char words[OTLP_PROBE_WORDS_MAX];

	buf_printf(out, ROW "%s", "exporter", e->id);
	if (!streq(e->type, "otlp_grpc") && !streq(e->type, "otlp_http")) {
		if (e->path || e->output)
			buf_printf(out, " to %s", e->path ? e->path : e->output);
		buf_puts(out, "\n");
		return;
	}
	if (e->awaits_operator) {
		buf_puts(out, ": waits for what the operator tells of it\n");
		return;
	}
	(void)otlp_probe(e, PROBE_MS, words);
	buf_printf(out, ": %s %s\n", where, words);
	put_generation(out, e->proto_generation);
}

static void put_address(struct buf *out, const char *title, const struct http_config *http)
{
	if (http->enabled)
		buf_printf(out, ROW "on %s%s%s:%u\n", title, strchr(http->host, ':') ? "[" : "",
			   http->host[0] ? http->host : "all addresses",
			   strchr(http->host, ':') ? "]" : "", http->port);
}

static int check_token(const struct http_config *live, struct error *err)
{
	struct access access = {0};
	int r = 0;

	if (live->enabled && live->token_file)
		r = access_read_token(live->token_file, &access, err);
	explicit_bzero(&access, sizeof(access));
	return r < 0 ? error_wrap(err, r, "extensions.live") : 0;
}

static int put_privileges(struct buf *out, struct error *err)
{
	int r = host_check_privileges(err);

	buf_printf(out, ROW "%s\n", "privileges",
		   r < 0 ? err->message : "BTF, perf events and the capabilities are there");
	return r;
}

static int put_programs(struct buf *out, const struct config *c,
			const struct sampler_options *options, struct sampler **ret,
			struct error *err)
{
	int r = sampler_new(options, ret, err);

	if (r == 0)
		r = sampler_start(*ret, err);
	if (r < 0)
		buf_printf(out, ROW "%s\n", "BPF programs",
			   err->message[0] ? err->message : strerror(-r));
	else
		buf_printf(out,
			   ROW "the kernel takes them; they would sample %u times a second per "
			       "CPU\n",
			   "BPF programs", c->receiver.samples_per_second);
	return r;
}

int agent_check(const struct config *c, struct buf *out, struct error *err)
{
	struct sampler_options options = agent_sampler_options(c);
	_cleanup_(sampler_freep) struct sampler *s = NULL;
	int r;

	/* As in agent_run(): a receiver may close its connection. */
	signal(SIGPIPE, SIG_IGN);
	put_machine(out);
	r = put_privileges(out, err);
	put_cgroups(out, options.cgroup_mode);
	if (r == 0)
		r = put_programs(out, c, &options, &s, err);
	put_tracers(out, c, "tracers", true);
	put_tracers(out, c, "", false);
	put_off_cpu(out, c);
	put_labels(out, c);
	if (r == 0)
		r = put_probes(out, c, s, err);
	put_pods(out, &c->processors.node_stream);
	for (size_t i = 0; i < c->n_exporters; i++)
		put_exporter(out, &c->exporters[i]);
	put_address(out, "health", &c->health_check);
	put_address(out, "own profile", &c->pprof);
	put_address(out, "flame graph", &c->live);
	return r == 0 ? check_token(&c->live, err) : r;
}
