/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form of a probe, the same grammar for flags, files and ClusterProfilingConfig:
 *
 *   uprobe:PATH:FUNCTION          a function of a file is called
 *   uretprobe:PATH:FUNCTION       ... and returns
 *   kprobe:FUNCTION               a function of the kernel is called
 *   tracepoint:SUBSYSTEM:NAME     a tracepoint of the kernel is passed
 *
 * each with an optional ",rate=N" at the end: how many samples of the probe each CPU takes in a
 * second at most. Pure, any thread.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum {
	PROBE_COUNT_MAX = 16, /* at once */
	PROBE_TEXT_MAX = 512, /* characters */
	PROBE_NAME_MAX = 255, /* of a function, a subsystem, a tracepoint */
	PROBE_RATE_DEFAULT = 100,
	PROBE_RATE_MAX = 10000,
};

enum probe_kind { PROBE_UPROBE, PROBE_URETPROBE, PROBE_KPROBE, PROBE_TRACEPOINT, PROBE_KIND_COUNT };

struct probe_spec {
	enum probe_kind kind;
	/* The probe's name: the text as given, without the rate. */
	char text[PROBE_TEXT_MAX + 1];
	char target[PROBE_TEXT_MAX + 1]; /* path, subsystem; "" for a kprobe */
	char name[PROBE_NAME_MAX + 1];	 /* of the function, of the tracepoint */
	uint32_t rate;			 /* 1..PROBE_RATE_MAX */
};

/* -EINVAL: ERR names the wrong part and what is wanted; *RET is untouched. */
int probe_spec_parse(const char *text, struct probe_spec *ret, struct error *err) _must_check_;
const char *probe_kind_name(enum probe_kind kind);
