/* SPDX-License-Identifier: Apache-2.0 */
/* Strings for the stores of one test, which must have given them all back at its end. */
#pragma once

#include "lib/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "operator/cache/intern.h"

#define UID(n) "00000000-0000-0000-0000-0000000000" n

static struct intern *in;

static int intern_setup(void **unused)
{
	(void)unused;
	return intern_new(4 << 20, &in);
}

static int intern_teardown(void **unused)
{
	(void)unused;
	assert_int_equal(intern_count(in), 0);
	in = intern_free(in);
	return 0;
}
