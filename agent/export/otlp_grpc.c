/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP over gRPC.
 *
 * Answers are classified as the OTLP specification says (1.10, "OTLP/gRPC", failures): the codes
 * below may be retried, RESOURCE_EXHAUSTED only when the server adds RetryInfo, everything else is
 * final. Only gzip is used for compression, because every receiver supports it; compression: zstd
 * falls back to gzip with one warning.
 */
#include "agent/export/otlp_exporter.h"

#include "agent/export/otlp_answer.h"
#include "lib/grpc_client.h"
#include "lib/log.h"

static const char method[] =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

struct grpc_transport {
	struct transport transport;
	struct grpc_client *client;
	struct grpc_unary *call; /* under way */
	bool cancelled;		 /* the answer to `call` is to be ignored */
	void (*done)(const struct transport_answer *answer, void *arg);
	void *arg;
};

static bool code_retryable(int status)
{
	switch (status) {
	case RPC_CANCELLED:
	case RPC_DEADLINE_EXCEEDED:
	case RPC_ABORTED:
	case RPC_OUT_OF_RANGE:
	case RPC_UNAVAILABLE:
	case RPC_DATA_LOSS:
		return true;
	default:
		return false;
	}
}

/* Statuses with which servers answer a message that they cannot decode; grpc-go uses INTERNAL. */
static bool is_of_the_message(int status)
{
	return status == RPC_INVALID_ARGUMENT || status == RPC_INTERNAL || status == RPC_UNKNOWN;
}

/* A hint for the user on this gRPC status, or "". */
static const char *advice(int status)
{
	switch (status) {
	case RPC_UNIMPLEMENTED:
		return " (it has no profiles service: a Collector wants "
		       "--feature-gates=service.profilesSupport and a profiles pipeline, Pyroscope "
		       "1.15 or newer)";
	case RPC_UNAUTHENTICATED:
	case RPC_PERMISSION_DENIED:
		return " (are `headers` right?)";
	default:
		return "";
	}
}

/* RET->message points to WORDS. */
static void classify(const struct grpc_answer *a, struct transport_answer *ret,
		     char words[OTLP_WORDS_MAX])
{
	struct otlp_status status = {0};
	char message[OTLP_MESSAGE_MAX];
	struct otlp_partial partial;

	*ret = (struct transport_answer){.message = words};
	words[0] = 0;
	if (a->status == RPC_OK) {
		ret->result = TRANSPORT_SENT;
		if (otlp_response_parse(a->body, a->body_len, &partial) < 0) {
			snprintf(words, OTLP_MESSAGE_MAX, "the answer cannot be understood");
			return;
		}
		ret->rejected = partial.rejected;
		snprintf(words, OTLP_MESSAGE_MAX, "%s", partial.message);
		return;
	}
	if (a->details && otlp_status_parse(a->details, a->details_len, &status) < 0)
		status = (struct otlp_status){0}; /* not valid: ignore it */
	otlp_words(a->message, strlen(a->message), message);
	snprintf(words, OTLP_WORDS_MAX, "%s: %s%s", rpc_status_name(a->status), message,
		 advice(a->status));
	ret->result = TRANSPORT_REJECTED;
	ret->maybe_form = is_of_the_message(a->status);
	if (code_retryable(a->status) ||
	    (a->status == RPC_RESOURCE_EXHAUSTED && status.has_retry)) {
		ret->result = TRANSPORT_RETRY;
		ret->retry_after_ms = status.has_retry ? status.retry_ms : 0;
		ret->away = a->status == RPC_UNAVAILABLE || a->status == RPC_DEADLINE_EXCEEDED;
		/* With RetryInfo or RESOURCE_EXHAUSTED the server says that it has not taken the
		 * request; after a timeout or a broken stream nobody knows. */
		ret->uncertain =
		    a->connected && !status.has_retry && a->status != RPC_RESOURCE_EXHAUSTED;
	}
}

static void on_answer(const struct grpc_answer *a, void *arg)
{
	struct grpc_transport *t = arg;
	char words[OTLP_WORDS_MAX];
	struct transport_answer answer;

	t->call = NULL;
	if (t->cancelled) {
		t->cancelled = false;
		return;
	}
	classify(a, &answer, words);
	t->done(&answer, t->arg);
}

static int grpc_send(struct transport *transport, const struct payload *p, uint64_t timeout_ms,
		     void (*done)(const struct transport_answer *, void *), void *arg)
{
	struct grpc_transport *t = container_of(transport, struct grpc_transport, transport);

	if (t->call)
		return -EBUSY; /* the cancelled call has not ended yet */
	t->done = done;
	t->arg = arg;
	return grpc_client_call(t->client, method, p->data, p->len, p->encoding == PAYLOAD_GZIP,
				timeout_ms, on_answer, t, &t->call);
}

static bool grpc_cancel(struct transport *transport)
{
	struct grpc_transport *t = container_of(transport, struct grpc_transport, transport);

	if (!t->call)
		return false;
	t->cancelled = true;
	return grpc_unary_cancel(t->call);
}

static bool grpc_connected(struct transport *transport)
{
	struct grpc_transport *t = container_of(transport, struct grpc_transport, transport);

	return grpc_client_connected(t->client);
}

static struct transport *grpc_destroy(struct transport *transport)
{
	struct grpc_transport *t = container_of(transport, struct grpc_transport, transport);

	grpc_client_free(t->client);
	free(t);
	return NULL;
}

static const struct transport_ops grpc_ops = {
    .send = grpc_send,
    .cancel = grpc_cancel,
    .connected = grpc_connected,
    .destroy = grpc_destroy,
};

int otlp_grpc_transport_new(const struct exporter_config *c, uv_loop_t *loop,
			    struct transport **ret, struct error *err)
{
	struct grpc_header headers[CONFIG_HEADERS_MAX];
	struct grpc_client_options options = {
	    .endpoint = c->endpoint,
	    .tls = otlp_tls_options(&c->tls),
	    .headers = headers,
	    .gzip = true, /* each message says whether it is compressed */
	    .user_agent = "kiln-agent/" KILN_VERSION,
	};
	_cleanup_free_ struct grpc_transport *t = calloc(1, sizeof(*t));
	size_t i;
	int r;

	if (!t)
		return error_set(err, -ENOMEM, "out of memory");
	if (!c->endpoint)
		return error_set(err, -EINVAL, "endpoint: want host:port");
	for (i = 0; i < c->headers.n && i < CONFIG_HEADERS_MAX; i++)
		headers[options.n_headers++] = (struct grpc_header){
		    .key = c->headers.items[i].key, .value = c->headers.items[i].value};
	r = grpc_client_new(&options, loop, &t->client, err);
	if (r < 0)
		return r;
	t->transport.ops = &grpc_ops;
	*ret = &TAKE_PTR(t)->transport;
	return 0;
}

static int create(const struct exporter_config *config, uv_loop_t *loop, struct exporter **ret,
		  struct error *err)
{
	struct transport *transport;
	enum payload_encoding encoding;
	int r;

	r = payload_encoding_parse(config->compression, &encoding);
	if (r < 0)
		return error_set(err, r, "compression: want gzip, zstd or none, got %s",
				 config->compression);
	if (encoding == PAYLOAD_ZSTD) {
		log_warn("export", "%s: compression: zstd is not in the gRPC library; using gzip",
			 config->id);
		encoding = PAYLOAD_GZIP;
	}
	r = config->awaits_operator ? otlp_waiting_transport_new(config, &transport)
				    : otlp_grpc_transport_new(config, loop, &transport, err);
	if (r < 0)
		return r;
	return otlp_exporter_new(&otlp_grpc_exporter_ops, config, transport, encoding,
				 1u << PAYLOAD_PLAIN | 1u << PAYLOAD_GZIP, loop, ret, err);
}

static int redirect(struct exporter *exporter, const struct exporter_config *config,
		    uv_loop_t *loop, struct error *err)
{
	struct transport *transport;
	int r = otlp_grpc_transport_new(config, loop, &transport, err);

	if (r == 0)
		otlp_exporter_set_transport(exporter, transport);
	return r;
}

const struct exporter_ops otlp_grpc_exporter_ops = {
    .type = "otlp_grpc",
    .create = create,
    .consume = otlp_exporter_consume,
    .flush = otlp_exporter_flush,
    .destroy = otlp_exporter_destroy,
    .healthy = otlp_exporter_healthy,
    .refused = otlp_exporter_refused,
    .redirect = redirect,
};
