/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The architecture whose processes are walked. A BPF program is told by __TARGET_ARCH_*, host code
 * by its compiler; KILN_TARGET_ARM64 builds the walk over recorded arm64 memory on another machine.
 */
#pragma once

#if defined(__TARGET_ARCH_arm64) || defined(KILN_TARGET_ARM64) ||                                  \
    (defined(__aarch64__) && !defined(__TARGET_ARCH_x86))
#include "arch_arm64.h"
#else
#include "arch_x86.h"
#endif
