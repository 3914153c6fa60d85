/* SPDX-License-Identifier: GPL-2.0 */
/* The program that walks samples of processes with HotSpot. */
#define KILN_WALKER hotspot_walk
#include "bpf/walker.h"

#include "walker.h"

KILN_WALKER_PROGRAM(hotspot);
