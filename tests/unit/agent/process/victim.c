/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. Children die with the test (PR_SET_PDEATHSIG), also when it crashes. */
#include "victim.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void map_and_wait(const char *file, int ready, int hold)
{
	char c;
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED || write(ready, "y", 1) != 1)
		_exit(1);
	while (read(hold, &c, 1) > 0)
		;
	_exit(0);
}

int victim_start(const char *file, int (*setup)(char *, size_t, void *), void *arg,
		 struct victim *ret)
{
	int hold[2], ready[2];
	char path[512], c;
	pid_t pid;
	ssize_t n;

	if (pipe2(hold, O_CLOEXEC) < 0 || pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(hold[1]);
		close(ready[0]);
		snprintf(path, sizeof(path), "%s", file);
		if (setup && setup(path, sizeof(path), arg) != 0)
			_exit(1);
		map_and_wait(path, ready[1], hold[0]);
	}
	close(hold[0]);
	close(ready[1]);
	*ret = (struct victim){.pid = pid, .hold = hold[1]};
	n = pid < 0 ? -1 : read(ready[0], &c, 1);
	close(ready[0]);
	if (n == 1)
		return 0;
	victim_end(ret);
	return -ECHILD;
}

int victim_exec(const char *file, struct victim *ret)
{
	int hold[2], echo[2];
	pid_t pid;
	char c;
	bool alive;

	if (pipe2(hold, O_CLOEXEC) < 0 || pipe2(echo, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(hold[0], STDIN_FILENO);
		dup2(echo[1], STDOUT_FILENO);
		execl(file, file, (char *)NULL);
		_exit(1);
	}
	close(hold[0]);
	close(echo[1]);
	*ret = (struct victim){.pid = pid, .hold = hold[1]};
	/* What comes back was read by the new program, so all of it is mapped. */
	alive = write(hold[1], "y", 1) == 1 && read(echo[0], &c, 1) == 1;
	close(echo[0]);
	if (alive)
		return 0;
	victim_end(ret);
	return -ECHILD;
}

void victim_end(struct victim *victim)
{
	if (victim->pid <= 0)
		return;
	close(victim->hold);
	kill(victim->pid, SIGKILL);
	waitpid(victim->pid, NULL, 0);
	victim->pid = 0;
}

char *dir_make(void)
{
	char template[] = "/tmp/kiln-test-XXXXXX";

	return mkdtemp(template) ? strdup(template) : NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)remove(path);
	return 0;
}

void dir_remove(char *dir)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	free(dir);
}

int file_copy(const char *from, const char *to)
{
	_cleanup_close_ int in = open(from, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	char block[65536];
	ssize_t n;

	if (in < 0 || out < 0)
		return -errno;
	while ((n = read(in, block, sizeof(block))) > 0)
		if (write(out, block, (size_t)n) != n)
			return -EIO;
	return n < 0 ? -errno : 0;
}

int file_write(const char *path, const char *text)
{
	_cleanup_close_ int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (out < 0 || write(out, text, strlen(text)) != (ssize_t)strlen(text))
		return -errno;
	return 0;
}

int proc_open(void)
{
	return open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int proc_open_roots_only(const char *dir, pid_t pid)
{
	char path[128], target[64];

	snprintf(path, sizeof(path), "%s/%d", dir, pid);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/%d/root", dir, pid);
	snprintf(target, sizeof(target), "/proc/%d/root", pid);
	(void)unlink(path);
	if (symlink(target, path) < 0)
		return -errno;
	return open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

const struct map_entry *find_mapping(int procfd, pid_t pid, const char *suffix, struct maps *ret)
{
	if (maps_read(procfd, (uint32_t)pid, ret) < 0)
		return NULL;
	for (size_t i = 0; i < ret->n; i++) {
		const char *path = ret->entries[i].path;
		size_t len = strlen(path), n = strlen(suffix);

		if (len >= n && streq(path + len - n, suffix))
			return &ret->entries[i];
	}
	return NULL;
}

static void caps_set_effective(uint64_t dropped)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	uint64_t effective, permitted;

	if (syscall(SYS_capget, &header, data) < 0)
		abort();
	permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted;
	effective = permitted & ~dropped;
	data[0].effective = (uint32_t)effective;
	data[1].effective = (uint32_t)(effective >> 32);
	if (syscall(SYS_capset, &header, data) < 0)
		abort();
}

void caps_drop(const unsigned int *caps, size_t n)
{
	uint64_t mask = 0;

	for (size_t i = 0; i < n; i++)
		mask |= 1ULL << caps[i];
	caps_set_effective(mask);
}

void caps_restore(void)
{
	caps_set_effective(0);
}
