/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening TCP socket. Servers open it with this function instead of through their library,
 * because libraries only log why listening failed, and the user must see address and cause. Any
 * thread.
 */
#pragma once

#include "lib/error.h"

/*
 * HOST "": all addresses, IPv6 and IPv4; NULL: 127.0.0.1. PORT 0: any free port. *RET_FD is
 * non-blocking, and the caller closes it; RET_ADDRESS is the bound "address:port".
 */
int listen_tcp(const char *host, uint16_t port, int *ret_fd, char *ret_address, size_t address_size,
	       uint16_t *ret_port, bool *ret_loopback, struct error *err) _must_check_;
