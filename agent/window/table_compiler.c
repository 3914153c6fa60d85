/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each image takes two jobs in the thread pool. The first identifies its content. If the content is
 * known, the image shares the slot of the images that have it, and their table, which may still be
 * being made. Else the second job compiles the table, from bytes that must be those of the
 * identified content: a small file is parsed from a copy, mostly the very one that was hashed; a
 * large one is hashed again afterwards.
 *
 * Hashing a large file twice costs more than compiling it, and most large files exist only once on
 * a node. So the first file with some size, build id, head and tail is not hashed, and shares its
 * table with no other image. Later files with the same ones are hashed, and share a table if their
 * contents are equal. Size, build id, head and tail, which anybody can copy, decide only whether a
 * file is hashed.
 *
 * The room of a removed table is not reused for a while, because walks may still be using it
 * (unwind_store.h): a compiled table then waits in `ready`.
 */
#include "agent/window/table_compiler.h"

#include "agent/labels/rows.h"

#include <stdatomic.h>
#include <utlist.h>

#include "agent/elf/content.h"
#include "agent/elf/unwind.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/metrics.h"
#include "lib/pace.h"
#include "lib/work.h"

enum {
	BIG_IMAGE_BYTES = 4 << 20, /* files beyond this are compiled one at a time */
	COPIES_MAX = 8 << 20,	   /* bytes of copies that wait to be compiled */
	RENUMBER_SHARE = 20,	   /* renumbering may take one part in this many of the time */
	CLAIMS = 1024,		   /* size of the table of large files that were met */
};

struct job {
	struct work work;
	struct table_compiler *compiler;
	struct stored_image *stored;
	struct image *image;
	struct image *copy; /* a copy of IMAGE whose bytes are those of CONTENT; or NULL */
	struct unwind_table *table;
	struct runtime_probe probe;
	struct error err;
	struct image_content content;
	int result;
	uint64_t ns; /* CPU time of both jobs */
	bool identified, big;
	bool unshared;	  /* its content is not hashed */
	uint32_t slot;	  /* that its table was compiled for; the image may have left it since */
	struct job *next; /* of ready or big */
};

struct table_compiler {
	struct table_compiler_options options;
	unsigned int jobs;
	struct job *ready;     /* compiled tables that wait for room in the slab */
	struct job *big;       /* large files that wait to be compiled, one after the other */
	struct image *reading; /* the big file that is being compiled, or NULL */
	bool renumber;	       /* the kernel's mappings have outdated slots */
	uint64_t renumber_ns;  /* uv_hrtime() before which only a tick renumbers */
	uint64_t full_ms;      /* now_ms() until which images without a slot are refused */
	/* Hashes of large files that were met, each at its place; 0: none. */
	uint64_t claims[CLAIMS];
	atomic_bool stopped;  /* the thread pool reads it */
	atomic_size_t copies; /* bytes; the thread pool adds */
};

static uint64_t now_ms(void)
{
	return uv_hrtime() / 1000000;
}

int table_compiler_new(const struct table_compiler_options *options, struct table_compiler **ret)
{
	struct table_compiler *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->options = *options;
	*ret = c;
	return 0;
}

struct table_compiler *table_compiler_free(struct table_compiler *c)
{
	free(c);
	return NULL;
}

/* Thread pool. Identifies the content. Keeps the copy of the file for the compilation, unless
 * copies already hold COPIES_MAX. */
static void identify(struct work *work)
{
	struct job *job = container_of(work, struct job, work);
	struct table_compiler *c = job->compiler;
	size_t size = job->image->size;
	uint64_t begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	if (atomic_load(&c->stopped)) {
		job->result = -ECANCELED;
		return;
	}
	if (job->unshared)
		image_keep_unshared(job->image);
	if (atomic_fetch_add(&c->copies, size) + size <= COPIES_MAX)
		job->result = image_identify_copy(job->image, &job->content, &job->copy);
	else
		job->result = image_identify(job->image, &job->content);
	if (!job->copy)
		atomic_fetch_sub(&c->copies, size);
	job->ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
}

static void drop_copy(struct job *job)
{
	if (!job->copy)
		return;
	atomic_fetch_sub(&job->compiler->copies, job->image->size);
	job->copy = image_unref(job->copy);
}

static int parse(struct job *job, const struct image *image)
{
	int r;

	pace_wait();
	/* Probe first, because compiling ends with giving back the file's pages. */
	runtime_probe(runtime_table, job->compiler->options.tracers, image, &job->probe);
	runtime_probe(label_table, KILN_LABEL_SOURCES, image, &job->probe);
	r = unwind_compile(image, &job->table, &job->err);
	return r ? r : runtime_mark(&job->probe, &job->table);
}

static void compile_image(struct job *job)
{
	_cleanup_(image_unrefp) struct image *copy = NULL;
	const struct image *image = job->image;
	int r;

	if (atomic_load(&job->compiler->stopped)) {
		job->result = -ECANCELED;
		return;
	}
	if (job->copy) {
		job->result = parse(job, job->copy);
		return;
	}
	r = image_copy(job->image, &copy, &job->err);
	if (r < 0 && r != -EFBIG) {
		job->result = r;
		return;
	}
	if (r == 0)
		image = copy;
	job->result = parse(job, image);
	if (!job->result)
		job->result = image_content_check(job->image, image);
}

/* Thread pool. */
static void compile(struct work *work)
{
	struct job *job = container_of(work, struct job, work);
	uint64_t begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	compile_image(job);
	job->ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
}

static void drop_job(struct job *job)
{
	struct table_compiler *c = job->compiler;
	const struct stored_image *image = job->stored;
	uint32_t slot = job->slot ? job->slot : image->slot;

	c->jobs--;
	drop_copy(job);
	image_store_put(c->options.images, job->stored, now_ms());
	image_unref(job->image);
	unwind_table_free(job->table);
	runtime_probe_done(&job->probe);
	free(job);
	c->options.changed(image, slot, c->options.arg);
}

static void finish_job(struct job *job, int r)
{
	if (r != -ECANCELED)
		metric_add(r < 0 ? M_TABLES_FAILED : M_TABLES_LOADED, 1);
	if (r < 0)
		log_debug("unwind", "%s: %s", job->image->path,
			  job->err.message[0] ? job->err.message : strerror(-r));
	else
		log_debug("unwind", "%s: its table took %.1f ms of CPU time", job->image->path,
			  (double)job->ns / 1e6);
	drop_job(job);
}

static void identified(struct work *work);
static void compiled(struct work *work);

/* Hands JOB to the thread pool, or queues a large file. */
static int start_job(struct job *job)
{
	struct table_compiler *c = job->compiler;

	if (!job->identified)
		return work_submit(c->options.loop, &job->work, identify, identified) < 0 ? -EIO
											  : 0;
	if (job->big && c->reading) {
		LL_APPEND(c->big, job);
		return 0;
	}
	if (work_submit(c->options.loop, &job->work, compile, compiled) < 0)
		return -EIO;
	if (job->big)
		c->reading = job->image;
	return 0;
}

static void start_next_big(struct table_compiler *c)
{
	struct job *job = c->big;

	c->reading = NULL;
	while (job && !c->reading) {
		LL_DELETE(c->big, job);
		if (start_job(job) < 0) {
			unwind_store_set_state(c->options.unwind, job->stored, UNWIND_FAILED);
			finish_job(job, -EIO);
		}
		job = c->big;
	}
}

static void renumber(struct table_compiler *c)
{
	const struct table_compiler_options *o = &c->options;
	uint64_t began = uv_hrtime(), ended;

	c->renumber = false;
	o->renumber(o->arg);
	ended = uv_hrtime();
	c->renumber_ns = ended + (ended - began) * RENUMBER_SHARE;
}

/*
 * Called after a table was loaded. The kernel should use the table at once, because a walk that is
 * finished from a copy of the stack ends at code that switches stacks (cgo). On a node with very
 * many mappings, renumbering them waits for the next tick.
 */
static void renumber_if_cheap(struct table_compiler *c)
{
	if (c->renumber && uv_hrtime() >= c->renumber_ns)
		renumber(c);
}

/*
 * Gives the image of JOB, whose content is identified, a slot. Returns 0 if no job makes the slot's
 * table yet; 1 if one does or did, or if no slot is free.
 */
static int find_others(struct job *job)
{
	const struct table_compiler_options *o = &job->compiler->options;

	if (unwind_store_add(o->unwind, job->stored) < 0) {
		metric_add(M_UNWIND_SLOTS_FULL, 1);
		unwind_store_set_state(o->unwind, job->stored, UNWIND_NONE);
		job->compiler->full_ms = now_ms() + UNWIND_PATIENCE_MS;
		return 1;
	}
	/* Until the mappings are renumbered, the kernel sends copies of such stacks, which are
	 * finished here. */
	job->compiler->renumber = true;
	runtimes_identified(o->runtimes, job->image, uv_hrtime());
	return unwind_store_state(o->unwind, job->stored, now_ms()) != UNWIND_NONE;
}

static void identified(struct work *work)
{
	struct job *job = container_of(work, struct job, work);
	struct table_compiler *c = job->compiler;
	const struct table_compiler_options *o = &c->options;
	int r = job->result;

	if (r == -ECANCELED) {
		finish_job(job, r);
		return;
	}
	/* A file that cannot be read as a whole gets a slot of its own. */
	metric_add(r < 0	   ? M_IMAGES_NOT_IDENTIFIED
		   : job->unshared ? M_IMAGES_UNSHARED
				   : M_IMAGES_IDENTIFIED,
		   1);
	job->identified = true;
	if (find_others(job)) {
		drop_job(job);
		renumber_if_cheap(c);
	} else {
		unwind_store_set_state(o->unwind, job->stored, UNWIND_WANTED);
		r = start_job(job);
		if (r == 0)
			return;
		unwind_store_set_state(o->unwind, job->stored, UNWIND_FAILED);
		finish_job(job, r);
	}
}

/* The file has changed since its content was identified: it leaves the slot, which other images may
 * still use. */
static void leave_slot(struct job *job)
{
	const struct table_compiler_options *o = &job->compiler->options;

	unwind_store_set_state(o->unwind, job->stored, UNWIND_NONE);
	unwind_store_remove(o->unwind, job->stored, now_ms());
	unwind_store_expect(o->unwind, job->stored);
	unwind_store_set_state(o->unwind, job->stored, UNWIND_FAILED);
	job->stored->is_stale = true;
	image_content_revoke(job->image);
	metric_add(M_IMAGES_CHANGED, 1);
	o->renumber(o->arg);
}

static void compiled(struct work *work)
{
	struct job *job = container_of(work, struct job, work);
	struct table_compiler *c = job->compiler;
	const struct table_compiler_options *o = &c->options;
	int r = job->result;

	job->slot = job->stored->slot;
	drop_copy(job);
	if (job->big)
		start_next_big(c);
	if (!r) {
		runtimes_probed(o->runtimes, job->image, &job->probe, uv_hrtime());
		r = unwind_store_load(o->unwind, job->stored, job->table, now_ms());
		renumber_if_cheap(c);
	} else if (r == -ESTALE) {
		leave_slot(job);
	} else {
		unwind_store_set_state(o->unwind, job->stored, UNWIND_FAILED);
	}
	if (r == -EAGAIN) {
		LL_PREPEND(c->ready, job);
		return;
	}
	finish_job(job, r);
}

void table_compiler_tick(struct table_compiler *c)
{
	const struct table_compiler_options *o = &c->options;
	struct job *list = c->ready, *job, *next;

	if (c->renumber)
		renumber(c);
	/* The compiler reads the file once from start to end; pages that it needs again are read
	 * again. */
	if (c->reading)
		image_forget(c->reading);
	c->ready = NULL;
	LL_FOREACH_SAFE (list, job, next) {
		int r = unwind_store_load(o->unwind, job->stored, job->table, now_ms());

		if (r == -EAGAIN)
			LL_PREPEND(c->ready, job);
		else
			finish_job(job, r);
	}
}

/* Whether a file with the same size, build id, head and tail was met before. */
static bool has_twin(struct table_compiler *c, const struct image *image)
{
	uint64_t claim = hash_bytes(image->build_id, image->build_id_len,
				    hash_bytes(image->htlhash, strlen(image->htlhash), 1)) |
			 1;
	uint64_t *place = &c->claims[claim >> 32 & (CLAIMS - 1)];
	bool met = *place == claim;

	*place = claim; /* the file that was at this place may get one table more */
	return met;
}

bool table_compiler_want(struct table_compiler *c, struct stored_image *image)
{
	struct job *job;

	switch (unwind_store_state(c->options.unwind, image, now_ms())) {
	case UNWIND_FAILED:
	case UNWIND_REFUSED:
		return false;
	case UNWIND_LOADED:
	case UNWIND_WANTED:
		return true;
	case UNWIND_NONE:
		if (image->slot == UNWIND_SLOT_UNKNOWN && now_ms() < c->full_ms)
			return false;
		break;
	}
	job = calloc(1, sizeof(*job));
	if (!job)
		return false;
	job->compiler = c;
	job->stored = image;
	job->image = image_ref(image->image);
	job->big = image->image->size >= BIG_IMAGE_BYTES;
	job->identified = image->slot != UNWIND_SLOT_UNKNOWN;
	if (image->image->is_headers)
		job->unshared = true;
	else if (!job->identified && image->image->size > IMAGE_COPY_MAX &&
		 !image_content(image->image))
		job->unshared = !has_twin(c, image->image);
	image_store_ref(image); /* given back by image_store_put() */
	if (start_job(job) < 0) {
		image_store_put(c->options.images, image, now_ms());
		image_unref(job->image);
		free(job);
		return false;
	}
	c->jobs++;
	unwind_store_set_state(c->options.unwind, image, UNWIND_WANTED);
	return true;
}

void table_compiler_stop(struct table_compiler *c)
{
	atomic_store(&c->stopped, true);
}

bool table_compiler_busy(const struct table_compiler *c)
{
	return c->jobs > 0;
}
