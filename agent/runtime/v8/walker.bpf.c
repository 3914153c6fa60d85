// SPDX-License-Identifier: GPL-2.0
/* The program that walks the frames of walker.h. */
#define KILN_WALKER v8_walk
#include "bpf/walker.h"

#include "agent/runtime/v8/walker.h"

KILN_WALKER_PROGRAM(v8);
