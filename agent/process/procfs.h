/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc tells of one process, read once when it is first sampled. Any thread. */
#pragma once

#include "agent/process/container.h"
#include "lib/base.h"

struct process_info {
	char *executable_path; /* readlink of exe, " (deleted)" cut off; "" for kernel threads */
	char *executable_name; /* last part of the path; the comm in brackets for kernel threads */
	char comm[16];
	uint64_t start_ticks; /* after boot, in units of KILN_TICK_NS: field 22 of stat, proc(5) */
	uint32_t ns_pid;      /* the pid in the innermost pid namespace (NSpid of status) */
	struct container_identity container;
};

/* /proc counts in USER_HZ, which is 100 on every architecture that Kiln runs on. */
#define KILN_TICK_NS 10000000ULL

/*
 * When the process PID began, in the unit of process_info.start_ticks. -ESRCH: there is no such
 * process.
 */
int process_start_ticks(int proc_dirfd, uint32_t pid, uint64_t *ret) _must_check_;
/* Is PID still the process that began at START_NS (CLOCK_BOOTTIME)? PROC: "/proc". */
bool process_is_still(const char *proc, uint32_t pid, uint64_t start_ns);
/* The id of the thread TID of PID in its innermost pid namespace. -ESRCH when it is gone. */
int process_thread_ns_tid(int proc_dirfd, uint32_t pid, uint32_t tid, uint32_t *ret) _must_check_;
/*
 * Does no process or thread have the pid PID? Then the process that had it is gone for good, even
 * if another one gets the pid later.
 */
bool process_is_gone(int proc_dirfd, uint32_t pid);
/* -ESRCH when the process is gone. Missing parts (no permission) are left "". */
int process_info_read(int proc_dirfd, uint32_t pid, struct process_info *ret) _must_check_;
/* The same of the process PID whose directory is open. */
int process_info_read_at(int process_dirfd, uint32_t pid, struct process_info *ret) _must_check_;
/*
 * Opens the directory of the process PID in /proc. It stays that process's: when that has ended,
 * what is below is gone, even if another process has got the pid. -ESRCH: there is none.
 */
int process_open(int proc_dirfd, uint32_t pid, int *ret) _must_check_;
/* Is the process of an open directory still there? Until it is not, no other has its pid. */
bool process_is_there(int process_dirfd);
void process_info_done(struct process_info *info);

/* Attributes of the host. All but host_arch() are allocated; NULL: not known. */
char *host_name(void);	     /* host.name */
char *host_id(void);	     /* host.id: /etc/machine-id */
const char *host_arch(void); /* host.arch: amd64, arm64 */
char *host_kernel_release(void);

/*
 * Checks that this process may profile: root or the capabilities of design §6, BTF, perf_event.
 * 0, or -EPERM / -ENOSYS with an error that names the missing capability or feature.
 */
struct error;
int host_check_privileges(struct error *err) _must_check_;
