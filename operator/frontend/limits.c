/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of unauthenticated connections allowed: they get a sixteenth of the container's memory
 * limit, 48 MiB at most, which includes the kernel's memory for their sockets. Half of it is for
 * opened ones.
 */
#include "operator/frontend/internal.h"

enum {
	SHARE = 16,
	SHARE_MAX = 48 << 20,
	SHARE_MIN = 4 << 20,
	OUTSIDE_BYTES = 12 << 10, /* a socket with a ClientHello of the maximum size */
	OPENED_BYTES = 48 << 10,  /* TLS, a socket pair and the server's HTTP/2 session */
	HELLO_MS = 10000,
	TURN_MS = 30000,
	GRANT_MS = 10000,
	SPARE_MS = 2000,
	HANDSHAKES_PER_S = 1000, /* 5,000 agents in 5 s; junk at most a third of a core */
	EARLY_BYTES = 64 << 10,	 /* an agent needs 2 to 20 KiB: a token is among its headers */
};

/* The memory limits of cgroup v2 and v1, at the paths inside a container. */
static const char *const files[] = {"/sys/fs/cgroup/memory.max",
				    "/sys/fs/cgroup/memory/memory.limit_in_bytes"};

uint64_t frontend_memory_limit(const char *file)
{
	_cleanup_fclose_ FILE *f = fopen(file, "re");
	unsigned long long limit;

	/* "max" of v2 is no number. The value of v1 for no limit is more than any machine has. */
	return f && fscanf(f, "%llu", &limit) == 1 ? limit : UINT64_MAX;
}

void frontend_limits_of(uint64_t memory, struct frontend_limits *ret)
{
	size_t share = MAX(MIN(memory / SHARE, (uint64_t)SHARE_MAX), (uint64_t)SHARE_MIN);

	*ret = (struct frontend_limits){.outside = share / 2 / OUTSIDE_BYTES,
					.opened = share / 2 / OPENED_BYTES,
					.hello_ms = HELLO_MS,
					.turn_ms = TURN_MS,
					.grant_ms = GRANT_MS,
					.spare_ms = SPARE_MS,
					.handshakes_per_s = HANDSHAKES_PER_S,
					.unauthenticated_bytes = EARLY_BYTES};
}

void frontend_limits_default(struct frontend_limits *ret)
{
	uint64_t memory = UINT64_MAX;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		memory = MIN(memory, frontend_memory_limit(files[i]));
	frontend_limits_of(memory, ret);
}
