/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exporter made for a Destination of the node stream. Its certificates and keys are in memory
 * files (memfd_create(2)) for as long as it lives, because the clients read files; nothing of a
 * Destination is written to disk. Loop thread.
 */
#pragma once

#include "agent/export/exporter.h"
#include "agent/meta/pods.h"

enum { LIVE_PEMS = 3 };

struct live_exporter {
	struct exporter *exporter;
	int pems[LIVE_PEMS]; /* -1: none */
	bool flushed;
	void (*done)(void *); /* of live_flush(); NULL: no flush is under way */
	void *arg;
};

/* Allocates *RET, because its address must not change. -EINVAL, -ENOMEM, -EIO; messages hold no
 * secrets. */
int live_exporter_new(const struct pod_destination *d, uint64_t queue_bytes, uv_loop_t *loop,
		      struct live_exporter **ret, struct error *err) _must_check_;
/*
 * Makes E, of the same type as D, use D's endpoint, TLS and headers, and keep its queue. PEMS: the
 * memory files that E uses (-1: none), which are replaced. On failure nothing changes.
 */
int live_redirect(struct exporter *e, const struct pod_destination *d, uv_loop_t *loop,
		  int pems[static LIVE_PEMS], struct error *err) _must_check_;
void live_close_pems(int pems[static LIVE_PEMS]);
/* May be called again with another deadline; only the last DONE is called. */
void live_flush(struct live_exporter *l, uint64_t deadline_ms, void (*done)(void *), void *arg);
/* Drops and counts what is still queued. The loop must run on to close its handles. Takes NULL. */
struct live_exporter *live_exporter_free(struct live_exporter *l);
/* The exporter type of a kind of destination, as in the configuration. */
const char *live_type(enum pod_destination_kind kind);
