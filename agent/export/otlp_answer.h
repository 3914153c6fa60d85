/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an OTLP receiver answers: the two messages that Kiln reads. Foreign bytes, so read through
 * lib/cursor.h. Any thread, no state.
 */
#pragma once

#include "lib/base.h"

enum {
	OTLP_MESSAGE_MAX = 256,
	/* A status, its message and a hint. */
	OTLP_WORDS_MAX = 512,
};

/* ExportProfilesServiceResponse.partial_success */
struct otlp_partial {
	int64_t rejected;		/* profiles */
	char message[OTLP_MESSAGE_MAX]; /* printable, cut */
};

/* google.rpc.Status with google.rpc.RetryInfo among its details */
struct otlp_status {
	int code;
	char message[OTLP_MESSAGE_MAX];
	bool has_retry;
	uint64_t retry_ms;
};

/* An empty answer is a full success. -EBADMSG: not that message. */
int otlp_response_parse(const void *data, size_t len, struct otlp_partial *ret) _must_check_;
int otlp_status_parse(const void *data, size_t len, struct otlp_status *ret) _must_check_;

/*
 * The text to show from the body of an HTTP error: the message of a google.rpc.Status, or the body
 * itself if it is plain text or JSON. False: neither, such as a proxy's HTML or binary data.
 */
bool otlp_body_words(const void *body, size_t len, char ret[OTLP_MESSAGE_MAX]);

/* Foreign words for a log line: control characters become spaces, what is too long is cut. */
void otlp_words(const void *text, size_t len, char ret[OTLP_MESSAGE_MAX]);
