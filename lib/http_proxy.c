/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables, their order, the lower case, the scheme and the default port are those of gRPC's C
 * core (grpc/grpc, doc/environment_variables.md, doc/core/default_http_proxy_mapper.md; 1.51 was
 * tried too). An entry of no_proxy is a domain name, with or without a leading dot, which also
 * covers the names below it; an address; a network ("10.0.0.0/8"); or "*". The C core 1.51 compares
 * only the ends of names ("le.org" covers "example.org"); later versions have networks too.
 */
#include "lib/http_proxy.h"

#include <arpa/inet.h>
#include <strings.h>

#include "lib/grpc_wire.h"
#include "lib/parse.h"

enum { DEFAULT_PORT = 443 };

/* ---- no_proxy ----------------------------------------------------------------------------------
 */

/* The length of the address in bytes, which are in RET; 0: TEXT is no address. */
static size_t address_bytes(const char *text, uint8_t ret[static 16])
{
	if (inet_pton(AF_INET, text, ret) == 1)
		return 4;
	return inet_pton(AF_INET6, text, ret) == 1 ? 16 : 0;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, size_t bits)
{
	if (memcmp(a, b, bits / 8) != 0)
		return false;
	return bits % 8 == 0 || !((a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8));
}

/* Whether ENTRY, an address or a network, covers ADDRESS. */
static bool network_has(char *entry, const uint8_t *address, size_t len)
{
	char *slash = strchr(entry, '/');
	uint64_t bits = len * 8;
	uint8_t network[16];

	if (slash) {
		*slash = 0;
		if (parse_u64(slash + 1, &bits) < 0 || bits > len * 8)
			return false;
	}
	return address_bytes(entry, network) == len && same_bits(network, address, bits);
}

static bool name_has(const char *entry, const char *host)
{
	size_t entry_len, host_len = strlen(host);

	entry += *entry == '.';
	entry_len = strlen(entry);
	if (!entry_len || entry_len > host_len ||
	    strcasecmp(entry, host + host_len - entry_len) != 0)
		return false;
	return entry_len == host_len || host[host_len - entry_len - 1] == '.';
}

bool http_proxy_exempt(const char *list, const char *host)
{
	char entry[PARSE_HOST_MAX + 8];
	uint8_t address[16];
	size_t len = address_bytes(host, address), n;

	for (; *list; list += n) {
		list += strspn(list, " \t,");
		n = strcspn(list, " \t,");
		if (!n || n >= sizeof(entry))
			continue;
		memcpy(entry, list, n);
		entry[n] = 0;
		if (streq(entry, "*") ||
		    (len ? network_has(entry, address, len) : name_has(entry, host)))
			return true;
	}
	return false;
}

/* ---- the URL -----------------------------------------------------------------------------------
 */

static int parse_credentials(const char *text, size_t len, struct http_proxy *p)
{
	char *plain = strndup(text, len);
	int r;

	if (!plain)
		return -ENOMEM;
	r = parse_percent_decode(plain);
	if (r == 0) {
		size_t n = strlen(plain);

		p->credentials = grpc_base64_encode(plain, n);
		r = p->credentials ? 0 : -ENOMEM;
	}
	explicit_bzero(plain, len);
	free(plain);
	return r;
}

/* "[::1]:3128", "proxy.example", "10.0.0.1:80" */
static int parse_address(const char *text, size_t len, struct http_proxy *p)
{
	char copy[PARSE_HOST_MAX + 16];
	struct host_port hp;

	if (len >= sizeof(copy) - 4)
		return -EINVAL;
	memcpy(copy, text, len);
	copy[len] = 0;
	if (!strchr(text[0] == '[' ? copy + strcspn(copy, "]") : copy, ':'))
		snprintf(copy + len, sizeof(copy) - len, ":%d", DEFAULT_PORT);
	if (parse_host_port(copy, &hp) < 0 || !hp.host[0] || !hp.port)
		return -EINVAL;
	p->port = hp.port;
	p->host = strdup(hp.host);
	return p->host ? 0 : -ENOMEM;
}

static int parse_url(const char *url, struct http_proxy *p)
{
	const char *at;
	size_t len;
	int r = 0;

	if (strncasecmp(url, "http://", strlen("http://")) != 0)
		return -EINVAL;
	url += strlen("http://");
	len = strcspn(url, "/?#");
	at = memrchr(url, '@', len);
	if (at) {
		r = parse_credentials(url, (size_t)(at - url), p);
		len -= (size_t)(at + 1 - url);
		url = at + 1;
	}
	return r < 0 ? r : parse_address(url, len, p);
}

/* The value of the first variable that is set; NULL: none. */
static const char *first_of(const char *const *names, const char **ret_name)
{
	const char *value = NULL;

	for (; *names && !value; names++) {
		*ret_name = *names;
		value = getenv(*names);
	}
	return value;
}

int http_proxy_find(const char *host, struct http_proxy *ret, struct error *err)
{
	static const char *const proxies[] = {"grpc_proxy", "https_proxy", "http_proxy", NULL};
	static const char *const exempt[] = {"no_grpc_proxy", "no_proxy", NULL};
	const char *name, *other, *url = first_of(proxies, &name), *list;
	struct http_proxy p = {0};
	int r;

	if (!url || !*url)
		return 0;
	list = first_of(exempt, &other);
	if (list && http_proxy_exempt(list, host))
		return 0;
	r = parse_url(url, &p);
	if (r == 0) {
		*ret = p;
		return 1;
	}
	http_proxy_done(&p);
	if (r == -ENOMEM)
		return error_set(err, r, "out of memory");
	/* It may have a password in it. */
	return error_set(err, r, "$%s is not http://[USER:PASSWORD@]HOST[:PORT]", name);
}

void http_proxy_done(struct http_proxy *p)
{
	if (p->credentials)
		explicit_bzero(p->credentials, strlen(p->credentials));
	free(p->credentials);
	free(p->host);
	*p = (struct http_proxy){0};
}

/* ---- the exchange ------------------------------------------------------------------------------
 */

char *http_proxy_request(const struct http_proxy *p, const char *authority)
{
	const char *credentials = p->credentials ? p->credentials : "";
	/* Unlike gRPC's base64, HTTP's is padded. */
	static const char *const padding[] = {"", "===", "==", "="};
	char *text;
	int n;

	n = asprintf(&text, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s%s%s\r\n", authority, authority,
		     *credentials ? "Proxy-Authorization: Basic " : "", credentials,
		     padding[strlen(credentials) % 4], *credentials ? "\r\n" : "");
	return n < 0 ? NULL : text;
}

int http_proxy_reply(const uint8_t *data, size_t len, size_t *ret_len, int *ret_status)
{
	static const char version[] = "HTTP/1.";
	const size_t n = sizeof(version) - 1;
	const uint8_t *end;

	if (memcmp(data, version, MIN(len, n)) != 0)
		return -EPROTO;
	end = memmem(data, MIN(len, (size_t)HTTP_PROXY_REPLY_MAX), "\r\n\r\n", 4);
	if (!end)
		return len < HTTP_PROXY_REPLY_MAX ? 0 : -EPROTO;
	/* "HTTP/1.1 200 Connection established" */
	if (end - data < (ptrdiff_t)n + 5 || data[n + 1] != ' ')
		return -EPROTO;
	*ret_status = 0;
	for (size_t i = n + 2; i < n + 5; i++) {
		if (data[i] < '0' || data[i] > '9')
			return -EPROTO;
		*ret_status = *ret_status * 10 + (data[i] - '0');
	}
	*ret_len = (size_t)(end - data) + 4;
	return 1;
}
