/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames that are not "rsp plus a constant": larger than 32 KiB and than 512 KiB, alloca (CFA from
 * rbp), realigned (CFA through r10, the DRAP register), in a register that what is called keeps by
 * agreement, longjmp out of a deep chain. usage: frames SECONDS large|alloca|realign|kept|longjmp
 */
#include <alloca.h>
#include <setjmp.h>

#include "wl.h"

NOINLINE void spin(void)
{
	WL_SPIN_FOREVER();
}

NOINLINE void frame_600k(void (*leaf)(void))
{
	char room[600 * 1024];

	__asm__ volatile("" ::"r"(room) : "memory");
	room[0] = 1;
	leaf();
	__asm__ volatile("" ::"r"(room) : "memory");
}

NOINLINE void frame_40k(void (*leaf)(void))
{
	char room[40 * 1024];

	__asm__ volatile("" ::"r"(room) : "memory");
	frame_600k(leaf);
	__asm__ volatile("" ::"r"(room) : "memory");
}

NOINLINE void frame_alloca(size_t n, int depth)
{
	char *room = alloca(n);

	memset(room, 0, n);
	__asm__ volatile("" ::"r"(room) : "memory");
	if (depth == 0)
		spin();
	else
		frame_alloca(n * 2, depth - 1);
	__asm__ volatile("" ::"r"(room) : "memory");
}

/* Over-aligned and of variable size: GCC keeps the caller's CFA in r10 and saves it on the stack.
 */
NOINLINE void frame_realigned(size_t n, int depth)
{
	_Alignas(64) char block[64];
	char *room = alloca(n);

	memset(room, 0, n);
	__asm__ volatile("" ::"r"(room), "r"(block) : "memory");
	if (depth == 0)
		spin();
	else
		frame_realigned(n + 24, depth - 1);
	__asm__ volatile("" ::"r"(room), "r"(block) : "memory");
}

/* Over-aligned, fixed size. */
NOINLINE void frame_aligned(int depth)
{
	_Alignas(128) char block[256];

	__asm__ volatile("" ::"r"(block) : "memory", "rbx", "r12", "r13", "r14", "r15");
	if (depth == 0)
		frame_realigned(33, 4);
	else
		frame_aligned(depth - 1);
	__asm__ volatile("" ::"r"(block) : "memory");
}

static jmp_buf back;

NOINLINE void jump_leaf(void)
{
	WL_SPIN(300000);
	longjmp(back, 1);
}

NOINLINE void jump_deep(int n)
{
	if (n == 0)
		jump_leaf();
	else
		jump_deep(n - 1);
	AFTER_CALL();
}

NOINLINE void jump_loop(void)
{
	for (;;)
		if (setjmp(back) == 0)
			jump_deep(19);
}

/* rax is the outer one's CFA, and the inner one knows; rbx and rbp are in use. */
__asm__(".text\n"
	"kept_inner:\n"
	".type kept_inner, @function\n"
	".cfi_startproc\n"
	"	mov $1000000, %ecx\n"
	"1:	dec %ecx\n"
	"	jnz 1b\n"
	"	ret\n"
	".cfi_endproc\n"
	".size kept_inner, . - kept_inner\n"
	".globl kept_outer\n"
	"kept_outer:\n"
	".type kept_outer, @function\n"
	".cfi_startproc\n"
	"	mov %rsp, %rax\n"
	".cfi_def_cfa_register %rax\n"
	"	push %rbx\n"
	".cfi_offset %rbx, -16\n"
	"	push %rbp\n"
	".cfi_offset %rbp, -24\n"
	"	sub $1000, %rsp\n"
	"	and $-128, %rsp\n"
	"	xor %ebp, %ebp\n"
	"	mov $20, %ebx\n"
	"1:	call kept_inner\n"
	"	dec %ebx\n"
	"	jnz 1b\n"
	"	mov -16(%rax), %rbp\n"
	"	mov -8(%rax), %rbx\n"
	"	lea (%rax), %rsp\n"
	".cfi_def_cfa_register %rsp\n"
	"	ret\n"
	".cfi_endproc\n"
	".size kept_outer, . - kept_outer\n");
void kept_outer(void);

NOINLINE void keep(size_t n)
{
	char *room = alloca(n); /* a frame by rbp, which the functions above it must bring back */

	memset(room, 0, n);
	__asm__ volatile("" ::"r"(room) : "memory");
	for (;;)
		kept_outer();
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "large";

	wl_deadline(argc, argv);
	if (strcmp(what, "large") == 0) {
		wl_describe("large",
			    "{\"frames\":[\"spin\",\"frame_600k\",\"frame_40k\"," WL_ROOT "]}");
		frame_40k(spin);
	} else if (strcmp(what, "alloca") == 0) {
		wl_describe("alloca",
			    "{\"frames\":[\"spin\",{\"n\":8,\"of\":[\"frame_alloca\"]}," WL_ROOT
			    "]}");
		frame_alloca(33, 7);
	} else if (strcmp(what, "realign") == 0) {
		wl_describe("realign",
			    "{\"frames\":[\"spin\",{\"n\":5,\"of\":[\"frame_realigned\"]},"
			    "{\"n\":3,\"of\":[\"frame_aligned\"]}," WL_ROOT "]}");
		frame_aligned(2);
	} else if (strcmp(what, "kept") == 0) {
		wl_describe("kept", "{\"frames\":[\"kept_inner\",\"kept_outer\",\"keep\"," WL_ROOT
				    "],\"min_share\":0.98},"
				    "{\"frames\":[\"?kept_outer\",\"keep\"," WL_ROOT
				    "],\"max_share\":0.02}");
		keep(100);
	} else {
		wl_describe(
		    "longjmp",
		    "{\"frames\":[\"jump_leaf\",{\"n\":20,\"of\":[\"jump_deep\"]},\"jump_"
		    "loop\"," WL_ROOT "],\"min_share\":0.98},"
		    /* The call and the jump themselves; longjmp restores registers one by one. */
		    "{\"frames\":[\"*lib:libc.so.6\",\"?plt\",\"?jump_leaf\",\"*jump_deep\",\"jump_"
		    "loop\"," WL_ROOT "],\"max_share\":0.02}");
		jump_loop();
	}
	AFTER_CALL();
	return 0;
}
