/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that exports what HotSpot's libjvm.so exports for debuggers, full of lies: a table of
 * fields that never ends and whose entries point to each other, strides beyond all bounds, and a
 * new lie twice a second.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define HUGE   0xffffffffffff0000ULL

/* Each entry of the table points to itself as its name, its type and its value. */
static uint64_t cycle[64];

EXPORT extern volatile uint64_t gHotSpotVMStructs, gHotSpotVMTypes, gHotSpotVMIntConstants,
    gHotSpotVMStructEntryArrayStride, gHotSpotVMTypeEntryArrayStride,
    gHotSpotVMIntConstantEntryArrayStride;
EXPORT volatile uint64_t gHotSpotVMStructs, gHotSpotVMTypes, gHotSpotVMIntConstants,
    gHotSpotVMStructEntryArrayStride, gHotSpotVMTypeEntryArrayStride,
    gHotSpotVMIntConstantEntryArrayStride;

#define OFFSET(name, value)                                                                        \
	EXPORT extern const uint64_t name;                                                         \
	EXPORT const uint64_t name = value;

OFFSET(gHotSpotVMStructEntryTypeNameOffset, 0)
OFFSET(gHotSpotVMStructEntryFieldNameOffset, 8)
OFFSET(gHotSpotVMStructEntryIsStaticOffset, 24)
OFFSET(gHotSpotVMStructEntryOffsetOffset, 32)
OFFSET(gHotSpotVMStructEntryAddressOffset, 40)
OFFSET(gHotSpotVMTypeEntryTypeNameOffset, 0)
OFFSET(gHotSpotVMTypeEntrySizeOffset, 32)
OFFSET(gHotSpotVMIntConstantEntryNameOffset, 0)
OFFSET(gHotSpotVMIntConstantEntryValueOffset, 8)

static void lie(uint64_t stride, uint64_t at)
{
	gHotSpotVMStructEntryArrayStride = stride;
	gHotSpotVMTypeEntryArrayStride = stride;
	gHotSpotVMIntConstantEntryArrayStride = stride;
	gHotSpotVMTypes = at;
	gHotSpotVMIntConstants = at;
	gHotSpotVMStructs = at;
}

static volatile uint64_t sink;

__attribute__((noinline)) static uint64_t work(uint64_t x)
{
	for (int i = 0; i < 10000000; i++)
		x = x * 6364136223846793005U + 1;
	return x;
}

int main(void)
{
	static const uint64_t strides[] = {8, 56, HUGE, 256, 1, 0};
	uint64_t here = (uint64_t)(uintptr_t)cycle;

	for (unsigned int i = 0; i < sizeof(cycle) / sizeof(cycle[0]); i++)
		cycle[i] = here;
	puts("begin");
	fflush(stdout);
	for (unsigned int i = 0;; i++) {
		const uint64_t places[] = {here, here + 504, HUGE, 8};

		lie(strides[i / 32 % 6], places[i / 8 % 4]);
		sink = work(sink + (uint64_t)time(NULL));
	}
}
