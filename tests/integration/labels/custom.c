/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publisher of custom labels, written by the text of custom-labels-v1.md (Polar Signals):
 * work_A() runs under tenant A, work_B() under tenant B, work_none() under an empty set and without
 * one.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct string {
	size_t len;
	const char *bytes;
};

struct label {
	struct string key, value;
};

struct set {
	struct label *labels;
	size_t count, capacity;
};

__attribute__((visibility("default"), retain)) const uint32_t custom_labels_abi_version = 1;
__attribute__((visibility("default"), retain)) __thread struct set *custom_labels_current_set;

static volatile uint64_t sink;

__attribute__((noinline, noclone)) static void spin(void)
{
	for (uint64_t i = 0; i < 1000000; i++)
		sink = i;
}

#define WORK(name)                                                                                 \
	__attribute__((noinline, noclone)) static void work_##name(void)                           \
	{                                                                                          \
		spin();                                                                            \
		__asm__ volatile("" ::"r"(#name));                                                 \
	}
WORK(A)
WORK(B)
WORK(none)

static void use(struct set *set)
{
	atomic_signal_fence(memory_order_seq_cst);
	*(struct set *volatile *)&custom_labels_current_set = set;
	atomic_signal_fence(memory_order_seq_cst);
}

int main(void)
{
	/* A key without bytes is a label that is being made; of two alike the first counts. */
	struct label a[] = {{{0}, {1, "x"}},
			    {{6, "tenant"}, {1, "A"}},
			    {{6, "tenant"}, {1, "B"}},
			    {{5, "empty"}, {0, ""}}},
		     b[] = {{{6, "tenant"}, {1, "B"}}};
	struct set sets[] = {{a, 4, 4}, {b, 1, 1}, {b, 0, 1}};

	puts("ready");
	fflush(stdout);
	for (;;) {
		use(&sets[0]);
		work_A();
		use(&sets[1]);
		work_B();
		use(&sets[2]);
		work_none();
		use(NULL);
		work_none();
	}
}
