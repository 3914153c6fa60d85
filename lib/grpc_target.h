/* SPDX-License-Identifier: Apache-2.0 */
/* struct grpc_target: where a gRPC endpoint is. Plain functions, any thread. */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

struct grpc_target {
	char *host; /* a name or an address, without brackets; NULL when it is a socket at `path` */
	char *path; /* of a Unix socket */
	uint16_t port;
	/* What HTTP/2 and a proxy get as the authority: host:port, or "localhost". */
	char *authority;
	bool plaintext;
};

/*
 * ENDPOINT: host:port, http://host:port (plaintext), https://host:port (TLS), dns:///host:port,
 * unix:path or unix:///path. INSECURE: plaintext, when no scheme says otherwise. -EINVAL, -ENOMEM.
 */
int grpc_target_parse(const char *endpoint, bool insecure, struct grpc_target *ret,
		      struct error *err) _must_check_;
void grpc_target_done(struct grpc_target *target);
