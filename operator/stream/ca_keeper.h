/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct ca_keeper: the CA of the node stream, which all replicas share by the Secret
 * kiln-stream-ca, and this replica's certificate of it. The leader makes and rotates the CA (ca.h)
 * and publishes the ConfigMap kiln-stream-ca, which the agents mount. The role stream only reads
 * the Secret; the role controller signs no certificate. Loop thread only.
 */
#pragma once

#include "operator/reconcile/recorder.h"
#include "operator/stream/ca.h"
#include "operator/stream/tls.h"

#include <uv.h>

struct ca_keeper;

struct ca_keeper_options {
	uv_loop_t *loop;
	struct kube_client *client;
	struct recorder *events; /* may be NULL */
	const char *ns;
	int64_t life_s; /* of a CA; 0: STREAM_CA_LIFE_S */
	/*
	 * If set, certificates come from elsewhere and only this bundle is published. Copied; may
	 * be NULL.
	 */
	const char *bundle;
	/* True while we lead; asked before each write. NULL: the CA is only read. */
	bool (*may_write)(void *arg);
	/* There is a new certificate to present. NULL: none is signed. */
	void (*renewed)(void *arg, const struct stream_tls *tls);
	void *arg;
	int64_t (*now)(void *arg); /* seconds since the epoch; NULL: the clock's */
};

struct ca_keeper_counts {
	uint64_t signed_certificates, rotations /* steps that were written */, repairs, failures;
	int64_t ca_end, certificate_end; /* seconds since the epoch; 0: none */
	unsigned int bundle_certificates;
};

int ca_keeper_new(const struct ca_keeper_options *options, struct ca_keeper **ret,
		  struct error *err) _must_check_;
/* Run the loop on after this. Takes NULL. */
struct ca_keeper *ca_keeper_free(struct ca_keeper *k);
/* Starts a round at once, because the lead was gained. Takes NULL. */
void ca_keeper_look(struct ca_keeper *k);
/* This replica's certificate; NULL: there is none yet. */
const struct stream_tls *ca_keeper_certificate(const struct ca_keeper *k);
/* The bundle that this replica, as the leader, publishes for agents; NULL: none yet. */
const char *ca_keeper_bundle(const struct ca_keeper *k);
void ca_keeper_read(const struct ca_keeper *k, struct ca_keeper_counts *ret);
