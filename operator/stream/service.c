/* SPDX-License-Identifier: Apache-2.0 */
/* What belongs to the server and must outlive it. Loop thread only. */
#include "operator/stream/service.h"

#include <time.h>

#include "lib/log.h"

enum {
	REVIEWS_QPS = 500,
	REVIEWS_BURST = 1000,
	NAME_MAX_LEN = 128,
};

struct stream_service {
	struct kube_client *client;
	struct stream_tls tls;
	struct node_server *server;
};

static int make_certificate(const char *ns, struct stream_tls *ret, struct error *err)
{
	char names[4][NAME_MAX_LEN];
	const char *all[] = {names[0],	  names[1],    names[2], names[3],
			     "localhost", "127.0.0.1", "::1",	 NULL};

	snprintf(names[0], sizeof(names[0]), "kiln-operator.%s.svc", ns);
	snprintf(names[1], sizeof(names[1]), "kiln-operator.%s.svc.cluster.local", ns);
	snprintf(names[2], sizeof(names[2]), "kiln-operator.%s", ns);
	snprintf(names[3], sizeof(names[3]), "kiln-operator");
	return stream_tls_make(all, (int64_t)time(NULL), ret, err);
}

static int start(struct stream_service *s, uv_loop_t *loop, const struct stream_options *o,
		 const struct kube_credentials *credentials, const char *ns,
		 const struct view_sources *sources, struct error *err)
{
	struct kube_client_options client = {.credentials = credentials,
					     .user_agent = "kiln-operator/" KILN_VERSION " (linux)",
					     .qps = REVIEWS_QPS,
					     .burst = REVIEWS_BURST};
	struct node_server_options server = {
	    .loop = loop, .address = o->address, .ns = ns, .sources = *sources};
	int r = o->cert_file ? stream_tls_load(o->cert_file, o->key_file, o->ca_file, &s->tls, err)
			     : make_certificate(ns, &s->tls, err);

	if (!r)
		r = kube_client_new(loop, &client, &s->client, err);
	if (r < 0)
		return r;
	server.tls = &s->tls;
	server.client = s->client;
	r = node_server_new(&server, &s->server, err);
	if (!r)
		log_info("stream", "serves agents on %s", o->address);
	return r;
}

int stream_service_new(uv_loop_t *loop, const struct stream_options *options,
		       const struct kube_credentials *credentials, const char *ns,
		       const struct view_sources *sources, struct stream_service **ret,
		       struct error *err)
{
	struct stream_service *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	r = start(s, loop, options, credentials, ns, sources, err);
	if (r < 0) {
		stream_service_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct stream_service *stream_service_free(struct stream_service *s)
{
	if (!s)
		return NULL;
	node_server_free(s->server);
	kube_client_free(s->client);
	stream_tls_done(&s->tls);
	free(s);
	return NULL;
}

struct node_server *stream_service_server(struct stream_service *s)
{
	return s ? s->server : NULL;
}

void stream_keep_annotations(struct pod_store *pods, const struct policy_set *policies)
{
	const struct cluster_config *cluster = policy_set_get_cluster(policies);
	const char *keys[CONFIG_KEYS_MAX + 1] = {NULL};

	for (size_t i = 0; cluster && i < cluster->metadata.pod_annotations.n; i++)
		if (i < CONFIG_KEYS_MAX)
			keys[i] = cluster->metadata.pod_annotations.items[i];
	if (pod_store_keep_annotations(pods, keys) < 0)
		log_error("stream", "out of memory: pods keep the annotations of before");
}
