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
 * --check, with a valid configuration. Writes one line for each thing that was checked into OUT;
 * on failure (the same errors as above) OUT has the lines up to there. A receiver that cannot be
 * reached is reported in its line and is not a failure: it may start later.
 */
int agent_check(const struct config *config, struct buf *out, struct error *err) _must_check_;
