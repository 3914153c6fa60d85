/* SPDX-License-Identifier: Apache-2.0 */
/* Why a request got no answer, in words that name the likely mistake in the configuration. */
#pragma once

#include "lib/base.h"

#include <curl/curl.h>

struct http_failure {
	CURLcode code;
	const char *said; /* curl's text */
	bool tls;	  /* the URL is https:// */
	bool answered;	  /* an earlier request to this URL got an answer */
};

/* Returns a constant or f->said. */
const char *http_failure_words(const struct http_failure *f);
