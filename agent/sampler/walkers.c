/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walker's object is opened, given the main object's maps by name, and loaded. Then its program
 * is put into the map `walkers`, which keeps it loaded, and the object is closed. What failed once
 * is not tried again: the kernel would say the same.
 *
 * Called by the loop thread. walkers_need() loads each walker on a thread of its own, which then
 * ends; at most one for each runtime. `lock` guards the rows.
 */
#include "agent/sampler/walkers.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <pthread.h>
#include <stdatomic.h>

#include "bpf/types.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/pace.h"

enum {
	WALKERS_MAX = 32,
	VERIFIER_LOG_BYTES = 1 << 20,
	LOAD_COST_NS = 150000000, /* a guess, until one load was measured */
};

enum walker_state { WALKER_NONE, WALKER_LOADING, WALKER_LOADED, WALKER_FAILED };

struct walker_row {
	struct walkers *walkers;
	const struct walker_object *object;
	enum walker_state state;
	struct error failure;
};

struct walkers {
	const struct bpf_object *main;
	struct walker_kind kind;
	int programs_fd;
	pthread_mutex_t lock;
	pthread_cond_t loaded;
	uint32_t loading; /* threads */
	struct walker_row rows[WALKERS_MAX];
};

int walkers_new(const struct bpf_object *main, const struct walker_kind *kind, struct walkers **ret)
{
	const struct bpf_map *programs = bpf_object__find_map_by_name(main, "walkers");
	const struct bpf_program *finish = bpf_object__find_program_by_name(main, "finish");
	uint32_t first = 0; /* END_SAMPLE in bpf/switch.h */
	struct walkers *s;
	int fd;

	if (!programs || !finish)
		return -ENOENT;
	fd = bpf_program__fd(finish);
	if (bpf_map_update_elem(bpf_map__fd(programs), &first, &fd, BPF_ANY) < 0)
		return -errno;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->main = main;
	s->kind = *kind;
	s->programs_fd = bpf_map__fd(programs);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->loaded, NULL);
	for (size_t i = 0; i < WALKERS_MAX; i++)
		s->rows[i].walkers = s;
	*ret = s;
	return 0;
}

struct walkers *walkers_free(struct walkers *s)
{
	if (!s)
		return NULL;
	pthread_mutex_lock(&s->lock);
	while (s->loading)
		pthread_cond_wait(&s->loaded, &s->lock);
	pthread_mutex_unlock(&s->lock);
	pthread_cond_destroy(&s->loaded);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return NULL;
}

/* The last line of the verifier's LOG except its statistics: why it refused. LOG is changed. */
static const char *verifier_reason(char *log)
{
	const char *reason = "";
	char *line;

	while ((line = strsep(&log, "\n")))
		if (*line && strncmp(line, "processed ", 10) != 0 && line[0] != '-')
			reason = line;
	return reason;
}

int walkers_share_maps(const struct bpf_object *main, struct bpf_object *object)
{
	struct bpf_map *map;
	int r;

	bpf_object__for_each_map(map, object)
	{
		const struct bpf_map *same = bpf_object__find_map_by_name(main, bpf_map__name(map));

		r = same ? bpf_map__reuse_fd(map, bpf_map__fd(same)) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

static int set_kind(struct bpf_program *program, const struct walker_kind *kind)
{
	int r = 0;

	if (kind->type)
		r = bpf_program__set_type(program, (enum bpf_prog_type)kind->type);
	if (r >= 0 && kind->attach) {
		(void)bpf_program__set_expected_attach_type(program, BPF_TRACE_RAW_TP);
		r = bpf_program__set_attach_target(program, 0, kind->attach);
	}
	return r;
}

static int load_program(struct bpf_object *object, const struct walker_kind *kind, const char *name,
			char *log, struct error *err)
{
	struct bpf_program *program = bpf_object__next_program(object, NULL);
	int r;

	if (!program)
		return error_set(err, -EINVAL, "the walker of %s has no program", name);
	r = set_kind(program, kind);
	if (r < 0)
		return error_set(err, r, "the walker of %s cannot be loaded for %s: %s", name,
				 kind->attach, strerror(-r));
	bpf_program__set_log_buf(program, log, VERIFIER_LOG_BYTES);
	r = bpf_object__load(object);
	if (r < 0)
		return error_set(err, r, "the kernel does not accept the walker of %s: %s: %s",
				 name, strerror(-r), verifier_reason(log));
	return bpf_program__fd(program);
}

static int load(struct walkers *s, uint32_t id, const struct walker_object *walker,
		struct error *err)
{
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = walker->name);
	_cleanup_free_ char *log = calloc(1, VERIFIER_LOG_BYTES);
	struct bpf_object *object;
	int r;

	if (!log)
		return error_set(err, -ENOMEM, "out of memory");
	object =
	    bpf_object__open_mem(walker->bytes, (size_t)(walker->end - walker->bytes), &options);
	if (!object)
		return error_set(err, -errno, "cannot read the walker of %s: %m", walker->name);
	r = walkers_share_maps(s->main, object);
	if (r < 0)
		(void)error_set(err, r, "the walker of %s cannot share the maps: %s", walker->name,
				strerror(-r));
	else
		r = load_program(object, &s->kind, walker->name, log, err);
	if (r >= 0 && bpf_map_update_elem(s->programs_fd, &id, &r, BPF_ANY) < 0)
		r = error_set(err, -errno, "the walker of %s cannot be called: %m", walker->name);
	bpf_object__close(object);
	return MIN(r, 0);
}

static void load_row(struct walker_row *row)
{
	struct walkers *s = row->walkers;
	struct error err = {};
	uint32_t id = (uint32_t)(row - s->rows);
	int r = load(s, id, row->object, &err);

	if (r < 0)
		log_warn("sampler", "%s", err.message);
	else
		log_debug("sampler", "the walker of %s is loaded", row->object->name);
	pthread_mutex_lock(&s->lock);
	row->state = r < 0 ? WALKER_FAILED : WALKER_LOADED;
	row->failure = err;
	s->loading--;
	pthread_cond_broadcast(&s->loaded);
	pthread_mutex_unlock(&s->lock);
}

/*
 * The verifier's work cannot be divided, so its whole cost is reserved before: that of the walker
 * that was loaded last.
 */
static void *load_thread(void *arg)
{
	static _Atomic uint64_t cost_ns = LOAD_COST_NS;
	const char *name = ((const struct walker_row *)arg)->object->name;

	pace_reserve(atomic_load(&cost_ns));
	load_row(arg);
	/* The walkers may be gone now. */
	atomic_store(&cost_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID));
	log_debug("sampler", "loading the walker of %s took %.3f s of CPU time", name,
		  (double)atomic_load(&cost_ns) / 1e9);
	return NULL;
}

/* True: the caller is to load the row. */
static bool claim_row(struct walkers *s, uint32_t id, const struct walker_object *object)
{
	struct walker_row *row = &s->rows[id];
	bool mine;

	pthread_mutex_lock(&s->lock);
	mine = row->state == WALKER_NONE;
	if (mine) {
		row->state = WALKER_LOADING;
		row->object = object;
		s->loading++;
	}
	pthread_mutex_unlock(&s->lock);
	return mine;
}

void walkers_need(struct walkers *s, uint32_t id, const struct walker_object *object)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (!object || !id || id >= WALKERS_MAX || !claim_row(s, id, object))
		return;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, load_thread, &s->rows[id]))
		load_row(&s->rows[id]);
	pthread_attr_destroy(&attributes);
}

int walkers_load(struct walkers *s, uint32_t id, const struct walker_object *object,
		 struct error *err)
{
	struct walker_row *row;
	int r = 0;

	if (!id || id >= WALKERS_MAX)
		return error_set(err, -EINVAL, "no runtime has the number %u", id);
	row = &s->rows[id];
	if (claim_row(s, id, object))
		load_row(row);
	pthread_mutex_lock(&s->lock);
	while (row->state == WALKER_LOADING)
		pthread_cond_wait(&s->loaded, &s->lock);
	if (row->state == WALKER_FAILED) {
		*err = row->failure;
		r = row->failure.code;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

void walkers_copy(struct walkers *s, struct walkers *from)
{
	for (uint32_t id = 1; id < WALKERS_MAX; id++) {
		const struct walker_object *object;

		pthread_mutex_lock(&from->lock);
		object = from->rows[id].object;
		pthread_mutex_unlock(&from->lock);
		walkers_need(s, id, object);
	}
}

bool walkers_busy(struct walkers *s)
{
	bool busy;

	pthread_mutex_lock(&s->lock);
	busy = s->loading > 0;
	pthread_mutex_unlock(&s->lock);
	return busy;
}

const char *walkers_failure(struct walkers *s, uint32_t id)
{
	const struct walker_row *row;
	bool failed;

	if (id >= WALKERS_MAX)
		return NULL;
	row = &s->rows[id];
	pthread_mutex_lock(&s->lock);
	failed = row->state == WALKER_FAILED;
	pthread_mutex_unlock(&s->lock);
	return failed ? row->failure.message : NULL;
}
