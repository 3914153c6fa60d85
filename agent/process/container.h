/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Container id and pod uid from a cgroup path. The rule: find the last pod segment; the container
 * is the first 64-hex id after it; without a pod segment, the last 64-hex id (docs/containers.md).
 */
#pragma once

#include "lib/base.h"

struct container_identity {
	char container_id[80]; /* "" outside of containers */
	char pod_uid[40];      /* with dashes; 32 hex digits for static pods; "" without a pod */
	bool static_pod;
	char runtime[16]; /* containerd cri-o docker podman lxc ecs, "" when the path does not tell
			   */
};

/* From one cgroup path ("/kubepods/burstable/pod.../..."). Always succeeds. */
void container_parse_path(const char *path, struct container_identity *ret);
/*
 * From the text of /proc/PID/cgroup: of its lines ("9:name=systemd:/...", "0::/...") the one that
 * tells most (container and pod, then container, then pod). Always succeeds.
 */
void container_parse_cgroup(const char *text, size_t len, struct container_identity *ret);

enum cgroup_mode { CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };
/* Detects the mode by statfs(2) of ROOT (usually /sys/fs/cgroup). */
int cgroup_mode_detect(const char *root, enum cgroup_mode *ret) _must_check_;
const char *cgroup_mode_name(enum cgroup_mode mode);
/*
 * The cgroup id that BPF sees for the directory PATH (name_to_handle_at, 8-byte kernfs id).
 */
int cgroup_id_of(const char *path, uint64_t *ret) _must_check_;
