/* SPDX-License-Identifier: Apache-2.0 */
/* The address is chosen by family, not by getaddrinfo()'s order, so that it is the same everywhere.
 */
#include "lib/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
	}
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static void format_address(char *out, size_t size, const char *host, uint16_t port)
{
	if (strchr(host, ':'))
		snprintf(out, size, "[%s]:%u", host, port);
	else
		snprintf(out, size, "%s:%u", host, port);
}

/* Returns a listening fd or a negative errno. */
static int listen_on(const struct addrinfo *ai)
{
	_cleanup_close_ int fd = -1;
	int one = 1, zero = 0;

	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* A restart must not wait for the old connections' TIME_WAIT. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0)
		return -errno;
	if (ai->ai_family == AF_INET6 &&
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero)) < 0)
		return -errno;
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
		return -errno;
	return TAKE_FD(fd);
}

static int bound_port(int fd, uint16_t *ret)
{
	struct sockaddr_storage ss = {0};
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return -errno;
	if (ss.ss_family == AF_INET)
		*ret = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	else
		*ret = ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
	return 0;
}

/*
 * The address to take: for all addresses the IPv6 wildcard (which takes IPv4 too), else IPv4 before
 * IPv6, so that "localhost" is the same everywhere.
 */
static const struct addrinfo *choose(const struct addrinfo *list, int family)
{
	for (const struct addrinfo *ai = list; ai; ai = ai->ai_next)
		if (ai->ai_family == family)
			return ai;
	return NULL;
}

int listen_tcp(const char *host, uint16_t port, int *ret_fd, char *ret_address, size_t address_size,
	       uint16_t *ret_port, bool *ret_loopback, struct error *err)
{
	const struct addrinfo hints = {
	    .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	    .ai_socktype = SOCK_STREAM,
	};
	const bool any = host && !host[0];
	const int order[] = {any ? AF_INET6 : AF_INET, any ? AF_INET : AF_INET6};
	struct addrinfo *list = NULL;
	char service[8], text[INET6_ADDRSTRLEN + 16], address[128];
	int r, fd = -EADDRNOTAVAIL;
	bool loopback = false;
	uint16_t real = 0;

	if (!host)
		host = "127.0.0.1";
	snprintf(service, sizeof(service), "%u", port);
	format_address(address, sizeof(address), host, port);
	r = getaddrinfo(any ? NULL : host, service, &hints, &list);
	if (r)
		return error_set(err, -EADDRNOTAVAIL, "cannot listen on %s: %s", address,
				 r == EAI_SYSTEM ? strerror(errno) : gai_strerror(r));
	for (size_t i = 0; i < ARRAY_SIZE(order) && fd < 0; i++) {
		const struct addrinfo *ai = choose(list, order[i]);

		if (!ai)
			continue;
		if (getnameinfo(ai->ai_addr, ai->ai_addrlen, text, sizeof(text), NULL, 0,
				NI_NUMERICHOST))
			snprintf(text, sizeof(text), "%s", host);
		loopback = is_loopback(ai->ai_addr);
		fd = listen_on(ai);
		/* Only a kernel without this address family is a reason to try the other. */
		if (fd < 0 && fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL)
			break;
	}
	freeaddrinfo(list);
	if (fd < 0)
		return error_set(err, fd, "cannot listen on %s: %s", address, strerror(-fd));
	r = bound_port(fd, &real);
	if (r < 0) {
		close(fd);
		return error_set(err, r, "cannot listen on %s: %s", address, strerror(-r));
	}
	format_address(ret_address, address_size, text, real);
	*ret_fd = fd;
	*ret_port = real;
	*ret_loopback = loopback;
	return 0;
}
