/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct kube_client: HTTP to one API server, on libcurl's multi interface and the loop's thread.
 * Connections are kept and reused, HTTP/2 where the server speaks it. The token file is read again
 * every 60 s and after a 401 (then the request is tried once more); CA and client certificate when
 * their files change. Requests wait in a bounded queue for a token bucket (client-go's default is
 * 5 a second with a burst of 10; ours is given at construction); watches do not.
 *
 * Every call ends exactly once: done() is called from the loop, never from inside kube_call(), or
 * the caller cancels it and hears no more of it. Callbacks may make calls, cancel any call and free
 * the client. The process must ignore SIGPIPE.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */
#include "lib/error.h"
#include "operator/kube/credentials.h"
#include "operator/kube/resource.h"

#include <uv.h>

enum {
	KUBE_BODY_MAX = 4 << 20, /* bytes of an answer that is collected; etcd takes 1.5 MiB */
	KUBE_CALLS_MAX = 4096,	 /* under way or waiting; more: -EBUSY */
};

#define KUBE_PROTOBUF_OR_JSON "application/vnd.kubernetes.protobuf, application/json"
#define KUBE_PARTIAL_LIST                                                                          \
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#define KUBE_PARTIAL                                                                               \
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

struct kube_client;
struct kube_call;

struct kube_client_options {
	const struct kube_credentials *credentials; /* borrowed for the client's life */
	const char *user_agent;			    /* "kiln-operator/0.1.0 (linux/amd64)" */
	double qps;				    /* 0: no limit */
	unsigned int burst;
	bool gzip;	     /* ask for compressed answers, unless the credentials say no */
	uint64_t connect_ms; /* 0: 30 s */
	uint64_t token_ms;   /* after which the token file is read again; 0: 60 s */
};

struct kube_answer {
	int status; /* HTTP; 0: no whole answer came (a stream was cut), MESSAGE says why */
	const char *message; /* of the answer's Status object when it is an error; one line */
	const char *reason;  /* Status.reason: "NotFound", "Conflict", "Expired"; "" when none */
	const char *content_type;
	const uint8_t *body; /* NULL when it was streamed */
	size_t len;
	uint64_t retry_after_ms; /* 0: not said */
	bool connection_reset;
};

struct kube_request {
	const char *method; /* "GET", "POST", "PUT", "PATCH", "DELETE" */
	const char *path;   /* from kube_path(); copied */
	const char *accept; /* NULL: application/json */
	const char *content_type;
	const void *body; /* copied */
	size_t len;
	/* From when the call leaves the queue, retries included; 0: 32 s. Ignored for streams. */
	uint64_t timeout_ms;
	uint64_t idle_ms; /* of a stream: no byte for so long ends it; 0: never */
	bool unlimited;	  /* does not wait for the token bucket: leases, watches */
	bool bulk;	  /* for large responses: uses a connection of its own */
	/*
	 * When set, a 200 answer is streamed: bytes as they come, content type as answered.
	 * Negative ends the call with that errno's text. Other statuses are collected as usual.
	 */
	int (*data)(void *arg, const char *content_type, const void *bytes, size_t len);
	void (*done)(void *arg, const struct kube_answer *answer); /* may be NULL */
	void *arg;
	/*
	 * Unset: after an answer with Retry-After the request is repeated when that time has
	 * passed, up to 10 times: any request after 429 and 503, a GET after every 5xx. Set: the
	 * caller gets that answer.
	 */
	bool no_retry;
};

int kube_client_new(uv_loop_t *loop, const struct kube_client_options *options,
		    struct kube_client **ret, struct error *err) _must_check_;
/* Cancels all calls. Run the loop on: its handles close there. */
struct kube_client *kube_client_free(struct kube_client *client);
DEFINE_CLEANUP(struct kube_client *, kube_client_free)

/* RET may be NULL. -EBUSY, -ENOMEM. */
int kube_call(struct kube_client *client, const struct kube_request *request,
	      struct kube_call **ret) _must_check_;
/*
 * done() is not called. Over HTTP/2 the server is told with the next request at the latest (curl
 * 7.88).
 */
void kube_cancel(struct kube_call *call);

/* For /metrics: rest_client_requests_total by method and code ("<error>" for none). */
void kube_client_on_result(struct kube_client *client,
			   void (*seen)(void *arg, const char *method, int status), void *arg);
