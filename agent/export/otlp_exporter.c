/* SPDX-License-Identifier: Apache-2.0 */
/* Exporter operations that hand everything to the sender. Loop thread. */
#include "agent/export/otlp_exporter.h"

#include "lib/log.h"

struct otlp_exporter {
	struct exporter exporter;
	struct sender *sender;
	char *name;
};

static struct otlp_exporter *of(const struct exporter *exporter)
{
	return container_of((struct exporter *)exporter, struct otlp_exporter, exporter);
}

int otlp_exporter_new(const struct exporter_ops *ops, const struct exporter_config *config,
		      struct transport *transport, enum payload_encoding encoding,
		      uint32_t encodings, uv_loop_t *loop, struct exporter **ret, struct error *err)
{
	struct sender_options options = {
	    .config = config, .encoding = encoding, .encodings = encodings, .encode = otlp_encode};
	const char *generation = config->proto_generation ? config->proto_generation : "auto";
	struct otlp_exporter *e = NULL;
	int r;

	r = otlp_generation_parse(generation, &options.otlp.generation);
	options.generation_auto = streq(generation, "auto");
	if (r < 0) {
		error_set(err, r, "proto_generation: want auto, v1.8, v1.9, v1.10 or v1.11, got %s",
			  config->proto_generation);
	} else {
		e = calloc(1, sizeof(*e));
		if (e)
			e->name = strdup(config->id);
		if (!e || !e->name)
			r = error_set(err, -ENOMEM, "out of memory");
	}
	if (r == 0)
		r = sender_new(&options, transport, loop, &e->sender, err);
	else
		transport->ops->destroy(transport);
	if (r < 0) {
		if (e)
			free(e->name);
		free(e);
		return r;
	}
	e->exporter = (struct exporter){.ops = ops, .name = e->name};
	*ret = &e->exporter;
	return 0;
}

/* ---- the transport until the operator has sent the destination ---------------------------------
 */

static int wait_send(struct transport *t, const struct payload *p, uint64_t timeout_ms,
		     void (*done)(const struct transport_answer *answer, void *arg), void *arg)
{
	/* The sender tries again later, or uses the transport that replaces this one. */
	return -EAGAIN;
}

static bool wait_cancel(struct transport *t)
{
	return false;
}

static struct transport *wait_destroy(struct transport *t)
{
	free(t);
	return NULL;
}

int otlp_waiting_transport_new(const struct exporter_config *config, struct transport **ret)
{
	static const struct transport_ops ops = {
	    .send = wait_send, .cancel = wait_cancel, .destroy = wait_destroy};
	struct transport *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->ops = &ops;
	log_warn("export",
		 "%s: a header's value or a TLS file is missing: profiles wait until the operator "
		 "tells it",
		 config->id);
	*ret = t;
	return 0;
}

/* ---- exporter operations --------------------------------------------------------------------- */

void otlp_exporter_consume(struct exporter *exporter, struct batch *batch)
{
	sender_consume(of(exporter)->sender, batch);
}

void otlp_exporter_flush(struct exporter *exporter, uint64_t deadline_ms, void (*done)(void *),
			 void *arg)
{
	sender_flush(of(exporter)->sender, deadline_ms, done, arg);
}

void otlp_exporter_set_transport(struct exporter *exporter, struct transport *transport)
{
	sender_set_transport(of(exporter)->sender, transport);
}

struct exporter *otlp_exporter_destroy(struct exporter *exporter)
{
	struct otlp_exporter *e;

	if (!exporter)
		return NULL;
	e = of(exporter);
	sender_free(e->sender);
	free(e->name);
	free(e);
	return NULL;
}

void otlp_exporter_stats(const struct exporter *exporter, struct sender_stats *ret)
{
	sender_get_stats(of(exporter)->sender, ret);
}

struct tls_options otlp_tls_options(const struct tls_config *c)
{
	return (struct tls_options){
	    .insecure = c->insecure,
	    .skip_verify = c->insecure_skip_verify,
	    .ca_file = c->ca_file,
	    .cert_file = c->cert_file,
	    .key_file = c->key_file,
	    .server_name = c->server_name_override,
	    .min_version = c->min_version,
	};
}

bool otlp_exporter_healthy(const struct exporter *exporter, char *error, size_t size)
{
	return sender_healthy(of(exporter)->sender, error, size);
}

bool otlp_exporter_refused(const struct exporter *exporter, char *error, size_t size)
{
	return sender_refused(of(exporter)->sender, error, size);
}
