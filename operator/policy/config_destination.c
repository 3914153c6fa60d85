/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Destinations from JSON. What the agent would refuse at its start is refused here, where the
 * admin sees it: a gRPC endpoint without port, a URL without scheme for HTTP, TLS settings that the
 * endpoint's scheme contradicts, a header that is no token (RFC 9110 §5.6.2). Values of headers are
 * never repeated in a message. Pure.
 */
#include "operator/policy/config_internal.h"

#include <strings.h>

#include "lib/fields.h"
#include "lib/parse.h"

#define AT(member) offsetof(struct destination, member)

static bool is_secret_key(const char *s)
{
	for (; *s; s++)
		if (!is_alnum(*s) && !strchr("-._", *s))
			return false;
	return true;
}

static bool is_server_name(const char *s)
{
	size_t n = strlen(s);

	if (!is_alnum(s[0]) || !is_alnum(s[n - 1]))
		return false;
	for (; *s; s++)
		if (!is_alnum(*s) && !strchr("-.:", *s))
			return false;
	return true;
}

static bool is_token(const char *s)
{
	for (; *s; s++)
		if (!is_alnum(*s) && !strchr("!#$%&'*+-.^_`|~", *s))
			return false;
	return true;
}

static bool is_header_value(const char *s)
{
	size_t n = strlen(s);

	if (n && (s[0] == ' ' || s[n - 1] == ' '))
		return false;
	for (; *s; s++)
		if (*s < ' ' || *s > '~')
			return false;
	return true;
}

static const struct json_syntax secret_key = {"letters, digits, \"-\", \"_\" and \".\"",
					      is_secret_key};
static const struct json_syntax server_name = {"a host name or an IP address", is_server_name};
static const struct json_syntax token = {"a header name", is_token};
static const struct json_syntax header_value = {"printable ASCII without blanks at the ends",
						is_header_value};

static const struct json_choice protocols[] = {
    {"GRPC", OTLP_GRPC, NULL}, {"HTTP", OTLP_HTTP, NULL}, {}};
static const struct json_choice compressions[] = {
    {"Gzip", 0, "gzip"}, {"Zstd", 0, "zstd"}, {"None", 0, "none"}, {}};
static const struct json_choice generations[] = {
    {"G4", 0, "g4"}, {"G5", 0, "g5"}, {"G6", 0, "g6"}, {}};
static const struct json_choice tls_modes[] = {{"Verify", TLS_VERIFY, NULL},
					       {"SkipVerify", TLS_SKIP_VERIFY, NULL},
					       {"Plaintext", TLS_PLAINTEXT, NULL},
					       {}};

#define SECRET_NAME(offset)                                                                        \
	{                                                                                          \
		"name", JSON_STRING, offset, .min = 1, .max = 253,                                 \
					     .syntax = &syntax_dns_subdomain, .required = true     \
	}
static const struct json_row ref_rows[] = {SECRET_NAME(offsetof(struct secret_ref, name)),
					   {"key", JSON_STRING, offsetof(struct secret_ref, key),
					    .min = 1, .max = 253, .syntax = &secret_key,
					    .required = true},
					   {}};
static const struct json_row client_certificate_rows[] = {SECRET_NAME(0), {}};

#define HEADER_NAME                                                                                \
	{                                                                                          \
		"name", JSON_STRING, offsetof(struct destination_header, name),                    \
		    .min = 1, .max = 128, .syntax = &token, .required = true                       \
	}
static const struct json_row header_rows[] = {
    HEADER_NAME,
    {"value", JSON_STRING, offsetof(struct destination_header, value), .min = 0, .max = 4096,
     .syntax = &header_value, .required = true, .secret = true},
    {}};
static const struct json_row header_from_rows[] = {HEADER_NAME,
						   {"secretRef", JSON_OBJECT,
						    offsetof(struct destination_header, ref),
						    .rows = ref_rows, .required = true},
						   {}};

/* Headers that the exporter sets itself. */
static bool is_reserved_header(const char *name)
{
	static const char *const reserved[] = {
	    "host",	  "te",		  "connection",	    "upgrade",	       "transfer-encoding",
	    "user-agent", "content-type", "content-length", "content-encoding"};

	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
		if (strcasecmp(name, reserved[i]) == 0)
			return true;
	return strncasecmp(name, "grpc-", 5) == 0;
}

static int one_header(struct json_fields *f, const cJSON *node, const struct json_row *rows,
		      struct destination_header *h)
{
	int r = json_decode(f, node, rows, h);

	if (r == 0 && is_reserved_header(h->name)) {
		json_path_enter(f, "name");
		return json_error(f,
				  "want none of the headers that the exporter sets itself, got %s",
				  quote_text(h->name).text);
	}
	return r;
}

static int decode_header(struct json_fields *f, const cJSON *node, void *out)
{
	return one_header(f, node, header_rows, out);
}

static int decode_header_from(struct json_fields *f, const cJSON *node, void *out)
{
	return one_header(f, node, header_from_rows, out);
}

/* `headers` and `headersFrom` are one array in the struct, each name once. */
static int add_headers(struct json_fields *f, const cJSON *node, struct destination *d,
		       int (*one)(struct json_fields *f, const cJSON *item, void *out))
{
	struct destination_header *all;
	struct destination more = {0};
	void *items = NULL;
	int r = json_list(f, node, CONFIG_HEADERS_MAX, sizeof(*d->headers), one, &items,
			  &more.n_headers);

	more.headers = items;
	if (r == 0 && more.n_headers) {
		all = realloc(d->headers, (d->n_headers + more.n_headers) * sizeof(*all));
		if (all)
			d->headers = all;
		else
			r = json_no_memory(f);
	}
	for (size_t i = 0; r == 0 && i < more.n_headers; i++) {
		for (size_t j = 0; r == 0 && j < d->n_headers; j++)
			if (strcasecmp(d->headers[j].name, more.headers[i].name) == 0) {
				json_enter_index(f, i);
				json_path_enter(f, "name");
				r = json_error(f, "%s is given twice",
					       quote_text(more.headers[i].name).text);
			}
		if (r == 0) {
			d->headers[d->n_headers++] = more.headers[i];
			more.headers[i] = (struct destination_header){0};
		}
	}
	for (size_t i = 0; i < more.n_headers; i++) {
		free(more.headers[i].name);
		free(more.headers[i].value);
		free(more.headers[i].ref.name);
		free(more.headers[i].ref.key);
	}
	free(more.headers);
	return r;
}

static int decode_headers(struct json_fields *f, const cJSON *node, void *out)
{
	return add_headers(f, node, out, decode_header);
}

static int decode_headers_from(struct json_fields *f, const cJSON *node, void *out)
{
	return add_headers(f, node, out, decode_header_from);
}

static const struct json_row tls_rows[] = {
    {"mode", JSON_CHOICE, AT(tls), .choices = tls_modes},
    {"serverName", JSON_STRING, AT(server_name), .min = 1, .max = 253, .syntax = &server_name},
    {"caSecretRef", JSON_OBJECT, AT(ca), .rows = ref_rows},
    {"clientCertificateSecretRef", JSON_OBJECT, AT(client_certificate_secret),
     .rows = client_certificate_rows},
    {}};

static const struct json_row otlp_rows[] = {
    {"endpoint", JSON_STRING, AT(endpoint), .min = 1, .max = 512, .required = true},
    {"protocol", JSON_CHOICE, AT(protocol), .choices = protocols},
    {"compression", JSON_TEXT, AT(compression), .choices = compressions},
    {"timeoutSeconds", JSON_INT, AT(timeout_s), .min = 1, .max = 600},
    {"tls", JSON_OBJECT, .rows = tls_rows},
    {"headers", JSON_CUSTOM, .decode = decode_headers},
    {"headersFrom", JSON_CUSTOM, .decode = decode_headers_from},
    {"protoGeneration", JSON_TEXT, AT(proto_generation), .choices = generations},
    {}};

/* The message does not repeat user:password@ of a URL. */
static int bad_endpoint(struct json_fields *f, const char *endpoint, const char *want)
{
	json_path_enter(f, "endpoint");
	if (strchr(endpoint, '@'))
		return json_error(f, "want %s, got a URL with a user (not shown)", want);
	return json_error(f, "want %s, got %s", want, quote_text(endpoint).text);
}

static int keep_host(struct json_fields *f, struct destination *d, const struct host_port *hp)
{
	d->host = strdup(hp->host);
	d->port = hp->port;
	return d->host ? 0 : json_no_memory(f);
}

static int check_endpoint(struct json_fields *f, struct destination *d)
{
	const char *e = d->endpoint, *rest = e;
	bool http = d->protocol == OTLP_HTTP, url = true;
	char host[PARSE_HOST_MAX + 32];
	struct host_port hp;
	size_t n;

	if (has_prefix(e, "http://"))
		rest += 7;
	else if (has_prefix(e, "https://"))
		rest += 8;
	else
		url = false;
	if (http && !url)
		return bad_endpoint(f, e, "http:// or https:// with protocol HTTP");
	for (const char *p = e; *p; p++)
		if (*p <= ' ' || *p > '~')
			return bad_endpoint(f, e, "no blanks and only ASCII");
	n = strcspn(rest, "/?#");
	if (n >= PARSE_HOST_MAX + 8 || (rest[n] && !(url && rest[n] == '/')))
		return bad_endpoint(f, e, "HOST:PORT, http://HOST[:PORT] or https://HOST[:PORT]");
	if (!http && rest[n] && rest[n + 1])
		return bad_endpoint(f, e, "no path with protocol GRPC");
	memcpy(host, rest, n);
	host[n] = 0;
	if (parse_host_port(host, &hp) == 0 && hp.host[0])
		return hp.port ? keep_host(f, d, &hp) : bad_endpoint(f, e, "a port of 1..65535");
	if (parse_host_port(host, &hp) == -ERANGE)
		return bad_endpoint(f, e, "a port of 1..65535");
	strcpy(host + n, has_prefix(e, "https://") ? ":443" : ":80");
	if (parse_host_port(host, &hp) < 0 || !hp.host[0])
		return bad_endpoint(f, e, "HOST:PORT, http://HOST[:PORT] or https://HOST[:PORT]");
	if (!http)
		return bad_endpoint(f, e, "HOST:PORT with protocol GRPC");
	return keep_host(f, d, &hp);
}

static int check_tls(struct json_fields *f, const cJSON *otlp, struct destination *d)
{
	const cJSON *tls = json_get(otlp, "tls");
	bool plain = has_prefix(d->endpoint, "http://");

	if (plain && !tls)
		d->tls = TLS_PLAINTEXT;
	json_path_enter(f, "tls");
	if (plain && d->tls != TLS_PLAINTEXT)
		return json_error(f, "want mode Plaintext or no tls with an http:// endpoint");
	if (d->tls == TLS_PLAINTEXT) {
		if (d->server_name || d->ca.name || d->client_certificate_secret)
			return json_error(f, "want no serverName, caSecretRef or "
					     "clientCertificateSecretRef with mode Plaintext");
		if (has_prefix(d->endpoint, "https://")) {
			json_path_enter(f, "mode");
			return json_error(f, "want Verify or SkipVerify with an https:// "
					     "endpoint, got Plaintext");
		}
	}
	if (d->tls == TLS_SKIP_VERIFY && d->ca.name) {
		json_path_enter(f, "caSecretRef");
		return json_error(f, "want no CA with mode SkipVerify, which does not verify");
	}
	return 0;
}

static int decode_otlp(struct json_fields *f, const cJSON *node, void *out)
{
	struct destination *d = out;
	size_t mark = f->path_len;
	int r = json_decode(f, node, otlp_rows, d);

	if (r == 0)
		r = check_endpoint(f, d);
	if (r == 0)
		r = check_tls(f, node, d);
	if (r == 0)
		json_path_leave(f, mark);
	return r;
}

static int decode_text(struct json_fields *f, const cJSON *node, void *out)
{
	static const struct json_row none[] = {{}};

	return json_decode(f, node, none, out);
}

static const struct json_row destination_rows[] = {{"name", JSON_STRING, AT(name), .min = 1,
						    .max = 63, .syntax = &syntax_dns_label,
						    .required = true},
						   {"otlp", JSON_CUSTOM, .decode = decode_otlp},
						   {"text", JSON_CUSTOM, .decode = decode_text},
						   {}};

static const struct json_row tenant_rows[] = {
    {"name", JSON_STRING, AT(name), .min = 1, .max = 63, .syntax = &syntax_dns_label,
     .required = true},
    {"otlp", JSON_CUSTOM, .decode = decode_otlp, .required = true},
    {}};

int destination_decode(struct json_fields *f, const cJSON *node, void *out)
{
	struct destination *d = out;
	bool otlp, text;
	int r;

	d->timeout_s = NUMBER_ABSENT;
	r = json_decode(f, node, destination_rows, d);
	if (r < 0)
		return r;
	otlp = json_get(node, "otlp");
	text = json_get(node, "text");
	if (otlp == text)
		return json_error(f, "want one of otlp and text, got %s", otlp ? "both" : "none");
	d->type = text ? DESTINATION_TEXT : DESTINATION_OTLP;
	return 0;
}

int tenant_destination_decode(struct json_fields *f, const cJSON *node, void *out)
{
	struct destination *d = out;

	d->timeout_s = NUMBER_ABSENT;
	return json_decode(f, node, tenant_rows, d);
}
