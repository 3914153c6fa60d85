/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test objects: random pods as protobuf-c messages, their bytes in both encodings, and a text of
 * what a decoder must see in them, to be compared with the text of what it saw.
 */
#pragma once

#include "lib/buf.h"
#include "operator/kube/decode.h"

#include "k8s/core_v1_subset.pb-c.h"

/* State of the generator: the same seed gives the same objects everywhere. */
struct sample_random {
	uint64_t state;
};
uint32_t sample_below(struct sample_random *r, uint32_t n);

/* Free with k8s__pod__free_unpacked(), k8s__endpoint_slice__free_unpacked(). */
K8s__Pod *sample_pod(struct sample_random *r);
K8s__EndpointSlice *sample_endpoint_slice(struct sample_random *r);

/* Append to OUT. PRETTY: with newlines and tabs. Text is escaped as Go does, and in ways that Go
 * does not use. */
void sample_pack(const void *message, struct buf *out);
void sample_pod_json(const K8s__Pod *pod, bool pretty, struct buf *out);
void sample_endpoint_slice_json(const K8s__EndpointSlice *slice, bool pretty, struct buf *out);

/* "k8s\0" and Unknown around RAW. */
void sample_envelope(const char *kind, const void *raw, size_t len, struct buf *out);
/* A watch frame: 4 bytes of length and WatchEvent around an envelope around RAW. */
void sample_frame(const char *type, const char *kind, const void *raw, size_t len, struct buf *out);

/* The expected text of a message, and the text of a decoded view. */
void sample_expect_pod(const K8s__Pod *pod, struct buf *out);
void sample_expect_endpoint_slice(const K8s__EndpointSlice *slice, struct buf *out);
void sample_saw_meta(const struct meta_view *m, struct buf *out);
void sample_saw_pod(const struct pod_view *v, struct buf *out);
void sample_saw_endpoint_slice(const struct endpoint_slice_view *v, struct buf *out);
