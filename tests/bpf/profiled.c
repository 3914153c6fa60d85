/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the stores of agent/window/intake.c, without a loop, threads or waiting: a table is compiled
 * in the call that loads it.
 */
#include "tests/bpf/profiled.h"

#include <fcntl.h>
#include <time.h>

uint64_t profiled_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void on_image_drop(struct stored_image *image, void *arg)
{
	struct profiled *p = arg;

	unwind_store_remove(p->unwind, image, profiled_now_ns() / 1000000);
}

int profiled_new(const struct sampler_options *options, struct profiled **ret, struct error *err)
{
	_cleanup_(profiled_freep) struct profiled *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return error_set(err, -ENOMEM, "out of memory");
	p->proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->proc_dirfd < 0)
		return error_set(err, -errno, "cannot open /proc: %m");
	r = sampler_new(options, &p->sampler, err);
	if (r < 0)
		return r;
	r = unwind_store_new(sampler_memory(p->sampler), &p->unwind);
	if (!r)
		r = image_store_new(KILN_MAX_IMAGES - 1, on_image_drop, p, &p->images);
	if (!r)
		r = mapset_store_new(sampler_memory(p->sampler), p->images, p->unwind, &p->mapsets);
	if (r < 0)
		return error_set(err, r, "cannot set up the stores: %s", strerror(-r));
	*ret = TAKE_PTR(p);
	return 0;
}

struct profiled *profiled_free(struct profiled *p)
{
	if (!p)
		return NULL;
	if (p->sampler)
		sampler_stop(p->sampler);
	mapset_store_free(p->mapsets);
	image_store_free(p->images);
	unwind_store_free(p->unwind);
	sampler_free(p->sampler);
	if (p->proc_dirfd >= 0)
		close(p->proc_dirfd);
	free(p);
	return NULL;
}

/* OLD: the mapset to check; NULL: make a new one. */
static int read_process(struct profiled *p, const struct kiln_sample *record, struct mapset *old,
			struct mapset **ret)
{
	struct process_reading reading = {.proc_dirfd = p->proc_dirfd,
					  .images = p->images,
					  .tgid = record->tgid,
					  .start_ns = record->start_time};
	struct mapset_source source = {.tgid = record->tgid,
				       .start_time = record->start_time,
				       .exec_id = record->exec_id,
				       .maps = &reading.maps};
	int r;

	process_reading_init(&reading);
	reading.job.run(&reading.job);
	source.read_ns = reading.read_ns;
	source.images = reading.images_of;
	r = reading.result < 0 ? reading.result
	    : old	       ? mapset_store_check(p->mapsets, &source, old, ret)
			       : mapset_store_make(p->mapsets, &source, ret);
	process_reading_done(&reading, profiled_now_ns() / 1000000);
	return r;
}

int profiled_learn(struct profiled *p, const struct kiln_sample *record, struct mapset **ret)
{
	return read_process(p, record, NULL, ret);
}

int profiled_check(struct profiled *p, const struct kiln_sample *record, struct mapset *old,
		   struct mapset **ret)
{
	return read_process(p, record, old, ret);
}

int profiled_load(struct profiled *p, struct stored_image *image, struct error *err)
{
	_cleanup_(unwind_table_freep) struct unwind_table *table = NULL;
	struct image_content content;
	int r;

	if (!image->image)
		return error_set(err, -ENOEXEC, "%s: no ELF file", image->path);
	r = unwind_compile(image->image, &table, err);
	if (r < 0)
		return r;
	r = image_identify(image->image, &content);
	if (r == 0)
		r = unwind_store_add(p->unwind, image);
	if (r < 0)
		return error_set(err, r, "%s: %s", image->path, strerror(-r));
	mapset_store_renumber(p->mapsets);
	r = unwind_store_load(p->unwind, image, table, profiled_now_ns() / 1000000);
	return r < 0 ? error_set(err, r, "%s: %s", image->path, strerror(-r)) : 0;
}

int profiled_load_all(struct profiled *p, const struct mapset *m)
{
	struct error err = {};
	uint64_t now = profiled_now_ns() / 1000000;
	int loaded = 0;

	for (uint32_t i = 0; i < m->n; i++) {
		struct stored_image *image = m->ranges[i].image;

		if (!image)
			continue;
		if (unwind_store_state(p->unwind, image, now) == UNWIND_LOADED ||
		    !profiled_load(p, image, &err))
			loaded++;
	}
	return loaded;
}
