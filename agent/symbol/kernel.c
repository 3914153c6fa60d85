// SPDX-License-Identifier: Apache-2.0
/*
 * Reading kallsyms takes the kernel tens of milliseconds, so an address that no table will ever
 * cover must not cause it over and over. A table that was replaced stays until the trim, because
 * results point to its names.
 */
#include "agent/symbol/kernel.h"

#include <fcntl.h>

#include "lib/log.h"
#include "lib/metrics.h"

enum {
	RETRY_MIN_MS = 5 * 1000,
	RETRY_MAX_MS = 10 * 60 * 1000,
	REFRESH_MS = 10 * 60 * 1000,
};

struct kernel_symbols {
	char *path;
	struct kallsyms *table, *retired;
	uint64_t read_ms, retry_ms; /* when it was read; after how long a miss reads it again */
	bool tried, warned;
};

int kernel_symbols_new(const char *path, struct kernel_symbols **ret)
{
	_cleanup_(kernel_symbols_freep) struct kernel_symbols *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->path = strdup(path);
	if (!k->path)
		return -ENOMEM;
	k->retry_ms = RETRY_MIN_MS;
	*ret = TAKE_PTR(k);
	return 0;
}

struct kernel_symbols *kernel_symbols_free(struct kernel_symbols *k)
{
	if (!k)
		return NULL;
	kallsyms_free(k->table);
	kallsyms_free(k->retired);
	free(k->path);
	free(k);
	return NULL;
}

/* One line for the user when there is nothing to find. */
static void warn(struct kernel_symbols *k, const char *why)
{
	if (!k->warned)
		log_warn("symbol", "kernel functions have no names: %s", why);
	k->warned = true;
}

static void read_table(struct kernel_symbols *k, uint64_t now_ms)
{
	_cleanup_close_ int fd = open(k->path, O_RDONLY | O_CLOEXEC);
	struct kallsyms *table = NULL;
	struct error err = {0};
	int r = fd < 0 ? error_set(&err, -errno, "%s: %s", k->path, strerror(errno))
		       : kallsyms_read(fd, &table, &err);

	k->tried = true;
	k->read_ms = now_ms;
	if (r < 0) {
		warn(k, err.message);
		return;
	}
	if (kallsyms_restricted(table))
		warn(k, "the kernel hides its addresses (kernel.kptr_restrict, CAP_SYSLOG)");
	metric_set(M_KALLSYMS_RESTRICTED, kallsyms_restricted(table));
	k->retired = TAKE_PTR(k->table);
	k->table = table;
}

bool kernel_symbols_find(struct kernel_symbols *k, uint64_t address, uint64_t now_ms,
			 struct kallsyms_symbol *ret)
{
	uint64_t age = now_ms - k->read_ms;
	struct kallsyms_symbol symbol;
	bool found;

	if (!k->tried)
		read_table(k, now_ms);
	found = k->table && kallsyms_find(k->table, address, &symbol);
	if (!k->retired && now_ms != k->read_ms &&
	    (found ? symbol.module[0] && age >= REFRESH_MS : age >= k->retry_ms)) {
		bool was_miss = !found;

		read_table(k, now_ms);
		found = k->table && kallsyms_find(k->table, address, &symbol);
		if (was_miss)
			k->retry_ms = found ? RETRY_MIN_MS : MIN(k->retry_ms * 2, RETRY_MAX_MS);
	}
	if (found)
		*ret = symbol;
	return found;
}

void kernel_symbols_trim(struct kernel_symbols *k)
{
	k->retired = kallsyms_free(k->retired);
}

size_t kernel_symbols_bytes(const struct kernel_symbols *k)
{
	return (k->table ? kallsyms_bytes(k->table) : 0) +
	       (k->retired ? kallsyms_bytes(k->retired) : 0);
}
