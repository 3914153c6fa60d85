/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What grpc_client and grpc_stream share of making a channel; not for others, because it shows the
 * C core's headers. Plain functions, loop thread.
 */
#pragma once

#include "lib/grpc_client.h"

#include <grpc/grpc.h>

struct grpc_headers { /* as the core wants them */
	grpc_metadata *items;
	size_t n;
};

/* Everything below needs the library; the last unref waits until its threads are gone. */
void grpc_library_ref(void);
void grpc_library_unref(void);

/*
 * -EINVAL with words when the options cannot work; does not connect. KEEPALIVE_MS: between two
 * pings; 0: none are sent.
 */
int grpc_channel_open(const struct grpc_client_options *options, uint64_t keepalive_ms,
		      size_t message_max, grpc_channel **ret, struct error *err) _must_check_;
int grpc_headers_make(const struct grpc_client_options *options, struct grpc_headers *ret,
		      struct error *err) _must_check_;
void grpc_headers_done(struct grpc_headers *headers);
