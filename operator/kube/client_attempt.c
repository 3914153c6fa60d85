/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt of a call: the setup of curl, the response, and whether the call is tried again. No
 * header or body is ever logged or put into a message, except the Status of an error. curl's
 * callbacks check `gone` first: the owner may have cancelled the call while curl was busy with
 * another one. Loop thread.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>

#include "lib/backoff.h"
#include "operator/kube/client_internal.h"
#include "operator/kube/client_status.h"

/* ---- the response ---------------------------------------------------------------------------- */

enum { CUT_SHORT_MAX = 3 }; /* times a call whose body was not sent is repeated */

static int http_status(CURL *easy)
{
	long status = 0;

	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	return (int)status;
}

static const char *content_type(CURL *easy)
{
	char *type = NULL;

	curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
	return type ? type : "";
}

static bool streamed(const struct kube_call *call)
{
	return call->r.data && http_status(call->transfer.easy) == 200;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct kube_call *call = arg;
	size_t len = size * n;
	int r;

	if (call->transfer.gone)
		return CURL_WRITEFUNC_ERROR;
	call->last_byte_ms = uv_now(call->client->loop);
	if (streamed(call)) {
		r = call->r.data(call->r.arg, content_type(call->transfer.easy), data, len);
		if (call->transfer.gone)
			return CURL_WRITEFUNC_ERROR;
	} else {
		r = buf_append(&call->body, data, len);
	}
	if (r < 0) {
		call->broken = r;
		return CURL_WRITEFUNC_ERROR;
	}
	return len;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
	struct kube_call *call = arg;

	if (call->transfer.gone)
		return CURL_WRITEFUNC_ERROR;
	call->last_byte_ms = uv_now(call->client->loop);
	return size * n;
}

static bool reset_by_peer(CURLcode code)
{
	switch (code) {
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		return true;
	default:
		return false;
	}
}

static uint64_t retry_after(CURL *easy)
{
	struct curl_header *header;
	uint64_t ms;

	if (curl_easy_header(easy, "retry-after", 0, CURLH_HEADER, -1, &header) != CURLHE_OK ||
	    retry_after_parse(header->value, time(NULL), &ms) < 0)
		return 0;
	return MAX(ms, 1U);
}

static void again_at_once(struct kube_call *call)
{
	kube_attempt_done(call);
	kube_call_move(call, KUBE_CALL_READY);
	kube_client_wake(call->client);
}

/*
 * Whether R may be repeated after this status. 429 (API Priority and Fairness, or the limit of
 * requests in flight) and 503 (a server that is starting or shutting down, or a proxy without a
 * server behind it) are answered before the request has done anything, so that repeating it is
 * safe. After another 5xx a write may have been done: only GETs are repeated.
 */
static bool may_try_again(const struct kube_request *r, int status)
{
	return status == 429 || status == 503 || (status >= 500 && streq(r->method, "GET"));
}

/*
 * Schedules another attempt, if STATUS allows one: at once after the first 401, else after WAIT_MS.
 * False: the answer is the caller's.
 */
static bool try_again(struct kube_call *call, int status, uint64_t wait_ms)
{
	struct kube_client *c = call->client;
	uint64_t now = uv_now(c->loop), due;

	if (status == 401 && !call->refused && kube_auth_refused(&c->auth, now)) {
		call->refused = true;
		again_at_once(call);
		return true;
	}
	if (call->r.no_retry || wait_ms == 0 || !may_try_again(&call->r, status) ||
	    call->tries >= KUBE_TRIES_MAX || wait_ms > KUBE_RETRY_WAIT_MAX_MS)
		return false;
	due = now + MAX(wait_ms, (uint64_t)KUBE_RETRY_WAIT_MIN_MS);
	if (call->deadline_ms && due >= call->deadline_ms)
		return false;
	call->due_ms = due;
	kube_attempt_done(call);
	kube_call_move(call, KUBE_CALL_LATER);
	kube_client_wake(c);
	return true;
}

static const char *why_not(const struct kube_call *call, CURLcode code)
{
	if (call->broken == -E2BIG && !streamed(call))
		return "the answer is larger than any that the API server gives";
	if (call->broken < 0)
		return strerror(-call->broken);
	return call->error[0] ? call->error : curl_easy_strerror(code);
}

/*
 * A server that refuses a request without reading its body answers, then resets the stream with
 * NO_ERROR (RFC 9113 section 8.1). After that curl 7.88 (lib/http2.c, cf_h2_send) takes every body
 * on that connection for one of a closed stream, and fails before the body was sent. The server
 * cannot have acted on such a request, so it is sent again, on another connection.
 */
static bool refused_early(struct kube_call *call, CURLcode code)
{
	curl_off_t sent = 0;

	if (code != CURLE_HTTP2_STREAM || call->r.len == 0 ||
	    curl_easy_getinfo(call->transfer.easy, CURLINFO_SIZE_UPLOAD_T, &sent) != CURLE_OK)
		return false;
	return (size_t)sent < call->r.len;
}

/*
 * True for a call's first 401, when it came before the body was sent: then the token is read again,
 * and the call repeated.
 */
static bool refused_token(struct kube_call *call, CURLcode code)
{
	return !call->refused && refused_early(call, code) &&
	       http_status(call->transfer.easy) == 401;
}

static void on_done(struct curl_transfer *t, CURLcode code)
{
	struct kube_call *call = container_of(t, struct kube_call, transfer);
	struct kube_client *c = call->client;
	struct kube_answer answer = {.message = "", .reason = "", .content_type = ""};
	struct kube_status status;

	if (code == CURLE_OK || refused_token(call, code))
		answer.status = http_status(t->easy);
	if (c->seen)
		c->seen(c->seen_arg, call->r.method, answer.status);
	if (answer.status == 0) {
		if (refused_early(call, code) && call->cut_short++ < CUT_SHORT_MAX) {
			again_at_once(call);
			return;
		}
		answer.message = why_not(call, code);
		answer.connection_reset = reset_by_peer(code);
		kube_call_end(call, &answer);
		return;
	}
	answer.retry_after_ms = retry_after(t->easy);
	if (try_again(call, answer.status, answer.retry_after_ms))
		return;
	answer.content_type = content_type(t->easy);
	if (!streamed(call)) {
		answer.body =
		    call->body.data ? (const uint8_t *)call->body.data : (const uint8_t *)"";
		answer.len = call->body.len;
	}
	if (answer.status < 200 || answer.status > 299) {
		kube_status_read(answer.status, answer.content_type, answer.body, answer.len,
				 &status);
		answer.message = status.message;
		answer.reason = status.reason;
	}
	kube_call_end(call, &answer);
}

static void on_dropped(struct curl_transfer *t)
{
	struct kube_call *call = container_of(t, struct kube_call, transfer);

	if (call->keep)
		kube_attempt_done(call);
	else
		kube_call_free(call);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Detects a peer that is gone even when there is nothing to send: watches are silent. */
static int on_socket_made(void *arg, curl_socket_t fd, curlsocktype purpose)
{
	unsigned int dead = KUBE_DEAD_MS;

	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead, sizeof(dead));
	return CURL_SOCKOPT_OK;
}

static void set_blob(CURL *easy, CURLoption option, char *pem)
{
	struct curl_blob blob = {.data = pem, .len = strlen(pem), .flags = CURL_BLOB_NOCOPY};

	curl_easy_setopt(easy, option, &blob);
}

/* curl reuses a connection only when these options are the same: changed files get a new one. */
static void set_tls(CURL *easy, const struct kube_credentials *k, const struct kube_tls *tls)
{
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (tls->ca) {
		set_blob(easy, CURLOPT_CAINFO_BLOB, tls->ca);
		curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
		/* not the system's roots in addition */
		curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
	}
	if (tls->cert) {
		set_blob(easy, CURLOPT_SSLCERT_BLOB, tls->cert);
		set_blob(easy, CURLOPT_SSLKEY_BLOB, tls->key);
	}
	if (k->skip_verify) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

static void set_method(CURL *easy, const struct kube_request *r)
{
	if (r->body) {
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->body);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->len);
	}
	if (r->body || !streq(r->method, "GET"))
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, r->method);
}

static void set_network(CURL *easy, const struct kube_call *call)
{
	const struct kube_client *c = call->client;
	uint64_t now = uv_now(c->loop);

	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	/*
	 * Share an HTTP/2 connection rather than open another one. Without TLS there is no HTTP/2,
	 * and curl 7.88 would wait for the end of the first response, which a watch does not have.
	 */
	curl_easy_setopt(easy, CURLOPT_PIPEWAIT,
			 (long)!strncmp(c->credentials->server, "https:", 6));
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 30L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 15L);
	curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket_made);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)c->connect_ms);
	if (call->deadline_ms)
		curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
				 (long)(call->deadline_ms > now ? call->deadline_ms - now : 1));
	if (call->r.data)
		curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)KUBE_STREAM_BUFFER);
	if (c->gzip)
		curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "gzip");
	if (c->credentials->proxy_url) {
		curl_easy_setopt(easy, CURLOPT_PROXY, c->credentials->proxy_url);
		curl_easy_setopt(easy, CURLOPT_NOPROXY, ""); /* ignore the environment's */
	} else if (c->host) {
		curl_easy_setopt(easy, CURLOPT_NOPROXY, curl_no_proxy(c->host));
	}
	if (call->connect_to)
		curl_easy_setopt(easy, CURLOPT_CONNECT_TO, call->connect_to);
}

static int make_headers(struct kube_call *call)
{
	const struct kube_client *c = call->client;
	const struct kube_request *r = &call->r;
	struct curl_slist **h = &call->headers, *longer;
	_cleanup_free_ char *bearer = NULL;
	int n = curl_add_header(h, "Accept", r->accept ? r->accept : "application/json");

	if (n == 0 && r->body)
		n = curl_add_header(h, "Content-Type",
				    r->content_type ? r->content_type : "application/json");
	if (n == 0 && c->host)
		n = curl_add_header(h, "Host", c->host);
	if (n == 0 && c->auth.token) {
		if (asprintf(&bearer, "Bearer %s", c->auth.token) < 0) {
			bearer = NULL;
			return -ENOMEM;
		}
		n = curl_add_header(h, "Authorization", bearer);
		explicit_bzero(bearer, strlen(bearer));
	}
	if (n < 0)
		return n;
	/* curl would wait a second for a 100 Continue before a larger body. */
	longer = curl_slist_append(*h, "Expect:");
	if (!longer)
		return -ENOMEM;
	*h = longer;
	return 0;
}

/* True when a proxy may be used. The names are those of curl(1), ENVIRONMENT. */
static bool proxied(const struct kube_credentials *k)
{
	static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
	const char *value;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		value = getenv(names[i]);
		if (value && *value)
			return true;
	}
	return k->proxy_url != NULL;
}

static int setup(struct kube_call *call)
{
	struct kube_client *c = call->client;
	_cleanup_free_ char *url = NULL;
	CURL *easy;
	int r = make_headers(call);

	if (r < 0)
		return r;
	if (c->connect_to) {
		call->connect_to = curl_slist_append(NULL, c->connect_to);
		if (!call->connect_to)
			return -ENOMEM;
	}
	if (asprintf(&url, "%s%s", c->url, call->r.path) < 0) {
		url = NULL;
		return -ENOMEM;
	}
	easy = call->transfer.easy = curl_easy_init();
	if (!easy || curl_easy_setopt(easy, CURLOPT_URL, url) != CURLE_OK ||
	    curl_easy_setopt(easy, CURLOPT_USERAGENT, c->user_agent) != CURLE_OK)
		return -ENOMEM;
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	set_method(easy, &call->r);
	set_network(easy, call);
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, call->cut_short ? 1L : 0L);
	set_tls(easy, c->credentials, call->tls);
	if (call->r.bulk && !proxied(c->credentials))
		curl_loop_read_ahead(kube_call_pool(call), &call->transfer);
	return 0;
}

int kube_attempt_start(struct kube_call *call)
{
	struct kube_client *c = call->client;
	uint64_t now = uv_now(c->loop);
	int r;

	kube_auth_refresh(&c->auth, now);
	call->tls = kube_tls_ref(c->auth.tls);
	call->transfer.done = on_done;
	call->transfer.dropped = on_dropped;
	call->last_byte_ms = now;
	call->error[0] = 0;
	call->broken = 0;
	r = setup(call);
	return r < 0 ? r : curl_loop_add(kube_call_pool(call), &call->transfer);
}

void kube_attempt_done(struct kube_call *call)
{
	struct curl_slist *h;

	if (call->transfer.easy)
		curl_easy_cleanup(call->transfer.easy);
	call->transfer.easy = NULL;
	for (h = call->headers; h; h = h->next)
		explicit_bzero(h->data, strlen(h->data)); /* the token */
	curl_slist_free_all(call->headers);
	curl_slist_free_all(call->connect_to);
	call->headers = call->connect_to = NULL;
	call->tls = kube_tls_unref(call->tls);
	buf_done(&call->body);
	buf_init(&call->body, KUBE_BODY_MAX);
}
