/* SPDX-License-Identifier: Apache-2.0 */
/* Does a receiver of OTLP take profiles? For --check; any thread, which waits for the answer. */
#pragma once

#include "agent/config/config.h"

enum { OTLP_PROBE_WORDS_MAX = 1280 };

/*
 * Sends an empty request, which costs the receiver nothing, with everything that a real one would
 * have (TLS, headers, path). The answer within TIMEOUT_MS, in WORDS: true when it was taken.
 */
bool otlp_probe(const struct exporter_config *config, uint64_t timeout_ms,
		char words[OTLP_PROBE_WORDS_MAX]);
