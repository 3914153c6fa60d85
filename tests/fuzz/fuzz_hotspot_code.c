// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes as a piece of the machine's own code: its rules are made in bounded time. The first
 * byte tells the kind of piece, the second its name and, for a blob, its frame.
 */
#include "agent/runtime/hotspot/hotspot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CODE = 0x10000, NAME = 0x1000, HEAD = 2 };

struct input {
	const uint8_t *code;
	size_t size;
	const char *name;
};

static int read_input(void *arg, uint64_t address, void *dst, size_t len)
{
	const struct input *in = arg;
	size_t name = strlen(in->name) + 1;

	if (address >= CODE && address - CODE <= in->size && len <= in->size - (address - CODE))
		memcpy(dst, in->code + (address - CODE), len);
	else if (address >= NAME && address - NAME <= name && len <= name - (address - NAME))
		memcpy(dst, in->name + (address - NAME), len);
	else
		return -EFAULT;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = {
	    "method entry point", "return entry points", "iadd",
	    "StubRoutines (1)",	  "cont_thaw",		 "call_stub"};
	struct input in;
	struct hotspot_process p = {.kernel.frame_bytecode = 0x40};
	struct target_memory memory = {.read = read_input, .arg = &in};
	struct hotspot_piece piece = {.start = CODE, .name = NAME, .bytecode = -1};
	struct hotspot_pieces pieces = {.v = &piece, .n = 1, .interpreter = CODE};
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;

	if (size <= HEAD)
		return 0;
	in = (struct input){data + HEAD, size - HEAD, names[data[1] % ARRAY_SIZE(names)]};
	piece.end = pieces.interpreter_end = CODE + in.size;
	piece.kind = data[0] % (HOTSPOT_PIECE_CODELET + 1);
	piece.frame = piece.kind == HOTSPOT_PIECE_CODELET ? 0 : data[1];
	if (hotspot_static_table(&p, &memory, &pieces, &t) < 0)
		return 0;
	for (size_t i = 0; i < in.size; i++)
		if (!unwind_lookup(t, CODE + i))
			abort();
	return 0;
}
