/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes of names of kernel functions from Linux 5.10 to 7.2: the ends of the names differ from
 * compiler to compiler. Small functions are inlined into their callers, so each cause has several
 * of the functions on the way to the scheduler.
 */
#include "agent/window/wait_cause.h"

#include <string.h>

static const struct {
	const char *prefix, *cause;
} causes[] = {
    /* The block layer and page cache: mm/filemap.c, block/, fs/iomap, fs/direct-io.c. */
    {"io_schedule", "disk"},
    {"folio_wait", "disk"},
    {"wait_on_page", "disk"},
    {"blk", "disk"},
    {"submit_bio_wait", "disk"},
    {"iomap_dio", "disk"},
    {"wbt_wait", "disk"},
    {"jbd2", "disk"},
    {"read_events", "disk"}, /* io_getevents(2) */
    /* kernel/futex/, kernel/locking/, ipc/sem.c, fs/locks.c */
    {"futex_", "lock"},
    {"__futex_", "lock"},
    {"do_futex", "lock"},
    {"mutex_lock", "lock"},
    {"__mutex_lock", "lock"},
    {"rwsem_down", "lock"},
    {"down_", "lock"},
    {"rt_mutex", "lock"},
    {"rt_spin_lock", "lock"},
    {"do_semtimedop", "lock"},
    {"__do_semtimedop", "lock"},
    {"flock_lock", "lock"},
    {"posix_lock", "lock"},
    /* kernel/time/hrtimer.c, kernel/time/alarmtimer.c */
    {"do_nanosleep", "sleep"},
    {"hrtimer_nanosleep", "sleep"},
    {"common_nsleep", "sleep"},
    {"alarm_timer_nsleep", "sleep"},
    /* fs/pipe.c (anon_pipe_*() since Linux 6.15), drivers/tty */
    {"pipe_", "pipe"},
    {"anon_pipe_", "pipe"},
    {"fifo_open", "pipe"},
    {"wait_for_partner", "pipe"},
    {"n_tty_", "terminal"},
    /* fs/eventpoll.c, fs/select.c, io_uring/ */
    {"ep_poll", "poll"},
    {"do_epoll", "poll"},
    {"do_poll", "poll"},
    {"do_sys_poll", "poll"},
    {"do_select", "poll"},
    {"core_sys_select", "poll"},
    {"poll_schedule_timeout", "poll"},
    {"io_cqring_wait", "poll"},
    {"eventfd_read", "poll"},
    {"timerfd_read", "poll"},
    {"signalfd_read", "poll"},
    {"inotify_read", "poll"},
    /* net/ */
    {"sk_wait", "network"},
    {"sk_stream_wait", "network"},
    {"tcp_", "network"},
    {"inet_", "network"},
    {"udp_", "network"},
    {"__skb_", "network"},
    {"skb_recv", "network"},
    {"unix_", "network"},
    {"sock_", "network"},
    {"netlink_", "network"},
    {"packet_", "network"},
    {"rpc_wait", "network"},
    {"nfs_", "network"},
    /* kernel/exit.c, kernel/signal.c */
    {"do_wait", "child process"},
    {"kernel_wait", "child process"},
    {"do_sigtimedwait", "signal"},
    {"__do_sys_pause", "signal"},
    {"__x64_sys_pause", "signal"},
    {"__arm64_sys_pause", "signal"},
    {"sigsuspend", "signal"},
    {"do_signal_stop", "stopped"},
    {"ptrace_stop", "stopped"},
    {"do_freezer_trap", "stopped"},
    /* arch/x86/mm/fault.c, arch/arm64/mm/fault.c, mm/memory.c */
    {"handle_mm_fault", "page fault"},
    {"do_user_addr_fault", "page fault"},
    {"do_page_fault", "page fault"},
};

const char *wait_cause_of_function(const char *function)
{
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		if (has_prefix(function, causes[i].prefix))
			return causes[i].cause;
	return NULL;
}

const char *wait_cause_of_detail(uint8_t detail)
{
	switch ((enum kiln_wait)detail) {
	case KILN_WAIT_RUN_QUEUE:
		return "run queue";
	case KILN_WAIT_IO:
		return "disk";
	case KILN_WAIT_FAULT:
		return "page fault";
	case KILN_WAIT_BLOCKED:
		break;
	}
	return NULL;
}
