/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machine code written at run time into anonymous executable memory, with frame pointers, named in
 * /tmp/perf-PID.map: jit_leaf <- jit_middle <- jit_outer <- C.
 * usage: jit SECONDS
 */
#include <sys/mman.h>

#include "wl.h"

static char map_path[64];

static void forget(int sig)
{
	(void)sig;
	unlink(map_path);
	_exit(0);
}

/* push rbp; mov rbp, rsp; sub rsp, 32; call TARGET; leave; ret */
static size_t emit_caller(uint8_t *at, const uint8_t *target)
{
	static const uint8_t head[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0xe8};
	int32_t rel;

	memcpy(at, head, sizeof(head));
	rel = (int32_t)(target - (at + sizeof(head) + 4));
	memcpy(at + sizeof(head), &rel, 4);
	at[sizeof(head) + 4] = 0xc9;
	at[sizeof(head) + 5] = 0xc3;
	return sizeof(head) + 6;
}

/* push rbp; mov rbp, rsp; loop: inc rax; jmp loop */
static size_t emit_leaf(uint8_t *at)
{
	static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xc0, 0xeb, 0xfb};

	memcpy(at, code, sizeof(code));
	return sizeof(code);
}

NOINLINE void call_jit(void (*code)(void))
{
	code();
	AFTER_CALL();
}

int main(int argc, char **argv)
{
	uint8_t *code =
	    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *leaf, *middle, *outer;
	size_t n_leaf, n_middle, n_outer;
	void (*entry)(void);
	FILE *map;

	if (code == MAP_FAILED)
		return 1;
	leaf = code + 64;
	n_leaf = emit_leaf(leaf);
	middle = code + 256;
	n_middle = emit_caller(middle, leaf);
	outer = code + 512;
	n_outer = emit_caller(outer, middle);
	mprotect(code, 4096, PROT_READ | PROT_EXEC);
	snprintf(map_path, sizeof(map_path), "/tmp/perf-%d.map", (int)getpid());
	map = fopen(map_path, "we");
	if (!map)
		return 1;
	fprintf(map, "%lx %zx jit_leaf\n%lx %zx jit_middle (a b)\n%lx %zx jit_outer\n",
		(unsigned long)leaf, n_leaf, (unsigned long)middle, n_middle, (unsigned long)outer,
		n_outer);
	fclose(map);
	wl_deadline(argc, argv);
	signal(SIGALRM, forget);
	wl_describe(
	    "jit",
	    "{\"frames\":[\"jit_leaf\",\"jit_middle (a b)\",\"jit_outer\",\"call_jit\"," WL_ROOT
	    "]}");
	memcpy(&entry, &outer, sizeof(entry));
	call_jit(entry);
	AFTER_CALL();
	return 0;
}
