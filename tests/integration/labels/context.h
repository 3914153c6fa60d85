/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publisher of OpenTelemetry's thread context and process context, written by the text of OTEP
 * 4947 and OTEP 4719 (opentelemetry-specification, oteps/profiles, August 2026).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct __attribute__((packed)) thread_context {
	uint8_t trace_id[16], span_id[8];
	uint8_t valid, trace_flags;
	uint16_t attributes_size;
	uint8_t attributes[612];
};

/* The pointer of this thread. */
void thread_context_attach(struct thread_context *c);
/* Appends an attribute. */
void thread_context_add(struct thread_context *c, uint8_t key, const char *value);
/* The trace id is made of N; the span id is made of the trace id, so that they check each other. */
void thread_context_set_ids(struct thread_context *c, uint64_t n);

/* Publishes the names of the keys 0, 1, ... -1: it cannot. */
int process_context_publish(const char *const *keys, size_t n);
