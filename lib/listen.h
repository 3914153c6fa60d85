/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening TCP socket. Servers make it with this and not by their library, because libraries
 * only log why they could not listen, and the user is owed address and cause. Any thread.
 */
#pragma once

#include "lib/error.h"

/*
 * HOST "": all addresses, of IPv6 and IPv4; NULL: 127.0.0.1. PORT 0: any. *RET_FD does not block
 * and is the caller's to close; RET_ADDRESS is "address:port" as it is bound.
 */
int listen_tcp(const char *host, uint16_t port, int *ret_fd, char *ret_address, size_t address_size,
	       uint16_t *ret_port, bool *ret_loopback, struct error *err) _must_check_;
