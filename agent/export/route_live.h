/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exporter made of a Destination of the node stream instead of the configuration. Certificates
 * and keys live in memory files (memfd_create(2)) as long as it does, since the clients read files;
 * nothing of a destination is ever on disk. Loop thread.
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

/* On the heap: its address must not change. -EINVAL, -ENOMEM, -EIO; messages tell no secrets. */
int live_exporter_new(const struct pod_destination *d, uint64_t queue_bytes, uv_loop_t *loop,
		      struct live_exporter **ret, struct error *err) _must_check_;
/*
 * E, of the same type as D, goes on with D's endpoint, TLS and headers, and with its own queue.
 * PEMS: its memory files of before (-1: none), which are replaced. On failure nothing changes.
 */
int live_redirect(struct exporter *e, const struct pod_destination *d, uv_loop_t *loop,
		  int pems[static LIVE_PEMS], struct error *err) _must_check_;
void live_close_pems(int pems[static LIVE_PEMS]);
/* May be asked again with another deadline; the last DONE counts. */
void live_flush(struct live_exporter *l, uint64_t deadline_ms, void (*done)(void *), void *arg);
/* Drops and counts what is left. The loop must run on. Takes NULL. */
struct live_exporter *live_exporter_free(struct live_exporter *l);
/* The exporter type of a kind of destination, as in the configuration. */
const char *live_type(enum pod_destination_kind kind);
