/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The images that processes map, each opened once. The mutex guards the table, the lists and the
 * counts of references as they leave and reach 0; what an entry says of its file never changes once
 * it is in the table.
 *
 * An entry is keyed by the device and inode that /proc/PID/maps shows, not by those of fstat(): on
 * overlayfs and btrfs the two differ, and maps is what every lookup starts from. An entry is either
 *
 *   listed    in the table, found by its key,
 *   detached  its file was rewritten in place while it was used; gone at its last put, or
 *   dropped   without users and not found any more; the loop frees it.
 *
 * Entries without users are on the idle list, longest idle first, and stay openable from there
 * until the sweep, or until their place is needed. Files that could not be opened have an entry
 * too, so that a broken one costs one attempt a minute, not one a mapping.
 *
 * The image of a file on a filesystem that may stop answering is a copy in memory. It is made here,
 * where a thread may hang, so the loop and the worker that names frames only read memory. No
 * descriptor of the file is kept, because closing it asks the filesystem too. The copy has holes
 * for what is never read (unread.h): debug information. Such copies take at most COPIES_MAX bytes
 * together (copy_budget.h). Of a file beyond that, only the headers are kept: its addresses can be
 * given as offsets in the file, but have no names, and stacks end at its code. It is copied when a
 * later lookup finds room.
 */
#include "agent/process/image_store.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <utlist.h>

#include "agent/process/copy_budget.h"
#include "agent/process/map_file.h"
#include "agent/process/remote_file.h"
#include "lib/metrics.h"
#include "lib/uthash.h"

enum { RETRY_AFTER_MS = 60000, COPIES_MAX = 64 << 20 };

/*
 * Device and inode as /proc/PID/maps shows them. With by_stat, as stat() shows them: for files
 * whose device and inode in maps are not unique.
 */
struct file_key {
	uint32_t dev_major, dev_minor;
	uint64_t inode;
	uint64_t by_stat;
};

struct entry {
	struct stored_image stored; /* first, so that callers' pointers lead back here */
	struct file_key key;
	struct timespec mtime; /* of the opened file; a change means other content */
	off_t size;
	struct image_store *store;
	dev_t dev;	      /* of a remote file */
	size_t copy_size;     /* bytes that a copy of a remote file takes */
	bool is_copied;	      /* the image is a copy, and its bytes are taken from the budget */
	uint64_t retry_at_ms; /* when image is NULL */
	bool detached;
	struct entry *prev, *next; /* idle or dropped */
	UT_hash_handle hh;
};

struct image_store {
	pthread_mutex_t mutex;
	struct entry *table;
	struct entry *idle, *dropped;
	size_t max;
	size_t detached;
	struct copy_budget copies;
	bool (*is_remote)(int fd);
	void (*on_drop)(struct stored_image *, void *);
	void *arg;
};

int image_store_new(size_t max, void (*on_drop)(struct stored_image *, void *), void *arg,
		    struct image_store **ret)
{
	struct image_store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	pthread_mutex_init(&store->mutex, NULL);
	copy_budget_init(&store->copies, COPIES_MAX);
	store->max = max;
	store->is_remote = remote_file_is;
	store->on_drop = on_drop;
	store->arg = arg;
	*ret = store;
	return 0;
}

static void give_copy_room(struct entry *e)
{
	if (e->is_copied)
		copy_budget_give(&e->store->copies, e->dev, e->copy_size);
	e->is_copied = false;
}

static void entry_free(struct entry *e)
{
	image_unref(e->stored.image);
	give_copy_room(e);
	free(e->stored.path);
	free(e);
}

/* With the mutex. */
static void drop_idle(struct image_store *store, struct entry *e)
{
	DL_DELETE(store->idle, e);
	HASH_DEL(store->table, e);
	DL_APPEND(store->dropped, e);
}

void image_store_reap(struct image_store *store)
{
	struct entry *list, *e, *next;

	pthread_mutex_lock(&store->mutex);
	list = store->dropped;
	store->dropped = NULL;
	pthread_mutex_unlock(&store->mutex);
	DL_FOREACH_SAFE (list, e, next) {
		if (store->on_drop)
			store->on_drop(&e->stored, store->arg);
		entry_free(e);
	}
}

void image_store_set_remote(struct image_store *store, bool (*is_remote)(int fd))
{
	store->is_remote = is_remote;
}

struct image_store *image_store_free(struct image_store *store)
{
	struct entry *e, *next;

	if (!store)
		return NULL;
	HASH_ITER (hh, store->table, e, next) {
		HASH_DEL(store->table, e);
		if (e->stored.refs == 0)
			DL_DELETE(store->idle, e);
		DL_APPEND(store->dropped, e);
	}
	image_store_reap(store);
	copy_budget_done(&store->copies);
	pthread_mutex_destroy(&store->mutex);
	free(store);
	return NULL;
}

/* Errors that have nothing to do with the file itself: the next get tries again. */
static bool is_passing(int error)
{
	return error == -ESTALE || error == -ESRCH || error == -EMFILE || error == -ENFILE;
}

/* Frees a descriptor by dropping the image that is idle longest. False when none is idle. */
static bool give_descriptor(struct image_store *store)
{
	struct image *image = NULL;
	struct entry *e;

	pthread_mutex_lock(&store->mutex);
	e = store->idle;
	if (e) {
		drop_idle(store, e);
		image = TAKE_PTR(e->stored.image);
	}
	pthread_mutex_unlock(&store->mutex);
	image_unref(image);
	return e;
}

/*
 * What a copy of a file leaves out, by its HEADERS. If these are not usable, nothing: *RET and
 * *RET_N stay as they are. The caller frees *RET.
 */
static int find_holes(const struct remote_copy *headers, struct file_range **ret, size_t *ret_n)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	int fd, r;

	if (!headers->has_sections)
		return 0;
	fd = fcntl(headers->fd, F_DUPFD_CLOEXEC, 0);
	r = fd < 0 ? -errno : image_open(fd, "", &image, NULL);
	if (r < 0)
		return r == -ENOEXEC ? 0 : r;
	return image_unread_ranges(image, ret, ret_n);
}

/* Copies the rest of FD to COPY, which has the headers, if the budget has room for it. */
static int copy_rest(struct image_store *store, struct entry *e, int fd,
		     const struct remote_copy *copy)
{
	_cleanup_free_ struct file_range *holes = NULL;
	size_t n = 0;
	int r = find_holes(copy, &holes, &n);

	if (r < 0)
		return r;
	e->copy_size = copy->size;
	for (size_t i = 0; i < n; i++)
		e->copy_size -= holes[i].end - holes[i].start;
	r = copy_budget_take(&store->copies, e->dev, e->copy_size);
	if (r < 0)
		return r == -ENOSPC ? 0 : r;
	e->is_copied = true;
	return remote_file_copy_rest(fd, copy, holes, n);
}

/*
 * If *FD, the file of E, is a remote one, replaces it by a copy in memory or, if the budget does
 * not permit that, by a file with what image_open_headers() reads. Not even the headers are read
 * through a mapping of the file: a page fault that waits for the server may hold the lock of the
 * address space, which all threads need.
 */
static int copy_remote(struct image_store *store, struct entry *e, int *fd, const struct stat *st)
{
	struct remote_copy copy;
	int r;

	e->stored.is_remote = S_ISREG(st->st_mode) && store->is_remote(*fd);
	if (!e->stored.is_remote)
		return 0;
	e->dev = st->st_dev;
	r = remote_file_copy_headers(*fd, (size_t)st->st_size, &copy);
	if (r < 0)
		return r;
	r = copy_rest(store, e, *fd, &copy);
	close(*fd);
	*fd = copy.fd;
	if (r < 0)
		return r;
	metric_add(e->is_copied ? M_IMAGES_REMOTE_COPIED : M_IMAGES_REMOTE_HEADERS, 1);
	return 0;
}

/* As image_open(), of FD, which is the file of E or its copy. */
static int open_image(struct entry *e, int fd, const char *path, struct image **ret)
{
	int r;

	if (e->stored.is_remote && !e->is_copied)
		r = image_open_headers(fd, path, ret, NULL);
	else
		r = image_open(fd, path, ret, NULL);
	if (r < 0)
		return r;
	(*ret)->is_remote = e->stored.is_remote;
	/* Reading the headers has made pages around them resident; most files are not read
	 * again. */
	image_forget(*ret);
	return 0;
}

/* The file behind MAP, as it is now. */
static int open_file(struct image_store *store, int proc_dirfd, uint32_t pid,
		     const struct map_entry *map, int *ret_fd, struct stat *ret_stat,
		     bool *ret_ambiguous)
{
	_cleanup_close_ int fd = -1;
	int r = map_file_open(proc_dirfd, pid, map, &fd, ret_ambiguous);

	if ((r == -EMFILE || r == -ENFILE) && give_descriptor(store))
		r = map_file_open(proc_dirfd, pid, map, &fd, ret_ambiguous);
	if (r < 0)
		return r;
	if (fstat(fd, ret_stat) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* With the mutex. */
static void put(struct image_store *store, struct entry *e, uint64_t now_ms)
{
	if (atomic_fetch_sub(&e->stored.refs, 1) > 1)
		return;
	if (e->detached) {
		store->detached--;
		DL_APPEND(store->dropped, e);
		return;
	}
	e->stored.idle_since_ms = now_ms;
	DL_APPEND(store->idle, e);
}

/* With the mutex. */
static void take(struct image_store *store, struct entry *e)
{
	if (atomic_fetch_add(&e->stored.refs, 1) == 0)
		DL_DELETE(store->idle, e);
}

static struct entry *find(struct image_store *store, const struct file_key *key)
{
	struct entry *e = NULL;

	pthread_mutex_lock(&store->mutex);
	HASH_FIND(hh, store->table, key, sizeof(*key), e);
	if (e)
		take(store, e);
	pthread_mutex_unlock(&store->mutex);
	return e;
}

/*
 * Removes E from the table, so that the next lookup of the file makes a new entry. Others that hold
 * a reference to E may go on using it. Drops the caller's reference.
 */
static void retire(struct image_store *store, struct entry *e, uint64_t now_ms)
{
	pthread_mutex_lock(&store->mutex);
	if (!e->detached) {
		HASH_DEL(store->table, e);
		e->detached = true;
		store->detached++;
	}
	put(store, e, now_ms);
	pthread_mutex_unlock(&store->mutex);
}

static bool is_as_it_was(const struct entry *e, const struct stat *st)
{
	return st->st_size == e->size && st->st_mtim.tv_sec == e->mtime.tv_sec &&
	       st->st_mtim.tv_nsec == e->mtime.tv_nsec;
}

/* Of E's file only the headers were kept, and now there is room for a copy. */
static bool can_be_copied_now(struct image_store *store, const struct entry *e)
{
	return e->stored.image->is_headers && copy_budget_has(&store->copies, e->dev, e->copy_size);
}

static struct file_key key_of(const struct stat *st)
{
	return (struct file_key){major(st->st_dev), minor(st->st_dev), st->st_ino, .by_stat = 1};
}

/* The entry of the file that ST is of, if it has not changed since. */
static struct entry *find_same(struct image_store *store, const struct file_key *key,
			       const struct stat *st, uint64_t now_ms)
{
	struct entry *e = find(store, key);

	if (!e || (e->stored.image ? is_as_it_was(e, st) && !can_be_copied_now(store, e)
				   : now_ms < e->retry_at_ms))
		return e;
	retire(store, e, now_ms);
	return NULL;
}

/*
 * Opens the file that the process maps and sets E's image or error. If another entry has the file
 * already, *RET_SAME is a reference to that one instead. Fails only with -ENOMEM.
 */
static int entry_open(struct image_store *store, struct entry *e, int proc_dirfd, uint32_t pid,
		      const struct map_entry *map, uint64_t now_ms, struct entry **ret_same)
{
	struct image *image = NULL;
	struct stat st = {0};
	bool ambiguous = false;
	int r;

	if (map->kind == MAPPING_VDSO) {
		r = image_vdso(&image, NULL);
	} else {
		_cleanup_close_ int fd = -1;

		r = open_file(store, proc_dirfd, pid, map, &fd, &st, &ambiguous);
		if (r == 0 && ambiguous) {
			e->key = key_of(&st);
			*ret_same = find_same(store, &e->key, &st, now_ms);
			if (*ret_same)
				return 0;
		}
		if (r == 0)
			r = copy_remote(store, e, &fd, &st);
		if (r == 0)
			r = open_image(e, TAKE_FD(fd), map->path, &image);
	}
	if (r < 0)
		give_copy_room(e);
	if (r == -ENOMEM)
		return r;
	e->stored.image = image;
	e->stored.error = r;
	e->retry_at_ms = now_ms + (is_passing(r) ? 1 : RETRY_AFTER_MS);
	e->mtime = st.st_mtim;
	e->size = st.st_size;
	return 0;
}

/* fstat() of E's file as it is now. A remote file is opened again for that. */
static int stat_file(struct image_store *store, const struct entry *e, int proc_dirfd, uint32_t pid,
		     const struct map_entry *map, struct stat *ret)
{
	_cleanup_close_ int fd = -1;
	bool ambiguous;

	if (e->stored.is_remote)
		return open_file(store, proc_dirfd, pid, map, &fd, ret, &ambiguous);
	return e->stored.image->fd < 0 || fstat(e->stored.image->fd, ret) < 0 ? -ENOENT : 0;
}

static bool was_rewritten(struct image_store *store, const struct entry *e, int proc_dirfd,
			  uint32_t pid, const struct map_entry *map)
{
	struct stat st;

	return stat_file(store, e, proc_dirfd, pid, map, &st) == 0 && !is_as_it_was(e, &st);
}

/* Whether E's image, which another process uses now, has to be made anew for it. */
static bool is_outdated(struct image_store *store, const struct entry *e, int proc_dirfd,
			uint32_t pid, const struct map_entry *map, uint64_t now_ms)
{
	if (!e->stored.image)
		return now_ms >= e->retry_at_ms;
	return can_be_copied_now(store, e) || was_rewritten(store, e, proc_dirfd, pid, map);
}

static size_t count(const struct image_store *store)
{
	return HASH_COUNT(store->table) + store->detached;
}

/* With the mutex. */
static bool make_room(struct image_store *store)
{
	if (count(store) >= store->max && store->idle)
		drop_idle(store, store->idle);
	return count(store) < store->max;
}

/*
 * Adds E to the table, unless another thread has added an entry with the same key: *RET_LISTED is a
 * reference to E or to that entry.
 */
static int list_entry(struct image_store *store, struct entry *e, struct entry **ret_listed)
{
	struct entry *other = NULL;
	int r = 0;

	pthread_mutex_lock(&store->mutex);
	HASH_FIND(hh, store->table, &e->key, sizeof(e->key), other);
	if (other) {
		take(store, other);
	} else if (make_room(store)) {
		e->stored.refs = 1;
		HASH_ADD(hh, store->table, key, sizeof(e->key), e);
		other = e;
	} else {
		r = -ENOSPC;
	}
	pthread_mutex_unlock(&store->mutex);
	if (!r)
		*ret_listed = other;
	return r;
}

static int entry_new(struct image_store *store, int proc_dirfd, uint32_t pid,
		     const struct map_entry *map, const struct file_key *key, uint64_t now_ms,
		     struct entry **ret)
{
	struct entry *e = calloc(1, sizeof(*e)), *listed = NULL;
	int r;

	if (!e)
		return -ENOMEM;
	e->store = store;
	e->key = *key;
	e->stored.dev_major = key->dev_major;
	e->stored.dev_minor = key->dev_minor;
	e->stored.inode = key->inode;
	e->stored.path = strdup(map->path);
	r = e->stored.path ? entry_open(store, e, proc_dirfd, pid, map, now_ms, &listed) : -ENOMEM;
	if (!r && !listed)
		r = list_entry(store, e, &listed);
	if (listed != e)
		entry_free(e);
	if (!r)
		*ret = listed;
	return r;
}

int image_store_get(struct image_store *store, int proc_dirfd, uint32_t pid,
		    const struct map_entry *map, uint64_t now_ms, struct stored_image **ret)
{
	struct file_key key = {0};
	struct entry *e;
	int r;

	if (map->kind == MAPPING_FILE)
		key = (struct file_key){map->dev_major, map->dev_minor, map->inode, .by_stat = 0};
	else if (map->kind != MAPPING_VDSO)
		return -EINVAL;
	e = find(store, &key);
	if (e && is_outdated(store, e, proc_dirfd, pid, map, now_ms)) {
		retire(store, e, now_ms);
		e = NULL;
	}
	if (!e) {
		r = entry_new(store, proc_dirfd, pid, map, &key, now_ms, &e);
		if (r < 0)
			return r;
	}
	*ret = &e->stored;
	return 0;
}

void image_store_ref(struct stored_image *image)
{
	atomic_fetch_add(&image->refs, 1);
}

void image_store_put(struct image_store *store, struct stored_image *image, uint64_t now_ms)
{
	uint32_t refs = atomic_load(&image->refs);

	while (refs > 1)
		if (atomic_compare_exchange_weak(&image->refs, &refs, refs - 1))
			return;
	/* It may be the last reference, which only the holder of the mutex can tell. */
	pthread_mutex_lock(&store->mutex);
	put(store, container_of(image, struct entry, stored), now_ms);
	pthread_mutex_unlock(&store->mutex);
	image_store_reap(store);
}

void image_store_sweep(struct image_store *store, uint64_t now_ms, uint64_t idle_ms)
{
	pthread_mutex_lock(&store->mutex);
	while (store->idle && now_ms - store->idle->stored.idle_since_ms >= idle_ms)
		drop_idle(store, store->idle);
	pthread_mutex_unlock(&store->mutex);
	image_store_reap(store);
}

size_t image_store_count(struct image_store *store)
{
	size_t n;

	pthread_mutex_lock(&store->mutex);
	n = count(store);
	pthread_mutex_unlock(&store->mutex);
	return n;
}
