// SPDX-License-Identifier: GPL-2.0
/* The program that walks the frames of walker.h. */
#define KILN_WALKER perl_walk
#include "bpf/walker.h"
#include "bpf/text.h"

#include "agent/runtime/perl/walker.h"

KILN_WALKER_PROGRAM(perl);
