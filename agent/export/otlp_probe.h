/* SPDX-License-Identifier: Apache-2.0 */
/* Asks an OTLP receiver whether it accepts profiles, for --check. Blocks; any thread. */
#pragma once

#include "agent/config/config.h"

enum { OTLP_PROBE_WORDS_MAX = 1280 };

/*
 * Sends an export request without profiles, with the TLS settings, headers and path of a real one,
 * and waits up to TIMEOUT_MS. True: it was accepted. WORDS gets the result as text in any case.
 */
bool otlp_probe(const struct exporter_config *config, uint64_t timeout_ms,
		char words[OTLP_PROBE_WORDS_MAX]);
