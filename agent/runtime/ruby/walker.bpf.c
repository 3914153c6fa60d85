// SPDX-License-Identifier: GPL-2.0
/* The program that walks the frames of walker.h. */
#define KILN_WALKER ruby_walk
#include "bpf/walker.h"
#include "bpf/text.h"

#include "agent/runtime/ruby/walker.h"

KILN_WALKER_PROGRAM(ruby);
