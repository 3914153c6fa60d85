/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct ca_keeper: the CA of the node stream, which all replicas share by the Secret
 * kiln-stream-ca, and this replica's certificate of it. Whoever leads makes and rotates it (ca.h)
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
	/* Certificates come from elsewhere: only this bundle is published. Copied; may be NULL. */
	const char *bundle;
	/* Do we lead? Asked before each write. NULL: the CA is only read. */
	bool (*may_write)(void *arg);
	/* A certificate that is to be shown from now on. NULL: none is signed. */
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
/* Looks now: the lead was gained. Takes NULL. */
void ca_keeper_look(struct ca_keeper *k);
/* What is shown; NULL: there is none yet. */
const struct stream_tls *ca_keeper_certificate(const struct ca_keeper *k);
/* What is published for agents, by us who lead; NULL: nothing yet. */
const char *ca_keeper_bundle(const struct ca_keeper *k);
void ca_keeper_read(const struct ca_keeper *k, struct ca_keeper_counts *ret);
