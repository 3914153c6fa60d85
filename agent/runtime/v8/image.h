/* SPDX-License-Identifier: Apache-2.0 */
/* What probe() found in a file with V8; all processes that run the file share it. */
#pragma once

#include "agent/runtime/v8/code.h"
#include "agent/runtime/v8/deopt.h"
#include "agent/runtime/v8/walker_data.h"

struct v8_image {
	struct v8_layout layout;
	struct v8_bytecodes bytecodes;
	struct kiln_v8 kernel;
	struct v8_opcodes opcodes;
};

extern const struct interpreter_ops v8_ops;
