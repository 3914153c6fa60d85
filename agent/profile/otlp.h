/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP profiles encoder: batch -> ExportProfilesServiceRequest, for the wire generations that
 * receivers speak (opentelemetry-proto: G4 = v1.8.0, G5 = v1.9.0, G6 = v1.10.0 and v1.11.0).
 * Any thread; no state.
 */
#pragma once

#include "agent/profile/batch.h"
#include "lib/error.h"

enum otlp_generation { OTLP_G4, OTLP_G5, OTLP_G6 };

enum { OTLP_REQUEST_MAX = 3670016 }; /* 3.5 MiB: below the 4 MiB default of gRPC receivers */

struct otlp_options {
	enum otlp_generation generation;
	size_t max_bytes; /* split threshold per request, uncompressed; 0 = OTLP_REQUEST_MAX */
};

/* One encoded request. otlp_requests_free() frees DATA. */
struct otlp_request {
	uint8_t *data;
	size_t len;
	int64_t samples; /* sum of CPU values inside, so that drops can be counted */
};

/*
 * Encodes BATCH into one or several requests, each under max_bytes, each with its own dictionary
 * that holds only what it uses. A single sample that does not fit is dropped and counted.
 * *ret_requests: array of *ret_n, freed with otlp_requests_free(). An empty batch gives none.
 */
int otlp_encode(const struct batch *batch, const struct otlp_options *options,
		struct otlp_request **ret_requests, size_t *ret_n, struct error *err) _must_check_;
void otlp_requests_free(struct otlp_request *requests, size_t n);

/* "v1.8", "v1.9", "v1.10", "v1.11", "g4", "g5", "g6", "auto" (= g6). */
int otlp_generation_parse(const char *text, enum otlp_generation *ret);
