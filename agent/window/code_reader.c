// SPDX-License-Identifier: Apache-2.0
/*
 * A job belongs to one image. While a job of the image runs, the next one collects places, so that
 * many samples share one new table. The loop thread, which owns the slab, builds the new table from
 * the one in the slab; the worker only reads the code.
 */
#include "agent/window/code_reader.h"

#include <stdatomic.h>
#include <utlist.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/metrics.h"
#include "lib/pace.h"
#include "lib/ref_table.h"
#include "lib/work.h"

enum { JOBS_MAX = 64 };

struct job {
	struct work work;
	struct code_reader *reader;
	struct stored_image *stored;
	struct image *image;
	struct code_place places[CODE_PLACES_MAX];
	size_t n;
	struct ref_table by_address; /* index of `places`; not used while running */
	struct code_pieces pieces;
	struct unwind_table *table; /* new table that waits for room in the slab */
	uint64_t bytes;
	int result;
	bool running, is_stale;
	struct job *next;
};

struct code_reader {
	uv_loop_t *loop;
	struct kernel_memory memory;
	struct image_store *images;
	struct unwind_store *unwind;
	void (*done)(const struct stored_image *image, uint32_t slot, void *arg);
	void *arg;
	struct job *jobs;
	unsigned int n;
	atomic_bool stopped; /* read by the worker */
};

int code_reader_new(uv_loop_t *loop, const struct kernel_memory *memory, struct image_store *images,
		    struct unwind_store *unwind,
		    void (*done)(const struct stored_image *image, uint32_t slot, void *arg),
		    void *arg, struct code_reader **ret)
{
	struct code_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->loop = loop;
	r->memory = *memory;
	r->images = images;
	r->unwind = unwind;
	r->done = done;
	r->arg = arg;
	*ret = r;
	return 0;
}

static void job_free(struct job *job)
{
	struct code_reader *r = job->reader;

	LL_DELETE(r->jobs, job);
	r->n--;
	image_store_put(r->images, job->stored, monotonic_ms());
	image_unref(job->image);
	code_pieces_done(&job->pieces);
	ref_table_done(&job->by_address);
	unwind_table_free(job->table);
	free(job);
}

struct code_reader *code_reader_free(struct code_reader *r)
{
	if (!r)
		return NULL;
	while (r->jobs)
		job_free(r->jobs);
	free(r);
	return NULL;
}

bool code_reader_busy(const struct code_reader *r)
{
	return r->jobs;
}

void code_reader_stop(struct code_reader *r)
{
	struct job *job, *next;

	atomic_store(&r->stopped, true);
	LL_FOREACH_SAFE (r->jobs, job, next)
		if (!job->running)
			job_free(job);
}

/* ---- asking -----------------------------------------------------------------------------------
 */

static struct job *job_of(struct code_reader *r, struct stored_image *image)
{
	struct job *job;

	LL_FOREACH (r->jobs, job)
		if (!job->running && !job->table && job->stored == image)
			return job;
	job = r->n < JOBS_MAX ? calloc(1, sizeof(*job)) : NULL;
	if (!job)
		return NULL;
	job->reader = r;
	job->stored = image;
	job->image = image_ref(image->image);
	image_store_ref(image); /* given back by image_store_put() */
	LL_APPEND(r->jobs, job);
	r->n++;
	return job;
}

static bool same_place(const void *job, uint32_t index, const void *vaddr)
{
	return ((const struct job *)job)->places[index].vaddr == *(const uint64_t *)vaddr;
}

/* False: the place is in the job already, or there is no room. */
static bool add_place(struct job *job, uint64_t vaddr, bool is_guess)
{
	uint64_t hash = mix64(vaddr);
	uint32_t i = ref_table_index(&job->by_address, hash, same_place, job, &vaddr);

	if (i != REF_TABLE_NONE) {
		job->places[i].is_guess &= is_guess;
		return false;
	}
	if (job->n == CODE_PLACES_MAX || ref_table_reserve(&job->by_address, 1) < 0)
		return false;
	job->places[job->n++] = (struct code_place){.vaddr = vaddr, .is_guess = is_guess};
	ref_table_insert(&job->by_address, hash, (uint32_t)job->n);
	return true;
}

static void add_guesses(struct job *job, const struct unwind_table *table,
			const struct mapset_range *range, const struct kiln_sample *record)
{
	const uint64_t *resume = record->words + record->n_kernel + record->n_user,
		       *stack = resume + sizeof(struct kiln_resume) / 8;
	size_t added = 0;

	_Static_assert(sizeof(struct kiln_resume) % 8 == 0, "the stack's words are aligned");
	for (size_t i = 0; i < record->dump_len / 8 && added < CODE_READER_GUESSES_MAX; i++) {
		uint64_t vaddr = stack[i] - 1 - range->bias;

		if (stack[i] > range->start && stack[i] <= range->end &&
		    unwind_lookup(table, vaddr)->kind == KILN_RULE_UNREAD)
			added += add_place(job, vaddr, true);
	}
}

bool code_reader_want(struct code_reader *r, struct stored_image *image, uint64_t vaddr,
		      uint64_t pc, const struct mapset *mapset, const struct kiln_sample *record)
{
	const struct mapset_range *range = mapset_find(mapset, pc);
	uint64_t *spent = unwind_store_code_bytes(r->unwind, image);
	struct unwind_table table;
	struct job *job;

	if (atomic_load(&r->stopped) || image->is_stale || !range || !spent ||
	    *spent >= CODE_PLACES_BYTES_MAX || !unwind_store_view(r->unwind, image, &table))
		return false;
	job = job_of(r, image);
	if (!job)
		return false;
	(void)add_place(job, vaddr, false);
	add_guesses(job, &table, range, record);
	return true;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

/* Runs in the thread pool. */
static void read_code(struct work *work)
{
	struct job *job = container_of(work, struct job, work);
	_cleanup_(image_unrefp) struct image *copy = NULL;
	const struct image *image = job->image;
	int r;

	job->result = -ECANCELED;
	pace_wait();
	if (atomic_load(&job->reader->stopped))
		return;
	r = image_copy(job->image, &copy, NULL);
	if (r == 0) {
		image = copy;
	} else if (r != -EFBIG) {
		job->result = r;
		return;
	}
	job->result = code_places_read(image, job->places, job->n, &job->pieces, &job->bytes);
	/* Other files share the table: it must not get rules from code that has changed in this
	 * file. */
	if (job->result == 0)
		job->result = image_content_check(job->image, image);
	job->is_stale = job->result == -ESTALE;
	image_forget(image);
}

/* Makes the table of JOB's image with the code that was read. IS_LAST: the limit is reached, and
 * the remaining unread code gets no rule. */
static int make_table(struct job *job, bool is_last, struct unwind_table **ret)
{
	const struct code_piece rest = {0, UINT64_MAX, {.kind = KILN_RULE_INVALID}};
	_cleanup_(unwind_table_freep) struct unwind_table *table = NULL;
	struct unwind_table old;
	int r;

	if (!unwind_store_view(job->reader->unwind, job->stored, &old))
		return -ESTALE;
	r = unwind_table_patch(&old, job->pieces.v, job->pieces.n, &table);
	if (r == 0 && is_last) {
		struct unwind_table *closed;

		r = unwind_table_patch(table, &rest, 1, &closed);
		if (r < 0)
			return r;
		unwind_table_free(table);
		table = closed;
	}
	if (r == 0)
		*ret = TAKE_PTR(table);
	return r;
}

/* False: the room in the slab is not free yet. */
static bool load(struct job *job)
{
	struct code_reader *r = job->reader;
	int e = unwind_store_load(r->unwind, job->stored, job->table, monotonic_ms());

	if (e == -EAGAIN) {
		unwind_store_set_state(r->unwind, job->stored, UNWIND_WANTED);
		return false;
	}
	if (e < 0)
		log_debug("unwind", "%s: %s", job->image->path, strerror(-e));
	return true;
}

static void finish_job(struct job *job)
{
	struct code_reader *r = job->reader;
	const struct stored_image *image = job->stored;
	uint32_t slot = image->slot;

	job_free(job);
	r->done(image, slot, r->arg);
}

static void read_done(struct work *work)
{
	struct job *job = container_of(work, struct job, work);
	struct code_reader *r = job->reader;
	uint64_t *spent = unwind_store_code_bytes(r->unwind, job->stored);
	int e = job->result;
	bool is_last = false;

	job->running = false;
	if (job->is_stale) {
		job->stored->is_stale = true;
		image_content_revoke(job->image);
		metric_add(M_IMAGES_CHANGED, 1);
	}
	if (spent) {
		is_last =
		    *spent < CODE_PLACES_BYTES_MAX && *spent + job->bytes >= CODE_PLACES_BYTES_MAX;
		*spent += job->bytes;
	}
	metric_add(M_CODE_READ_BYTES, job->bytes);
	if (is_last) {
		metric_add(M_CODE_READ_ENOUGH, 1);
		log_info("unwind", "%s: no more of its code without unwind information is read",
			 job->image->path);
	}
	if (e == 0)
		e = make_table(job, is_last, &job->table);
	/* Stops reading this image: the waiting samples would request the same again. */
	if (e < 0 && e != -ESTALE && spent)
		*spent = CODE_PLACES_BYTES_MAX;
	if (e == 0 && !load(job))
		return;
	finish_job(job);
}

static bool is_under_way(const struct code_reader *r, const struct job *job)
{
	const struct job *other;

	LL_FOREACH (r->jobs, other)
		if (other != job && (other->running || other->table) &&
		    other->stored->slot == job->stored->slot)
			return true;
	return false;
}

void code_reader_start(struct code_reader *r)
{
	struct job *job, *next, *loaded = NULL;

	LL_FOREACH_SAFE (r->jobs, job, next) {
		if (job->running)
			continue;
		if (job->table) {
			if (!loaded && load(job))
				loaded = job;
		} else if (!is_under_way(r, job)) {
			job->running = work_submit(r->loop, &job->work, read_code, read_done) == 0;
		}
	}
	/* The callback of DONE requests more code and calls this function again, so it comes
	 * last. */
	if (loaded)
		finish_job(loaded);
}
