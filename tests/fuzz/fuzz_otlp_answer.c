/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an answer of a receiver: as both messages, as words, and as a Retry-After header. */
#include "agent/export/otlp_answer.h"
#include "lib/backoff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_words(const char words[OTLP_MESSAGE_MAX])
{
	const char *p;

	if (strnlen(words, OTLP_MESSAGE_MAX) == OTLP_MESSAGE_MAX)
		abort();
	for (p = words; *p; p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = strndup((const char *)data, size);
	struct otlp_partial partial = {0};
	struct otlp_status status = {0};
	char words[OTLP_MESSAGE_MAX];
	uint64_t ms;

	if (otlp_response_parse(data, size, &partial) == 0 && partial.rejected < 0)
		abort();
	check_words(partial.message);
	if (otlp_status_parse(data, size, &status) == 0 && status.retry_ms > UINT64_C(1) << 60)
		abort();
	check_words(status.message);
	if (otlp_body_words(data, size, words))
		check_words(words);
	if (text && retry_after_parse(text, 1000000000, &ms) == 0 && ms > UINT64_C(1) << 60)
		abort();
	return 0;
}
