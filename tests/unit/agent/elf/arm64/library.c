// SPDX-License-Identifier: Apache-2.0
/* A part of frames.c that may be a shared library: calls go there, and back, through PLT stubs. */
int library(int (*f)(int), int x);
int library_inner(int (*f)(int), int x);

#ifdef __clang__
__attribute__((noinline))
#else
__attribute__((noipa))
#endif
int library_inner(int (*f)(int), int x)
{
	return f(x) + 1;
}

int library(int (*f)(int), int x)
{
	return library_inner(f, x) + library_inner(f, x + 1);
}
