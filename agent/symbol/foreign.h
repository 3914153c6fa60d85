/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct foreign: opens files in the roots of other processes, where any directory may lie on a
 * filesystem that has stopped answering. A thread does it that may hang; who asks waits for it no
 * longer than a deadline, and a root that was late is not touched again for a while. One caller at
 * a time.
 */
#pragma once

#include <limits.h>
#include <sys/stat.h>

#include "lib/base.h"

enum {
	FOREIGN_DEADLINE_MS = 1000,
	FOREIGN_LATE_KEEP_MS = 60000, /* for which a root is left alone that was late */
	FOREIGN_HUNG_MAX = 8,	      /* threads that may hang; with so many nothing is opened */
	FOREIGN_ROOT_MAX = 256,
};

/* What is to be done. The thread works on a copy of it. */
struct foreign_call {
	/* A descriptor, 0, or a negative errno; sets STAT if that is what is asked for. */
	int (*run)(struct foreign_call *call);
	char root[FOREIGN_ROOT_MAX]; /* "/proc/PID/root" */
	char path[PATH_MAX];	     /* in it */
	bool nofollow;
	struct stat stat;
};

struct foreign;
int foreign_new(struct foreign **ret) _must_check_;
/* Threads that hang end by themselves, once they are answered. */
struct foreign *foreign_free(struct foreign *f);
DEFINE_CLEANUP(struct foreign *, foreign_free)

/*
 * What CALL->run() returns; CALL->stat is what it set. -EHOSTDOWN: it is late, or its root was, or
 * FOREIGN_HUNG_MAX others are; counted. -EAGAIN, -ENOMEM: there is no thread.
 */
int foreign_run(struct foreign *f, struct foreign_call *call);

/* Opens a regular file as root_open_file() does; -EREMOTE where its filesystem may hang (a read
 * would). */
int foreign_open(struct foreign *f, const char *root, const char *path, bool nofollow);
/* stat(2) of the root itself. */
int foreign_stat_root(struct foreign *f, const char *root, struct stat *ret);
