/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that exports what .NET's runtime exports for debuggers, and code in anonymous memory
 * that runs, both full of lies: a tree of sections that leads to itself, a heap whose map says that
 * a method begins everywhere or nowhere, methods whose headers and unwind information are wild, and
 * a new lie several times a second.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
#define HUGE   0xffffffffffff0000ULL

EXPORT extern volatile uint64_t g_dacTable[64];
EXPORT volatile uint64_t g_dacTable[64];
EXPORT extern const char version[];
EXPORT const char version[] = "@(#)Version 8.0.424.16909 @Commit: none";

enum { LEVELS = 5, WORDS = 1 << 13 };

static uint64_t tree[LEVELS][256], fragment[4], section[8], heap[16];
static uint64_t image_fragment[4], image_section[8];
static uint64_t module[512], info[256], buckets[512];
static uint64_t memory[WORDS]; /* maps, headers, methods, unwind information */

/* An image with a table of one function: attaching to a process learns the layout from it. */
static uint8_t image[1 << 16] __attribute__((aligned(1 << 16)));

static uint64_t at(const volatile void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static void put(size_t place, uint32_t value)
{
	memcpy(image + place, &value, sizeof(value));
}

static void make_image(void)
{
	put(0, 0x5a4d);
	put(0x3c, 0x80);
	put(0x80 + 24, 0x20b);
	put(0x80 + 24 + 112 + 14 * 8, 0x400);
	put(0x400 + 64, 0x500);
	put(0x500, 0x00525452);
	put(0x500 + 12, 1);
	put(0x510, 102);
	put(0x514, 0x600);
	put(0x518, 12);
	put(0x600, 0x1000);
	put(0x604, 0x2000);
	put(0x608, 0x700);
	module[16] = at(info);
	module[0x108 / 8] = at(image + 0x800);
	info[0] = at(module);
	info[10] = at(image + 0x600);
	info[11] = 1;
	info[0x1c0 / 8] = at(buckets);
	image_section[0] = image_fragment[1] = at(image);
	image_section[1] = image_fragment[2] = at(image) + sizeof(image);
	image_section[4] = at(module);
	image_fragment[3] = at(image_section);
}

/* Makes the tree of sections lead to FOUND for ADDRESS. */
static void grow(uint64_t address, const uint64_t *found)
{
	for (int i = LEVELS - 1; i >= 0; i--)
		tree[i][address >> (17 + 8 * i) & 255] = i ? at(tree[i - 1]) : at(found);
	g_dacTable[0] = at(tree[LEVELS - 1]);
}

static void lie(unsigned int round, uint64_t code)
{
	static const uint64_t wild[] = {0, 1, HUGE, 0x1000, ~0ULL, 1ULL << 40};
	uint64_t value = wild[round / 16 % 6];

	section[0] = code & ~0xffffULL;
	section[1] = section[0] + 0x10000;
	section[2] = round % 8;
	section[4] = at(module);
	section[5] = at(heap);
	fragment[0] = round % 3 ? at(fragment) : 0;
	fragment[1] = 0;
	fragment[2] = HUGE;
	fragment[3] = at(section);
	grow(code, fragment);
	/* The agent attaches only if it finds an image. */
	grow(at(image), image_fragment);
	heap[4] = round % 5 ? section[0] : value;
	heap[5] = round % 7 ? at(memory) : value;
	for (size_t i = 0; i < WORDS; i++)
		memory[i] = round % 4 == 0   ? value
			    : round % 4 == 1 ? at(memory)
			    : round % 4 == 2 ? 0x1111111111111111ULL * (round & 15)
					     : 0;
	/* Before the code: its header. */
	*(volatile uint64_t *)(uintptr_t)(code - 8) = round % 2 ? at(memory) : value;
	for (size_t i = 0; i < 512; i++)
		buckets[i] = round % 2 ? ~0ULL : 3;
}

int main(void)
{
	/* push rbp; mov rbp, rsp; a loop of rdi rounds; pop rbp; ret */
	static const uint8_t body[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff,
				       0xcf, 0x75, 0xfb, 0x5d, 0xc3};
	uint8_t *code = mmap(NULL, 1 << 17, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t place;
	void (*run)(uint64_t rounds);

	if (code == MAP_FAILED)
		return 1;
	place = (at(code) + 0xffff) & ~0xffffULL;
	memcpy((void *)(uintptr_t)(place + 0x20), body, sizeof(body));
	make_image();
	place += 0x20;
	memcpy(&run, &place, sizeof(run));
	printf("%s\n", version);
	fflush(stdout);
	for (unsigned int i = 0;; i++) {
		lie(i, place);
		run(30000000);
	}
}
