/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl on libuv: curl says which sockets it waits for and when it wants to be woken, one uv_poll
 * a socket and one timer do that. Each request is an easy handle of its own; connections are pooled
 * by the multi handle. Everything on the loop thread; curl resolves names on a thread of its own.
 */
#include "lib/http_client.h"

#include <curl/curl.h>

#include "lib/buf.h"

enum {
	REDIRECTS_MAX = 0,
	CONNECT_TIMEOUT_MAX_MS = 10000,
	POOL_MAX = 4,
};

struct http_post {
	struct http_client *client;
	struct http_post *prev, *next;
	CURL *easy;
	struct curl_slist *headers, *connect_to;
	struct buf body;
	char error[CURL_ERROR_SIZE];
	void (*done)(const struct http_answer *answer, void *arg);
	void *arg;
};

struct http_socket {
	uv_poll_t poll;
	struct http_client *client;
	curl_socket_t fd;
};

struct http_client {
	uv_timer_t timer;
	uv_loop_t *loop;
	CURLM *multi;
	struct http_post *live;
	char *url, *connect_to, *host; /* the latter two with tls.server_name */
	char *ca_file, *cert_file, *key_file, *user_agent;
	bool skip_verify;
	enum tls_version min_version;
	struct curl_slist *headers;
};

/* ---- curl <-> libuv -------------------------------------------------------------------------- */

/* Takes the request from its client, which may go away from here on. */
static void post_unlink(struct http_post *p)
{
	if (p->prev)
		p->prev->next = p->next;
	else
		p->client->live = p->next;
	if (p->next)
		p->next->prev = p->prev;
	if (p->easy)
		curl_multi_remove_handle(p->client->multi, p->easy);
}

static void post_free(struct http_post *p)
{
	if (p->easy)
		curl_easy_cleanup(p->easy);
	curl_slist_free_all(p->headers);
	curl_slist_free_all(p->connect_to);
	buf_done(&p->body);
	free(p);
}

static void post_drop(struct http_post *p)
{
	post_unlink(p);
	post_free(p);
}

/* Nothing of the request can have reached the server's application after one of these. */
static bool before_request(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_PROXY:
	case CURLE_FAILED_INIT:
	case CURLE_OUT_OF_MEMORY:
		return true;
	default:
		return false;
	}
}

static void post_finish(struct http_post *p, CURLcode code)
{
	struct http_answer answer = {.message = "", .connected = true};
	struct curl_header *header;
	long status = 0;

	if (code == CURLE_OK) {
		curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
		answer.status = (int)status;
		answer.body = (const uint8_t *)p->body.data;
		answer.body_len = p->body.len;
		if (curl_easy_header(p->easy, "retry-after", 0, CURLH_HEADER, -1, &header) ==
		    CURLHE_OK)
			answer.retry_after = header->value;
	} else {
		answer.message = p->error[0] ? p->error : curl_easy_strerror(code);
		answer.connected = !before_request(code);
		answer.timed_out = code == CURLE_OPERATION_TIMEDOUT;
	}
	post_unlink(p); /* the callback may free the client */
	p->done(&answer, p->arg);
	post_free(p);
}

static void check_finished(struct http_client *c)
{
	struct http_post *p;
	CURLMsg *m;
	int left;

	/* A callback may free the client: then the timer is closing, and the multi handle is gone.
	 */
	while (!uv_is_closing((uv_handle_t *)&c->timer) &&
	       (m = curl_multi_info_read(c->multi, &left))) {
		if (m->msg != CURLMSG_DONE)
			continue;
		p = NULL;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &p);
		post_finish(p, m->data.result);
	}
}

static void on_socket(uv_poll_t *handle, int status, int events)
{
	struct http_socket *s = container_of(handle, struct http_socket, poll);
	struct http_client *c = s->client;
	int flags = 0, running;

	if (status < 0)
		flags = CURL_CSELECT_ERR;
	if (events & UV_READABLE)
		flags |= CURL_CSELECT_IN;
	if (events & UV_WRITABLE)
		flags |= CURL_CSELECT_OUT;
	curl_multi_socket_action(c->multi, s->fd, flags, &running);
	check_finished(c);
}

static void on_timer(uv_timer_t *handle)
{
	struct http_client *c = container_of(handle, struct http_client, timer);
	int running;

	curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	check_finished(c);
}

static void socket_closed(uv_handle_t *handle)
{
	free(container_of((uv_poll_t *)handle, struct http_socket, poll));
}

/* curl: watch this socket so, or no longer. */
static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket)
{
	struct http_client *c = arg;
	struct http_socket *s = socket;
	int events = 0;

	if (what == CURL_POLL_REMOVE) {
		if (s) {
			uv_poll_stop(&s->poll);
			uv_close((uv_handle_t *)&s->poll, socket_closed);
			curl_multi_assign(c->multi, fd, NULL);
		}
		return 0;
	}
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -1;
		s->client = c;
		s->fd = fd;
		if (uv_poll_init_socket(c->loop, &s->poll, fd) < 0) {
			free(s);
			return -1;
		}
		curl_multi_assign(c->multi, fd, s);
	}
	if (what != CURL_POLL_IN)
		events |= UV_WRITABLE;
	if (what != CURL_POLL_OUT)
		events |= UV_READABLE;
	return uv_poll_start(&s->poll, events, on_socket) < 0 ? -1 : 0;
}

/* curl: wake me after that long; never from inside this call, so 0 becomes the next turn. */
static int timer_changed(CURLM *multi, long timeout_ms, void *arg)
{
	struct http_client *c = arg;

	if (timeout_ms < 0)
		uv_timer_stop(&c->timer);
	else
		uv_timer_start(&c->timer, on_timer, (uint64_t)timeout_ms, 0);
	return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

static size_t keep_body(char *data, size_t size, size_t n, void *arg)
{
	struct http_post *p = arg;
	size_t len = size * n, room = HTTP_CLIENT_BODY_MAX - p->body.len;

	buf_append(&p->body, data, MIN(len, room));
	return len;
}

static int add_header(struct curl_slist **list, const char *key, const char *value)
{
	_cleanup_free_ char *line = NULL;
	struct curl_slist *longer;

	if (asprintf(&line, "%s: %s", key, value) < 0) {
		line = NULL;
		return -ENOMEM;
	}
	longer = curl_slist_append(*list, line);
	if (!longer)
		return -ENOMEM;
	*list = longer;
	return 0;
}

static int post_headers(struct http_post *p, const char *type, const char *encoding)
{
	struct curl_slist *h, *longer;
	int r;

	r = add_header(&p->headers, "Content-Type", type);
	if (r == 0 && encoding)
		r = add_header(&p->headers, "Content-Encoding", encoding);
	if (r == 0 && p->client->host)
		r = add_header(&p->headers, "Host", p->client->host);
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
		/* Only this file counts, not the system's directory besides. */
		curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
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
	CURL *easy = p->easy;

	curl_easy_setopt(easy, CURLOPT_PRIVATE, p);
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
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
			 (long)MIN(timeout_ms, CONNECT_TIMEOUT_MAX_MS));
	if (c->user_agent)
		curl_easy_setopt(easy, CURLOPT_USERAGENT, c->user_agent);
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
	p->done = done;
	p->arg = arg;
	buf_init(&p->body, HTTP_CLIENT_BODY_MAX);
	p->next = c->live;
	if (p->next)
		p->next->prev = p;
	c->live = p;
	r = post_headers(p, content_type, content_encoding);
	if (r == 0) {
		p->easy = curl_easy_init();
		r = p->easy ? 0 : -ENOMEM;
	}
	if (r < 0) {
		post_drop(p);
		return r;
	}
	post_setup(p, body, len, timeout_ms);
	if (c->connect_to) {
		p->connect_to = curl_slist_append(NULL, c->connect_to);
		curl_easy_setopt(p->easy, CURLOPT_CONNECT_TO, p->connect_to);
	}
	if (curl_multi_add_handle(c->multi, p->easy) != CURLM_OK) {
		post_drop(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

void http_post_cancel(struct http_post *p)
{
	post_drop(p);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int copy(const char *text, char **ret)
{
	if (!text)
		return 0;
	*ret = strdup(text);
	return *ret ? 0 : -ENOMEM;
}

/*
 * curl has no switch for another name in TLS, so the URL gets that name, the connection goes to the
 * real host, and the Host header names the real host too.
 */
static int url_override(struct http_client *c, const char *server_name, struct error *err)
{
	CURLU *url = curl_url();
	char *host = NULL, *port = NULL, *full = NULL;
	int r = -ENOMEM;

	if (!url)
		return error_set(err, -ENOMEM, "out of memory");
	if (curl_url_set(url, CURLUPART_URL, c->url, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
	    curl_url_set(url, CURLUPART_HOST, server_name, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_URL, &full, 0) == CURLUE_OK) {
		free(c->url);
		c->url = strdup(full);
		if (asprintf(&c->host, "%s:%s", host, port) < 0)
			c->host = NULL;
		if (asprintf(&c->connect_to, "::%s:%s", host, port) < 0)
			c->connect_to = NULL;
		r = c->url && c->host && c->connect_to ? 0 : -ENOMEM;
	} else {
		r = -EINVAL;
	}
	curl_free(host);
	curl_free(port);
	curl_free(full);
	curl_url_cleanup(url);
	return r < 0 ? error_set(err, r, "tls.server_name_override: cannot use %s", server_name)
		     : 0;
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
		c->min_version = TLS_1_2; /* plaintext: nobody checked it */
	if (copy(o->url, &c->url) < 0 || copy(o->user_agent, &c->user_agent) < 0 ||
	    copy(o->tls.ca_file, &c->ca_file) < 0 || copy(o->tls.cert_file, &c->cert_file) < 0 ||
	    copy(o->tls.key_file, &c->key_file) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	for (i = 0; i < o->n_headers; i++) {
		if (!header_valid(&o->headers[i]))
			return error_set(err, -EINVAL,
					 "headers.%s: not a header that HTTP can send",
					 o->headers[i].key);
		r = add_header(&c->headers, o->headers[i].key, o->headers[i].value);
		if (r < 0)
			return error_set(err, r, "out of memory");
	}
	if (o->tls.server_name && strncasecmp(c->url, "https:", 6) == 0)
		return url_override(c, o->tls.server_name, err);
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

	if (!c || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		free(c);
		return error_set(err, -ENOMEM, "out of memory");
	}
	c->loop = loop;
	r = client_init(c, o, err);
	if (r == 0) {
		c->multi = curl_multi_init();
		r = c->multi ? uv_timer_init(loop, &c->timer) : -ENOMEM;
		if (r < 0)
			error_set(err, r, "out of memory");
	}
	if (r < 0) {
		if (c->multi)
			curl_multi_cleanup(c->multi);
		client_free_memory(c);
		return r;
	}
	curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
	curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
	curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, timer_changed);
	curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
	curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)POOL_MAX);
	*ret = c;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	client_free_memory(container_of((uv_timer_t *)handle, struct http_client, timer));
}

struct http_client *http_client_free(struct http_client *c)
{
	if (!c)
		return NULL;
	while (c->live)
		post_drop(c->live);
	curl_multi_cleanup(c->multi); /* closes its sockets through socket_changed() */
	uv_close((uv_handle_t *)&c->timer, on_closed);
	return NULL;
}
