/* SPDX-License-Identifier: Apache-2.0 */
/* A caller waits no longer than the deadline, and only once for the same root. */
#include "agent/symbol/foreign.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "lib/metrics.h"
#include "tests/support/test.h"

static struct foreign *foreign;
static sem_t answered;
static _Atomic int begun, pipe_end;

static int setup(void **state)
{
	begun = 0;
	assert_int_equal(sem_init(&answered, 0, 0), 0);
	return foreign_new(&foreign);
}

static int teardown(void **state)
{
	foreign = foreign_free(foreign);
	return 0;
}

/* Waits like a filesystem that does not respond; at last returns an open file. */
static int hang(struct foreign_call *call)
{
	atomic_fetch_add(&begun, 1);
	while (sem_wait(&answered) < 0)
		;
	return pipe_end;
}

static int answer(struct foreign_call *call)
{
	call->stat.st_ino = 42;
	return 7;
}

static int ask(int (*run)(struct foreign_call *call), const char *root)
{
	struct foreign_call call = {.run = run};

	strcpy(call.root, root);
	return foreign_run(foreign, &call);
}

static void what_is_asked_for_is_given(void **state)
{
	struct foreign_call call = {.run = answer, .root = "/proc/1/root"};
	struct stat st, own;
	int fd;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(foreign_run(foreign, &call), 7);
		assert_int_equal(call.stat.st_ino, 42);
	}
	assert_int_equal(foreign_stat_root(foreign, "/proc/self/root", &st), 0);
	assert_int_equal(stat("/", &own), 0);
	assert_int_equal(st.st_ino, own.st_ino);
	assert_int_equal(foreign_stat_root(foreign, "/proc/0/root", &st), -ENOENT);
	fd = foreign_open(foreign, "/proc/self/root", "/etc/passwd", true);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(foreign_open(foreign, "/proc/self/root", "/etc", true), -EINVAL);
	assert_int_equal(foreign_open(foreign, "/proc/self/root", "/none", true), -ENOENT);
}

static void a_root_that_is_late_is_left_alone(void **state)
{
	int64_t late = metric_get(M_FOREIGN_FILES_LATE),
		refused = metric_get(M_FOREIGN_FILES_REFUSED);
	int ends[2];
	char byte;

	assert_int_equal(pipe(ends), 0);
	pipe_end = ends[1];
	assert_int_equal(ask(hang, "/proc/1/root"), -EHOSTDOWN);
	assert_int_equal(ask(hang, "/proc/1/root"), -EHOSTDOWN);
	assert_int_equal(begun, 1);
	assert_int_equal(ask(answer, "/proc/2/root"), 7);
	assert_int_equal(metric_get(M_FOREIGN_FILES_LATE), late + 1);
	assert_int_equal(metric_get(M_FOREIGN_FILES_REFUSED), refused + 1);
	/* A file that was opened too late is closed. */
	sem_post(&answered);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
	assert_int_equal(ask(answer, "/proc/1/root"), -EHOSTDOWN);
}

static void threads_that_hang_are_few(void **state)
{
	char root[32];

	pipe_end = -EIO;
	for (int i = 0; i < FOREIGN_HUNG_MAX; i++) {
		snprintf(root, sizeof(root), "/proc/%d/root", 100 + i);
		assert_int_equal(ask(hang, root), -EHOSTDOWN);
	}
	assert_int_equal(begun, FOREIGN_HUNG_MAX);
	assert_int_equal(ask(answer, "/proc/2/root"), -EHOSTDOWN);
	for (int i = 0; i < FOREIGN_HUNG_MAX; i++)
		sem_post(&answered);
	for (int i = 0; i < 500 && ask(answer, "/proc/2/root") != 7; i++)
		usleep(10000);
	assert_int_equal(ask(answer, "/proc/2/root"), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_is_asked_for_is_given, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_root_that_is_late_is_left_alone, setup, teardown),
	    cmocka_unit_test_setup_teardown(threads_that_hang_are_few, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
