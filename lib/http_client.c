/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POSTs over a curl_loop. Each request is an easy handle of its own, in the client's list until it
 * has ended or was dropped. Everything on the loop thread.
 */
#include "lib/http_client.h"

#include "lib/buf.h"
#include "lib/curl_loop.h"
#include "lib/http_failure.h"

enum {
	REDIRECTS_MAX = 0,
	CONNECT_TIMEOUT_MAX_MS = 10000,
	POOL_MAX = 4,
};

struct http_post {
	struct http_client *client;
	struct http_post *prev, *next;
	struct curl_transfer transfer;
	struct curl_slist *headers, *connect_to;
	struct buf body;    /* of the answer */
	size_t len;	    /* of the request */
	unsigned int begun; /* how often curl began to send it */
	bool stay, elsewhere;
	char error[CURL_ERROR_SIZE];
	void (*done)(const struct http_answer *answer, void *arg);
	void *arg;
};

struct http_client {
	struct curl_loop *pool;
	struct http_post *live;
	char *url, *connect_to, *host; /* connect_to, host: set when tls.server_name is given */
	char *ca_file, *cert_file, *key_file, *user_agent;
	bool skip_verify, stay;
	bool answered; /* some request got an HTTP status, whatever it was */
	enum tls_version min_version;
	struct curl_slist *headers;
};

/* Removes the request from its client, which may be freed after this. */
static void post_unlink(struct http_post *p)
{
	if (p->prev)
		p->prev->next = p->next;
	else
		p->client->live = p->next;
	if (p->next)
		p->next->prev = p->prev;
}

static void post_free(struct http_post *p)
{
	if (p->transfer.easy)
		curl_easy_cleanup(p->transfer.easy);
	curl_slist_free_all(p->headers);
	curl_slist_free_all(p->connect_to);
	buf_done(&p->body);
	free(p);
}

static void post_dropped(struct curl_transfer *t)
{
	post_free(container_of(t, struct http_post, transfer));
}

static void post_drop(struct http_post *p)
{
	post_unlink(p);
	curl_loop_drop(p->client->pool, &p->transfer);
}

/*
 * A server may refuse a request before it has read its body, and then reset the stream or close
 * the connection (RFC 9113 section 8.1, RFC 9112 section 9.6). curl 7.88 then
 * reports a failed transfer (lib/http2.c, cf_h2_send), although it has read the answer.
 */
static bool refused_early(const struct http_post *p)
{
	curl_off_t sent = 0;
	long status = 0;

	curl_easy_getinfo(p->transfer.easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(p->transfer.easy, CURLINFO_SIZE_UPLOAD_T, &sent);
	return status >= 400 && (uint64_t)sent < p->len;
}

static bool is_https(const char *url)
{
	return strncasecmp(url, "https:", 6) == 0;
}

static const char *failure_words(const struct http_post *p, CURLcode code)
{
	struct http_failure failure = {
	    .code = code,
	    .said = p->error[0] ? p->error : curl_easy_strerror(code),
	    .tls = is_https(p->client->url),
	    .answered = p->client->answered,
	};

	return http_failure_words(&failure);
}

static void post_finish(struct curl_transfer *t, CURLcode code)
{
	struct http_post *p = container_of(t, struct http_post, transfer);
	struct http_answer answer = {
	    .message = "", .connected = p->begun > 0, .resent = p->begun > 1};
	struct curl_header *header;
	long status = 0;

	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	p->client->answered |= status != 0;
	if (code == CURLE_OK || refused_early(p)) {
		answer.status = (int)status;
		answer.body = (const uint8_t *)p->body.data;
		answer.body_len = p->body.len;
		if (curl_easy_header(t->easy, "retry-after", 0, CURLH_HEADER, -1, &header) ==
		    CURLHE_OK)
			answer.retry_after = header->value;
	} else {
		answer.message = failure_words(p, code);
		answer.elsewhere = p->elsewhere;
		answer.timed_out = code == CURLE_OPERATION_TIMEDOUT;
	}
	post_unlink(p); /* the callback may free the client */
	p->done(&answer, p->arg);
	post_free(p);
}

/* ---- requests -------------------------------------------------------------------------------- */

static size_t keep_body(char *data, size_t size, size_t n, void *arg)
{
	struct http_post *p = arg;
	size_t len = size * n, room = HTTP_CLIENT_BODY_MAX - p->body.len;

	if (p->transfer.gone)
		return CURL_WRITEFUNC_ERROR;
	buf_append(&p->body, data, MIN(len, room));
	return len;
}

/*
 * CURLOPT_PREREQFUNCTION: called before the first byte of the request, when its connection is
 * chosen. Called again when curl sends the request once more by itself, because a kept connection
 * was closed without an answer (lib/transfer.c, Curl_retry_request).
 */
static int look_at_connection(void *arg, char *ip, char *local_ip, int port, int local_port)
{
	struct http_post *p = arg;
	long made = 0;

	curl_easy_getinfo(p->transfer.easy, CURLINFO_NUM_CONNECTS, &made);
	p->elsewhere = p->stay && made;
	if (p->elsewhere)
		return CURL_PREREQFUNC_ABORT;
	p->begun++;
	return CURL_PREREQFUNC_OK;
}

static int post_headers(struct http_post *p, const char *type, const char *encoding)
{
	struct curl_slist *h, *longer;
	int r;

	r = curl_add_header(&p->headers, "Content-Type", type);
	if (r == 0 && encoding)
		r = curl_add_header(&p->headers, "Content-Encoding", encoding);
	if (r == 0 && p->client->host)
		r = curl_add_header(&p->headers, "Host", p->client->host);
	if (r < 0)
		return r;
	/* "Expect:" keeps curl from waiting a second for a 100 Continue that few receivers send. */
	longer = curl_slist_append(p->headers, "Expect:");
	for (h = p->client->headers; h && longer; h = h->next) {
		p->headers = longer;
		longer = curl_slist_append(p->headers, h->data);
	}
	if (!longer)
		return -ENOMEM;
	p->headers = longer;
	return 0;
}

static void post_tls(CURL *easy, const struct http_client *c)
{
	static const long versions[] = {
	    [TLS_1_0] = CURL_SSLVERSION_TLSv1_0,
	    [TLS_1_1] = CURL_SSLVERSION_TLSv1_1,
	    [TLS_1_2] = CURL_SSLVERSION_TLSv1_2,
	    [TLS_1_3] = CURL_SSLVERSION_TLSv1_3,
	};

	curl_easy_setopt(easy, CURLOPT_SSLVERSION, versions[c->min_version]);
	if (c->ca_file) {
		curl_easy_setopt(easy, CURLOPT_CAINFO, c->ca_file);
		/* Only this file counts, not the system's certificate directory as well. */
		curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
		/* Read the file for each connection: by default curl (7.87 on) keeps its
		 * certificates for 24 hours. */
		curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L);
	}
	if (c->cert_file) {
		curl_easy_setopt(easy, CURLOPT_SSLCERT, c->cert_file);
		curl_easy_setopt(easy, CURLOPT_SSLKEY, c->key_file);
	}
	if (c->skip_verify) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

static void post_setup(struct http_post *p, const void *body, size_t len, uint64_t timeout_ms)
{
	struct http_client *c = p->client;
	CURL *easy = p->transfer.easy;

	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, p->error);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_URL, c->url);
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, (long)REDIRECTS_MAX);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	curl_easy_setopt(easy, CURLOPT_POST, 1L);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, p->headers);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, keep_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, p);
	curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, look_at_connection);
	curl_easy_setopt(easy, CURLOPT_PREREQDATA, p);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
			 (long)MIN(timeout_ms, CONNECT_TIMEOUT_MAX_MS));
	if (c->user_agent)
		curl_easy_setopt(easy, CURLOPT_USERAGENT, c->user_agent);
	if (p->connect_to) {
		curl_easy_setopt(easy, CURLOPT_CONNECT_TO, p->connect_to);
		curl_easy_setopt(easy, CURLOPT_NOPROXY, curl_no_proxy(c->host));
	}
	post_tls(easy, c);
}

int http_client_post(struct http_client *c, const char *content_type, const char *content_encoding,
		     const void *body, size_t len, uint64_t timeout_ms,
		     void (*done)(const struct http_answer *, void *), void *arg,
		     struct http_post **ret)
{
	struct http_post *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->client = c;
	p->len = len;
	p->stay = c->stay;
	p->done = done;
	p->arg = arg;
	p->transfer.done = post_finish;
	p->transfer.dropped = post_dropped;
	buf_init(&p->body, HTTP_CLIENT_BODY_MAX);
	r = post_headers(p, content_type, content_encoding);
	if (r == 0) {
		p->transfer.easy = curl_easy_init();
		r = p->transfer.easy ? 0 : -ENOMEM;
	}
	if (r == 0 && c->connect_to) {
		p->connect_to = curl_slist_append(NULL, c->connect_to);
		r = p->connect_to ? 0 : -ENOMEM;
	}
	if (r == 0) {
		post_setup(p, body, len, timeout_ms);
		r = curl_loop_add(c->pool, &p->transfer);
	}
	if (r < 0) {
		post_free(p);
		return r;
	}
	p->next = c->live;
	if (p->next)
		p->next->prev = p;
	c->live = p;
	*ret = p;
	return 0;
}

void http_client_stay(struct http_client *c, bool stay)
{
	c->stay = stay;
}

bool http_post_cancel(struct http_post *p)
{
	bool begun = p->begun > 0;

	post_drop(p);
	return begun;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int copy(const char *text, char **ret)
{
	if (!text)
		return 0;
	*ret = strdup(text);
	return *ret ? 0 : -ENOMEM;
}

static int url_check(const char *text, struct error *err)
{
	CURLU *url = curl_url();
	char *scheme = NULL;
	CURLUcode code;
	bool good;

	if (!url)
		return error_set(err, -ENOMEM, "out of memory");
	code = curl_url_set(url, CURLUPART_URL, text, 0);
	if (code == CURLUE_OK)
		code = curl_url_get(url, CURLUPART_SCHEME, &scheme, 0);
	good = code == CURLUE_OK && (streq(scheme, "http") || streq(scheme, "https"));
	curl_free(scheme);
	curl_url_cleanup(url);
	/* A URL may hold a password, so it is not shown. */
	return good ? 0 : error_set(err, -EINVAL, "endpoint: want http:// or https:// URL");
}

static bool header_valid(const struct http_header *h)
{
	static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"; /* RFC 9110 §5.6.2 */

	return h->key[0] && !h->key[strspn(h->key, token)] && !strpbrk(h->value, "\r\n");
}

static int client_init(struct http_client *c, const struct http_client_options *o,
		       struct error *err)
{
	size_t i;
	int r;

	r = url_check(o->url, err);
	if (r < 0)
		return r;
	r = tls_options_check(&o->tls, err);
	if (r < 0)
		return r;
	c->skip_verify = o->tls.skip_verify;
	r = tls_version_parse(o->tls.min_version, &c->min_version);
	if (r < 0)
		c->min_version = TLS_1_2; /* tls_options_check() skips it for plaintext */
	if (copy(o->url, &c->url) < 0 || copy(o->user_agent, &c->user_agent) < 0 ||
	    copy(o->tls.ca_file, &c->ca_file) < 0 || copy(o->tls.cert_file, &c->cert_file) < 0 ||
	    copy(o->tls.key_file, &c->key_file) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	for (i = 0; i < o->n_headers; i++) {
		if (!header_valid(&o->headers[i]))
			return error_set(err, -EINVAL,
					 "headers.%s: not a header that HTTP can send",
					 o->headers[i].key);
		r = curl_add_header(&c->headers, o->headers[i].key, o->headers[i].value);
		if (r < 0)
			return error_set(err, r, "out of memory");
	}
	r = 0;
	if (o->tls.server_name && is_https(c->url))
		r = curl_override_name(&c->url, o->tls.server_name, &c->host, &c->connect_to);
	if (r < 0)
		return error_set(err, r, "tls.server_name_override: cannot use %s",
				 o->tls.server_name);
	return 0;
}

static void client_free_memory(struct http_client *c)
{
	curl_slist_free_all(c->headers);
	free(c->url);
	free(c->connect_to);
	free(c->host);
	free(c->ca_file);
	free(c->cert_file);
	free(c->key_file);
	free(c->user_agent);
	free(c);
}

int http_client_new(const struct http_client_options *o, uv_loop_t *loop, struct http_client **ret,
		    struct error *err)
{
	struct http_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	r = client_init(c, o, err);
	if (r == 0) {
		r = curl_loop_new(loop, POOL_MAX, &c->pool);
		if (r < 0)
			error_set(err, r, "out of memory");
	}
	if (r < 0) {
		client_free_memory(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct http_client *http_client_free(struct http_client *c)
{
	if (!c)
		return NULL;
	while (c->live)
		post_drop(c->live);
	curl_loop_free(c->pool);
	client_free_memory(c);
	return NULL;
}
