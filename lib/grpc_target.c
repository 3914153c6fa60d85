/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forms are those of gRPC's naming document (grpc/grpc, doc/naming.md), but the port has no
 * default, and an explicit DNS server (dns://SERVER/HOST) is refused: names are resolved as the
 * system is configured.
 */
#include "lib/grpc_target.h"

#include <sys/un.h>

#include "lib/parse.h"

static int refuse(const char *endpoint, struct error *err)
{
	/* A URL may hold a password: do not repeat it in the message. */
	return error_set(err, -EINVAL,
			 "endpoint: want host:port, http://, https://, dns:/// or unix:, got %s",
			 strchr(endpoint, '@') ? "one with a user (not shown)" : endpoint);
}

static int unix_target(const char *path, struct grpc_target *t, struct error *err)
{
	/* unix:///path: the authority between the slashes is empty. */
	if (has_prefix(path, "//"))
		path += 2;
	if (!*path || strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return error_set(err, -EINVAL, "endpoint: unix: want a path of up to 107 bytes");
	t->path = strdup(path);
	t->authority = strdup("localhost");
	return t->path && t->authority ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static int host_target(const char *endpoint, const char *text, size_t len, struct grpc_target *t,
		       struct error *err)
{
	char copy[PARSE_HOST_MAX + 16];
	struct host_port hp;

	if (len >= sizeof(copy))
		return refuse(endpoint, err);
	memcpy(copy, text, len);
	copy[len] = 0;
	if (parse_host_port(copy, &hp) < 0 || !hp.host[0] || !hp.port || strpbrk(hp.host, "/ "))
		return refuse(endpoint, err);
	t->port = hp.port;
	t->host = strdup(hp.host);
	t->authority = strdup(copy);
	return t->host && t->authority ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static int parse(const char *endpoint, struct grpc_target *t, struct error *err)
{
	const char *rest = endpoint;
	bool is_url = false;
	size_t len;

	if (has_prefix(endpoint, "unix:"))
		return unix_target(endpoint + strlen("unix:"), t, err);
	if (has_prefix(endpoint, "dns:///")) {
		rest += strlen("dns:///");
	} else if (has_prefix(endpoint, "http://")) {
		rest += strlen("http://");
		is_url = t->plaintext = true;
	} else if (has_prefix(endpoint, "https://")) {
		rest += strlen("https://");
		is_url = true;
		t->plaintext = false;
	} else if (strstr(endpoint, "://")) {
		return refuse(endpoint, err);
	}
	len = strlen(rest);
	if (is_url && len > 0 && rest[len - 1] == '/')
		len--;
	return host_target(endpoint, rest, len, t, err);
}

int grpc_target_parse(const char *endpoint, bool insecure, struct grpc_target *ret,
		      struct error *err)
{
	struct grpc_target t = {.plaintext = insecure};
	int r = parse(endpoint, &t, err);

	if (r < 0) {
		grpc_target_done(&t);
		return r;
	}
	*ret = t;
	return 0;
}

void grpc_target_done(struct grpc_target *t)
{
	free(t->host);
	free(t->path);
	free(t->authority);
	*t = (struct grpc_target){0};
}
