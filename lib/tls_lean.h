/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS connections that rest without buffers. OpenSSL keeps 17 KiB to read and 17 KiB to write for
 * each connection once they were needed, unless SSL_MODE_RELEASE_BUFFERS (SSL_CTX_set_mode(3)) says
 * otherwise, and libgrpc has no option for that. Linking this module makes every SSL_CTX of the
 * program such a one. Any thread.
 */
#pragma once

#include "lib/base.h"

/* How many were made; 0 after one was: the linker did not take this module's SSL_CTX_new(). */
uint64_t tls_lean_contexts(void);
