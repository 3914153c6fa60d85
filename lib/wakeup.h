/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How soon a thread runs after it was woken. A process that lives for two milliseconds is gone by
 * the time that a thread has waited for the rest of another one's slice (3 ms), and a thread may
 * have to although a CPU is idle: a guest's kernel passes over idle CPUs that its host has
 * descheduled (Linux 6.18, kernel/sched/sched.h, available_idle_cpu()).
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
