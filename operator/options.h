/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's command line and environment (docs/operator.md). Strings are borrowed from both.
 */
#pragma once

#include "lib/error.h"
#include "lib/log.h"
#include "lib/parse.h"
#include "operator/stream/service.h"

/*
 * What a process does: serve agents, for which it is reachable from the network, or write the
 * cluster's objects, or both.
 */
enum operator_role { ROLE_ALL, ROLE_STREAM, ROLE_CONTROLLER };

enum options_action { OPTIONS_RUN, OPTIONS_CHECK, OPTIONS_SHOW_HELP, OPTIONS_SHOW_VERSION };

struct operator_options {
	enum operator_role role; /* --role */
	const char *ns;		 /* --namespace, $POD_NAMESPACE, the credentials' own */
	const char *pod_name;	 /* $POD_NAME, the host's name */
	const char *agent_image; /* --agent-image, $KILN_AGENT_IMAGE */
	const char *kubeconfig;	 /* --kubeconfig; NULL: $KUBECONFIG, in-cluster */
	const char *context;	 /* --context */
	struct host_port health, metrics;
	struct stream_options stream;	 /* --stream-address, --stream-cert, --stream-key */
	const char *peers, *peers_token; /* --stream-peers, --stream-token */
	bool leader_elect;
	enum log_level level;
};

/* -EINVAL with one line that names the option. */
int options_parse(int argc, char *const *argv, struct operator_options *ret,
		  enum options_action *ret_action, struct error *err) _must_check_;
const char *options_help(void);
