/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How soon a thread runs after it was woken. By default it may wait until the running thread has
 * used up its time slice (3 ms); a process that lives for two milliseconds has exited by then. In a
 * virtual machine that happens although a CPU is idle: the scheduler does not choose an idle CPU
 * that the hypervisor has preempted (Linux 6.18, kernel/sched/sched.h, available_idle_cpu()).
 */
#pragma once

/*
 * The calling thread runs soon after it was woken, as long as it does so for short times: with a
 * slice of 100 us, which lets it go before threads with longer ones (Linux 6.12,
 * kernel/sched/fair.c, PREEMPT_SHORT; older kernels take no notice), and, with CAP_SYS_NICE, at a
 * nice value of -10, unless it has one above 0. Threads that it starts from then on have neither.
 * Cannot fail: without the privilege, or where a sandbox forbids the call, the thread goes on as it
 * was.
 */
void wakeup_soon(void);
