/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kube_credentials: the address of the API server and our credentials, from the pod's
 * service account or from a kubeconfig. Files that may change (token, CA, client certificate) are
 * kept by name, not read: the client re-reads them. Inline data of a kubeconfig (the *-data keys)
 * is kept in memory and never logged. Plain functions, any thread.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

struct kube_credentials {
	char *server;	   /* "https://10.96.0.1:443", brackets around IPv6; no slash at the end */
	char *server_name; /* tls-server-name; NULL: the host of `server` */
	char *proxy_url;   /* NULL: from the environment */
	char *ca_file, *ca_pem; /* at most one; none: the system's roots */
	char *cert_file, *cert_pem, *key_file, *key_pem;
	char *token_file, *token;
	char *default_namespace; /* of the service account or the context; "default" */
	bool skip_verify;
	bool no_compression; /* disable-compression of a cluster */
	bool in_cluster;
};

/*
 * KUBECONFIG_PATH, else $KUBECONFIG, else in-cluster (KUBERNETES_SERVICE_HOST and the projected
 * service account), else ~/.kube/config. CONTEXT may be NULL. exec and auth-provider plugins are
 * refused: -ENOTSUP with what to do instead. Errors name file, line and key.
 */
int kube_credentials_load(const char *kubeconfig_path, const char *context,
			  struct kube_credentials **ret, struct error *err) _must_check_;
/* ROOT: the directory of the service account, for tests; NULL: where the kubelet mounts it. */
int kube_credentials_in_cluster(const char *root, struct kube_credentials **ret,
				struct error *err) _must_check_;
struct kube_credentials *kube_credentials_free(struct kube_credentials *c);
DEFINE_CLEANUP(struct kube_credentials *, kube_credentials_free)
