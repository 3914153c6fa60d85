/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /proc/self/stat (proc(5): field numbers below), the directory of descriptors and the boot
 * time. Nothing is kept; any thread may call.
 */
#include "lib/process_metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>

enum {
	/* The numbers that proc(5) gives to the fields of /proc/PID/stat. */
	FIELD_UTIME = 14,
	FIELD_STIME = 15,
	FIELD_THREADS = 20,
	FIELD_STARTTIME = 22,
	FIELD_VSIZE = 23,
	FIELD_RSS = 24,
	FIRST_AFTER_COMM = 3,
	FIELDS = 25,
	TEXT_MAX = 1 << 20, /* /proc/stat has one line a CPU */
	FDS_MAX = 1 << 20,
};

static int read_text(const char *path, struct buf *out)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char chunk[4096];
	ssize_t n;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (buf_append(out, chunk, (size_t)n) < 0)
			return buf_error(out);
	}
	return out->len ? 0 : -ENODATA;
}

/* The numbers after comm, which may hold spaces and parentheses itself, by their number in proc(5).
 */
static int parse_stat(const char *text, uint64_t fields[FIELDS])
{
	const char *p = strrchr(text, ')');

	if (!p)
		return -EINVAL;
	p++;
	for (int i = FIRST_AFTER_COMM; i < FIELDS; i++) {
		p += strspn(p, " ");
		if (!*p)
			return -EINVAL;
		fields[i] = strtoull(p, NULL, 10);
		p += strcspn(p, " ");
	}
	return 0;
}

static int parse_boot_time(const char *text, uint64_t *ret)
{
	const char *p = has_prefix(text, "btime ") ? text : strstr(text, "\nbtime ");

	if (!p)
		return -EINVAL;
	*ret = strtoull(strchr(p, ' ') + 1, NULL, 10);
	return 0;
}

static int count_fds(const char *path, uint64_t *ret)
{
	DIR *dir = opendir(path);
	uint64_t n = 0;

	if (!dir)
		return -errno;
	while (n < FDS_MAX) {
		const struct dirent *e = readdir(dir);

		if (!e)
			break;
		n += e->d_name[0] != '.';
	}
	closedir(dir);
	*ret = n ? n - 1 : 0; /* less the directory's own */
	return 0;
}

static int read_file(const char *path, struct buf *b)
{
	int r;

	buf_init(b, TEXT_MAX);
	r = read_text(path, b);
	if (r < 0)
		buf_done(b);
	return r;
}

int process_metrics_read(const char *proc, const char *stat, struct process_metrics *ret)
{
	const double ticks = (double)sysconf(_SC_CLK_TCK);
	uint64_t fields[FIELDS] = {0}, boot = 0;
	struct process_metrics m = {0};
	struct rlimit limit;
	char path[256];
	struct buf b;
	int r;

	snprintf(path, sizeof(path), "%s/stat", proc);
	r = read_file(path, &b);
	if (r < 0)
		return r;
	r = parse_stat(b.data, fields);
	buf_done(&b);
	if (r < 0)
		return r;
	r = read_file(stat, &b);
	if (r < 0)
		return r;
	r = parse_boot_time(b.data, &boot);
	buf_done(&b);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/fd", proc);
	r = count_fds(path, &m.open_fds);
	if (r < 0)
		return r;
	m.cpu_seconds = (double)(fields[FIELD_UTIME] + fields[FIELD_STIME]) / ticks;
	m.resident_bytes = fields[FIELD_RSS] * (uint64_t)sysconf(_SC_PAGESIZE);
	m.virtual_bytes = fields[FIELD_VSIZE];
	m.threads = fields[FIELD_THREADS];
	m.start_time_seconds = (double)boot + (double)fields[FIELD_STARTTIME] / ticks;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		m.max_fds = limit.rlim_cur;
	*ret = m;
	return 0;
}

static void row(struct buf *out, const char *kind, const char *name, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s ", name, help, name, kind, name);
}

int process_metrics_render(const struct process_metrics *m, struct buf *out)
{
	row(out, "counter", "process_cpu_seconds_total",
	    "User and system CPU time spent, in seconds.");
	buf_printf(out, "%.2f\n", m->cpu_seconds);
	row(out, "gauge", "process_resident_memory_bytes", "Resident memory, in bytes.");
	buf_printf(out, "%" PRIu64 "\n", m->resident_bytes);
	row(out, "gauge", "process_virtual_memory_bytes", "Virtual memory, in bytes.");
	buf_printf(out, "%" PRIu64 "\n", m->virtual_bytes);
	row(out, "gauge", "process_open_fds", "Open file descriptors.");
	buf_printf(out, "%" PRIu64 "\n", m->open_fds);
	row(out, "gauge", "process_max_fds", "Most file descriptors that may be open.");
	buf_printf(out, "%" PRIu64 "\n", m->max_fds);
	row(out, "gauge", "process_threads", "Threads of this process.");
	buf_printf(out, "%" PRIu64 "\n", m->threads);
	row(out, "gauge", "process_start_time_seconds",
	    "Start of this process since the UNIX epoch, in seconds.");
	buf_printf(out, "%.2f\n", m->start_time_seconds);
	return buf_error(out);
}
