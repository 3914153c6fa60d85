/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ids of processes and threads as in the agent's /proc. The kernel gives a thread one id in its own
 * pid namespace and one in each namespace around that, up to the machine's first. The agent runs in
 * the first namespace, or in a nested one if a Kubernetes node is a container (Kind).
 */
#pragma once

#define PID_LEVELS 4 /* nested namespaces that are searched; a container in a container has 2 */

/*
 * The id in the agent's namespace of TASK's process (OF_PROCESS is 1) or of the thread TASK; 0: it
 * has no id there.
 */
static __attribute__((noinline)) uint32_t id_in_namespace(struct task_struct *task, int of_process)
{
	struct pid *pid = of_process ? BPF_CORE_READ(task, signal, pids[PIDTYPE_TGID])
				     : BPF_CORE_READ(task, thread_pid);
	const char *numbers = (const char *)pid + bpf_core_field_offset(struct pid, numbers);
	uint32_t level = BPF_CORE_READ(pid, level);

	for (uint32_t i = 1; i <= PID_LEVELS && i <= level; i++) {
		const struct upid *id =
		    (const struct upid *)(numbers + i * bpf_core_type_size(struct upid));

		if (BPF_CORE_READ(id, ns, ns.inum) == own_pid_namespace)
			return (uint32_t)BPF_CORE_READ(id, nr);
	}
	return 0;
}

/* The ids of TASK's process and thread; 0: the process is not in the agent's namespace. */
static __always_inline uint32_t process_id(struct task_struct *task)
{
	return own_pid_namespace ? id_in_namespace(task, 1) : (uint32_t)kernel_read(task, tgid);
}

static __always_inline uint32_t thread_id(struct task_struct *task)
{
	return own_pid_namespace ? id_in_namespace(task, 0) : (uint32_t)kernel_read(task, pid);
}
