/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that may come from the file, the environment or a flag, checked the same way wherever they
 * come from. Messages name the cause only; the caller puts the place before them.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <regex.h>
#include <strings.h>

#include "agent/config/internal.h"
#include "lib/parse.h"

const char *const folded_profile_names[] = {"cpu", "off_cpu", "wall", "probe", NULL};
const char *const compression_names[] = {"gzip", "zstd", "none", NULL};
const char *const otlp_generation_names[] = {"auto", "v1.8", "v1.9", "v1.10", "v1.11",
					     "g4",   "g5",   "g6",   NULL};

int set_string(char **to, const char *from)
{
	char *s = strdup(from);

	if (!s)
		return -ENOMEM;
	free(*to);
	*to = s;
	return 0;
}

int config_strings_add(struct config_strings *s, const char *text)
{
	char **items, *copy;

	if (s->n >= CONFIG_LIST_MAX)
		return -E2BIG;
	items = realloc(s->items, (s->n + 1) * sizeof(*items));
	if (!items)
		return -ENOMEM;
	s->items = items;
	copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	s->items[s->n++] = copy;
	return 0;
}

void config_strings_done(struct config_strings *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->items[i]);
	free(s->items);
	*s = (struct config_strings){0};
}

int pairs_set(struct config_pairs *p, const char *key, const char *value, size_t max)
{
	_cleanup_free_ char *k = NULL, *v = NULL;
	struct config_pair *items;

	for (size_t i = 0; i < p->n; i++)
		if (streq(p->items[i].key, key))
			return set_string(&p->items[i].value, value);
	if (p->n >= max)
		return -E2BIG;
	items = realloc(p->items, (p->n + 1) * sizeof(*items));
	if (!items)
		return -ENOMEM;
	p->items = items;
	k = strdup(key);
	v = strdup(value);
	if (!k || !v)
		return -ENOMEM;
	p->items[p->n++] = (struct config_pair){.key = TAKE_PTR(k), .value = TAKE_PTR(v)};
	return 0;
}

const char *pairs_get(const struct config_pairs *p, const char *key)
{
	for (size_t i = 0; i < p->n; i++)
		if (streq(p->items[i].key, key))
			return p->items[i].value;
	return NULL;
}

const char *header_spelled(const struct config_pairs *headers, const char *name)
{
	for (size_t i = 0; i < headers->n; i++)
		if (strcasecmp(headers->items[i].key, name) == 0)
			return headers->items[i].key;
	return name;
}

void pairs_remove(struct config_pairs *p, const char *key)
{
	for (size_t i = 0; i < p->n; i++) {
		if (!streq(p->items[i].key, key))
			continue;
		free(p->items[i].key);
		free(p->items[i].value);
		memmove(&p->items[i], &p->items[i + 1], (p->n - i - 1) * sizeof(p->items[0]));
		p->n--;
		return;
	}
}

void pairs_done(struct config_pairs *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->items[i].key);
		free(p->items[i].value);
	}
	free(p->items);
	*p = (struct config_pairs){0};
}

char *trim_space(char *s)
{
	char *end;

	while (*s == ' ' || *s == '\t')
		s++;
	end = s + strlen(s);
	while (end > s && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = 0;
	return s;
}

static bool printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return true;
}

int pairs_parse(struct config_pairs *p, const char *text, bool percent, size_t max,
		struct error *err)
{
	_cleanup_free_ char *copy = strdup(text);
	char *rest = copy, *item;
	unsigned int number = 0;

	if (!copy)
		return error_set(err, -ENOMEM, "out of memory");
	while ((item = strsep(&rest, ","))) {
		char *key = trim_space(item), *equals = strchr(key, '='), *value;
		int r;

		number++;
		if (!*key)
			continue; /* "a=1,,b=2" and "a=1," */
		if (!equals || equals == key)
			return error_set(err, -EINVAL, "want KEY=VALUE,..., but pair %u is not one",
					 number);
		*equals = 0;
		key = trim_space(key);
		value = trim_space(equals + 1);
		if (percent && (parse_percent_decode(key) < 0 || parse_percent_decode(value) < 0))
			return error_set(err, -EINVAL, "pair %u has a broken %%XX escape", number);
		if (!*key || !printable(key))
			return error_set(err, -EINVAL, "pair %u has no printable key", number);
		r = pairs_set(p, key, value, max);
		if (r == -E2BIG)
			return error_set(err, -EINVAL, "more than %zu pairs", max);
		if (r < 0)
			return error_set(err, r, "out of memory");
	}
	return 0;
}

/*
 * glibc unrolls repetitions when it compiles: ((a{99}){99}){99} takes gigabytes. The product of all
 * bounds is an upper limit of that, however they are nested.
 */
static bool repeats_too_much(const char *text)
{
	uint64_t product = 1;

	for (const char *p = text; *p; p++) {
		uint64_t n = 0;

		if (*p == '\\' && p[1]) {
			p++;
			continue;
		}
		if (*p != '{')
			continue;
		for (p++; (*p >= '0' && *p <= '9') || *p == ','; p++) {
			if (*p == ',' && p[1] != '}')
				n = 0;
			else if (*p != ',')
				n = n * 10 + (uint64_t)(*p - '0');
			if (n > 1000)
				return true;
		}
		product *= MAX(n, 1);
		if (product > 1000)
			return true;
		p--;
	}
	return false;
}

int add_probe(struct receiver_config *rx, const char *text, struct error *err)
{
	struct probe_spec spec, *probes;
	int r = probe_spec_parse(text, &spec, err);

	if (r < 0)
		return r;
	if (rx->n_probes == PROBE_COUNT_MAX)
		return error_set(err, -EINVAL, "more than %d probes", PROBE_COUNT_MAX);
	for (size_t i = 0; i < rx->n_probes; i++)
		if (streq(rx->probes[i].text, spec.text))
			return error_set(err, -EINVAL, "%s is given twice",
					 quote_text(spec.text).text);
	probes = reallocarray(rx->probes, rx->n_probes + 1, sizeof(*probes));
	if (!probes)
		return error_set(err, -ENOMEM, "out of memory");
	rx->probes = probes;
	rx->probes[rx->n_probes++] = spec;
	return 0;
}

int check_process_filter(const char *text, struct error *err)
{
	char why[128];
	regex_t re;
	int r;

	if (strlen(text) > PROCESS_FILTER_MAX)
		return error_set(err, -EINVAL, "longer than %d characters", PROCESS_FILTER_MAX);
	if (repeats_too_much(text))
		return error_set(err, -EINVAL, "repetitions add up to more than 1000");
	r = regcomp(&re, text, REG_EXTENDED | REG_NOSUB);
	if (r == 0) {
		regfree(&re);
		return 0;
	}
	regerror(r, &re, why, sizeof(why));
	if (r == REG_ESPACE)
		return error_set(err, -ENOMEM, "out of memory");
	return error_set(err, -EINVAL, "not a regular expression: %s", why);
}

/* "scheme://rest" -> rest, when the scheme is SCHEME. */
static const char *after_scheme(const char *text, const char *scheme)
{
	size_t n = strlen(scheme);

	return strncasecmp(text, scheme, n) == 0 ? text + n : NULL;
}

/* An endpoint with user:password@ is not repeated in a message. */
static struct quoted quote_endpoint(const char *text)
{
	if (strchr(text, '@'))
		return (struct quoted){.text = "a URL with a user (not shown)"};
	return quote_text(text);
}

int check_grpc_endpoint(const char *text, int *ret_plaintext, struct error *err)
{
	char copy[PARSE_HOST_MAX + 32];
	struct host_port hp;
	const char *p;
	int plaintext = 0;
	size_t n;

	if (has_prefix(text, "unix:")) {
		if (!text[5] || !printable(text))
			return error_set(err, -EINVAL, "want unix:PATH, got %s",
					 quote_text(text).text);
		*ret_plaintext = 0;
		return 0;
	}
	if ((p = after_scheme(text, "http://")))
		plaintext = 1;
	else if ((p = after_scheme(text, "https://")))
		plaintext = -1;
	else if (!(p = after_scheme(text, "dns:///")))
		p = text;
	n = strlen(p);
	if (n && p[n - 1] == '/')
		n--;
	if (n >= sizeof(copy))
		return error_set(err, -EINVAL, "want HOST:PORT, got %s", quote_endpoint(text).text);
	memcpy(copy, p, n);
	copy[n] = 0;
	if (parse_host_port(copy, &hp) < 0 || !hp.host[0] || !hp.port)
		return error_set(err, -EINVAL, "want HOST:PORT, got %s", quote_endpoint(text).text);
	*ret_plaintext = plaintext;
	return 0;
}

int check_http_endpoint(const char *text, struct error *err)
{
	const char *p = after_scheme(text, "http://"), *at;
	char host[PARSE_HOST_MAX + 32];
	struct host_port hp;
	size_t n;

	if (!p)
		p = after_scheme(text, "https://");
	if (p) {
		n = strcspn(p, "/?#");
		at = memrchr(p, '@', n);
		if (at) {
			n -= (size_t)(at + 1 - p);
			p = at + 1;
		}
		if (n && n < sizeof(host) - 4 && printable(text) && !strchr(text, ' ')) {
			memcpy(host, p, n);
			host[n] = 0;
			/* The port is optional: try with the one that the scheme stands for. */
			if (parse_host_port(host, &hp) == 0 && hp.host[0] && hp.port)
				return 0;
			strcpy(host + n, ":80");
			if (parse_host_port(host, &hp) == 0 && hp.host[0])
				return 0;
		}
	}
	return error_set(err, -EINVAL, "want a URL such as http://HOST:4318, got %s",
			 quote_endpoint(text).text);
}

int check_header(const char *name, const char *value, struct error *err)
{
	/* RFC 9110 §5.6.2: a token. */
	if (!*name ||
	    strspn(name, "!#$%&'*+-.^_`|~0123456789"
			 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != strlen(name))
		/* The name is not shown: after "Name: value", with ':' for '=', it has the secret.
		 */
		return error_set(err, -EINVAL,
				 "want a header's name of letters, digits and !#$%%&'*+-.^_`|~");
	if (!printable(value))
		return error_set(err, -EINVAL, "the header's value has control characters");
	return 0;
}

int check_path_template(const char *text, struct error *err)
{
	unsigned int times = 0;

	if (!*text || strlen(text) > 3000)
		return error_set(err, -EINVAL, "want the path of a file");
	for (const char *p = text; *p; p++) {
		if (*p != '%')
			continue;
		if (p[1] != 's' || ++times > 1)
			return error_set(err, -EINVAL,
					 "only one %%s (the start time) may stand in it, got %s",
					 quote_text(text).text);
		p++;
	}
	return 0;
}

int parse_address(const char *text, struct http_config *http, struct error *err)
{
	struct host_port hp;

	if (parse_host_port(text, &hp) < 0)
		return error_set(err, -EINVAL, "want HOST:PORT or :PORT, got %s",
				 quote_text(text).text);
	if (set_string(&http->host, hp.host) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	http->port = hp.port;
	return 0;
}

bool is_loopback_host(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (strcasecmp(host, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

int add_label_key(struct config_strings *s, const char *key, struct error *why)
{
	int r;

	if (!*key || strlen(key) > LABEL_KEY_BYTES_MAX)
		return error_set(why, -EINVAL, "want keys of 1..%d bytes, got %s",
				 LABEL_KEY_BYTES_MAX, quote_text(key).text);
	if (s->n >= LABEL_KEYS_MAX)
		return error_set(why, -EINVAL, "more than %d keys", LABEL_KEYS_MAX);
	r = config_strings_add(s, key);
	return r < 0 ? error_set(why, r, "out of memory") : 0;
}

int add_label_keys(struct config_strings *s, const char *text, struct error *why)
{
	_cleanup_free_ char *copy = strdup(text);
	char *rest = copy, *item;
	int r = copy ? 0 : error_set(why, -ENOMEM, "out of memory");

	while (r == 0 && (item = strsep(&rest, ",")))
		r = add_label_key(s, trim_space(item), why);
	return r;
}
