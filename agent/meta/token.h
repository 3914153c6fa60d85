/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's token: a projected ServiceAccount token in a file that the kubelet replaces long
 * before it expires. Plain functions.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum { TOKEN_MAX = 16384 };

struct token {
	char *text;	   /* secret */
	int64_t expires_s; /* Unix time of its "exp"; 0: it does not say, or is no JWT */
};

/*
 * -EINVAL: empty, or with characters that no header can have; -EFBIG: larger than TOKEN_MAX. ERR
 * names the file and never the token.
 */
int token_read(const char *path, struct token *ret, struct error *err) _must_check_;
void token_done(struct token *t); /* wipes it */
/* The "exp" of the token TEXT, Unix time; 0: none, or no JWT. Exposed for tests. */
int64_t token_expiry(const char *text);
