/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One hash table. Each lookup for a sample keeps the entry for a while; the sweep runs only between
 * windows, when no worker holds an entry.
 *
 * When a pid was free once, a later process with that pid is another one, with another start time.
 * The entry of the former process is then needed only for records that were in the ring when it
 * ended. So `ended` stays set, even when the pid is in use again at the next sweep.
 */
#include "agent/process/process_table.h"

#include "lib/metrics.h"

struct process_table {
	struct process *by_key;
};

int process_table_new(struct process_table **ret)
{
	struct process_table *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	*ret = t;
	return 0;
}

static void process_drop(struct process_table *t, struct process *p)
{
	HASH_DEL(t->by_key, p);
	process_info_done(&p->info);
	free(p);
}

struct process_table *process_table_free(struct process_table *t)
{
	struct process *p, *next;

	if (!t)
		return NULL;
	HASH_ITER (hh, t->by_key, p, next)
		process_drop(t, p);
	free(t);
	return NULL;
}

/* Sets P's executable when /proc did not give it: EXECUTABLE is the main image's path; when that is
 * empty the thread's name COMM is used. */
static int stand_in(struct process *p, const char *comm, const char *executable)
{
	const char *slash = strrchr(executable, '/');

	free(p->info.executable_path);
	free(p->info.executable_name);
	p->info.executable_path = strdup(executable);
	if (executable[0])
		p->info.executable_name = strdup(slash ? slash + 1 : executable);
	else
		p->info.executable_name = strdup(comm);
	return p->info.executable_path && p->info.executable_name ? 0 : -ENOMEM;
}

/* Sets the info of a process that was gone before /proc could be read. */
static int describe_gone(struct process *p, const char *comm, const char *executable)
{
	process_info_done(&p->info);
	p->info = (struct process_info){};
	snprintf(p->info.comm, sizeof(p->info.comm), "%s", comm);
	p->info.ns_pid = p->key.tgid;
	return stand_in(p, comm, executable);
}

static int copy_info(struct process *p, const struct process_info *info, const char *comm,
		     const char *executable)
{
	p->info = *info;
	p->info.executable_path = p->info.executable_name = NULL;
	if (!info->executable_name[0]) /* /proc told no executable: a zombie, perhaps */
		return stand_in(p, comm, executable);
	p->info.executable_path = strdup(info->executable_path);
	p->info.executable_name = strdup(info->executable_name);
	return p->info.executable_path && p->info.executable_name ? 0 : -ENOMEM;
}

struct process *process_table_find(struct process_table *t, const struct process_key *key,
				   uint32_t window)
{
	struct process *p;

	HASH_FIND(hh, t->by_key, key, sizeof(*key), p);
	if (p)
		p->last_window = window;
	return p;
}

int process_table_add(struct process_table *t, const struct process_key *key,
		      const struct process_info *info, int info_error, const char *comm,
		      const char *executable, uint32_t window, struct process **ret)
{
	struct process *p;
	int r;

	if (HASH_COUNT(t->by_key) >= PROCESS_TABLE_MAX) {
		metric_add(M_PROCESS_TABLE_FULL, 1);
		return -ENOSPC;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->key = *key;
	p->last_window = window;
	p->known = info != NULL;
	p->ended = info_error == -ESRCH;
	r = info ? copy_info(p, info, comm, executable) : describe_gone(p, comm, executable);
	if (r < 0) {
		process_info_done(&p->info);
		free(p);
		return r;
	}
	HASH_ADD(hh, t->by_key, key, sizeof(p->key), p);
	*ret = p;
	return 0;
}

void process_table_sweep(struct process_table *t, int proc_dirfd, uint32_t before_window,
			 uint32_t named, const uint32_t *alive, size_t n_alive)
{
	struct process *p, *next;

	HASH_ITER (hh, t->by_key, p, next) {
		uint32_t before = p->ended ? named : before_window;

		if ((int32_t)(p->last_window - before) < 0)
			process_drop(t, p);
		/* A process that was just sampled need not be looked up in /proc. */
		else if (!p->ended && (int32_t)(p->last_window - named) <= 0 &&
			 !(n_alive &&
			   bsearch(&p->key.tgid, alive, n_alive, sizeof(*alive), compare_u32)))
			p->ended = process_is_gone(proc_dirfd, p->key.tgid);
	}
}

size_t process_table_count(const struct process_table *t)
{
	return HASH_COUNT(t->by_key);
}

size_t process_table_profiled(const struct process_table *t)
{
	size_t n = 0;

	for (const struct process *p = t->by_key; p; p = p->hh.next)
		n += !p->ignored;
	return n;
}
