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
/* --check: configuration is valid by now; tells whether the kernel would do. */
int agent_check(const struct config *config, struct error *err) _must_check_;
