// SPDX-License-Identifier: Apache-2.0
/*
 * The program that hack/record-arm64 records. It needs no C library, and has a function for each
 * kind of stack frame that compilers make. It is compiled in several ways; record.py steps through
 * each build instruction by instruction.
 */
#include <asm/sigcontext.h>
#include <asm/unistd.h>
#include <linux/signal.h>
#include <stdarg.h>
#include <stdint.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noipa))
#endif

struct ucontext_head { /* asm/ucontext.h, whose sigset_t is another one */
	unsigned long uc_flags;
	void *uc_link;
	stack_t uc_stack;
	uint8_t uc_sigmask[128];
	struct sigcontext uc_mcontext;
};

static volatile int sink;

int library(int (*f)(int), int x); /* library.c: in this program, or behind a PLT */

/* ---- system calls ----------------------------------------------------------------------------
 */

static inline long call3(long n, long a, long b, long c, long d)
{
	register long x8 asm("x8") = n;
	register long x0 asm("x0") = a;
	register long x1 asm("x1") = b;
	register long x2 asm("x2") = c;
	register long x3 asm("x3") = d;

	asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}

/* ---- frames ----------------------------------------------------------------------------------
 */

/* Nothing on the stack: the return address stays in x30. */
NOINLINE int leaf(int x)
{
	return x * 3 + sink;
}

/* A leaf with a frame that does not save x30. */
NOINLINE int leaf_with_frame(int x)
{
	volatile int v[20];

	v[x & 15] = x;
	return v[(x + 1) & 15] + v[x & 15];
}

NOINLINE int plain(int x)
{
	return leaf(x) + leaf_with_frame(x);
}

/* All callee-saved registers, those for floating point too. */
NOINLINE int many_registers(int a, int b, double f)
{
	int c = leaf(a), d = leaf(b), e = leaf(c), g = leaf(d), h = leaf(e), i = leaf(g);
	double u = f * c, v = f + d, w = u * v;

	for (int k = 0; k < 2; k++) {
		c += plain(d) + e;
		d += leaf(g) + h + i + a + b;
		w += u * leaf(k) + v;
	}
	return c + d + e + g + h + i + (int)w;
}

NOINLINE int large_frame(int x)
{
	volatile char v[3000];

	v[x] = (char)x;
	return plain(v[x]) + v[0];
}

/* Further than a rule's offsets reach from the CFA. */
NOINLINE int huge_frame(int x)
{
	volatile char v[400000];

	v[x] = (char)x;
	return plain(v[x]) + v[0];
}

/* The size of the frame is not known: it is addressed by the frame pointer. */
NOINLINE int dynamic_frame(int n)
{
	volatile char *v = __builtin_alloca((unsigned int)n * 16);

	v[n] = (char)n;
	if (n > 3)
		return dynamic_frame(n - 2) + v[n];
	return plain(v[n]);
}

/* More alignment than the stack has. */
NOINLINE int aligned_frame(int x)
{
	_Alignas(64) volatile char v[128];

	v[x] = (char)x;
	return plain((int)((uintptr_t)v & 63) + v[x]);
}

NOINLINE int variadic(int n, ...)
{
	va_list list;
	int sum = 0;

	va_start(list, n);
	for (int i = 0; i < n; i++)
		sum += leaf(va_arg(list, int));
	va_end(list);
	return sum;
}

/* Arguments on the stack. */
NOINLINE int ten_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j)
{
	return leaf(a + b + c + d + e) + leaf(f + g + h + i + j);
}

/* The early way out has no frame; the other makes it in the middle (shrink wrapping). */
NOINLINE int early(int x, int n)
{
	if (n == 0)
		return x;
	for (int i = 0; i < n; i++)
		x += plain(i);
	return x + leaf(x);
}

NOINLINE int tail(int x)
{
	sink = x;
	return plain(x + 1);
}

NOINLINE int recursive(int n)
{
	return n ? recursive(n - 1) + n : plain(n);
}

NOINLINE int callback(int x)
{
	return plain(x);
}

/* ---- signals ---------------------------------------------------------------------------------
 */

/* Goes on behind the instruction that raised the signal. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
	struct ucontext_head *uc = context;

	sink += plain(signal);
	if (signal == 11 /* SIGSEGV */)
		uc->uc_mcontext.pc += 4;
}

#define FAULT() asm volatile("ldr wzr, [%0]" : : "r"(0L))

/* Raised where the return address is in x30 only. */
NOINLINE int leaf_that_faults(int x)
{
	FAULT();
	return x + 1;
}

NOINLINE int frame_that_faults(int x)
{
	volatile int v[30];

	v[x & 15] = leaf(x);
	FAULT();
	return v[x & 15];
}

NOINLINE int kills_itself(void)
{
	call3(__NR_kill, call3(__NR_getpid, 0, 0, 0, 0), 10 /* SIGUSR1 */, 0, 0);
	return leaf(1);
}

static void catch (int signal)
{
	struct {
		void (*handler)(int, siginfo_t *, void *);
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} action = {on_fault, SA_SIGINFO, 0, 0};

	call3(__NR_rt_sigaction, signal, (long)&action, 0, 8);
}

/* ---- main ------------------------------------------------------------------------------------
 */

NOINLINE __attribute__((noreturn)) void leave(int status)
{
	sink += leaf(status);
	call3(__NR_exit_group, status & 0, 0, 0, 0);
	__builtin_unreachable();
}

/* Its last instruction is a call: the return address is behind its end. */
NOINLINE __attribute__((noreturn)) void finish(int x)
{
	sink = leaf(x);
	leave(x);
}

NOINLINE int work(int x)
{
	x += plain(x) + many_registers(x, 2, 1.5) + large_frame(x & 3) + huge_frame(x & 3);
	x += dynamic_frame(6) + aligned_frame(x & 3) + variadic(3, 1, 2, 3);
	x += ten_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) + early(x, 0) + early(x, 2) + tail(x);
	x += recursive(6) + library(callback, x);
	catch (11);
	catch (10);
	return x + leaf_that_faults(x) + frame_that_faults(x) + kills_itself();
}

__attribute__((noreturn, used)) void begin(void)
{
	finish(work(1));
}

asm(".text\n"
    ".globl _start\n"
    ".type _start, %function\n"
    "_start:\n"
#ifdef __GCC_HAVE_DWARF2_CFI_ASM
    "	.cfi_startproc\n"
    "	.cfi_undefined x30\n"
#endif
    "	mov	x29, #0\n"
    "	mov	x30, #0\n"
    "	bl	begin\n"
    "	udf	#0\n"
#ifdef __GCC_HAVE_DWARF2_CFI_ASM
    "	.cfi_endproc\n"
#endif
    "	.size	_start, . - _start\n");
