/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of the smallest JVM that hotspot_ops attaches to: its tables, one heap of code with an
 * interpreter, a stub and a compiled method, and the method. Tests change words of it. Made by
 * hand; no JVM has these offsets.
 */
#pragma once

#include "agent/runtime/hotspot/hotspot.h"

enum {
	FORGED_BASE = 0x10000,
	FORGED_BYTES = 0x10000,
	/*
	 * libjvm.so has only variables. Behind FORGED_DESCS, the head of the list of stubs, there
	 * are none.
	 */
	FORGED_LIBRARY = 0x19000,
	FORGED_LIBRARY_BYTES = 0x2000,
	FORGED_DESCS = 0x100,
	/* Objects that frames refer to. */
	FORGED_METHOD = 0x18000,
	FORGED_COMPILED_PC = 0x14690,
	FORGED_COMPILED_BLOB = 0x14610,
	FORGED_COMPILED_ID = 7,
	FORGED_STUB_PC = 0x14484,
};

struct forged {
	uint8_t bytes[FORGED_BYTES];
	struct hotspot_image image;
	uint64_t reads;
};

void forged_init(struct forged *f);
/* Changes the JVM's tables: the offset of TYPE::FIELD (for a static field its address), or the
 * size of TYPE if FIELD is NULL. */
void forged_tell(struct forged *f, const char *type, const char *field, uint64_t value);
/* Names the blob that has the stub. */
void forged_name_stub(struct forged *f, const char *name);
void forged_word(struct forged *f, uint64_t address, uint64_t value);
struct runtime_target forged_target(struct forged *f);
