/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pod and container of a cgroup, by its path. docs/containers.md has the layouts and the rule;
 * tests/data/cgroup/ has one line for each. Two scans of the path find everything:
 *
 *   pods: "pod" + UUID (with '-' or '_') or 32 hex digits, as a whole word   -> the last one counts
 *   ids:  64 hex digits as a whole word -> the first behind the pod counts, else the last of all
 *
 * A word ends where neither a letter nor a digit follows, so an id is never cut out of a longer
 * one. The path of a monitor ("crio-conmon-ID") has the id of a container that the monitor is not
 * part of: the id is ignored, the pod is not. No state, no allocation; any thread.
 */
#include "agent/process/container.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "agent/process/text.h"

enum {
	ID_LEN = 64, /* OCI runtimes: SHA-256 sized random ids */
	UUID_LEN = 36,
	STATIC_UID_LEN = 32, /* MD5 of the manifest: kubelet, pkg/kubelet/config/common.go */
	NOT_FOUND = -1,
	KERNFS_HANDLE_TYPE = 0xfe, /* FILEID_KERNFS, linux/exportfs.h, since 5.5 */
};

static bool is_word(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Hex digits in a row from AT, counted up to MAX + 1. */
static size_t hex_run(const struct cursor *path, size_t at, size_t max)
{
	size_t n = 0;

	while (n <= max && text_hex_digit(text_at(path, at + n)) >= 0)
		n++;
	return n;
}

static bool hex_word(const struct cursor *path, size_t at, size_t len)
{
	return hex_run(path, at, len) == len && !is_word(text_at(path, at + len));
}

/* 8-4-4-4-12 with one kind of separator throughout, as a whole word. */
static bool uuid_word(const struct cursor *path, size_t at)
{
	static const uint8_t groups[] = {8, 4, 4, 4, 12};
	char separator = text_at(path, at + groups[0]);

	if (separator != '-' && separator != '_')
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		if (hex_run(path, at, groups[i]) != groups[i])
			return false;
		at += groups[i];
		if (i + 1 < ARRAY_SIZE(groups) && text_at(path, at++) != separator)
			return false;
	}
	return !is_word(text_at(path, at));
}

/* Is there a pod's word at AT? Writes it to RET and returns where it ends; 0 when there is none. */
static size_t pod_at(const struct cursor *path, size_t at, struct container_identity *ret)
{
	size_t uid = at + 3, len;

	if (at > 0 && is_word(text_at(path, at - 1)))
		return 0;
	if (text_at(path, at) != 'p' || text_at(path, at + 1) != 'o' ||
	    text_at(path, at + 2) != 'd')
		return 0;
	if (uuid_word(path, uid))
		len = UUID_LEN;
	else if (hex_word(path, uid, STATIC_UID_LEN))
		len = STATIC_UID_LEN;
	else
		return 0;
	for (size_t i = 0; i < len; i++) {
		char c = text_at(path, uid + i);

		ret->pod_uid[i] = c == '_' ? '-' : c;
	}
	ret->pod_uid[len] = 0;
	ret->static_pod = len == STATIC_UID_LEN;
	return uid + len;
}

/* Finds the last pod; returns where the search for its container begins, 0 without a pod. */
static size_t find_pod(const struct cursor *path, struct container_identity *ret)
{
	size_t end = 0, found;

	for (size_t i = 0; i < path->size; i++) {
		found = pod_at(path, i, ret);
		if (found > 0) {
			end = found;
			i = found - 1;
		}
	}
	return end;
}

/* Does the text before AT end with WORD? */
static bool preceded_by(const struct cursor *path, size_t at, const char *word)
{
	size_t len = strlen(word);

	return at >= len && memcmp(path->data + at - len, word, len) == 0;
}

static bool id_at(const struct cursor *path, size_t at)
{
	return (at == 0 || !is_word(text_at(path, at - 1))) && hex_word(path, at, ID_LEN) &&
	       !preceded_by(path, at, "conmon-") && !preceded_by(path, at, "libpod_pod_");
}

static ssize_t find_id(const struct cursor *path, size_t from, bool first)
{
	ssize_t found = NOT_FOUND;

	for (size_t i = from; i < path->size; i++) {
		if (!id_at(path, i))
			continue;
		found = (ssize_t)i;
		if (first)
			break;
		i += ID_LEN;
	}
	return found;
}

static void set_runtime(struct container_identity *ret, const char *name)
{
	snprintf(ret->runtime, sizeof(ret->runtime), "%s", name);
}

/* What stands right before an id, as each runtime writes it. */
static const struct {
	const char *before, *runtime;
} runtime_marks[] = {
    {"cri-containerd-", "containerd"},
    {"cri-containerd:", "containerd"},
    {"nerdctl-", "containerd"},
    {"crio-conmon-", "cri-o"},
    {"crio-", "cri-o"},
    {"crio:", "cri-o"},
    {"docker-", "docker"},
    {"docker:", "docker"},
    {"/docker/", "docker"},
    {"libpod-conmon-", "podman"},
    {"libpod-", "podman"},
    {"libpod:", "podman"},
    {"/libpod_parent/", "podman"},
};

static void find_runtime(const struct cursor *path, size_t id, struct container_identity *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(runtime_marks); i++) {
		if (preceded_by(path, id, runtime_marks[i].before)) {
			set_runtime(ret, runtime_marks[i].runtime);
			return;
		}
	}
}

/* A monitor's path names its runtime although it names no container. */
static void find_monitor_runtime(const struct cursor *path, size_t from,
				 struct container_identity *ret)
{
	for (size_t i = from; i < path->size; i++)
		if (preceded_by(path, i, "conmon-") && hex_word(path, i, ID_LEN))
			find_runtime(path, i, ret);
}

/* Takes a path segment as the container's name. Ignores a name that is too long: cut off, it would
 * not be unique. */
static bool take_name(const struct cursor *name, struct container_identity *ret)
{
	if (name->size == 0 || name->size >= sizeof(ret->container_id))
		return false;
	memcpy(ret->container_id, name->data, name->size);
	ret->container_id[name->size] = 0;
	return true;
}

/* Fargate: TASK-NUMBER, the task 32 hex digits (AWS, task metadata endpoint v4). */
static bool is_ecs_name(const struct cursor *segment)
{
	size_t digits = 0;

	if (hex_run(segment, 0, 32) != 32 || text_at(segment, 32) != '-')
		return false;
	while (text_at(segment, 33 + digits) >= '0' && text_at(segment, 33 + digits) <= '9')
		digits++;
	return digits > 0 && 33 + digits == segment->size;
}

static bool next_segment(struct cursor *path, struct cursor *ret)
{
	const uint8_t *start, *slash;
	size_t left = cursor_left(path);

	if (left == 0)
		return false;
	start = path->data + path->pos;
	slash = memchr(start, '/', left);
	*ret = cursor_sub(path, slash ? (size_t)(slash - start) : left);
	if (slash)
		cursor_skip(path, 1);
	return true;
}

static bool segment_is(const struct cursor *segment, const char *name)
{
	return segment->size == strlen(name) && memcmp(segment->data, name, segment->size) == 0;
}

/* Containers that have a name instead of a 64-digit id; the last one counts. */
static void find_named(struct cursor path, struct container_identity *ret)
{
	struct cursor segment, name;
	bool lxc_parent = false;

	while (next_segment(&path, &segment)) {
		name = segment;
		if (text_prefix(&name, "lxc.payload.")) {
			name = cursor_sub(&name, cursor_left(&name));
			if (take_name(&name, ret))
				set_runtime(ret, "lxc");
		} else if (lxc_parent) {
			if (take_name(&segment, ret))
				set_runtime(ret, "lxc");
		} else if (is_ecs_name(&segment)) {
			if (take_name(&segment, ret))
				set_runtime(ret, "ecs");
		}
		lxc_parent = segment_is(&segment, "lxc") || segment_is(&segment, "lxc.payload");
	}
}

static bool below_ecs(struct cursor path)
{
	struct cursor segment;

	while (next_segment(&path, &segment))
		if (segment_is(&segment, "ecs"))
			return true;
	return false;
}

static void parse(struct cursor path, struct container_identity *ret)
{
	static const char deleted[] = " (deleted)";
	size_t suffix = sizeof(deleted) - 1, pod_end;
	ssize_t id;

	*ret = (struct container_identity){0};
	if (path.size >= suffix && memcmp(path.data + path.size - suffix, deleted, suffix) == 0)
		path.size -= suffix;
	pod_end = find_pod(&path, ret);
	id = find_id(&path, pod_end, pod_end > 0);
	if (id >= 0) {
		memcpy(ret->container_id, path.data + id, ID_LEN);
		find_runtime(&path, (size_t)id, ret);
		if (!ret->runtime[0] && pod_end == 0 && below_ecs(path))
			set_runtime(ret, "ecs");
		return;
	}
	if (pod_end == 0)
		find_named(path, ret);
	if (!ret->container_id[0])
		find_monitor_runtime(&path, pod_end, ret);
}

void container_parse_path(const char *path, struct container_identity *ret)
{
	parse(cursor_of(path, strlen(path)), ret);
}

static int knowledge(const struct container_identity *identity)
{
	return (identity->container_id[0] ? 2 : 0) + (identity->pod_uid[0] ? 1 : 0);
}

void container_parse_cgroup(const char *text, size_t len, struct container_identity *ret)
{
	struct cursor c = cursor_of(text, len), line, path;
	struct container_identity best = {0}, identity;
	uint64_t hierarchy;

	while (text_line(&c, &line)) {
		if (!text_number(&line, 10, &hierarchy) || !text_char(&line, ':'))
			continue;
		while (cursor_left(&line) > 0 && cursor_u8(&line) != ':')
			;
		path = cursor_sub(&line, cursor_left(&line));
		parse(path, &identity);
		if (knowledge(&identity) > knowledge(&best) ||
		    (knowledge(&best) == 0 && !best.runtime[0]))
			best = identity;
	}
	*ret = best;
}

int cgroup_mode_detect(const char *root, enum cgroup_mode *ret)
{
	_cleanup_close_ int dirfd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int unified = -1;
	struct statfs fs;

	if (dirfd < 0 || fstatfs(dirfd, &fs) < 0)
		return -errno;
	if (fs.f_type == CGROUP2_SUPER_MAGIC) {
		*ret = CGROUP_V2;
		return 0;
	}
	if (fs.f_type != TMPFS_MAGIC && fs.f_type != CGROUP_SUPER_MAGIC)
		return -ENOTSUP;
	unified = openat(dirfd, "unified", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (unified >= 0 && fstatfs(unified, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC)
		*ret = CGROUP_HYBRID;
	else
		*ret = CGROUP_V1;
	return 0;
}

const char *cgroup_mode_name(enum cgroup_mode mode)
{
	switch (mode) {
	case CGROUP_V1:
		return "v1";
	case CGROUP_HYBRID:
		return "hybrid";
	case CGROUP_V2:
		return "v2";
	}
	return "unknown";
}

int cgroup_id_of(const char *path, uint64_t *ret)
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u = {.handle.handle_bytes = sizeof(uint64_t)};
	int mount_id;

	if (name_to_handle_at(AT_FDCWD, path, &u.handle, &mount_id, 0) < 0)
		return errno == EOVERFLOW ? -ENOTSUP : -errno;
	/* Other filesystems have 8-byte handles too, with other things in them. */
	if (u.handle.handle_type != KERNFS_HANDLE_TYPE || u.handle.handle_bytes != sizeof(uint64_t))
		return -ENOTSUP;
	memcpy(ret, u.handle.f_handle, sizeof(*ret));
	return 0;
}
