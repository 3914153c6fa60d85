// SPDX-License-Identifier: GPL-2.0
/*
 * Follows the creation and removal of cgroups. A new cgroup gets its parent's policy here, before
 * mkdir() returns: it has no task yet, so no sample of it is taken under another policy. The
 * kubelet makes a pod's directory first and those of its containers below it, so user space has to
 * be quick for pods only. User space is told of every cgroup of `hierarchy`, and may change the
 * policy that was set here.
 *
 * A removed cgroup loses its policy here too, so that `cgroup_policy` does not fill up with ids
 * that are gone.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "types.h"
#include "cgroups.h"

#define KERNEL_TYPE __attribute__((preserve_access_index))

/* Only the fields that are used; libbpf finds their offsets in the running kernel's BTF. */
struct kernfs_node {
	uint64_t id;
} KERNEL_TYPE;

struct cgroup_root {
	int hierarchy_id;
} KERNEL_TYPE;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} KERNEL_TYPE;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
} KERNEL_TYPE;

/* Set between open and load: the memory controller's hierarchy on v1 and hybrid, 0 for v2. */
const volatile int hierarchy = 0;

uint64_t lost; /* events that did not fit into the ring */

/* The sampler's map: user space sets its file descriptor before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, uint64_t);
	__type(value, uint32_t);
} cgroup_policy SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 128 << 10);
} cgroup_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct kiln_cgroup_event);
} event_scratch SEC(".maps");

static __always_inline void tell(uint64_t id, uint32_t change, const char *path)
{
	uint32_t zero = 0, size = sizeof(struct kiln_cgroup_event) - KILN_CGROUP_PATH_MAX;
	struct kiln_cgroup_event *e = bpf_map_lookup_elem(&event_scratch, &zero);
	long len;

	if (!e)
		return;
	e->id = id;
	e->change = change;
	len = bpf_probe_read_kernel_str(e->path, sizeof(e->path), path);
	if (len < 0 || len > KILN_CGROUP_PATH_MAX)
		len = 0;
	e->path_len = (uint32_t)len;
	size += (uint32_t)len;
	asm volatile("" : "+r"(size));
	if (size > sizeof(*e))
		return;
	if (bpf_ringbuf_output(&cgroup_ring, e, size, 0))
		__sync_fetch_and_add(&lost, 1);
}

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(on_cgroup_mkdir, struct cgroup *made, const char *path)
{
	uint64_t id, parent_id;
	uint32_t index, *found;

	if (made->root->hierarchy_id != hierarchy)
		return 0;
	id = made->kn->id;
	parent_id = made->self.parent->cgroup->kn->id;
	found = bpf_map_lookup_elem(&cgroup_policy, &parent_id);
	if (found) {
		index = *found;
		bpf_map_update_elem(&cgroup_policy, &id, &index, BPF_ANY);
	}
	tell(id, KILN_CGROUP_MADE, path);
	return 0;
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(on_cgroup_rmdir, struct cgroup *gone, const char *path)
{
	uint64_t id;

	if (gone->root->hierarchy_id != hierarchy)
		return 0;
	id = gone->kn->id;
	bpf_map_delete_elem(&cgroup_policy, &id);
	tell(id, KILN_CGROUP_REMOVED, path);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
