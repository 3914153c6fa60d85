/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler settings of a thread that called wakeup_soon(), and of a thread that it started. */
#include "lib/wakeup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/sched.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "lib/base.h"
#include "lib/sched_attr.h"

static struct kernel_sched_attr get_attr(void)
{
	struct kernel_sched_attr attr = {};

	assert_return_code(syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0), errno);
	return attr;
}

/* Before Linux 6.12 the kernel neither keeps nor reports a slice. */
static bool has_slices(void)
{
	unsigned int major = 0, minor = 0;
	struct utsname u;

	assert_return_code(uname(&u), errno);
	assert_int_equal(sscanf(u.release, "%u.%u", &major, &minor), 2);
	return major > 6 || (major == 6 && minor >= 12);
}

static void *child(void *arg)
{
	*(struct kernel_sched_attr *)arg = get_attr();
	return NULL;
}

/* Runs in a thread of its own, because the setting is never taken back. */
static void *ask(void *arg)
{
	struct kernel_sched_attr *attrs = arg;
	pthread_t thread;

	attrs[0] = get_attr();
	wakeup_soon();
	attrs[1] = get_attr();
	assert_int_equal(pthread_create(&thread, NULL, child, &attrs[2]), 0);
	pthread_join(thread, NULL);
	return NULL;
}

static void test_this_thread_alone(void **state)
{
	struct kernel_sched_attr attrs[3];
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, ask, attrs), 0);
	pthread_join(thread, NULL);
	assert_int_equal(attrs[1].policy, SCHED_NORMAL);
	assert_true(attrs[1].nice <= attrs[0].nice);
	assert_int_equal(attrs[1].flags & SCHED_FLAG_RESET_ON_FORK, SCHED_FLAG_RESET_ON_FORK);
	assert_true(attrs[2].nice >= 0);
	assert_int_equal(attrs[2].flags & SCHED_FLAG_RESET_ON_FORK, 0);
	if (has_slices()) {
		assert_int_equal(attrs[1].runtime, 100000);
		assert_int_equal(attrs[2].runtime, attrs[0].runtime);
	}
}

static void *ask_nicely(void *arg)
{
	struct kernel_sched_attr *attr = arg;

	assert_return_code(setpriority(PRIO_PROCESS, 0, 5), errno);
	wakeup_soon();
	*attr = get_attr();
	return NULL;
}

static void test_nice_stays_nice(void **state)
{
	struct kernel_sched_attr attr;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, ask_nicely, &attr), 0);
	pthread_join(thread, NULL);
	assert_int_equal(attr.nice, 5);
	if (has_slices())
		assert_int_equal(attr.runtime, 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_this_thread_alone),
	    cmocka_unit_test(test_nice_stays_nice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
