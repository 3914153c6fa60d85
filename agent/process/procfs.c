/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc tells of a process and of the host. /proc/PID is opened once and everything is read
 * below that descriptor: if the pid is given to another process meanwhile, reads fail with ESRCH
 * instead of returning data of the wrong process. No state; any thread.
 */
#include "agent/process/procfs.h"

#include <fcntl.h>
#include <sys/utsname.h>

#include "agent/process/proc_file.h"
#include "agent/process/text.h"

enum {
	SMALL_FILE_MAX = 64 << 10,
	KERNEL_THREAD = 0x00200000, /* PF_KTHREAD, include/linux/sched.h */
	STAT_FLAGS = 9,		    /* fields of stat, counted from 1 as in proc(5) */
	STAT_STARTTIME = 22,
	STAT_AFTER_NAME = 3, /* the first field behind the name */
};

/* The fields of /proc/PID/stat that the agent uses. */
struct stat_fields {
	char comm[16];
	uint64_t flags, start_ticks;
};

/* NSpid: the pid in each namespace, outermost first; the last is what the process itself sees. */
static int read_ns_pid(int dirfd, const char *path, uint32_t *ret)
{
	_cleanup_(buf_done) struct buf text;
	struct cursor c, line;
	uint64_t pid;
	int r;

	buf_init(&text, SMALL_FILE_MAX);
	r = proc_file_read(dirfd, path, &text);
	if (r < 0)
		return r;
	c = cursor_of(text.data, text.len);
	while (text_line(&c, &line)) {
		if (!text_prefix(&line, "NSpid:"))
			continue;
		text_skip_blanks(&line);
		while (text_number(&line, 10, &pid) && pid <= UINT32_MAX) {
			*ret = (uint32_t)pid;
			text_skip_blanks(&line);
		}
		break;
	}
	return 0;
}

int process_thread_ns_tid(int proc_dirfd, uint32_t pid, uint32_t tid, uint32_t *ret)
{
	char path[48];

	*ret = tid;
	snprintf(path, sizeof(path), "%u/task/%u/status", pid, tid);
	return read_ns_pid(proc_dirfd, path, ret);
}

/* Copies the thread name in [BEGIN, END) to OUT. In stat, the kernel writes a newline of the name
 * as \n and a backslash as \\ (fs/proc/array.c, proc_task_name). */
static void unescape_name(const char *begin, const char *end, char *out, size_t size)
{
	size_t n = 0;

	while (begin < end && n + 1 < size) {
		if (*begin == '\\' && begin + 1 < end) {
			begin++;
			out[n++] = *begin == 'n' ? '\n' : *begin;
		} else {
			out[n++] = *begin;
		}
		begin++;
	}
	out[n] = 0;
}

/* Moves C, which is before the field FROM, to the beginning of the field TO. */
static void skip_fields(struct cursor *c, unsigned int from, unsigned int to)
{
	text_skip_blanks(c);
	while (from++ < to) {
		while (cursor_left(c) > 0 && text_at(c, c->pos) != ' ')
			cursor_skip(c, 1);
		text_skip_blanks(c);
	}
}

/*
 * Reads the stat of the process PID, whose directory DIRFD is. It is the stat of its first thread,
 * which has the same start and name: for that of the process, the kernel sums up all its threads,
 * which takes 3 ms when there are 10,000. The second field is the thread's name in parentheses; the
 * name may contain blanks and parentheses, so it ends at the last ')' of the file.
 */
static int read_stat(int dirfd, uint32_t pid, struct stat_fields *ret)
{
	_cleanup_(buf_done) struct buf text;
	const char *begin, *end;
	struct cursor c;
	char path[32];
	int r;

	buf_init(&text, SMALL_FILE_MAX);
	snprintf(path, sizeof(path), "task/%u/stat", pid);
	r = proc_file_read(dirfd, path, &text);
	if (r < 0)
		return r;
	begin = text.len ? memchr(text.data, '(', text.len) : NULL;
	end = text.len ? memrchr(text.data, ')', text.len) : NULL;
	if (!begin || !end || end < begin)
		return -EINVAL;
	unescape_name(begin + 1, end, ret->comm, sizeof(ret->comm));
	c = cursor_of(text.data, text.len);
	cursor_seek(&c, (size_t)(end - text.data) + 1);
	skip_fields(&c, STAT_AFTER_NAME, STAT_FLAGS);
	if (!text_number(&c, 10, &ret->flags))
		return -EINVAL;
	skip_fields(&c, STAT_FLAGS + 1, STAT_STARTTIME);
	return text_number(&c, 10, &ret->start_ticks) ? 0 : -EINVAL;
}

/* Sets INFO's executable to PATH, and takes over PATH. */
static int set_executable(struct process_info *info, char *path)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path), suffix = sizeof(deleted) - 1;
	const char *slash;

	info->executable_path = path;
	if (len > suffix && streq(path + len - suffix, deleted))
		path[len - suffix] = 0;
	slash = strrchr(path, '/');
	info->executable_name = strdup(slash ? slash + 1 : path);
	return info->executable_name ? 0 : -ENOMEM;
}

static int read_executable(int dirfd, bool is_kernel_thread, struct process_info *info)
{
	char *path = NULL;
	char name[sizeof(info->comm) + 3] = "";
	int r = proc_link_read(dirfd, "exe", &path);

	if (r == 0)
		return set_executable(info, path);
	if (r == -ENOMEM || r == -ESRCH)
		return r;
	if (r == -ENOENT && is_kernel_thread)
		snprintf(name, sizeof(name), "[%s]", info->comm);
	info->executable_path = strdup("");
	info->executable_name = strdup(name);
	return info->executable_path && info->executable_name ? 0 : -ENOMEM;
}

static int read_container(int dirfd, struct container_identity *ret)
{
	_cleanup_(buf_done) struct buf text;
	int r;

	buf_init(&text, SMALL_FILE_MAX);
	r = proc_file_read(dirfd, "cgroup", &text);
	if (r < 0 && r != -E2BIG)
		return r;
	container_parse_cgroup(text.data, text.len, ret);
	return 0;
}

/* A part that may not be read stays empty; a process that is gone, or no memory, is an error. */
static bool is_fatal(int r)
{
	return r == -ESRCH || r == -ENOMEM;
}

int process_open(int proc_dirfd, uint32_t pid, int *ret)
{
	char path[16];
	int fd;

	snprintf(path, sizeof(path), "%u", pid);
	fd = openat(proc_dirfd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	*ret = fd;
	return 0;
}

int process_start_ticks(int proc_dirfd, uint32_t pid, uint64_t *ret)
{
	_cleanup_close_ int dirfd = -1;
	struct stat_fields stat;
	int r = process_open(proc_dirfd, pid, &dirfd);

	if (!r)
		r = read_stat(dirfd, pid, &stat);
	if (!r)
		*ret = stat.start_ticks;
	return r;
}

bool process_is_still(const char *proc, uint32_t pid, uint64_t start_ns)
{
	_cleanup_close_ int dirfd = open(proc, O_PATH | O_DIRECTORY | O_CLOEXEC);
	uint64_t ticks;

	return dirfd >= 0 && process_start_ticks(dirfd, pid, &ticks) == 0 &&
	       ticks == start_ns / KILN_TICK_NS;
}

bool process_is_gone(int proc_dirfd, uint32_t pid)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", pid);
	return faccessat(proc_dirfd, name, F_OK, 0) < 0 && errno == ENOENT;
}

bool process_is_there(int process_dirfd)
{
	return faccessat(process_dirfd, "stat", F_OK, 0) == 0;
}

int process_info_read(int proc_dirfd, uint32_t pid, struct process_info *ret)
{
	_cleanup_close_ int dirfd = -1;
	int r = process_open(proc_dirfd, pid, &dirfd);

	return r < 0 ? r : process_info_read_at(dirfd, pid, ret);
}

int process_info_read_at(int dirfd, uint32_t pid, struct process_info *ret)
{
	_cleanup_(process_info_done) struct process_info info = {.ns_pid = pid};
	struct stat_fields stat = {};
	int r = read_stat(dirfd, pid, &stat);

	if (is_fatal(r))
		return r;
	memcpy(info.comm, stat.comm, sizeof(info.comm));
	info.start_ticks = stat.start_ticks;
	r = read_ns_pid(dirfd, "status", &info.ns_pid);
	if (is_fatal(r))
		return r;
	r = read_container(dirfd, &info.container);
	/* Kernels without cgroups have no such file. */
	if (r == -ENOMEM)
		return r;
	r = read_executable(dirfd, stat.flags & KERNEL_THREAD, &info);
	if (r < 0)
		return r;
	*ret = info;
	info = (struct process_info){0};
	return 0;
}

void process_info_done(struct process_info *info)
{
	free(info->executable_path);
	free(info->executable_name);
	*info = (struct process_info){0};
}

char *host_name(void)
{
	char name[256];

	if (gethostname(name, sizeof(name)) < 0)
		return NULL;
	name[sizeof(name) - 1] = 0;
	return name[0] ? strdup(name) : NULL;
}

/* The first word of the file, when it looks like a machine id: 32 hex digits (machine-id(5)). */
static char *machine_id_of(const char *path)
{
	_cleanup_(buf_done) struct buf text;
	size_t n = 0;

	buf_init(&text, SMALL_FILE_MAX);
	if (proc_file_read(AT_FDCWD, path, &text) < 0)
		return NULL;
	while (n < text.len && text_hex_digit(text.data[n]) >= 0)
		n++;
	return n == 32 ? strndup(text.data, n) : NULL;
}

char *host_id(void)
{
	char *id = machine_id_of("/etc/machine-id");

	return id ? id : machine_id_of("/var/lib/dbus/machine-id");
}

const char *host_arch(void)
{
#if defined(__x86_64__)
	return "amd64";
#elif defined(__aarch64__)
	return "arm64";
#else
#error "Kiln runs on x86_64 and aarch64"
#endif
}

char *host_kernel_release(void)
{
	struct utsname u;

	return uname(&u) < 0 ? NULL : strdup(u.release);
}
