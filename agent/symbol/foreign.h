/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct foreign: opens files in the roots of other processes, where any directory may lie on a
 * filesystem that has stopped answering. A worker thread, which may hang, makes the calls. The
 * caller waits for it no longer than FOREIGN_DEADLINE_MS, and a root on which a call was late is
 * not touched for FOREIGN_LATE_KEEP_MS. One caller at a time.
 */
#pragma once

#include <limits.h>
#include <sys/stat.h>

#include "lib/base.h"

enum {
	FOREIGN_DEADLINE_MS = 1000,
	FOREIGN_LATE_KEEP_MS = 60000, /* how long a root is not touched after a late call */
	FOREIGN_HUNG_MAX = 8,	      /* hanging threads; with so many, nothing is opened */
	FOREIGN_ROOT_MAX = 256,
};

/* One call. The worker thread works on a copy of it. */
struct foreign_call {
	/* Returns a descriptor, 0, or a negative errno. May set STAT. */
	int (*run)(struct foreign_call *call);
	char root[FOREIGN_ROOT_MAX]; /* "/proc/PID/root" */
	char path[PATH_MAX];	     /* in it */
	bool nofollow;
	struct stat stat;
};

struct foreign;
int foreign_new(struct foreign **ret) _must_check_;
/* A hanging worker thread ends by itself when its call returns. */
struct foreign *foreign_free(struct foreign *f);
DEFINE_CLEANUP(struct foreign *, foreign_free)

/*
 * Runs CALL->run() on the worker thread. Returns its result; CALL->stat is what it has set.
 * -EHOSTDOWN: the call is late, or one on the same root was, or FOREIGN_HUNG_MAX threads hang; each
 * is counted in a metric. -EAGAIN, -ENOMEM: no thread can be started.
 */
int foreign_run(struct foreign *f, struct foreign_call *call);

/*
 * Opens a regular file as root_open_file() does; -EREMOTE: the file is on a remote filesystem,
 * where a read may hang.
 */
int foreign_open(struct foreign *f, const char *root, const char *path, bool nofollow);
/* stat(2) of the root itself. */
int foreign_stat_root(struct foreign *f, const char *root, struct stat *ret);
