/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's entries of processes, and which processes and mapsets they name. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "agent/process/procfs.h"
#include "agent/sampler/sampler_internal.h"

enum {
	LOOKS = 8, /* each process is looked up in /proc once in so many calls */
	/* Entries of `processes` read at once: more than a bucket of its hash table ever holds. */
	ENTRIES_AT_ONCE = 1024,
};

/* After a change of TGID's entry in `processes`. */
static void process_changed(struct sampler *s, uint32_t tgid)
{
	uint32_t *epochs = s->skel->bss->knobs.processes_epoch;

	__atomic_fetch_add(&epochs[tgid % KILN_KNOWN_PROCESSES], 1, __ATOMIC_RELEASE);
}

int sampler_set_process(void *arg, uint32_t tgid, const struct kiln_process *p)
{
	struct sampler *s = arg;
	int r = bpf_map_update_elem(bpf_map__fd(s->skel->maps.processes), &tgid, p, BPF_EXIST);

	process_changed(s, tgid);
	return r;
}

int sampler_get_process(void *arg, uint32_t tgid, struct kiln_process *ret)
{
	struct sampler *s = arg;

	return bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.processes), &tgid, ret);
}

/* Calls EACH for every entry of `processes`; EACH may delete that entry. */
static int each_entry(struct sampler *s,
		      void (*each)(void *arg, uint32_t tgid, const struct kiln_process *entry),
		      void *arg)
{
	int fd = bpf_map__fd(s->skel->maps.processes);
	_cleanup_free_ uint32_t *keys = malloc(ENTRIES_AT_ONCE * sizeof(*keys));
	_cleanup_free_ struct kiln_process *values = malloc(ENTRIES_AT_ONCE * sizeof(*values));
	uint32_t batch, count;
	bool more = true;

	if (!keys || !values)
		return -ENOMEM;
	for (bool first = true; more; first = false) {
		count = ENTRIES_AT_ONCE;
		if (bpf_map_lookup_batch(fd, first ? NULL : &batch, &batch, keys, values, &count,
					 NULL) < 0) {
			if (errno != ENOENT)
				return -errno;
			more = false;
		}
		for (uint32_t i = 0; i < count; i++)
			each(arg, keys[i], &values[i]);
	}
	return 0;
}

struct reading {
	struct sampler *sampler;
	struct sampler_named named;
	size_t mapsets_cap, tgids_cap;
	int proc_dirfd, result;
};

void sampler_named_done(struct sampler_named *n)
{
	free(n->mapsets);
	free(n->tgids);
	*n = (struct sampler_named){};
}

static int add_id(uint32_t **ids, size_t *cap, size_t *n, uint32_t id)
{
	int r = grow_array((void **)ids, cap, *n + 1, sizeof(**ids), SIZE_MAX);

	if (!r)
		(*ids)[(*n)++] = id;
	return r;
}

static void add_named(void *arg, uint32_t tgid, const struct kiln_process *entry)
{
	struct reading *r = arg;
	struct sampler_named *n = &r->named;

	r->sampler->processes++;
	/* A process that is gone may have an entry: it exited before the entry was made. That is
	 * rare, so only a part of the processes is looked up each time. */
	if (tgid % LOOKS == r->sampler->looks % LOOKS && process_is_gone(r->proc_dirfd, tgid)) {
		bpf_map_delete_elem(bpf_map__fd(r->sampler->skel->maps.processes), &tgid);
		process_changed(r->sampler, tgid);
		return;
	}
	if (!r->result)
		r->result = add_id(&n->tgids, &r->tgids_cap, &n->n_tgids, tgid);
	if (!r->result && entry->mapset)
		r->result = add_id(&n->mapsets, &r->mapsets_cap, &n->n_mapsets, entry->mapset);
}

static void sort_ids(uint32_t *ids, size_t n)
{
	if (n)
		qsort(ids, n, sizeof(*ids), compare_u32);
}

int sampler_read_named(struct sampler *s, int proc_dirfd, struct sampler_named *ret)
{
	struct reading reading = {.sampler = s, .proc_dirfd = proc_dirfd};
	int r;

	s->processes = 0;
	s->looks++;
	r = each_entry(s, add_named, &reading);
	if (r >= 0)
		r = reading.result;
	if (r < 0) {
		sampler_named_done(&reading.named);
		return r;
	}
	sort_ids(reading.named.mapsets, reading.named.n_mapsets);
	sort_ids(reading.named.tgids, reading.named.n_tgids);
	*ret = reading.named;
	return 0;
}

int sampler_ignore_process(struct sampler *s, uint32_t tgid, uint64_t exec_id)
{
	struct kiln_process entry;

	if (sampler_get_process(s, tgid, &entry) < 0 || entry.exec_id != exec_id)
		return -ESRCH;
	entry.flags |= KILN_PROCESS_IGNORE;
	return sampler_set_process(s, tgid, &entry) < 0 ? -ESRCH : 0;
}
