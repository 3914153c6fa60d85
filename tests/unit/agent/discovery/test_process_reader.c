/* SPDX-License-Identifier: Apache-2.0 */
/* What a reading tells of this machine's own processes. */
#include "agent/discovery/process_reader.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

static int tid_pipe[2];

static void *go_on(void *arg)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);

	(void)arg;
	if (write(tid_pipe[1], &tid, sizeof(tid)) != sizeof(tid))
		_exit(1);
	for (;;)
		pause();
	return NULL;
}

/* Starts a process whose first thread ends and whose second thread, *RET_TID, goes on. */
static pid_t start(uint32_t *ret_tid)
{
	pthread_t thread;
	pid_t pid;

	assert_int_equal(pipe(tid_pipe), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (pthread_create(&thread, NULL, go_on, NULL) != 0)
			_exit(1);
		syscall(SYS_exit, 0); /* of this thread */
	}
	assert_int_equal(read(tid_pipe[0], ret_tid, sizeof(*ret_tid)), sizeof(*ret_tid));
	return pid;
}

static bool has_image(const struct process_reading *r)
{
	for (size_t i = 0; i < r->maps.n; i++)
		if (r->images_of[i] && r->images_of[i]->image)
			return true;
	return false;
}

static void a_process_without_its_first_thread_has_mappings(void **state)
{
	struct process_reading r = {.proc_dirfd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)};
	struct maps gone;
	uint32_t tid;

	(void)state;
	r.tgid = (uint32_t)start(&tid);
	while (maps_read(r.proc_dirfd, r.tgid, &gone) == 0) { /* until it has ended */
		maps_done(&gone);
		usleep(1000);
	}
	assert_int_equal(image_store_new(100, NULL, NULL, &r.images), 0);
	process_reading_init(&r);
	r.job.run(&r.job);
	assert_int_equal(r.result, -ESRCH);
	process_reading_done(&r, 0);
	/* A TID that belongs to another process is not read. */
	r = (struct process_reading){
	    .proc_dirfd = r.proc_dirfd, .images = r.images, .tgid = r.tgid, .tid = 1};
	process_reading_init(&r);
	r.job.run(&r.job);
	assert_int_equal(r.result, -ESRCH);
	process_reading_done(&r, 0);
	r = (struct process_reading){
	    .proc_dirfd = r.proc_dirfd, .images = r.images, .tgid = r.tgid, .tid = tid};
	process_reading_init(&r);
	r.job.run(&r.job);
	assert_int_equal(r.result, 0);
	assert_true(has_image(&r));
	kill((pid_t)r.tgid, SIGKILL);
	waitpid((pid_t)r.tgid, NULL, 0);
	process_reading_done(&r, 0);
	image_store_free(r.images);
	close(r.proc_dirfd);
	close(tid_pipe[0]);
	close(tid_pipe[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_process_without_its_first_thread_has_mappings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
