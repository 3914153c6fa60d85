/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forms of Kubernetes' names, as its apimachinery checks them (validation.IsDNS1123Label,
 * IsDNS1123Subdomain, IsQualifiedName, IsValidLabelValue): pure functions over a string.
 */
#include "operator/policy/json_fields.h"

#include <stdlib.h>

bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

/*
 * True for N characters, 1..MAX, of letters, digits and those of INSIDE, which may not be first or
 * last.
 */
static bool is_name(const char *s, size_t n, size_t max, const char *inside, bool upper)
{
	if (!n || n > max || !is_alnum(s[0]) || !is_alnum(s[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if ((!is_alnum(s[i]) && !strchr(inside, s[i])) || (!upper && is_upper(s[i])))
			return false;
	return true;
}

static bool is_dns_label(const char *s)
{
	return is_name(s, strlen(s), 63, "-", false);
}

static bool is_subdomain(const char *s, size_t n)
{
	return is_name(s, n, 253, "-.", false);
}

static bool is_dns_subdomain(const char *s)
{
	return is_subdomain(s, strlen(s));
}

static bool is_label_key(const char *s)
{
	const char *slash = strchr(s, '/');

	if (slash && !is_subdomain(s, (size_t)(slash - s)))
		return false;
	s = slash ? slash + 1 : s;
	return is_name(s, strlen(s), 63, "-_.", true);
}

static bool is_label_value(const char *s)
{
	return !*s || is_name(s, strlen(s), 63, "-_.", true);
}

/* Programs may give samples any key. Allowed here: visible characters, spaces only between them. */
static bool is_sample_label(const char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if (s[i] < ' ' || s[i] > '~')
			return false;
	return n && s[0] != ' ' && s[n - 1] != ' ';
}

/* As the providers of clusters name them, up to arn:aws:eks:eu-west-1:111122223333:cluster/prod. */
static bool is_cluster_name(const char *s)
{
	return is_name(s, strlen(s), 253, "-_.:/", true);
}

static bool is_port(const char *s)
{
	size_t n = strspn(s, "0123456789");

	return n && n <= 5 && !s[n] && s[0] != '0' && strtoul(s, NULL, 10) <= UINT16_MAX;
}

/* True for a pattern of endpoint_matches() (merge.h). */
static bool is_endpoint_pattern(const char *s)
{
	size_t n;

	if (*s == '[') {
		n = strspn(++s, "0123456789abcdefABCDEF:.");
		if (!n || s[n++] != ']')
			return false;
	} else {
		s += has_prefix(s, "*.") ? 2 : 0;
		n = strcspn(s, ":");
		if (!is_name(s, n, 253, "-.", true))
			return false;
	}
	s += n;
	if (!*s)
		return true;
	return *s == ':' && is_port(s + 1);
}

const struct json_syntax syntax_dns_label = {"lower case letters, digits and \"-\"", is_dns_label};
const struct json_syntax syntax_dns_subdomain = {"lower case letters, digits, \"-\" and \".\"",
						 is_dns_subdomain};
const struct json_syntax syntax_label_key = {"a key such as team or example.com/team",
					     is_label_key};
const struct json_syntax syntax_label_value = {"a label value", is_label_value};
const struct json_syntax syntax_sample_label = {"visible ASCII characters, or \"*\" for all keys",
						is_sample_label};
const struct json_syntax syntax_cluster_name = {"letters and digits, \"-_.:/\" between them",
						is_cluster_name};
const struct json_syntax syntax_endpoint_pattern = {
    "HOST, *.DOMAIN or [IPv6], each with or without :PORT", is_endpoint_pattern};
