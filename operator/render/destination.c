/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refuses destinations that the agent would refuse at its start: a ConfigMap that cannot be read
 * would stop every agent of the cluster. The schema of the CRD has most of these rules; configs may
 * be older than the schema or come from a file. Pure; any thread.
 */
#include <ctype.h>
#include <strings.h>

#include "lib/parse.h"
#include "operator/render/internal.h"

/* RFC 9110 §5.6.2: a token. */
static bool is_token(const char *s)
{
	return *s && strspn(s, "!#$%&'*+-.^_`|~0123456789"
			       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(s);
}

static bool is_printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return true;
}

/* DNS label: it becomes part of ids, file names and environment variables. */
static bool is_name(const char *s)
{
	return *s && strlen(s) <= 63 &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(s);
}

static const char *after_scheme(const char *endpoint)
{
	if (has_prefix(endpoint, "http://"))
		return endpoint + strlen("http://");
	return has_prefix(endpoint, "https://") ? endpoint + strlen("https://") : NULL;
}

bool destination_is_plaintext(const struct destination *d)
{
	return d->tls == TLS_PLAINTEXT || has_prefix(d->endpoint, "http://");
}

bool destination_has_files(const struct destination *d)
{
	return d->type == DESTINATION_OTLP && !destination_is_plaintext(d) &&
	       (d->ca.name || d->client_certificate_secret);
}

/* HOST:PORT; a URL's port may be missing for HTTP only. */
static bool has_host_port(const struct destination *d)
{
	const char *rest = after_scheme(d->endpoint), *host = rest ? rest : d->endpoint;
	int n = (int)strcspn(host, "/?#");
	char text[ENDPOINT_MAX + 8];
	struct host_port hp;

	snprintf(text, sizeof(text), "%.*s", n, host);
	if (d->protocol == OTLP_HTTP && parse_host_port(text, &hp) < 0)
		snprintf(text, sizeof(text), "%.*s:443", n, host);
	return parse_host_port(text, &hp) == 0 && hp.host[0] && hp.port && !strchr(text, '@');
}

static int check_endpoint(const struct destination *d, struct error *err)
{
	const char *rest = d->endpoint ? after_scheme(d->endpoint) : NULL, *path;

	if (!d->endpoint || strlen(d->endpoint) >= ENDPOINT_MAX || !is_printable(d->endpoint) ||
	    strchr(d->endpoint, ' '))
		return error_set(err, -EINVAL, "endpoint: want HOST:PORT or a URL");
	if (!rest && d->protocol == OTLP_HTTP)
		return error_set(err, -EINVAL,
				 "endpoint: want http:// or https:// with protocol HTTP");
	if (d->tls == TLS_PLAINTEXT && has_prefix(d->endpoint, "https://"))
		return error_set(err, -EINVAL,
				 "tls.mode: want Verify or SkipVerify with an https:// endpoint");
	path = strpbrk(rest ? rest : d->endpoint, "/?#");
	if (d->protocol == OTLP_GRPC && path && !(rest && streq(path, "/")))
		return error_set(err, -EINVAL, "endpoint: want no path with protocol GRPC");
	if (!has_host_port(d))
		return error_set(err, -EINVAL, "endpoint: want HOST:PORT or a URL");
	return 0;
}

static int check_headers(const struct destination *d, struct error *err)
{
	for (size_t i = 0; i < d->n_headers; i++) {
		const struct destination_header *h = &d->headers[i];

		if (!h->name || !is_token(h->name))
			return error_set(err, -EINVAL, "headers[%zu]: not the name of a header", i);
		if (!h->value && (!h->ref.name || !h->ref.key))
			return error_set(err, -EINVAL, "headers[%.64s]: neither value nor secret",
					 h->name);
		if (h->value && !is_printable(h->value))
			return error_set(err, -EINVAL,
					 "headers[%.64s]: the value has control characters",
					 h->name);
		for (size_t k = 0; k < i; k++)
			if (strcasecmp(d->headers[k].name, h->name) == 0)
				return error_set(err, -EINVAL, "headers[%.64s]: given twice",
						 h->name);
	}
	return 0;
}

int destination_check(const struct destination *d, struct error *err)
{
	int r = 0;

	if (!d->name || !is_name(d->name))
		return error_set(
		    err, -EINVAL,
		    "spec.destinations: want names of lower case letters, digits and -");
	if (d->type == DESTINATION_OTLP)
		r = check_endpoint(d, err);
	if (r == 0 && d->type == DESTINATION_OTLP)
		r = check_headers(d, err);
	return r < 0 ? error_wrap(err, r, "spec.destinations[%s].otlp", d->name) : 0;
}

void header_env_name(const struct destination *d, size_t h, char ret[static HEADER_ENV_MAX])
{
	/* A name has no '_', so that two names never become one. */
	snprintf(ret, HEADER_ENV_MAX, "KILN_%s_HEADER_%zu", d->name, h);
	for (; *ret; ret++)
		*ret = *ret == '-' ? '_' : (char)toupper((unsigned char)*ret);
}
