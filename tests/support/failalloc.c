/* SPDX-License-Identifier: Apache-2.0 */
/* Counts down allocations of the thread that asked for it; see the header. */
#include "tests/support/failalloc.h"

static _Thread_local long left = -1;
static _Thread_local bool failed;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

void failalloc_at(long n)
{
	left = n;
	failed = false;
}

bool failalloc_stop(void)
{
	left = -1;
	return failed;
}

static bool refuse(void)
{
	if (left < 0)
		return false;
	if (left > 0) {
		left--;
		return false;
	}
	failed = true;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return refuse() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return refuse() ? NULL : __real_realloc(p, size);
}
