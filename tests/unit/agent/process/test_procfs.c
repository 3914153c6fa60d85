/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc tells of real processes, and the check of privileges with some really missing. */
#include "cm.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

#include "agent/process/procfs.h"
#include "fail_alloc.h"
#include "lib/error.h"
#include "victim.h"

static void a_process_is_described(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	char *dir = dir_make(), path[256];
	struct victim v;
	struct process_info info;

	snprintf(path, sizeof(path), "%s/a cat", dir);
	assert_int_equal(file_copy("/bin/cat", path), 0);
	assert_int_equal(victim_exec(path, &v), 0);
	assert_int_equal(process_info_read(procfd, (uint32_t)v.pid, &info), 0);
	assert_string_equal(info.executable_path, path);
	assert_string_equal(info.executable_name, "a cat");
	assert_string_equal(info.comm, "a cat");
	assert_int_equal(info.ns_pid, v.pid);
	process_info_done(&info);
	/* Deleted while it runs. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(process_info_read(procfd, (uint32_t)v.pid, &info), 0);
	assert_string_equal(info.executable_path, path);
	assert_string_equal(info.executable_name, "a cat");
	process_info_done(&info);
	victim_end(&v);
	assert_int_equal(process_info_read(procfd, (uint32_t)v.pid, &info), -ESRCH);
	dir_remove(dir);
}

static int set_wild_name(char *path, size_t size, void *arg)
{
	return prctl(PR_SET_NAME, "a) R 1 (b\n");
}

static void a_wild_thread_name_confuses_nothing(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	struct victim v;
	struct process_info info;

	assert_int_equal(victim_start("/bin/cat", set_wild_name, NULL, &v), 0);
	assert_int_equal(process_info_read(procfd, (uint32_t)v.pid, &info), 0);
	assert_string_equal(info.comm, "a) R 1 (b\n");
	assert_int_equal(info.ns_pid, v.pid);
	assert_string_not_equal(info.executable_name, "");
	process_info_done(&info);
	victim_end(&v);
}

static void a_kernel_thread_is_its_name_in_brackets(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	struct process_info info;

	if (access("/proc/2/comm", R_OK) < 0)
		skip();
	assert_int_equal(process_info_read(procfd, 2, &info), 0);
	assert_string_equal(info.comm, "kthreadd");
	assert_string_equal(info.executable_name, "[kthreadd]");
	assert_string_equal(info.executable_path, "");
	process_info_done(&info);
}

static void a_zombie_has_a_name_but_no_executable(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	struct process_info info;
	siginfo_t si;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
	assert_int_equal(process_info_read(procfd, (uint32_t)pid, &info), 0);
	assert_string_not_equal(info.comm, "");
	assert_string_equal(info.executable_path, "");
	assert_string_equal(info.executable_name, "");
	process_info_done(&info);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/*
 * Enters a new pid namespace: forks, so that the child is its pid 1. Writes the child's pid to the
 * pipe ARG.
 */
static int enter_pid_namespace(char *path, size_t size, void *arg)
{
	int *tell = arg;
	pid_t pid;

	if (unshare(CLONE_NEWPID) < 0)
		return 1;
	pid = fork();
	if (pid < 0)
		return 1;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return write(*tell, &pid, sizeof(pid)) != sizeof(pid);
}

static void the_innermost_namespace_gives_the_pid(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	struct process_info info;
	struct victim v;
	int tell[2];
	pid_t inner;

	assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
	assert_int_equal(victim_start("/bin/cat", enter_pid_namespace, &tell[1], &v), 0);
	assert_int_equal(read(tell[0], &inner, sizeof(inner)), sizeof(inner));
	assert_int_equal(process_info_read(procfd, (uint32_t)inner, &info), 0);
	assert_int_equal(info.ns_pid, 1);
	process_info_done(&info);
	kill(inner, SIGKILL);
	victim_end(&v);
	close(tell[0]);
	close(tell[1]);
}

/* A v2 cgroup of the shape that a container has, with this process in it. */
static int join_container(char *path, size_t size, void *arg)
{
	char group[512], procs[600];

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("cgroup2", "/tmp", "cgroup2", 0, NULL) < 0)
		return 1;
	snprintf(group, sizeof(group), "/tmp/%s", (const char *)arg);
	if (mkdir(group, 0755) < 0)
		return 1;
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
	return file_write(procs, "0");
}

static void a_process_in_a_container_has_its_id(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	struct process_info info;
	struct victim v;
	char id[65], name[128];

	/* Cgroups are shared by all tests that run: an id of this test's own. */
	snprintf(id, sizeof(id), "%016x%016x%032x", (unsigned int)getpid(),
		 (unsigned int)time(NULL), 0xabcd);
	snprintf(name, sizeof(name), "docker-%s.scope", id);
	assert_int_equal(victim_start("/bin/cat", join_container, name, &v), 0);
	assert_int_equal(process_info_read(procfd, (uint32_t)v.pid, &info), 0);
	assert_string_equal(info.container.container_id, id);
	assert_string_equal(info.container.runtime, "docker");
	process_info_done(&info);
	victim_end(&v);
	/* Removed through a mount of our own. */
	if (fork() == 0) {
		char group[256];

		if (unshare(CLONE_NEWNS) < 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("cgroup2", "/tmp", "cgroup2", 0, NULL) < 0)
			_exit(1);
		snprintf(group, sizeof(group), "/tmp/%s", name);
		/* A process that was reaped leaves its cgroup a little later. */
		for (int i = 0; rmdir(group) < 0 && errno == EBUSY && i < 100; i++)
			usleep(10000);
		_exit(0);
	}
	wait(NULL);
}

static int become_nobody(char *path, size_t size, void *arg)
{
	return setresuid(65534, 65534, 65534);
}

static void what_may_not_be_read_is_empty(void **state)
{
	static const unsigned int caps[] = {CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE,
					    CAP_SYS_ADMIN, CAP_PERFMON};
	_cleanup_close_ int procfd = proc_open();
	struct process_info info;
	struct victim v;

	assert_int_equal(victim_start("/bin/cat", become_nobody, NULL, &v), 0);
	caps_drop(caps, ARRAY_SIZE(caps));
	assert_int_equal(process_info_read(procfd, (uint32_t)v.pid, &info), 0);
	caps_restore();
	assert_string_not_equal(info.comm, "");
	assert_string_equal(info.executable_path, "");
	assert_string_equal(info.executable_name, "");
	process_info_done(&info);
	victim_end(&v);
}

static void any_failing_allocation_is_survived(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	struct process_info info = {.ns_pid = 77};
	unsigned int n = 0;

	for (;;) {
		int r;

		fail_alloc_at(++n);
		r = process_info_read(procfd, (uint32_t)getpid(), &info);
		if (!fail_alloc_done()) {
			fail_alloc_at(0);
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(info.ns_pid, 77);
	}
	assert_true(n > 8);
	process_info_done(&info);
}

static void the_host_is_described(void **state)
{
	_cleanup_free_ char *name = host_name(), *id = host_id(), *release = host_kernel_release();
	struct utsname u;

	assert_int_equal(uname(&u), 0);
	assert_string_equal(name, u.nodename);
	assert_string_equal(release, u.release);
	assert_true(streq(host_arch(), streq(u.machine, "x86_64") ? "amd64" : "arm64"));
	if (access("/etc/machine-id", R_OK) == 0)
		assert_int_equal(strlen(id), 32);
}

/* Runs host_check_privileges() in a child without CAPS; its result and message come back. */
static int check_without(const unsigned int *caps, size_t n, int (*setup)(void), struct error *ret)
{
	struct error err = {0};
	int out[2], status;
	pid_t pid;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		if (setup && setup() != 0)
			_exit(2);
		caps_drop(caps, n);
		err.code = host_check_privileges(&err);
		_exit(write(out[1], &err, sizeof(err)) != sizeof(err));
	}
	close(out[1]);
	*ret = err;
	assert_int_equal(read(out[0], ret, sizeof(*ret)), sizeof(*ret));
	close(out[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return ret->code;
}

static void root_may_profile(void **state)
{
	struct error err = {0};

	assert_int_equal(host_check_privileges(&err), 0);
	assert_int_equal(host_check_privileges(NULL), 0);
}

/* Puts VALUE in the place of a setting of the kernel, for this process. */
static int pretend(const char *path, const char *value)
{
	char name[] = "/tmp/kiln-setting-XXXXXX";
	int fd = mkstemp(name), r;

	r = fd < 0 || write(fd, value, strlen(value)) < 0 || fchmod(fd, 0644) < 0 ||
	    mount(name, path, NULL, MS_BIND, NULL) < 0;
	close(fd);
	unlink(name);
	return r;
}

/* Another user with all of root's capabilities. */
static int become_user_under(const char *kptr_restrict, const char *paranoid)
{
	return unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	       pretend("/proc/sys/kernel/kptr_restrict", kptr_restrict) ||
	       pretend("/proc/sys/kernel/perf_event_paranoid", paranoid) ||
	       prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) || setresuid(65534, 65534, 65534);
}

static int become_another_user(void)
{
	return become_user_under("0\n", "2\n");
}

static int become_user_of_an_open_kernel(void)
{
	return become_user_under("0\n", "1\n");
}

static int become_user_of_a_kernel_that_restricts(void)
{
	return become_user_under("1\n", "-1\n");
}

static void each_missing_capability_is_named(void **state)
{
	static const struct {
		unsigned int caps[2];
		const char *name;
	} rows[] = {
	    {{CAP_BPF, CAP_SYS_ADMIN}, "CAP_BPF"},
	    {{CAP_PERFMON, CAP_SYS_ADMIN}, "CAP_PERFMON"},
	    {{CAP_SYS_PTRACE, CAP_SYS_PTRACE}, "CAP_SYS_PTRACE"},
	    {{CAP_SYSLOG, CAP_SYSLOG}, "CAP_SYSLOG"}, /* SYS_ADMIN does not help */
	    {{CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE}, "CAP_DAC_READ_SEARCH"},
	    {{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN}, "CAP_CHECKPOINT_RESTORE"},
	};
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(check_without(rows[i].caps, 2, become_another_user, &err), -EPERM);
		assert_non_null(strstr(err.message, rows[i].name));
		for (size_t j = 0; j < ARRAY_SIZE(rows); j++)
			if (j != i)
				assert_null(strstr(err.message, rows[j].name));
	}
}

/*
 * kallsyms_show_value(): everybody sees the addresses with kptr_restrict 0 and perf_event_paranoid
 * <= 1.
 */
static void kernel_addresses_need_a_capability_unless_all_may_see_them(void **state)
{
	static const unsigned int syslog[] = {CAP_SYSLOG}, both[] = {CAP_SYSLOG, CAP_SYS_ADMIN};
	struct error err;

	assert_int_equal(check_without(syslog, 1, become_user_of_an_open_kernel, &err), 0);
	assert_int_equal(check_without(both, 2, become_user_of_an_open_kernel, &err), 0);
	assert_int_equal(check_without(syslog, 1, become_user_of_a_kernel_that_restricts, &err),
			 -EPERM);
	assert_int_equal(check_without(syslog, 1, become_another_user, &err), -EPERM);
	/* Root with SYS_ADMIN starts without kernel symbols. */
	assert_int_equal(check_without(syslog, 1, NULL, &err), 0);
}

/* The capabilities of a unit that has CAP_SYS_ADMIN, CAP_PERFMON and CAP_SYS_PTRACE only. */
static void root_may_profile_without_reading_files_of_others(void **state)
{
	static const unsigned int caps[] = {CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE, CAP_BPF,
					    CAP_SYSLOG, CAP_CHECKPOINT_RESTORE};
	struct error err;

	assert_int_equal(check_without(caps, ARRAY_SIZE(caps), NULL, &err), 0);
}

static void all_missing_capabilities_are_named_at_once(void **state)
{
	unsigned int all[41];
	struct error err;

	for (unsigned int i = 0; i < ARRAY_SIZE(all); i++)
		all[i] = i;
	assert_int_equal(check_without(all, ARRAY_SIZE(all), NULL, &err), -EPERM);
	assert_non_null(strstr(err.message, "CAP_BPF"));
	assert_non_null(strstr(err.message, "CAP_CHECKPOINT_RESTORE"));
	assert_non_null(strstr(err.message, "perf_event_paranoid is "));
}

static void capabilities_that_others_stand_in_for_are_not_missed(void **state)
{
	static const unsigned int replaced[] = {CAP_BPF, CAP_PERFMON, CAP_CHECKPOINT_RESTORE,
						CAP_SYSLOG, CAP_DAC_READ_SEARCH};
	static const unsigned int unneeded[] = {CAP_SYS_RESOURCE, CAP_NET_ADMIN, CAP_SYS_ADMIN,
						CAP_DAC_OVERRIDE, CAP_CHOWN,	 CAP_KILL};
	struct error err;

	assert_int_equal(check_without(replaced, ARRAY_SIZE(replaced), NULL, &err), 0);
	assert_int_equal(check_without(unneeded, ARRAY_SIZE(unneeded), NULL, &err), 0);
}

static int enter_user_namespace(void)
{
	return unshare(CLONE_NEWUSER);
}

static void root_of_a_user_namespace_may_not(void **state)
{
	struct error err;

#ifdef __SANITIZE_THREAD__
	/* The sanitizer's own thread: only a process of one thread may enter a user namespace. */
	skip();
#endif
	assert_int_equal(check_without(NULL, 0, enter_user_namespace, &err), -EPERM);
	assert_non_null(strstr(err.message, "user namespace"));
}

static int hide_btf(void)
{
	return unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	       mount("tmpfs", "/sys/kernel/btf", "tmpfs", 0, NULL) < 0;
}

static void a_kernel_without_btf_is_told(void **state)
{
	struct error err;

	assert_int_equal(check_without(NULL, 0, hide_btf, &err), -ENOSYS);
	assert_non_null(strstr(err.message, "BTF"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_process_is_described),
	    cmocka_unit_test(a_wild_thread_name_confuses_nothing),
	    cmocka_unit_test(a_kernel_thread_is_its_name_in_brackets),
	    cmocka_unit_test(a_zombie_has_a_name_but_no_executable),
	    cmocka_unit_test(the_innermost_namespace_gives_the_pid),
	    cmocka_unit_test(a_process_in_a_container_has_its_id),
	    cmocka_unit_test(what_may_not_be_read_is_empty),
	    cmocka_unit_test(any_failing_allocation_is_survived),
	    cmocka_unit_test(the_host_is_described),
	    cmocka_unit_test(root_may_profile),
	    cmocka_unit_test(each_missing_capability_is_named),
	    cmocka_unit_test(kernel_addresses_need_a_capability_unless_all_may_see_them),
	    cmocka_unit_test(root_may_profile_without_reading_files_of_others),
	    cmocka_unit_test(all_missing_capabilities_are_named_at_once),
	    cmocka_unit_test(capabilities_that_others_stand_in_for_are_not_missed),
	    cmocka_unit_test(root_of_a_user_namespace_may_not),
	    cmocka_unit_test(a_kernel_without_btf_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
