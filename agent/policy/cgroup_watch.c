/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroups are found in two ways. The BPF programs of bpf/cgroups.bpf.c report each one that is made
 * or removed; they are attached before the first scan, so that none is missed in between. A scan
 * walks the directories: at the start, after events were lost, and every RESCAN_MS if the programs
 * do not load. Ids are those of the hierarchy that policies use: the memory controller's on v1 and
 * hybrid, else the unified one. Other hierarchies have ids of their own, which may be the same
 * numbers.
 *
 * The agent may run in a cgroup namespace of its own, so the mount in the root directory of process
 * 1 is tried first.
 */
#include "agent/policy/cgroup_watch.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <fcntl.h>

#include "agent/process/proc_file.h"
#include "agent/process/text.h"
#include "bpf/cgroups.h"
#include "cgroups.skel.h"
#include "lib/metrics.h"

enum {
	RESCAN_MS = 2000,      /* without the programs */
	LOST_RESCAN_MS = 1000, /* how soon after a loss, at the earliest */
	DEPTH_MAX = 32,
	SCAN_MAX = 65536, /* directories */
	CGROUP_TEXT_MAX = 64 << 10,
};

struct cgroup_watch {
	struct cgroup_watch_callbacks callbacks;
	char *directory; /* of the hierarchy */
	struct cgroups *skel;
	struct ring_buffer *ring;
	uv_poll_t poll;
	uv_timer_t timer;
	bool has_poll, has_timer;
	int open_handles;
	uint64_t lost; /* lost events that a scan has made up for */
};

/* ---- the hierarchy --------------------------------------------------------------------------- */

/* "4:cpu,memory:/path": is NAME among the controllers between the colons? */
static bool lists_controller(struct cursor *line, const char *name)
{
	struct cursor list;
	size_t start = line->pos, len = strlen(name);

	while (cursor_left(line) > 0 && text_at(line, line->pos) != ':')
		cursor_skip(line, 1);
	list = cursor_of(line->data + start, line->pos - start);
	while (cursor_left(&list) > 0) {
		const uint8_t *at = list.data + list.pos, *comma;
		size_t left = cursor_left(&list), n;

		comma = memchr(at, ',', left);
		n = comma ? (size_t)(comma - at) : left;
		if (n == len && memcmp(at, name, len) == 0)
			return true;
		cursor_skip(&list, n + (comma ? 1 : 0));
	}
	return false;
}

/* The number of the hierarchy that has the memory controller; 0 (the unified one) if none has. */
static int memory_hierarchy(const char *text)
{
	struct cursor c = cursor_of(text, strlen(text)), line;
	uint64_t id;

	while (text_line(&c, &line))
		if (text_number(&line, 10, &id) && text_char(&line, ':') && id <= INT32_MAX &&
		    lists_controller(&line, "memory"))
			return (int)id;
	return 0;
}

int cgroup_hierarchy(const char *proc_self_cgroup, enum cgroup_mode mode, const char *root,
		     int *ret_id, char **ret_path)
{
	int id = mode == CGROUP_V2 ? 0 : memory_hierarchy(proc_self_cgroup);
	const char *below = mode == CGROUP_V2 ? "" : id ? "/memory" : "/unified";
	char *path;

	if (asprintf(&path, "%s%s", root, below) < 0)
		return -ENOMEM;
	*ret_id = id;
	*ret_path = path;
	return 0;
}

static int find_hierarchy(struct cgroup_watch *w, const struct cgroup_watch_options *o, int *ret_id)
{
	static const char *const roots[] = {"/proc/1/root/sys/fs/cgroup", "/sys/fs/cgroup"};
	_cleanup_(buf_done) struct buf text;
	uint64_t id;
	int r;

	buf_init(&text, CGROUP_TEXT_MAX);
	r = proc_file_read(AT_FDCWD, "/proc/self/cgroup", &text);
	if (!r)
		r = buf_append(&text, "", 1);
	for (size_t i = 0; !r && i < ARRAY_SIZE(roots); i++) {
		free(TAKE_PTR(w->directory));
		r = cgroup_hierarchy(text.data, o->mode, o->root ? o->root : roots[i], ret_id,
				     &w->directory);
		if (!r && !cgroup_id_of(w->directory, &id))
			return 0;
	}
	return r < 0 ? r : -ENOENT;
}

/* ---- scans ----------------------------------------------------------------------------------- */

struct scan {
	struct cgroup_watch *watch;
	char path[PATH_MAX];
	size_t root_len;
	size_t n;
};

static void scan_directory(struct scan *s, size_t len, unsigned int depth)
{
	struct dirent *entry;
	uint64_t id;
	DIR *dir = opendir(s->path);

	while (dir && (entry = readdir(dir))) {
		size_t add = strlen(entry->d_name);

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		if (depth >= DEPTH_MAX || ++s->n > SCAN_MAX || len + add + 2 > sizeof(s->path)) {
			metric_add(M_CGROUPS_FULL, 1);
			continue;
		}
		s->path[len] = '/';
		memcpy(s->path + len + 1, entry->d_name, add + 1);
		/* It may be gone by now. */
		if (!cgroup_id_of(s->path, &id))
			s->watch->callbacks.made(id, s->path + s->root_len,
						 s->watch->callbacks.arg);
		scan_directory(s, len + 1 + add, depth + 1);
		s->path[len] = 0;
	}
	if (dir)
		closedir(dir);
}

static void scan(struct cgroup_watch *w)
{
	_cleanup_free_ struct scan *s = calloc(1, sizeof(*s));
	uint64_t id;

	if (!s)
		return;
	s->watch = w;
	s->root_len = strlen(w->directory);
	if (s->root_len >= sizeof(s->path))
		return;
	memcpy(s->path, w->directory, s->root_len + 1);
	metric_add(M_CGROUP_SCANS, 1);
	w->callbacks.scan_begins(w->callbacks.arg);
	if (!cgroup_id_of(w->directory, &id))
		w->callbacks.made(id, "/", w->callbacks.arg);
	scan_directory(s, s->root_len, 0);
	w->callbacks.scan_ends(w->callbacks.arg);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int on_event(void *arg, void *data, size_t size)
{
	size_t head = offsetof(struct kiln_cgroup_event, path);
	const struct kiln_cgroup_event *e = data;
	struct cgroup_watch *w = arg;

	if (size < head || e->path_len > size - head)
		return 0;
	metric_add(M_CGROUP_EVENTS, 1);
	if (e->change == KILN_CGROUP_REMOVED)
		w->callbacks.removed(e->id, w->callbacks.arg);
	else if (e->path_len && !e->path[e->path_len - 1])
		w->callbacks.made(e->id, e->path, w->callbacks.arg);
	return 0;
}

void cgroup_watch_drain(struct cgroup_watch *w)
{
	if (w->ring)
		(void)ring_buffer__consume(w->ring);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	cgroup_watch_drain(container_of(poll, struct cgroup_watch, poll));
}

static void on_timer(uv_timer_t *timer)
{
	struct cgroup_watch *w = container_of(timer, struct cgroup_watch, timer);
	uint64_t lost;

	if (!w->ring) {
		scan(w);
		return;
	}
	lost = w->skel->bss->lost;
	if (lost == w->lost)
		return;
	metric_add(M_CGROUP_EVENTS_LOST, (int64_t)(lost - w->lost));
	w->lost = lost;
	scan(w);
}

static int load(struct cgroup_watch *w, int hierarchy, int policy_map, struct error *err)
{
	int r;

	w->skel = cgroups__open();
	if (!w->skel)
		return error_set(err, -errno, "cannot open the programs: %m");
	w->skel->rodata->hierarchy = hierarchy;
	r = bpf_map__reuse_fd(w->skel->maps.cgroup_policy, policy_map);
	if (!r)
		r = cgroups__load(w->skel);
	if (r < 0)
		return error_set(err, r, "cannot load the programs: %s", strerror(-r));
	w->ring = ring_buffer__new(bpf_map__fd(w->skel->maps.cgroup_ring), on_event, w, NULL);
	if (!w->ring)
		return error_set(err, -errno, "cannot map their ring: %m");
	r = cgroups__attach(w->skel);
	if (r < 0)
		return error_set(err, r, "cannot attach to cgroup_mkdir and cgroup_rmdir: %s",
				 strerror(-r));
	return 0;
}

static void unload(struct cgroup_watch *w)
{
	ring_buffer__free(TAKE_PTR(w->ring));
	cgroups__destroy(TAKE_PTR(w->skel));
}

static void release(struct cgroup_watch *w)
{
	unload(w);
	free(w->directory);
	free(w);
}

static void handle_closed(struct cgroup_watch *w)
{
	if (--w->open_handles == 0)
		release(w);
}

static void on_poll_closed(uv_handle_t *handle)
{
	handle_closed(container_of((uv_poll_t *)handle, struct cgroup_watch, poll));
}

static void on_timer_closed(uv_handle_t *handle)
{
	handle_closed(container_of((uv_timer_t *)handle, struct cgroup_watch, timer));
}

struct cgroup_watch *cgroup_watch_free(struct cgroup_watch *w)
{
	if (!w)
		return NULL;
	if (w->has_poll)
		uv_close((uv_handle_t *)&w->poll, on_poll_closed);
	if (w->has_timer)
		uv_close((uv_handle_t *)&w->timer, on_timer_closed);
	if (!w->open_handles)
		release(w);
	return NULL;
}
DEFINE_CLEANUP(struct cgroup_watch *, cgroup_watch_free)

static int start_handles(struct cgroup_watch *w, uv_loop_t *loop)
{
	uint64_t every = w->ring ? LOST_RESCAN_MS : RESCAN_MS;
	int r = uv_timer_init(loop, &w->timer);

	w->has_timer = !r;
	w->open_handles += w->has_timer;
	if (!r && w->ring) {
		r = uv_poll_init(loop, &w->poll, ring_buffer__epoll_fd(w->ring));
		w->has_poll = !r;
		w->open_handles += w->has_poll;
	}
	if (!r)
		r = uv_timer_start(&w->timer, on_timer, every, every);
	if (!r && w->ring)
		r = uv_poll_start(&w->poll, UV_READABLE, on_poll);
	return r;
}

int cgroup_watch_new(uv_loop_t *loop, const struct cgroup_watch_options *options,
		     const struct cgroup_watch_callbacks *callbacks, struct cgroup_watch **ret,
		     struct error *ret_why, struct error *err)
{
	_cleanup_(cgroup_watch_freep) struct cgroup_watch *w = calloc(1, sizeof(*w));
	int hierarchy, r;

	if (!w)
		return error_set(err, -ENOMEM, "out of memory");
	w->callbacks = *callbacks;
	r = find_hierarchy(w, options, &hierarchy);
	if (r < 0)
		return error_set(err, r, "no cgroup hierarchy: %s: %s",
				 w->directory ? w->directory : "/proc/self/cgroup", strerror(-r));
	*ret_why = (struct error){};
	if (load(w, hierarchy, options->policy_map, ret_why) < 0)
		unload(w);
	r = start_handles(w, loop);
	if (r < 0)
		return error_set(err, r, "cannot follow cgroups: %s", uv_strerror(r));
	scan(w);
	*ret = TAKE_PTR(w);
	return 0;
}
