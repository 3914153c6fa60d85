/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `--check`: reads the files that the operator would read at its start, and connects to nothing and
 * writes nothing. What only the API server knows (rights, objects) is not checked. Plain functions,
 * any thread.
 */
#include "operator/kube/credentials.h"
#include "operator/operator.h"
#include "operator/peers/peers.h"
#include "operator/stream/tls.h"

static int check_stream(enum operator_role role, const struct stream_options *o, struct error *err)
{
	struct stream_tls files = {0};
	int r = 0;

	if (!o->address && role != ROLE_CONTROLLER && (o->cert_file || o->ca_file))
		return error_set(err, -EINVAL,
				 "--stream-cert, --stream-ca: without --stream-address they have "
				 "no effect: give it, or leave them out");
	if (o->cert_file || (o->ca_file && role == ROLE_CONTROLLER))
		r = stream_tls_load(o->cert_file, o->key_file, o->ca_file, &files, err);
	stream_tls_done(&files);
	return r;
}

static int check_peers(const struct operator_options *o, struct error *err)
{
	int r = o->peers ? peers_check(o->peers, err) : 0;

	if (!r && o->peers_token && access(o->peers_token, R_OK) < 0)
		r = error_set(err, -errno, "--stream-token: %s: %s", o->peers_token,
			      strerror(errno));
	return r;
}

int operator_check(const struct operator_options *o, struct error *err)
{
	_cleanup_(kube_credentials_freep) struct kube_credentials *c = NULL;
	int r = kube_credentials_load(o->kubeconfig, o->context, &c, err);

	if (!r)
		r = check_peers(o, err);
	return r < 0 ? r : check_stream(o->role, &o->stream, err);
}
