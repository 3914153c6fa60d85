/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP over HTTP with protobuf bodies.
 *
 * Answers are classified as the OTLP specification says (1.10, "OTLP/HTTP"): 2xx is success; 429,
 * 502, 503 and 504 may be retried after Retry-After; a missing answer may be retried; everything
 * else, redirects too, is final.
 */
#include "agent/export/otlp_exporter.h"

#include <time.h>

#include "agent/export/otlp_answer.h"
#include "lib/backoff.h"
#include "lib/http_client.h"

static const char path[] = "/v1development/profiles";

struct http_transport {
	struct transport transport;
	struct http_client *client;
	struct http_post *post; /* under way */
	void (*done)(const struct transport_answer *answer, void *arg);
	void *arg;
};

static void taken(const struct http_answer *a, struct transport_answer *ret,
		  char words[OTLP_MESSAGE_MAX])
{
	struct otlp_partial partial;

	ret->result = TRANSPORT_SENT;
	if (otlp_response_parse(a->body, a->body_len, &partial) < 0) {
		snprintf(words, OTLP_MESSAGE_MAX, "the answer cannot be understood");
		return;
	}
	ret->rejected = partial.rejected;
	snprintf(words, OTLP_MESSAGE_MAX, "%s", partial.message);
}

static bool code_retryable(int status)
{
	return status == 429 || status == 502 || status == 503 || status == 504;
}

/* Statuses with which receivers answer a body that they cannot decode; some use a 5xx. */
static bool is_of_the_body(int status)
{
	return status == 400 || status == 422 || status == 500;
}

/* A hint for the user on this HTTP status, or "". */
static const char *advice(int status)
{
	switch (status) {
	case 401:
	case 403:
		return " (are `headers` right?)";
	case 404:
	case 405:
		return " (no profiles at this URL: a Collector wants "
		       "--feature-gates=service.profilesSupport and a profiles pipeline; another "
		       "path "
		       "goes into `profiles_endpoint`)";
	default:
		return "";
	}
}

static void failure_words(const struct http_answer *a, char words[OTLP_WORDS_MAX])
{
	char said[OTLP_MESSAGE_MAX];

	if (otlp_body_words(a->body, a->body_len, said))
		snprintf(words, OTLP_WORDS_MAX, "HTTP %d: %.180s%s", a->status, said,
			 advice(a->status));
	else
		snprintf(words, OTLP_WORDS_MAX, "HTTP %d%s", a->status, advice(a->status));
}

static void classify(const struct http_answer *a, struct transport_answer *ret,
		     char words[OTLP_WORDS_MAX])
{
	*ret = (struct transport_answer){.message = words, .uncertain = a->resent};
	words[0] = 0;
	if (a->status >= 200 && a->status < 300) {
		taken(a, ret, words);
		return;
	}
	if (a->status == 0) {
		ret->result = TRANSPORT_RETRY;
		ret->elsewhere = a->elsewhere;
		ret->away = !a->elsewhere;
		ret->uncertain = a->connected;
		otlp_words(a->message, strlen(a->message), words);
		return;
	}
	failure_words(a, words);
	if (!code_retryable(a->status)) {
		ret->result = TRANSPORT_REJECTED;
		ret->maybe_form = is_of_the_body(a->status);
		return;
	}
	ret->result = TRANSPORT_RETRY;
	/* These come from a gateway whose receiver is away. */
	ret->away = a->status == 502 || a->status == 503 || a->status == 504;
	ret->uncertain |= a->status == 502 || a->status == 504;
	if (a->retry_after &&
	    retry_after_parse(a->retry_after, (int64_t)time(NULL), &ret->retry_after_ms) < 0)
		ret->retry_after_ms = 0;
}

static void on_answer(const struct http_answer *a, void *arg)
{
	struct http_transport *t = arg;
	char words[OTLP_WORDS_MAX];
	struct transport_answer answer;

	t->post = NULL;
	classify(a, &answer, words);
	t->done(&answer, t->arg);
}

static int http_send(struct transport *transport, const struct payload *p, uint64_t timeout_ms,
		     void (*done)(const struct transport_answer *, void *), void *arg)
{
	struct http_transport *t = container_of(transport, struct http_transport, transport);

	t->done = done;
	t->arg = arg;
	return http_client_post(t->client, "application/x-protobuf",
				payload_encoding_name(p->encoding), p->data, p->len, timeout_ms,
				on_answer, t, &t->post);
}

static bool http_cancel(struct transport *transport)
{
	struct http_transport *t = container_of(transport, struct http_transport, transport);
	struct http_post *post = TAKE_PTR(t->post);

	return post && http_post_cancel(post);
}

static void http_stay(struct transport *transport, bool stay)
{
	struct http_transport *t = container_of(transport, struct http_transport, transport);

	http_client_stay(t->client, stay);
}

static struct transport *http_destroy(struct transport *transport)
{
	struct http_transport *t = container_of(transport, struct http_transport, transport);

	http_client_free(t->client);
	free(t);
	return NULL;
}

static const struct transport_ops http_ops = {
    .send = http_send,
    .cancel = http_cancel,
    .stay = http_stay,
    .destroy = http_destroy,
};

/* profiles_endpoint as it is; else endpoint, with a scheme, and the path of the signal behind it.
 */
static char *url_of(const struct exporter_config *c)
{
	const char *base = c->endpoint, *scheme = "";
	size_t len;
	char *url;

	if (c->profiles_endpoint)
		return strdup(c->profiles_endpoint);
	if (!strstr(base, "://"))
		scheme = c->tls.insecure ? "http://" : "https://";
	len = strlen(base);
	while (len > 0 && base[len - 1] == '/')
		len--;
	return asprintf(&url, "%s%.*s%s", scheme, (int)len, base, path) < 0 ? NULL : url;
}

int otlp_http_transport_new(const struct exporter_config *c, uv_loop_t *loop,
			    struct transport **ret, struct error *err)
{
	struct http_header headers[CONFIG_HEADERS_MAX];
	struct http_client_options options = {
	    .tls = otlp_tls_options(&c->tls),
	    .headers = headers,
	    .user_agent = "kiln-agent/" KILN_VERSION,
	};
	_cleanup_free_ struct http_transport *t = calloc(1, sizeof(*t));
	_cleanup_free_ char *url = NULL;
	size_t i;
	int r;

	if (!c->endpoint && !c->profiles_endpoint)
		return error_set(err, -EINVAL, "endpoint: want http:// or https:// URL");
	url = url_of(c);
	if (!t || !url)
		return error_set(err, -ENOMEM, "out of memory");
	options.url = url;
	for (i = 0; i < c->headers.n && i < CONFIG_HEADERS_MAX; i++)
		headers[options.n_headers++] = (struct http_header){
		    .key = c->headers.items[i].key, .value = c->headers.items[i].value};
	r = http_client_new(&options, loop, &t->client, err);
	if (r < 0)
		return r;
	t->transport.ops = &http_ops;
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
	r = config->awaits_operator ? otlp_waiting_transport_new(config, &transport)
				    : otlp_http_transport_new(config, loop, &transport, err);
	if (r < 0)
		return r;
	return otlp_exporter_new(&otlp_http_exporter_ops, config, transport, encoding,
				 (1u << PAYLOAD_ENCODINGS) - 1, loop, ret, err);
}

static int redirect(struct exporter *exporter, const struct exporter_config *config,
		    uv_loop_t *loop, struct error *err)
{
	struct transport *transport;
	int r = otlp_http_transport_new(config, loop, &transport, err);

	if (r == 0)
		otlp_exporter_set_transport(exporter, transport);
	return r;
}

const struct exporter_ops otlp_http_exporter_ops = {
    .type = "otlp_http",
    .create = create,
    .consume = otlp_exporter_consume,
    .flush = otlp_exporter_flush,
    .destroy = otlp_exporter_destroy,
    .healthy = otlp_exporter_healthy,
    .refused = otlp_exporter_refused,
    .redirect = redirect,
};
