/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over /proc; nothing is kept. Each process's maps are read once here. */
#include "agent/window/warm.h"

#include <dirent.h>
#include <fcntl.h>

bool warm_is_runtime(const char *path, const struct interpreter_ops *const *table)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (; *table; table++)
		for (const char *const *f = (*table)->files; f && *f; f++)
			if (has_prefix(name, *f))
				return true;
	return false;
}

static bool runs_one(int proc_dirfd, uint32_t pid, const struct interpreter_ops *const *table)
{
	struct maps maps = {};
	bool runs = false;

	if (maps_read(proc_dirfd, pid, &maps) < 0)
		return false;
	for (size_t i = 0; i < maps.n && !runs; i++)
		runs = maps.entries[i].kind == MAPPING_FILE &&
		       warm_is_runtime(maps.entries[i].path, table);
	maps_done(&maps);
	return runs;
}

static void scan_pids(int proc_dirfd, const uint32_t *pids, size_t n,
		      const struct interpreter_ops *const *table,
		      void (*found)(uint32_t pid, void *arg), void *arg)
{
	size_t left = WARM_PROCESSES_MAX;

	for (size_t i = 0; i < MIN(n, (size_t)WARM_SCAN_MAX) && left; i++)
		if (runs_one(proc_dirfd, pids[i], table)) {
			found(pids[i], arg);
			left--;
		}
}

void warm_scan(int proc_dirfd, const uint32_t *pids, size_t n_pids,
	       const struct interpreter_ops *const *table, void (*found)(uint32_t pid, void *arg),
	       void *arg)
{
	_cleanup_free_ uint32_t *all = NULL;
	struct dirent *entry;
	size_t n = 0;
	DIR *dir;
	int fd;

	if (pids) {
		scan_pids(proc_dirfd, pids, n_pids, table, found, arg);
		return;
	}
	all = malloc(WARM_SCAN_MAX * sizeof(*all));
	fd = openat(proc_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir && fd >= 0)
		close(fd);
	while (all && dir && n < WARM_SCAN_MAX && (entry = readdir(dir))) {
		unsigned long pid = strtoul(entry->d_name, NULL, 10);

		if (pid && pid != (unsigned long)getpid())
			all[n++] = (uint32_t)pid;
	}
	if (dir)
		closedir(dir);
	scan_pids(proc_dirfd, all, n, table, found, arg);
}
