/* SPDX-License-Identifier: Apache-2.0 */
/* The kubeconfig's side of struct kube_credentials. */
#pragma once

#include "operator/kube/credentials.h"

enum {
	KUBECONFIG_FILES_MAX = 16,     /* in $KUBECONFIG */
	KUBECONFIG_FILE_MAX = 8 << 20, /* bytes */
	KUBECONFIG_DATA_MAX = 1 << 20, /* bytes of a -data key, decoded */
	KUBE_TOKEN_MAX = 64 << 10,     /* bytes; the API server takes 1 MiB of headers */
};

/*
 * PATHS: one file, or several with ':' between. Of several files the first that has an entry (a
 * context, a cluster, a user of that name, the current context) is used for it. Files that do not
 * exist are skipped unless REQUIRED. -ENOENT: there is no file with content.
 */
int kubeconfig_load(const char *paths, bool required, const char *context,
		    struct kube_credentials **ret, struct error *err) _must_check_;
/*
 * Copies SERVER, "https://host:port[/path]", with the scheme in lower case and without a slash at
 * the end. -EINVAL with a message.
 */
int kube_server_check(const char *server, char **ret, struct error *err) _must_check_;
/* True when TOKEN has only characters that a header can carry, at most KUBE_TOKEN_MAX. */
bool kube_token_valid(const char *token);
