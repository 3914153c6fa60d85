/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel reports every new mapping of code (sideband.h). struct program records what this means
 * for the mapset in force: `extended` (the process has code that the mapset lacks), or an exchange
 * (the mapset is wrong from then on; it is taken out of the kernel at once). Changes during a
 * reading are recorded in `changed_ns`; the program is then read again.
 *
 * Two checks make sure that a reading is of the right program: the reader checks the start time,
 * and an exec (`executed_ns`) between the sample that asked and the reading invalidates it.
 */
#include "agent/window/discovery.h"

#include <time.h>

#include "agent/sampler/recheck.h"
#include "lib/clock.h"
#include "lib/metrics.h"

enum {
	PROGRAMS_MAX = 32768,
	ROUNDS_MAX = 3, /* readings in a row when the mappings change during each of them */
	REREAD_MIN_MS = 20,
	REREAD_MAX_MS = 10000,
	EXCHANGE_READ_MS = 100, /* between two readings that were only caused by exchanges */
	RETRY_MIN_MS = 1000,
	RETRY_MAX_MS = 60000,
	/* How long a program is kept after its last use: longer than samples wait in the ring. An
	 * UNRESOLVED one is kept until after its next retry. */
	KEEP_MS = 5000,
	EXCHANGES_KEPT = 8, /* of one program; each had a reading of its mappings in between */
	/* When the maps are read once more after a reading by maps_query(), which does not find out
	 * whether the process publishes labels. */
	LOOK_AGAIN_MS = 2000,
};
#define NS_PER_MS 1000000ULL

struct program_key {
	uint64_t exec_id;
	uint32_t tgid, pad;
};

/* The mapset was wrong from NS on. */
struct exchange {
	uint32_t mapset;
	uint64_t ns;
};

struct program {
	struct program_key key;
	uint64_t start_time; /* 0: not known yet */
	uint64_t cgroup;     /* of the last record; 0: not known */
	enum process_stage stage;
	struct reading *reading; /* set even when UNRESOLVED, if the reading is late */
	bool is_late;
	bool extended, wants_mappings;
	uint32_t mapset;			   /* in force since the last reading; 0: none */
	struct exchange exchanges[EXCHANGES_KEPT]; /* a ring */
	unsigned int n_exchanges;		   /* total, not only those kept */
	uint64_t changed_ns, executed_ns; /* last change and first exec since the reading began */
	unsigned int rounds;
	uint32_t tracers;
	/* UNRESOLVED: time of the next retry, and the wait before it. */
	uint64_t retry_ns, retry_wait_ms;
	uint64_t reread_ns, reread_wait_ms;
	uint64_t exchange_read_ns; /* earliest time of the next reading for an exchange alone */
	uint64_t replaced_ns; /* when this program or the one before it executed another program */
	/* A mapset in force that may lack code since suspect_since_ns: it is being checked. */
	uint32_t suspect;
	uint64_t suspect_since_ns;
	/* When the mappings are to be read once more, with the process's next sample; 0: not. See
	 * LOOK_AGAIN_MS. */
	uint64_t look_ns;
	bool looks;	     /* the current reading is that second one */
	uint64_t sampled_ns; /* time of the newest record of the program */
	uint32_t tid;	     /* thread of the last record */
	uint32_t parent;     /* this and the next two as in struct kiln_resume */
	bool forked;
	uint64_t parent_start;
	uint64_t used_ns;
	UT_hash_handle hh;
};

struct reading {
	struct process_reading process;
	struct discovery *discovery;
	struct program *program; /* NULL: the result is not needed any more */
};

struct discovery {
	struct discovery_of of;
	struct discovery_pool *pool;
	struct recheck *recheck;
	bool has_lost; /* notes of mappings were lost at least once: `recheck` has to be asked */
	struct program *programs;
	size_t n_reading; /* readings that are not late */
};

int discovery_new(const struct discovery_of *of, struct discovery **ret)
{
	struct discovery *d = calloc(1, sizeof(*d));
	struct discovery_options options = {.loop = of->loop};
	int r;

	if (!d)
		return -ENOMEM;
	d->of = *of;
	r = recheck_new(&d->recheck);
	if (!r)
		r = discovery_pool_new(&options, &d->pool);
	if (r < 0) {
		recheck_free(d->recheck);
		free(d);
		return r;
	}
	*ret = d;
	return 0;
}

unsigned int discovery_stop(struct discovery *d)
{
	return d ? discovery_pool_free(TAKE_PTR(d->pool)) : 0;
}

struct discovery *discovery_free(struct discovery *d)
{
	struct program *p, *next;

	if (!d)
		return NULL;
	HASH_ITER (hh, d->programs, p, next) {
		HASH_DEL(d->programs, p);
		free(p);
	}
	recheck_free(d->recheck);
	free(d);
	return NULL;
}

/* ---- programs -------------------------------------------------------------------------------- */

static struct program *find_program(const struct discovery *d, uint32_t tgid, uint64_t exec_id)
{
	struct program_key key = {.exec_id = exec_id, .tgid = tgid};
	struct program *p;

	HASH_FIND(hh, d->programs, &key, sizeof(key), p);
	return p;
}

static struct program *get_program(struct discovery *d, uint32_t tgid, uint64_t exec_id)
{
	struct program *p = find_program(d, tgid, exec_id);

	if (!p && HASH_COUNT(d->programs) < PROGRAMS_MAX && (p = calloc(1, sizeof(*p)))) {
		p->key = (struct program_key){.exec_id = exec_id, .tgid = tgid};
		HASH_ADD(hh, d->programs, key, sizeof(p->key), p);
	}
	if (p)
		p->used_ns = monotonic_ns();
	return p;
}

static void answer(struct discovery *d, const struct program *p, struct mapset *mapset,
		   const struct process_reading *r, int info_error)
{
	struct discovery_answer a = {
	    .exec_id = p->key.exec_id,
	    .tgid = p->key.tgid,
	    .mapset = mapset,
	    .info = info_error < 0 ? NULL : &r->info,
	    .info_error = info_error,
	};

	d->of.callbacks.answer(&a, d->of.callbacks.arg);
}

static void set_unresolved(struct discovery *d, struct program *p, enum unresolved_reason reason)
{
	metric_add((enum metric_id)(M_UNRESOLVED_GONE + (int)reason), 1);
	p->stage = PROCESS_UNRESOLVED;
	p->rounds = 0;
	p->suspect = 0; /* no better mapset will come */
	p->looks = false;
	p->retry_wait_ms =
	    MIN(MAX(p->retry_wait_ms * 2, (uint64_t)RETRY_MIN_MS), (uint64_t)RETRY_MAX_MS);
	p->retry_ns = monotonic_ns() + p->retry_wait_ms * NS_PER_MS;
	mapset_store_give_up(d->of.mapsets, p->key.tgid, p->key.exec_id);
}

/* Another process has got the pid: requests for the old one get an answer without result. */
static void reset_program(struct discovery *d, struct program *p, uint64_t start_time)
{
	const struct program gone = {.key = p->key};

	if (p->reading) {
		p->reading->program = NULL;
		d->n_reading -= !p->is_late;
	}
	/* Reset before answering, because the answer may make and ask for other programs. */
	*p = (struct program){
	    .key = p->key, .used_ns = p->used_ns, .start_time = start_time, .hh = p->hh};
	answer(d, &gone, NULL, NULL, -ESRCH);
}

static struct program *program_of(struct discovery *d, const struct kiln_sample *record)
{
	struct program *p = get_program(d, record->tgid, record->exec_id);
	const struct kiln_resume *resume;

	if (!p)
		return NULL;
	/* The record is of a process that had the pid before. */
	if (p->start_time > record->start_time)
		return NULL;
	if (p->start_time && p->start_time != record->start_time)
		reset_program(d, p, record->start_time);
	p->start_time = record->start_time;
	p->cgroup = record->cgroup;
	p->tracers = record->runtimes;
	p->sampled_ns = MAX(p->sampled_ns, record->time);
	p->tid = record->tid;
	if (record->dump_len) {
		resume =
		    (const struct kiln_resume *)(record->words + record->n_kernel + record->n_user);
		p->parent = resume->parent;
		p->forked = resume->forked;
		p->parent_start = resume->parent_start;
	}
	return p;
}

static void note_exchange(struct program *p, uint32_t mapset, uint64_t time)
{
	p->exchanges[p->n_exchanges++ % EXCHANGES_KEPT] = (struct exchange){mapset, time};
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum unresolved_reason reason_of(int r)
{
	return r == -ESRCH	 ? UNRESOLVED_GONE
	       : r == -EHOSTDOWN ? UNRESOLVED_FILES_HANG
	       : r == -ENOSPC	 ? UNRESOLVED_NO_ROOM
				 : UNRESOLVED_UNREADABLE;
}

static int make_mapset(struct discovery *d, struct program *p, struct process_reading *r,
		       struct mapset **ret)
{
	struct mapset_source source = {
	    .tgid = p->key.tgid,
	    .start_time = p->start_time,
	    .exec_id = p->key.exec_id,
	    .cgroup = p->cgroup,
	    .read_ns = r->read_ns,
	    .is_gone = r->gone,
	    .maps = &r->maps,
	    .images = r->images_of,
	};

	uint64_t since = p->suspect ? p->suspect_since_ns : r->read_ns;
	struct mapset *old = NULL;
	int change;

	if (p->suspect)
		metric_add(M_MAPSETS_CHECKED, 1);
	if (p->suspect || p->looks)
		old = mapset_store_find(d->of.mapsets, p->suspect ? p->suspect : p->mapset);
	p->suspect = 0;
	runtimes_asked(d->of.runtimes, p->tracers);
	if (!old)
		return mapset_store_make(d->of.mapsets, &source, ret);
	change = mapset_store_check(d->of.mapsets, &source, old, ret);
	if (change == MAPSET_EXCHANGED)
		note_exchange(p, old->id, since);
	return MIN(change, 0);
}

static int start_reading(struct discovery *d, struct program *p, bool without_mappings,
			 struct maps *noted);

/* Reads again if the program changed during the reading, or if the mappings are wanted now. True:
 * under way. */
static bool read_again(struct discovery *d, struct program *p, const struct process_reading *r)
{
	bool changed = !r->without_mappings && p->changed_ns > r->read_ns;

	if (r->gone)
		return false;
	if (r->without_mappings ? !p->wants_mappings : !changed || p->rounds >= ROUNDS_MAX)
		return false;
	p->rounds++;
	return start_reading(d, p, false, NULL) == 0;
}

/* Converts CLOCK_BOOTTIME, which also runs during suspend, to CLOCK_MONOTONIC. */
static uint64_t monotonic_of(uint64_t boot_ns)
{
	uint64_t now = monotonic_ns(), asleep = clock_ns(CLOCK_BOOTTIME) - now;

	return boot_ns - MIN(boot_ns, asleep);
}

/* The mappings of P as recorded in the notes: since its exec or, if it was forked, since its
 * parent's. */
static int noted_maps(const struct discovery *d, const struct program *p, struct maps *ret)
{
	uint64_t start = monotonic_of(p->start_time);
	int r = map_notes_read(d->of.notes, p->key.tgid, start, p->sampled_ns, ret);

	if (r != -ENOENT || !p->forked)
		return r;
	return map_notes_read(d->of.notes, p->parent, monotonic_of(p->parent_start), start, ret);
}

/* P has ended, or executes another program: tries to get its mappings from the notes or from its
 * parent. True: under way. */
static bool read_rest(struct discovery *d, struct program *p, const struct process_reading *r)
{
	struct maps maps = {0};

	if (!d->of.notes || r->gone || r->without_mappings || p->suspect || !p->start_time)
		return false;
	/* Without notes, a fork's parent may still exist. */
	if (noted_maps(d, p, &maps) < 0 && !p->forked)
		return false;
	return start_reading(d, p, false, &maps) == 0;
}

/*
 * Has P's process executed another program, after the last sample of P and until UNTIL_NS?
 * discovery_executed() finds P through the kernel's entry of the process. If the process has ended,
 * that entry is deleted, so the notes are searched.
 */
static bool has_executed(const struct discovery *d, const struct program *p, uint64_t until_ns)
{
	const struct kernel_memory *memory = d->of.memory;
	struct kiln_process entry;

	if (p->executed_ns)
		return p->executed_ns <= until_ns;
	return d->of.notes && memory->get_process(memory->arg, p->key.tgid, &entry) < 0 &&
	       map_notes_may_have_executed(d->of.notes, p->key.tgid, p->sampled_ns, until_ns);
}

static void finish(struct discovery *d, struct program *p, struct process_reading *r)
{
	struct mapset *m = NULL;
	int error = r->result;

	/* The process executed another program: what was read after that belongs to the new one. */
	if (!r->gone && has_executed(d, p, r->described_ns)) {
		r->info_result = -ESRCH;
		if (has_executed(d, p, r->mapped_ns))
			error = -ESRCH;
	}
	/* If the parent has executed another program since the fork, its mappings are not those of
	 * the fork. */
	if (r->mapped_ns && r->gone &&
	    map_notes_may_have_executed(d->of.notes, r->maps_pid, monotonic_of(p->start_time),
					r->mapped_ns))
		error = -ESRCH;
	if (!error && read_again(d, p, r))
		return;
	if (error == -ESRCH && read_rest(d, p, r))
		return;
	if (!error && !r->without_mappings)
		error = make_mapset(d, p, r, &m);
	if (m) {
		p->mapset = m->id;
		p->extended = p->changed_ns > r->read_ns;
		p->retry_wait_ms = 0;
		p->look_ns = r->queried ? r->read_ns + LOOK_AGAIN_MS * NS_PER_MS : 0;
	}
	p->looks = false;
	p->rounds = 0;
	p->wants_mappings = false;
	if (error < 0)
		set_unresolved(d, p, reason_of(error));
	else
		p->stage = PROCESS_KNOWN;
	answer(d, p, m, r, r->info_result);
}

static void on_read(struct discovery_job *job)
{
	struct reading *r = container_of(job, struct reading, process.job);
	struct discovery *d = r->discovery;
	struct program *p;

	d->of.callbacks.before(d->of.callbacks.arg);
	image_store_reap(d->of.images);
	p = r->program;
	if (p) {
		d->n_reading -= !p->is_late;
		p->reading = NULL;
		p->is_late = false;
		finish(d, p, &r->process);
	}
	process_reading_done(&r->process, monotonic_ns() / NS_PER_MS);
	free(r);
}

static void on_late(struct discovery_job *job)
{
	struct reading *r = container_of(job, struct reading, process.job);
	struct discovery *d = r->discovery;
	struct program *p = r->program;
	bool described = atomic_load_explicit(&r->process.described, memory_order_acquire);

	if (!p)
		return;
	p->is_late = true;
	d->n_reading--;
	set_unresolved(d, p, UNRESOLVED_FILES_HANG);
	answer(d, p, NULL, &r->process, described ? r->process.info_result : -EAGAIN);
}

/* Only frees the job: the stores are freed too, or stay because a thread hangs. */
static void on_drop(struct discovery_job *job)
{
	struct reading *r = container_of(job, struct reading, process.job);

	maps_done(&r->process.maps);
	free(r);
}

/* Starts to read P. NOTED: its mappings from the notes (see struct process_reading), which this
 * function takes over; NULL: they are read from /proc. */
static int start_reading(struct discovery *d, struct program *p, bool without_mappings,
			 struct maps *noted)
{
	struct reading *r = calloc(1, sizeof(*r));
	int e;

	if (!r) {
		if (noted)
			maps_done(noted);
		return -ENOMEM;
	}
	r->discovery = d;
	r->program = p;
	r->process = (struct process_reading){
	    .job = {.key = {p->start_time, (uint64_t)p->key.tgid << 32 | (uint32_t)p->key.exec_id},
		    .late = on_late,
		    .done = on_read,
		    .drop = on_drop},
	    .proc_dirfd = d->of.proc_dirfd,
	    .images = d->of.images,
	    .tgid = p->key.tgid,
	    .tid = p->tid,
	    .start_ns = p->start_time,
	    .without_mappings = without_mappings,
	    .gone = noted != NULL,
	};
	if (noted) {
		r->process.maps = *noted;
		r->process.maps_pid = p->parent ? p->parent : p->key.tgid;
		r->process.parent_start_ns = p->parent_start;
	}
	process_reading_init(&r->process);
	e = d->pool ? discovery_submit(d->pool, &r->process.job) : -ESHUTDOWN;
	if (e < 0) {
		maps_done(&r->process.maps);
		free(r);
		set_unresolved(d, p, UNRESOLVED_REFUSED);
		return -EAGAIN;
	}
	p->reading = r;
	p->stage = PROCESS_READING;
	p->is_late = false;
	p->changed_ns = 0;
	/* If the note of its exec was processed before this reading, the reading is of the next
	 * program. */
	p->executed_ns = p->replaced_ns > p->sampled_ns ? p->replaced_ns : 0;
	d->n_reading++;
	return 0;
}

static int ask(struct discovery *d, struct program *p, bool without_mappings)
{
	switch (p->stage) {
	case PROCESS_READING:
		p->wants_mappings |= !without_mappings;
		return 0;
	case PROCESS_UNRESOLVED:
		/* This sample is a short record, so an answer would not help it. */
		if (!p->reading && monotonic_ns() >= p->retry_ns)
			(void)start_reading(d, p, false, NULL);
		return -EAGAIN;
	case PROCESS_NEW:
	case PROCESS_KNOWN:
		break;
	}
	return start_reading(d, p, without_mappings, NULL);
}

int discovery_ask(struct discovery *d, const struct kiln_sample *record, bool without_mappings)
{
	struct program *p = program_of(d, record);

	return p ? ask(d, p, without_mappings) : -ENOMEM;
}

bool discovery_ask_more(struct discovery *d, const struct kiln_sample *record,
			const struct mapset *mapset)
{
	uint64_t now = monotonic_ns();
	struct program *p;

	if (mapset->read_ns > record->time)
		return false;
	p = program_of(d, record);
	if (!p || p->stage == PROCESS_UNRESOLVED)
		return false;
	if (p->stage != PROCESS_READING) {
		if (now < p->reread_ns)
			return false;
		p->reread_wait_ms = MIN(MAX(p->reread_wait_ms * 2, (uint64_t)REREAD_MIN_MS),
					(uint64_t)REREAD_MAX_MS);
		p->reread_ns = now + p->reread_wait_ms * NS_PER_MS;
	}
	return ask(d, p, false) == 0;
}

void discovery_renew(struct discovery *d, const struct mapset *m)
{
	struct program *p;

	if (mapset_store_in_force(d->of.mapsets, m->tgid, m->exec_id) != m)
		return;
	p = get_program(d, m->tgid, m->exec_id);
	if (!p)
		return;
	p->start_time = m->start_time;
	p->cgroup = m->cgroup;
	p->tracers = m->tracers;
	p->looks = false; /* a new mapset is wanted, even if the mappings are the same */
	(void)ask(d, p, false);
}

void discovery_warm(struct discovery *d, uint32_t tgid)
{
	struct program *p = get_program(d, tgid, 0);

	if (!p)
		return;
	p->tracers = UINT32_MAX;
	(void)ask(d, p, false);
}

/* ---- changes --------------------------------------------------------------------------------- */

static bool was_exchanged(const struct program *p, uint32_t mapset, uint64_t time)
{
	unsigned int n = MIN(p->n_exchanges, (unsigned int)EXCHANGES_KEPT);

	for (unsigned int i = 0; i < n; i++)
		if (p->exchanges[i].mapset == mapset && p->exchanges[i].ns <= time)
			return true;
	return false;
}

/* If notes of mappings may have been lost since MAPSET was read, marks it as suspect, so that it is
 * checked. Returns the program of RECORD; NULL if there is nothing to check. */
static struct program *suspect(struct discovery *d, const struct kiln_sample *record,
			       const struct mapset *mapset)
{
	struct program *p;
	uint64_t since;

	if (!d->has_lost ||
	    !recheck_due(d->recheck, record->tgid, mapset->read_ns, monotonic_ns(), &since))
		return NULL;
	p = program_of(d, record);
	if (p && mapset_store_in_force(d->of.mapsets, record->tgid, record->exec_id) == mapset) {
		p->suspect = mapset->id;
		p->suspect_since_ns = since;
	}
	return p;
}

static void look_again(struct discovery *d, struct program *p, const struct kiln_sample *record)
{
	p->look_ns = 0;
	p->looks = true;
	p->start_time = record->start_time;
	p->cgroup = record->cgroup;
	p->tracers = record->runtimes;
	(void)ask(d, p, false);
}

bool discovery_holds(struct discovery *d, const struct kiln_sample *record,
		     const struct mapset *mapset)
{
	struct program *p = suspect(d, record, mapset);

	if (!p && d->programs)
		p = find_program(d, record->tgid, record->exec_id);
	if (!p)
		return true;
	if (p->start_time && p->start_time != record->start_time)
		return false;
	if (p->look_ns && record->time >= p->look_ns && p->stage != PROCESS_READING &&
	    p->stage != PROCESS_UNRESOLVED)
		look_again(d, p, record);
	/* The known mappings are still right. The additional ones are read for later samples. */
	if (p->extended && p->stage != PROCESS_READING) {
		p->start_time = record->start_time;
		p->cgroup = record->cgroup;
		p->tracers = record->runtimes;
		(void)ask(d, p, false);
		p->extended = p->stage != PROCESS_READING;
	}
	return p->suspect != mapset->id && !was_exchanged(p, mapset->id, record->time);
}

/* The mapset that was in force at TIME: the one with the first exchange after TIME, else the
 * newest. */
static uint32_t mapset_at(const struct program *p, uint64_t time)
{
	unsigned int n = MIN(p->n_exchanges, (unsigned int)EXCHANGES_KEPT);
	uint64_t next = UINT64_MAX;
	uint32_t mapset = p->mapset;

	for (unsigned int i = 0; i < n; i++) {
		const struct exchange *e = &p->exchanges[i];

		if (e->ns > time && e->ns < next) {
			next = e->ns;
			mapset = e->mapset;
		}
	}
	return mapset;
}

struct mapset *discovery_mapset(struct discovery *d, const struct kiln_sample *record)
{
	const struct program *p = find_program(d, record->tgid, record->exec_id);
	struct mapset *m = NULL;

	if (p && p->start_time == record->start_time)
		m = mapset_store_find(d->of.mapsets, mapset_at(p, record->time));
	if (!m)
		m = mapset_store_in_force(d->of.mapsets, record->tgid, record->exec_id);
	return m && p && p->suspect == m->id ? NULL : m;
}

/*
 * The mapset M, in force until now, is wrong. The mappings are read at once, because they may have
 * changed again by the time that the ring is read. The interval limits programs that exchange code
 * all the time.
 */
static void read_exchanged(struct discovery *d, struct program *p, const struct mapset *m,
			   uint64_t time)
{
	uint64_t now = monotonic_ns();

	/* After an exec, the new program's mappings say nothing about the old one, which can no
	 * longer be read. */
	if (now < p->exchange_read_ns ||
	    (p->replaced_ns && time < p->replaced_ns + KEEP_MS * NS_PER_MS))
		return;
	p->exchange_read_ns = now + EXCHANGE_READ_MS * NS_PER_MS;
	p->start_time = m->start_time;
	p->cgroup = m->cgroup;
	p->tracers = m->tracers;
	(void)ask(d, p, false);
}

bool discovery_mapped(struct discovery *d, const struct sideband_mapping *mapping)
{
	const struct kernel_memory *memory = d->of.memory;
	enum mapset_change change = MAPSET_EXCHANGED;
	struct kiln_process entry;
	const struct mapset *m;
	struct program *p;

	if (memory->get_process(memory->arg, mapping->tgid, &entry) < 0)
		return false;
	p = find_program(d, mapping->tgid, entry.exec_id);
	if (p && p->reading)
		p->changed_ns = mapping->time;
	if (!entry.mapset)
		return p && p->reading;
	m = mapset_store_find(d->of.mapsets, entry.mapset);
	if (m && !runtimes_mapped(d->of.runtimes, m, mapping))
		change = mapset_compare(m, mapping);
	if (change == MAPSET_HOLDS)
		return true;
	metric_add(M_MAPSETS_OUTDATED, 1);
	p = get_program(d, mapping->tgid, entry.exec_id);
	if (p && p->stage == PROCESS_NEW)
		p->stage = PROCESS_KNOWN;
	if (p && change == MAPSET_EXTENDED) {
		p->extended = true;
		return true;
	}
	mapset_store_forget(d->of.mapsets, mapping->tgid);
	if (p) {
		note_exchange(p, entry.mapset, mapping->time);
		p->mapset = 0;
	}
	if (p && m)
		read_exchanged(d, p, m, mapping->time);
	return true;
}

void discovery_lost(struct discovery *d, uint64_t since_ns)
{
	struct program *p, *next;
	uint64_t now = monotonic_ns();

	recheck_lost(d->recheck, since_ns, now);
	d->has_lost = true;
	HASH_ITER (hh, d->programs, p, next)
		if (p->reading)
			p->changed_ns = now;
}

static void note_exec(struct program *p, uint64_t time)
{
	if (p && p->reading && !p->executed_ns && time > p->sampled_ns)
		p->executed_ns = time;
}

void discovery_executed(struct discovery *d, uint32_t tgid, uint64_t time)
{
	const struct kernel_memory *memory = d->of.memory;
	struct kiln_process entry;
	struct program *p;

	if (memory->get_process(memory->arg, tgid, &entry) < 0)
		return;
	p = get_program(d, tgid, entry.exec_id);
	if (p)
		p->replaced_ns = time;
	/* The entry may already be that of the new program; each exec adds one to exec_id. */
	note_exec(find_program(d, tgid, entry.exec_id), time);
	note_exec(find_program(d, tgid, entry.exec_id - 1), time);
}

/* Until when something may still need the state of P. */
static uint64_t keep_until(const struct program *p)
{
	uint64_t until = MAX(p->used_ns + KEEP_MS * NS_PER_MS, p->reread_ns);

	/* A program that still runs is sampled, and retried, before that. */
	return p->stage == PROCESS_UNRESOLVED
		   ? MAX(until, p->retry_ns + p->retry_wait_ms * NS_PER_MS)
		   : until;
}

void discovery_sweep(struct discovery *d)
{
	struct program *p, *next;
	uint64_t now = monotonic_ns();

	HASH_ITER (hh, d->programs, p, next) {
		if (p->reading || now < keep_until(p))
			continue;
		/* Kept until it is sampled again, or its mapset is gone. */
		if ((p->extended || p->look_ns) &&
		    mapset_store_in_force(d->of.mapsets, p->key.tgid, p->key.exec_id))
			continue;
		HASH_DEL(d->programs, p);
		free(p);
	}
}

bool discovery_busy(const struct discovery *d)
{
	return d->n_reading > 0;
}
