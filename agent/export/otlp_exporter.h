/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of the OTLP exporters, which hand batches to a sender. Loop thread. */
#pragma once

#include "agent/export/sender.h"

#include "agent/export/exporter.h"
#include "lib/tls.h"

/* Takes ownership of TRANSPORT, also on failure. ENCODINGS: those that it can send, a bit each. */
int otlp_exporter_new(const struct exporter_ops *ops, const struct exporter_config *config,
		      struct transport *transport, enum payload_encoding encoding,
		      uint32_t encodings, uv_loop_t *loop, struct exporter **ret,
		      struct error *err) _must_check_;
void otlp_exporter_consume(struct exporter *exporter, struct batch *batch);
void otlp_exporter_flush(struct exporter *exporter, uint64_t deadline_ms, void (*done)(void *),
			 void *arg);
struct exporter *otlp_exporter_destroy(struct exporter *exporter);

/* See sender_set_transport(). Takes TRANSPORT. */
void otlp_exporter_set_transport(struct exporter *exporter, struct transport *transport);
bool otlp_exporter_healthy(const struct exporter *exporter, char *error, size_t size);
bool otlp_exporter_refused(const struct exporter *exporter, char *error, size_t size);

/* For status pages and tests. */
void otlp_exporter_stats(const struct exporter *exporter, struct sender_stats *ret);

/* Converts the configuration's TLS block for the clients; the strings are borrowed from it. */
struct tls_options otlp_tls_options(const struct tls_config *config);

/* Makes a transport that sends nothing, for a configuration with awaits_operator. -ENOMEM. */
int otlp_waiting_transport_new(const struct exporter_config *config,
			       struct transport **ret) _must_check_;
/* One transport a protocol, in otlp_grpc.c and otlp_http.c. */
int otlp_grpc_transport_new(const struct exporter_config *config, uv_loop_t *loop,
			    struct transport **ret, struct error *err) _must_check_;
int otlp_http_transport_new(const struct exporter_config *config, uv_loop_t *loop,
			    struct transport **ret, struct error *err) _must_check_;
