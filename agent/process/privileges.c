/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_check_privileges(): may this process profile the host? Asked once at start, so that what is
 * missing is named before a system call deep inside fails with EPERM. CAP_SYS_RESOURCE is not in
 * the list: without it memory-lock limits stay, and kernels since 5.11 do not charge BPF to them.
 */
#include "agent/process/procfs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent/process/proc_file.h"
#include "lib/error.h"

/* PROC_USER_INIT_INO of include/linux/proc_ns.h: the inode of the first user namespace. */
static const ino_t first_user_namespace = 0xEFFFFFFD;

/*
 * Each needed capability, another one that suffices instead, and what it is needed for.
 * CAP_SYS_ADMIN suffices where the kernel checks for the new capability or CAP_SYS_ADMIN
 * (bpf_capable(), perfmon_capable(), checkpoint_restore_ns_capable() in
 * include/linux/capability.h); kernel addresses need CAP_SYSLOG itself (kallsyms_show_value() in
 * kernel/ksyms_common.c).
 */
static const struct {
	unsigned int cap, instead; /* instead: CAP_LAST_CAP + 1 for none */
	const char *name, *use;
} needed[] = {
    {CAP_BPF, CAP_SYS_ADMIN, "CAP_BPF", "load BPF programs"},
    {CAP_PERFMON, CAP_SYS_ADMIN, "CAP_PERFMON", "sample every CPU"},
    {CAP_SYS_PTRACE, CAP_LAST_CAP + 1, "CAP_SYS_PTRACE", "read the mappings of processes"},
    {CAP_SYSLOG, CAP_LAST_CAP + 1, "CAP_SYSLOG", "name kernel functions"},
    {CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE, "CAP_DAC_READ_SEARCH", "read every binary"},
    {CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, "CAP_CHECKPOINT_RESTORE", "open mapped files"},
};

static int read_effective(uint64_t *ret)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	*ret = (uint64_t)data[1].effective << 32 | data[0].effective;
	return 0;
}

static bool has_cap(uint64_t effective, unsigned int cap)
{
	return cap <= CAP_LAST_CAP && (effective >> cap & 1);
}

/* The number in PATH, or 99 when there is none. */
static int setting(const char *path)
{
	_cleanup_(buf_done) struct buf text;

	buf_init(&text, 64);
	return proc_file_read(AT_FDCWD, path, &text) == 0 && text.len > 0 ? atoi(text.data) : 99;
}

/* Does the kernel show its addresses to everyone (kallsyms_show_value())? */
static bool kernel_is_open(void)
{
	return setting("/proc/sys/kernel/kptr_restrict") == 0 &&
	       setting("/proc/sys/kernel/perf_event_paranoid") <= 1;
}

/*
 * Is the capability CAP not needed here? Root is the owner of nearly every binary, and may read
 * those without DAC_READ_SEARCH: systemd units of other profilers have User=root with a bounding
 * set of SYS_ADMIN, PERFMON and SYS_PTRACE. With such a set the kernel may hide the addresses of
 * its functions, which then have no names; the symbolizer logs a warning.
 */
static bool is_dispensable(uint64_t effective, unsigned int cap)
{
	bool root = geteuid() == 0;

	if (cap == CAP_SYSLOG)
		return (root && has_cap(effective, CAP_SYS_ADMIN)) || kernel_is_open();
	return cap == CAP_DAC_READ_SEARCH && root;
}

/* ", kernel.perf_event_paranoid is N": why an ordinary user could not either. */
static void append_paranoid(struct buf *out)
{
	_cleanup_(buf_done) struct buf text;

	buf_init(&text, 64);
	if (proc_file_read(AT_FDCWD, "/proc/sys/kernel/perf_event_paranoid", &text) == 0 &&
	    text.len > 0)
		buf_printf(out, ", kernel.perf_event_paranoid is %d", atoi(text.data));
}

static int check_capabilities(struct error *err)
{
	_cleanup_(buf_done) struct buf missing;
	uint64_t effective = 0;
	int r = read_effective(&effective);

	if (r < 0)
		return error_set(err, r, "capabilities cannot be read: %s", strerror(-r));
	buf_init(&missing, 1024);
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		if (has_cap(effective, needed[i].cap) || has_cap(effective, needed[i].instead) ||
		    is_dispensable(effective, needed[i].cap))
			continue;
		buf_printf(&missing, "%s%s (to %s", missing.len ? ", " : "", needed[i].name,
			   needed[i].use);
		if (needed[i].cap == CAP_PERFMON)
			append_paranoid(&missing);
		buf_puts(&missing, ")");
	}
	if (buf_error(&missing) < 0)
		return error_set(err, buf_error(&missing), "out of memory");
	if (missing.len > 0)
		return error_set(err, -EPERM, "missing %s; run as root or grant it", missing.data);
	return 0;
}

/* Root of a container's own user namespace has every bit set and still may not load BPF. */
static int check_user_namespace(struct error *err)
{
	struct stat st;

	if (stat("/proc/self/ns/user", &st) == 0 && st.st_ino != first_user_namespace)
		return error_set(err, -EPERM,
				 "runs in a user namespace of its own, where capabilities such as "
				 "CAP_BPF do not reach the kernel; run in the host's");
	return 0;
}

static int check_kernel(struct error *err)
{
	if (access("/proc/sys/kernel/perf_event_paranoid", F_OK) < 0)
		return error_set(err, -ENOSYS,
				 "the kernel has no perf events (CONFIG_PERF_EVENTS): "
				 "/proc/sys/kernel/perf_event_paranoid: %s",
				 strerror(errno));
	if (access("/sys/kernel/btf/vmlinux", R_OK) < 0)
		return error_set(err, -ENOSYS,
				 "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF): "
				 "/sys/kernel/btf/vmlinux: %s",
				 strerror(errno));
	return 0;
}

int host_check_privileges(struct error *err)
{
	int r = check_user_namespace(err);

	if (r == 0)
		r = check_capabilities(err);
	return r == 0 ? check_kernel(err) : r;
}
