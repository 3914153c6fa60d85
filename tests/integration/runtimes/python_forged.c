// SPDX-License-Identifier: Apache-2.0
/*
 * Says that it is CPython 3.11 and is not: its structures are cycles, wild pointers and chains
 * without end, one after the other, while its "interpreter" runs.
 *
 * With --watch its structures are valid, and it prints again and again how much of them others have
 * read, as {"read": KiB}. The processor marks accessed pages, as the kernel does for
 * process_vm_readv(2); /proc/PID/smaps shows these marks, /proc/PID/clear_refs clears them.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Offsets of 3.11: agent/runtime/python/layout.c. */
enum { INTERPRETERS = 40, CURRENT = 576, KEY = 592, THREADS = 16, THREAD_ID = 152, CFRAME = 56 };
enum { FILENAME = 112, QUALNAME = 128 };
enum { FRAME_CODE = 32, FRAME_PREVIOUS = 48, FRAME_OWNER = 68, FRAMES = 1 << 16, FRAME_SIZE = 80 };

#define EXPORTED __attribute__((visibility("default"), used))

EXPORTED __attribute__((aligned(4096))) uint8_t _PyRuntime[4096];
EXPORTED uint8_t PyCode_Type[512];
extern const unsigned long Py_Version;
EXPORTED const unsigned long Py_Version = 0x030b02f0;

static uint8_t interpreter[4096], state[4096], code[4096], name[64];
static uint8_t *frames;
static volatile uint64_t sink;

static void put(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint8_t *frame(uint64_t i)
{
	return frames + i * FRAME_SIZE;
}

/* Makes every frame valid; each leads to the next. */
static void reset(void)
{
	for (uint64_t i = 0; i < FRAMES; i++) {
		put(frame(i) + FRAME_CODE, (uint64_t)code);
		put(frame(i) + FRAME_PREVIOUS, i + 1 < FRAMES ? (uint64_t)frame(i + 1) : 0);
	}
	memset(code, 0, sizeof(code));
	put(code + 8, (uint64_t)PyCode_Type);
	put(code + FILENAME, (uint64_t)name);
	put(code + QUALNAME, (uint64_t)name);
	put(name + 16, 6);
	put(name + 32, 1 << 2 | 1 << 5 | 1 << 6); /* kind 1, compact, ASCII */
	memcpy(name + 48, "forged", 6);
	put(_PyRuntime + CURRENT, (uint64_t)state);
}

static void forge(unsigned int how)
{
	reset();
	switch (how % 8) {
	case 0:
		put(frame(1) + FRAME_PREVIOUS, (uint64_t)frame(0));
		break;
	case 1:
		put(frame(3) + FRAME_PREVIOUS, (uint64_t)frame(3));
		break;
	case 2:
		put(frame(5) + FRAME_PREVIOUS, 0xdeadbeefdeadbeef);
		break;
	case 3:
		put(frame(2) + FRAME_CODE, UINT64_MAX - 64);
		break;
	case 4:
		put(code + 8, 1);
		break;
	case 5: /* a code object whose end lies in unmapped memory */
		put(frame(4) + FRAME_CODE, (uint64_t)(frames + (size_t)FRAMES * FRAME_SIZE - 16));
		break;
	case 6: /* names and lines that lead anywhere */
		for (size_t i = 16; i < sizeof(code); i += 8)
			put(code + i, i * 0x9e3779b97f4a7c15);
		break;
	default: /* 65,536 frames */
		break;
	}
}

EXPORTED uint64_t _PyEval_EvalFrameDefault(uint64_t n);
__attribute__((noinline)) uint64_t _PyEval_EvalFrameDefault(uint64_t n)
{
	volatile uint64_t cframe[3] = {0, (uint64_t)frame(0), 0};
	volatile uint64_t sum = 0;

	/* The walk accepts the cframe only if it lies in the native frame. */
	put(state + CFRAME, (uint64_t)cframe);
	for (uint64_t i = 0; i < n; i++)
		sum += i;
	return sum + cframe[2];
}

/* KiB that were read of the mappings at _PyRuntime and FRAMES; -1: smaps does not tell. */
static int read_of_ours(void)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	uint64_t start = 0, end;
	char line[512];
	int kib, all = -1;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			continue;
		if (sscanf(line, "Referenced: %d kB", &kib) == 1 &&
		    (start == (uint64_t)_PyRuntime || start == (uint64_t)frames))
			all = (all < 0 ? 0 : all) + kib;
	}
	if (f)
		fclose(f);
	return all;
}

static int watch(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	/* Give _PyRuntime and FRAMES mappings of their own. */
	if (fd < 0 || mprotect(_PyRuntime, sizeof(_PyRuntime), PROT_READ) ||
	    mprotect(frames, (size_t)FRAMES * FRAME_SIZE, PROT_READ))
		return 1;
	for (;;) {
		if (write(fd, "1", 1) != 1)
			return 1;
		sink = _PyEval_EvalFrameDefault(100000000);
		printf("{\"read\": %d}\n", read_of_ours());
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	pthread_key_t key;

	frames = mmap(NULL, (size_t)FRAMES * FRAME_SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (frames == MAP_FAILED || pthread_key_create(&key, NULL))
		return 1;
	put(_PyRuntime + INTERPRETERS, (uint64_t)interpreter);
	put(interpreter, (uint64_t)interpreter); /* the list of interpreters is a cycle too */
	put(interpreter + THREADS, (uint64_t)state);
	put(state + 8, (uint64_t)state);
	put(state + THREAD_ID, (uint64_t)pthread_self());
	put(_PyRuntime + KEY, 1 | (uint64_t)key << 32);
	pthread_setspecific(key, state);
	reset();
	printf("{\"pid\": %d}\n", (int)getpid());
	fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "--watch"))
		return watch();
	for (unsigned int how = 0;; how++) {
		forge(how);
		sink = _PyEval_EvalFrameDefault(200000000);
	}
}
