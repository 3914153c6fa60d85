/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as a whole: everything between the configuration and the exit code. */
#pragma once

#include "agent/config/config.h"
#include "lib/error.h"

/*
 * Profiles until the configured duration is over or a signal comes, then flushes the exporters.
 * 0 when all went well; -EPERM, -ENOSYS, -ENOTSUP when the kernel or the privileges do not allow
 * it, -EINVAL for a configuration that cannot be carried out.
 */
int agent_run(const struct config *config, struct error *err) _must_check_;
/*
 * --check: the configuration is valid by now. Writes what was found into OUT, a line a thing: also
 * as far as it came, when the kernel or the privileges do not allow profiling (as above). A
 * receiver that cannot be reached is told there and is no error: it may come later.
 */
int agent_check(const struct config *config, struct buf *out, struct error *err) _must_check_;
