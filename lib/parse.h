/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict parsing of what people write in files, flags and environment variables: the whole string
 * is the value or it is refused (-EINVAL: not of this form, -ERANGE: does not fit). The caller, who
 * knows where the text came from, writes the message. Outputs are untouched on failure.
 */
#pragma once

#include "lib/base.h"

enum { PARSE_HOST_MAX = 253 }; /* longest DNS name (RFC 1035 §2.3.4) */

/* Decimal digits or 0x and hexadecimal ones; no sign, no blanks, no leading zeros. */
int parse_u64(const char *s, uint64_t *ret) _must_check_;
/* The same with an optional '-'. */
int parse_i64(const char *s, int64_t *ret) _must_check_;
/* Decimal fraction with optional sign and exponent, finite, '.' in every locale. */
int parse_double(const char *s, double *ret) _must_check_;
/* true True TRUE false False FALSE: what the Collector's YAML takes for a boolean, nothing else. */
int parse_bool(const char *s, bool *ret) _must_check_;
/* Go's time.ParseDuration without a sign: "5s", "1m30s", "1.5h", "100ms", "0"; nanoseconds. */
int parse_duration(const char *s, uint64_t *ret_ns) _must_check_;
/* "512", "64MiB", "1.5 GiB", "10KB": bytes. Ki Mi Gi Ti are powers of 1024, k K M G T of 1000. */
int parse_size(const char *s, uint64_t *ret_bytes) _must_check_;

struct host_port {
	char host[PARSE_HOST_MAX + 1]; /* without brackets; "" = all addresses */
	uint16_t port;
};
/* "host:4317", "1.2.3.4:80", "[::1]:4317", ":1777". The port is required. */
int parse_host_port(const char *s, struct host_port *ret) _must_check_;

/*
 * "%41" -> "A" as in W3C Baggage, in place; -EINVAL on a broken escape or on %00.
 */
int parse_percent_decode(char *s) _must_check_;

/* Edits (insert, delete, replace, swap of neighbours) that turn A into B, without regard to case
 * and '_'; at most 64 characters of each are looked at. */
unsigned int parse_edit_distance(const char *a, const char *b);
/* Equal without regard to case and '_': samples_per_second, SamplesPerSecond. */
bool parse_same_name(const char *a, const char *b);

/* Control characters become '?', in place: what a user wrote stays on one line of a message. */
void parse_make_printable(char *s);
