// SPDX-License-Identifier: GPL-2.0
/* The program that walks the frames of walker.h. */
#define KILN_WALKER luajit_walk
#include "bpf/walker.h"

#include "agent/runtime/luajit/walker.h"

KILN_WALKER_PROGRAM(luajit);
