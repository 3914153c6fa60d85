/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the server and the parts that must outlive it. Loop thread only. */
#include "operator/stream/service.h"

#include "lib/log.h"
#include "operator/http/prometheus.h"
#include "operator/stream/ca_keeper.h"

enum { REVIEWS_QPS = 500, REVIEWS_BURST = 1000 };

struct stream_service {
	uv_loop_t *loop;
	struct stream_service_options options;
	struct kube_client *client;
	struct stream_tls files;
	struct ca_keeper *keeper; /* NULL: files, and no CA to publish */
	struct secrets *secrets;  /* of destinations */
	struct node_server *server;
};

/* Existing connections stay; new ones get the new certificate. */
static void on_renewed(void *arg, const struct stream_tls *tls)
{
	struct stream_service *s = arg;
	struct error err = {0};

	if (s->server && node_server_certificate(s->server, tls, &err) < 0)
		log_error("stream", "%s", err.message);
}

static bool may_write(void *arg)
{
	const struct stream_service *s = arg;

	return s->options.may_write(s->options.arg);
}

static int begin(struct stream_service *s, struct error *err)
{
	const struct stream_options *o = s->options.stream;
	struct kube_client_options client = {.credentials = s->options.credentials,
					     .user_agent = "kiln-operator/" KILN_VERSION " (linux)",
					     .qps = REVIEWS_QPS,
					     .burst = REVIEWS_BURST};
	struct ca_keeper_options keeper = {.loop = s->loop,
					   .events = s->options.events,
					   .ns = s->options.ns,
					   .life_s = o->ca_life_s,
					   .may_write = s->options.may_write ? may_write : NULL,
					   .renewed = o->address ? on_renewed : NULL,
					   .arg = s};
	int r = 0;

	if (o->cert_file || (o->ca_file && !o->address))
		r = stream_tls_load(o->cert_file, o->key_file, o->ca_file, &s->files, err);
	if (!r)
		r = kube_client_new(s->loop, &client, &s->client, err);
	/*
	 * With a certificate from files and no CA file, the files' author publishes the CA. A
	 * replica that only reads the CA needs no keeper with a certificate from files.
	 */
	if (r < 0 || (o->cert_file && (!o->ca_file || !keeper.may_write)))
		return r;
	keeper.client = s->client;
	keeper.bundle = s->files.ca_pem;
	return ca_keeper_new(&keeper, &s->keeper, err);
}

static void on_secret(void *arg, const char *ns, const char *name)
{
	struct stream_service *s = arg;

	node_server_secret(s->server, ns, name);
}

static int begin_secrets(struct stream_service *s, struct error *err)
{
	const struct secrets_options options = {.loop = s->loop,
						.client = s->client,
						.ns = s->options.ns,
						.settle_ms = SECRETS_SETTLE_MS,
						.changed = on_secret,
						.arg = s};
	int r = secrets_new(&options, &s->secrets);

	return r < 0 ? error_set(err, r, "out of memory") : 0;
}

int stream_service_new(uv_loop_t *loop, const struct stream_service_options *options,
		       struct stream_service **ret, struct error *err)
{
	struct stream_service *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	s->loop = loop;
	s->options = *options;
	r = begin(s, err);
	if (!r)
		r = begin_secrets(s, err);
	if (r < 0) {
		stream_service_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int stream_service_serve(struct stream_service *s, const struct view_sources *sources,
			 struct error *err)
{
	struct node_server_options server = {.loop = s->loop,
					     .address = s->options.stream->address,
					     .ns = s->options.ns,
					     .sources = *sources,
					     .client = s->client,
					     .secrets = s->secrets,
					     .left_out = s->options.left_out,
					     .left_out_arg = s->options.arg,
					     .replica = s->options.replica,
					     .events = s->options.agent_events,
					     .arg = s->options.arg};
	int r;

	if (s->server || !server.address)
		return 0;
	server.tls = s->files.cert_pem ? &s->files : ca_keeper_certificate(s->keeper);
	if (!server.tls)
		return -EAGAIN;
	r = node_server_new(&server, &s->server, err);
	if (!r)
		log_info("stream", "serves agents on %s", server.address);
	return r;
}

void stream_service_lead(struct stream_service *s)
{
	if (s)
		ca_keeper_look(s->keeper);
}

const char *stream_service_ca(const struct stream_service *s)
{
	if (!s)
		return NULL;
	return s->keeper ? ca_keeper_bundle(s->keeper) : s->files.ca_pem;
}

struct stream_service *stream_service_free(struct stream_service *s)
{
	if (!s)
		return NULL;
	node_server_free(s->server);
	secrets_free(s->secrets);
	ca_keeper_free(s->keeper);
	kube_client_free(s->client);
	stream_tls_done(&s->files);
	free(s);
	return NULL;
}

static void keeper_metrics(const struct ca_keeper *keeper, struct buf *out)
{
	struct ca_keeper_counts c;

	ca_keeper_read(keeper, &c);
	const struct {
		const char *name, *type, *help;
		double value;
	} values[] = {
	    {"kiln_stream_certificates_total", "counter", "Certificates that were signed here.",
	     (double)c.signed_certificates},
	    {"kiln_stream_ca_writes_total", "counter", "Writes of the CA's Secret.",
	     (double)c.rotations},
	    {"kiln_stream_ca_repairs_total", "counter", "Times that the Secret was damaged.",
	     (double)c.repairs},
	    {"kiln_stream_ca_failures_total", "counter",
	     "Requests about Secret and ConfigMap of the CA that failed.", (double)c.failures},
	    {"kiln_stream_ca_end_seconds", "gauge", "When the CA expires, since the epoch.",
	     (double)c.ca_end},
	    {"kiln_stream_certificate_end_seconds", "gauge",
	     "When this replica's certificate expires, since the epoch.",
	     (double)c.certificate_end},
	    {"kiln_stream_ca_certificates", "gauge", "CAs that agents believe.",
	     (double)c.bundle_certificates},
	};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		prometheus_single(out, values[i].name, values[i].type, values[i].help,
				  values[i].value);
}

void stream_service_metrics(struct stream_service *s, struct buf *out)
{
	if (!s)
		return;
	node_server_metrics(s->server, out);
	if (s->keeper)
		keeper_metrics(s->keeper, out);
}

struct node_server *stream_service_server(struct stream_service *s)
{
	return s ? s->server : NULL;
}
