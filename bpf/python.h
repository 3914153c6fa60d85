/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The walk of Python frames; included by unwind.h, for BPF and for the host. */
#pragma once

KILN_GLOBAL int python_walk(struct kiln_walk *w)
{
	if (!w)
		return 0;
	walk_missing(w, KILN_RUNTIME_PYTHON, KILN_MISSING_UNKNOWN);
	return 0;
}
