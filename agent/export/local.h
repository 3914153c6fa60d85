/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of exporters that write to this machine: a bounded queue of batches, and one job
 * at a time on the thread pool, so that neither a slow disk nor a full pipe blocks the loop.
 *
 * Loop thread: local_consume(), local_flush(), local_destroy(). Pool thread: the hooks and
 * local_write(). A destroyed exporter goes away once its last job has ended and its timer is
 * closed: the owner must run the loop once more after destroy (as libuv wants it for every handle).
 */
#pragma once

#include <stdatomic.h>

#include "agent/export/exporter.h"
#include "lib/metrics.h"
#include "lib/work.h"

enum { LOCAL_QUEUE_MAX = 32 }; /* batches */

struct local_exporter;

struct local_hooks {
	void (*consume)(struct local_exporter *l, struct batch *batch);
	/* Every batch was consumed and the agent is ending; may be NULL. */
	void (*finish)(struct local_exporter *l);
	/* Frees the exporter's own parts; l itself is freed by the caller. */
	void (*release)(struct local_exporter *l);
};

struct local_exporter {
	struct exporter base; /* first */
	const struct local_hooks *hooks;
	enum metric_id drops; /* samples not written */
	uv_loop_t *loop;
	struct work work;
	uv_timer_t deadline;
	struct batch *queue[LOCAL_QUEUE_MAX];
	size_t head, n;
	struct batch *current; /* of the running job; NULL: the job is finish() */
	bool busy, finished, destroyed;
	_Atomic bool stop; /* set when writes must give up at once */
	void (*done)(void *);
	void *done_arg;
	char *name;
	int fd; /* the descriptor of local_write(); -1: none */
	bool close_fd;
	bool broken; /* a write failed for good, and was logged */
};

/* Sets up L (zeroed by the caller). On failure L may be freed at once. */
int local_init(struct local_exporter *l, const struct exporter_ops *ops,
	       const struct local_hooks *hooks, enum metric_id drops,
	       const struct exporter_config *config, uv_loop_t *loop,
	       struct error *err) _must_check_;
/* Opens config->output, or takes standard output. */
int local_open(struct local_exporter *l, const struct exporter_config *config,
	       struct error *err) _must_check_;
/* Writes all of DATA, however slowly the reader reads; gives up only when the exporter stops. */
int local_write(struct local_exporter *l, const void *data, size_t len);
/* Whether local_replace_file() of PATH can work, as far as can be told beforehand. */
int local_check_path(const char *path, struct error *err) _must_check_;
/* Replaces the file at PATH whole: a reader sees the old file or the new one. */
int local_replace_file(const char *path, const void *data, size_t len, struct error *err);

/* Members of exporter_ops. */
void local_consume(struct exporter *e, struct batch *batch);
void local_flush(struct exporter *e, uint64_t deadline_ms, void (*done)(void *), void *arg);
struct exporter *local_destroy(struct exporter *e);
