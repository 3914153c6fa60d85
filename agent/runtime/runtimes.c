/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files are identified by their content (content.h), as unwind tables are: the same build in a
 * hundred containers is probed once. What probing has found is never dropped; the number of builds
 * is capped.
 *
 * A name space stands for the frames of one runtime in one process (tgid, start, exec). It outlives
 * mapsets, because a process that maps code gets one mapset after the other, and names need not be
 * read again for each. The number of a space is never used twice. When a process maps a runtime's
 * file again, the runtime may have been unloaded in between, and another function may lie where one
 * lay, alike but for its name: the process gets another space.
 *
 * An attachment that could not be made yet (-EAGAIN: the runtime has not set itself up, or its
 * memory could not be read) is tried again when samples come that lack its frames.
 */
#include "agent/runtime/metrics.h"
#include "agent/runtime/runtimes_internal.h"
#include "agent/sampler/sideband.h"
#include "lib/log.h"
#include "lib/metrics.h"

enum { NS_PER_MS = 1000000, LOGGED_VERSIONS_MAX = 64 };

static void made(struct mapset *m, void *arg);
static void gone(struct mapset *m, void *arg);

int runtimes_new(const struct runtimes_options *options, struct runtimes **ret)
{
	_cleanup_(runtimes_freep) struct runtimes *rt = calloc(1, sizeof(*rt));
	struct mapset_hooks hooks = {made, gone, rt};
	size_t bytes = options->max_name_bytes ? options->max_name_bytes : RUNTIME_NAMES_BYTES;
	int r;

	if (!rt)
		return -ENOMEM;
	rt->options = *options;
	rt->next_space = 1;
	rt->asked = UINT32_MAX;
	for (size_t i = 0; options->table[i]; i++) {
		const struct interpreter_ops *ops = options->table[i];

		if (options->tracers & 1U << ops->id)
			rt->by_id[ops->id] = ops;
		if (options->tracers & 1U << ops->id && ops->thread_name)
			rt->namers |= 1U << ops->id;
	}
	for (size_t i = 0; options->publishers && options->publishers[i]; i++)
		rt->by_id[options->publishers[i]->id] = options->publishers[i];
	runtime_metrics_init(options->table);
	r = runtime_names_new(bytes, &rt->names);
	if (!r)
		r = runtime_functions_new(RUNTIME_FUNCTIONS_BYTES, &rt->functions);
	if (!r)
		r = thread_names_new(&rt->threads);
	if (r < 0)
		return r;
	mapset_store_set_hooks(options->mapsets, &hooks);
	*ret = TAKE_PTR(rt);
	return 0;
}

/* ---- attachments ----------------------------------------------------------------------------- */

struct attachment *runtimes_find_attachment(const struct runtimes *rt, uint32_t mapset, uint32_t id)
{
	struct attachment_key key = {mapset, id};
	struct attachment *a;

	HASH_FIND(hh, rt->attachments, &key, sizeof(key), a);
	return a;
}

static struct space *get_space(struct runtimes *rt, const struct mapset *m, uint32_t id)
{
	struct space_key key = {
	    .start_time = m->start_time, .exec_id = m->exec_id, .tgid = m->tgid, .id = id};
	struct space *space;

	HASH_FIND(hh, rt->spaces, &key, sizeof(key), space);
	if (!space) {
		space = calloc(1, sizeof(*space));
		if (!space)
			return NULL;
		space->key = key;
		space->number = rt->next_space++;
		HASH_ADD(hh, rt->spaces, key, sizeof(space->key), space);
	}
	space->refs++;
	return space;
}

static void retire_space(struct runtimes *rt, struct space *space)
{
	if (space->retired)
		return;
	HASH_DEL(rt->spaces, space);
	space->retired = true;
}

static void put_space(struct runtimes *rt, struct space *space)
{
	if (--space->refs)
		return;
	retire_space(rt, space);
	/* No mapping of the kernel's has its slot any more. */
	unwind_store_remove(rt->options.unwind, &space->code, 0);
	free(space);
}

/*
 * Returns the attachment of K's runtime to M. If there is none, makes one that is not attached yet.
 * NULL: no memory.
 */
static struct attachment *get_attachment(struct runtimes *rt, struct mapset *m,
					 const struct known *k)
{
	struct attachment *a = runtimes_find_attachment(rt, m->id, k->ops->id);

	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->space = get_space(rt, m, k->ops->id);
	if (!a->space) {
		free(a);
		return NULL;
	}
	a->key = (struct attachment_key){m->id, k->ops->id};
	a->mapset = m;
	a->known = k;
	atomic_store(&m->name_space[k->ops->id], a->space->number);
	if (k->ops->thread_name)
		m->names_threads = true;
	HASH_ADD(hh, rt->attachments, key, sizeof(a->key), a);
	return a;
}

static void detach(struct runtimes *rt, struct attachment *a)
{
	const struct kernel_memory *memory = rt->options.memory;
	struct kiln_runtime_key key = {a->key.mapset, a->key.id};

	if (!a->attached)
		return;
	if (memory->delete_runtime)
		memory->delete_runtime(memory->arg, &key);
	if (a->known->ops->detach)
		a->known->ops->detach(a->state);
	a->state = NULL;
	a->attached = false;
	if (!a->known->image->native_only)
		rt->attached[a->key.id]--;
	if (a->space->last == a)
		a->space->last = NULL;
}

static void drop_attachment(struct runtimes *rt, struct attachment *a)
{
	detach(rt, a);
	HASH_DEL(rt->attachments, a);
	put_space(rt, a->space);
	free(a);
}

struct runtimes *runtimes_free(struct runtimes *rt)
{
	struct attachment *a, *next_attachment;
	struct known *k, *next_known;

	if (!rt)
		return NULL;
	if (rt->names)
		mapset_store_set_hooks(rt->options.mapsets, &(struct mapset_hooks){});
	HASH_ITER (hh, rt->attachments, a, next_attachment)
		drop_attachment(rt, a);
	HASH_ITER (hh, rt->known, k, next_known) {
		HASH_DEL(rt->known, k);
		if (k->image)
			k->ops->forget(k->image);
		free(k);
	}
	runtime_names_free(rt->names);
	runtime_functions_free(rt->functions);
	thread_names_free(rt->threads);
	free(rt);
	return NULL;
}

/* Sets when to try again: after twice the last wait. */
static void back_off(struct attachment *a, uint64_t now_ns)
{
	uint64_t max = (uint64_t)RUNTIME_RETRY_MAX_MS * NS_PER_MS;

	a->wait_ns = MIN(MAX(a->wait_ns * 2, (uint64_t)RUNTIME_RETRY_MIN_MS * NS_PER_MS), max);
	a->retry_ns = now_ns + a->wait_ns;
}

static void attach_failed(struct attachment *a, int r, const struct error *err, uint64_t now_ns)
{
	bool again = r == -EAGAIN || r == -EFAULT || r == -E2BIG || r == -ENOMEM;

	metric_add(r == -EAGAIN			 ? M_RUNTIME_ATTACH_NOT_READY
		   : r == -ENOTSUP		 ? M_RUNTIME_ATTACH_UNSUPPORTED
		   : r == -E2BIG || r == -ENOMEM ? M_RUNTIME_ATTACH_FULL
		   : r == -ESRCH		 ? M_RUNTIME_ATTACH_GONE
						 : M_RUNTIME_ATTACH_UNREADABLE,
		   1);
	log_debug("runtime", "%s %s: cannot attach to process %u: %s", a->known->ops->name,
		  a->known->image->version, a->mapset->tgid,
		  err->message[0] ? err->message : strerror(-r));
	if (again)
		back_off(a, now_ns);
	else
		a->wait_ns = 0;
}

struct claimant {
	const struct attachment *a;
	const struct target_memory *memory;
};

static enum jit_claim ask_owner(void *arg, uint64_t start, uint64_t end)
{
	const struct claimant *c = arg;

	return c->a->known->ops->owns(c->a->state, c->memory, start, end);
}

/*
 * Has A's runtime make the rules for its own code, if it is time to, and loads them. True: the
 * kernel has new ones.
 */
static bool read_code(struct runtimes *rt, struct attachment *a, const struct target_memory *memory,
		      uint64_t now_ns)
{
	const struct kiln_runtime_key key = {a->key.mapset, a->key.id};
	const struct kernel_memory *kernel_memory = rt->options.memory;
	struct kiln_runtime kernel;
	_cleanup_(unwind_table_freep) struct unwind_table *table = NULL;
	const uint64_t min = (uint64_t)RUNTIME_CODE_MIN_MS * NS_PER_MS,
		       max = (uint64_t)RUNTIME_CODE_MAX_MS * NS_PER_MS;
	const struct interpreter_ops *ops = a->known->ops;
	struct space *space = a->space;
	uint64_t now_ms = now_ns / NS_PER_MS;
	bool lost;
	int r;

	if (!ops->read_code || now_ns < space->code_ns)
		return false;
	lost = !space->code.slot ||
	       unwind_store_state(rt->options.unwind, &space->code, now_ms) != UNWIND_LOADED;
	r = ops->read_code(a->state, memory, lost, &kernel, &table);
	space->code_wait_ns = r == -EALREADY ? min : MIN(MAX(space->code_wait_ns * 2, min), max);
	space->code_ns = now_ns + space->code_wait_ns;
	unwind_store_touch(rt->options.unwind, &space->code, now_ms);
	if (r == 0)
		r = unwind_store_add(rt->options.unwind, &space->code);
	if (r == 0)
		r = unwind_store_load(rt->options.unwind, &space->code, table, now_ms);
	if (r == 0 && kernel_memory->set_runtime)
		r = kernel_memory->set_runtime(kernel_memory->arg, &key, &kernel);
	if (r < 0 && r != -EALREADY && r != -EAGAIN)
		log_debug("runtime", "%s %s: code of process %u: %s", ops->name,
			  a->known->image->version, a->mapset->tgid, strerror(-r));
	return r == 0;
}

void runtimes_met(struct runtimes *rt, struct mapset *m, uint32_t id, uint64_t now_ns)
{
	struct attachment *a = runtimes_find_attachment(rt, m->id, id);
	struct target t = {.source = &rt->options.source, .mapset = m, .tgid = m->tgid};
	struct target_memory memory = target_memory_of(&t);

	if (a && a->attached && read_code(rt, a, &memory, now_ns))
		mapset_store_set_code(rt->options.mapsets, m, id, &a->space->code);
}

/* Claims JIT memory for A's runtime, which is attached. Returns as try_attach(). */
static int claim_jit(struct runtimes *rt, struct attachment *a, const struct runtime_target *target,
		     bool published)
{
	struct claimant claimant = {a, &target->memory};
	const struct jit_claims claims = {.runtime = a->key.id,
					  .claim = ask_owner,
					  .arg = &claimant,
					  .code_start = target->code_start,
					  .code_end = target->code_end,
					  .table = a->space->code.slot ? &a->space->code : NULL};

	if (!a->known->ops->owns)
		return 0;
	if (published)
		return mapset_store_claim_jit(rt->options.mapsets, a->mapset, &claims) ? 0
										       : -ESTALE;
	if (mapset_claim_jit(a->mapset, &claims) < 0)
		metric_add(M_MAPS_READ_PARTIAL, 1);
	return 0;
}

/*
 * Notes that a program of VERSION was attached. VERSION comes from a file or a process: metrics and
 * status get no other characters than a version may have.
 */
static void note_version(struct runtimes *rt, const struct interpreter_ops *ops,
			 const char *version)
{
	struct seen_versions *seen = &rt->seen[ops->id];
	char clean[RUNTIME_VERSION_MAX];
	size_t at = 0, len;

	snprintf(clean, sizeof(clean), "%s", version[0] ? version : "unknown");
	len = strspn(clean, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_");
	clean[len] = '\0';
	while (at < seen->n && !streq(seen->text[at], clean))
		at++;
	if (at == seen->n && seen->n < RUNTIME_VERSIONS_MAX)
		memcpy(seen->text[seen->n++], clean, sizeof(clean));
	runtime_metrics_program(ops, at, clean);
}

/*
 * Tries once to attach K, which is mapped at RANGE. PUBLISHED: the kernel walks by the mapset
 * already. 0; -ESTALE: attached, but the mapset lacks memory for the runtime's code; else not
 * attached.
 */
static int try_attach(struct runtimes *rt, struct attachment *a, const struct known *k,
		      const struct mapset_range *range, bool published, uint64_t now_ns)
{
	const struct kernel_memory *memory = rt->options.memory;
	struct kiln_runtime_key key = {a->key.mapset, a->key.id};
	struct target t = {
	    .source = &rt->options.source, .mapset = a->mapset, .tgid = a->mapset->tgid};
	struct runtime_target target = runtime_target_of(&t, range);
	struct kiln_runtime kernel = {};
	struct error err = {};
	void *state = NULL;
	int r;

	a->known = k;
	if (a->space->last && a->space->last->known == k)
		target.previous = a->space->last->state;
	r = k->ops->attach(k->image, &target, &kernel, &state, &err);
	if (r == 0 && memory->set_runtime && memory->set_runtime(memory->arg, &key, &kernel) < 0) {
		if (k->ops->detach)
			k->ops->detach(state);
		r = -E2BIG;
	}
	if (r < 0) {
		attach_failed(a, r, &err, now_ns);
		return r;
	}
	if (memory->need_walker && k->ops->walker)
		memory->need_walker(memory->arg, k->ops->id, k->ops->walker);
	a->attached = true;
	a->state = state;
	a->space->last = a;
	if (KILN_LABEL_SOURCES >> a->key.id & 1)
		mapset_store_set_labels(rt->options.mapsets, a->mapset, published);
	if (!k->image->native_only) {
		rt->attached[a->key.id]++;
		rt->attached_ever[a->key.id]++;
		note_version(rt, k->ops, target.version[0] ? target.version : k->image->version);
		metric_add(M_RUNTIME_ATTACH_OK, 1);
	}
	(void)read_code(rt, a, &target.memory, now_ns);
	return claim_jit(rt, a, &target, published);
}

static struct known *find_known(const struct runtimes *rt, const struct image *image, uint32_t id)
{
	const struct image_content *content = image_content(image);
	struct known_key key;
	struct known *k;

	if (!content)
		return NULL;
	memset(&key, 0, sizeof(key));
	key.content = *content;
	key.id = (uint8_t)id;
	HASH_FIND(hh, rt->known, &key, sizeof(key), k);
	return k;
}

/*
 * Attaches the runtime ID to M, by the first of M's images with which that works. -ENOENT: M has no
 * such image; else as try_attach().
 */
static int attach_mapset(struct runtimes *rt, struct mapset *m, uint32_t id, bool published,
			 uint64_t now_ns)
{
	const struct stored_image *last = NULL;
	struct attachment *a;
	int r = -ENOENT;

	for (uint32_t i = 0; i < m->n; i++) {
		/* A copy: attaching may exchange the ranges. */
		struct mapset_range range = m->ranges[i];
		const struct known *k;

		if (!mapset_range_elf(&range) || range.image == last)
			continue;
		last = range.image;
		k = find_known(rt, range.image->image, id);
		if (!k || !k->image)
			continue;
		a = get_attachment(rt, m, k);
		if (!a)
			return -ENOMEM;
		if (a->attached)
			return 0;
		r = try_attach(rt, a, k, &range, published, now_ns);
		if (a->attached)
			return r;
	}
	return r;
}

void runtimes_asked(struct runtimes *rt, uint32_t tracers)
{
	rt->asked = tracers;
}

static bool is_asked_for(const struct mapset *m, uint32_t id)
{
	return !m->is_gone && m->tracers >> id & 1;
}

static void made(struct mapset *m, void *arg)
{
	struct runtimes *rt = arg;

	m->tracers = rt->asked;
	for (uint32_t id = 1; rt->known && id < RUNTIME_MAX; id++)
		if (rt->by_id[id] && is_asked_for(m, id))
			(void)attach_mapset(rt, m, id, false, m->read_ns);
}

static void gone(struct mapset *m, void *arg)
{
	struct runtimes *rt = arg;

	for (uint32_t id = 1; id < RUNTIME_MAX; id++) {
		struct attachment *a =
		    rt->by_id[id] ? runtimes_find_attachment(rt, m->id, id) : NULL;

		if (a)
			drop_attachment(rt, a);
	}
}

bool runtimes_mapped(struct runtimes *rt, const struct mapset *m,
		     const struct sideband_mapping *mapping)
{
	const struct image *image = mapset_image_of(m, mapping);
	bool again = false;

	if (!image || mapping->time <= m->read_ns)
		return false;
	for (uint32_t id = 1; id < RUNTIME_MAX; id++) {
		struct attachment *a =
		    rt->by_id[id] ? runtimes_find_attachment(rt, m->id, id) : NULL;

		if (!a || !a->attached || find_known(rt, image, id) != a->known)
			continue;
		retire_space(rt, a->space);
		again = true;
	}
	return again;
}

void runtimes_missed(struct runtimes *rt, struct mapset *m, uint32_t id, uint64_t now_ns)
{
	struct attachment *a = runtimes_find_attachment(rt, m->id, id);
	bool first = !is_asked_for(m, id);

	if (m->is_gone)
		return;
	/* The policy of earlier samples had the tracer off: switch it on. */
	m->tracers |= 1U << id;
	if (first ? a != NULL : !a || a->attached || !a->wait_ns || now_ns < a->retry_ns)
		return;
	if (attach_mapset(rt, m, id, true, now_ns) == -ESTALE)
		rt->options.renew(m, rt->options.arg);
}

/* ---- files ----------------------------------------------------------------------------------- */

struct holders {
	struct image_content content;
	uint32_t *ids;
	size_t n, cap;
};

static void add_holder(struct mapset *m, void *arg)
{
	struct holders *h = arg;

	for (uint32_t i = 0; i < m->n; i++) {
		const struct stored_image *stored = m->ranges[i].image;
		const struct image_content *content =
		    stored && stored->image ? image_content(stored->image) : NULL;

		if (!content || memcmp(content, &h->content, sizeof(*content)) != 0)
			continue;
		if (grow_array((void **)&h->ids, &h->cap, h->n + 1, sizeof(*h->ids), 1 << 20) == 0)
			h->ids[h->n++] = m->id;
		return;
	}
}

static void attach_holders(struct runtimes *rt, const struct image *image, uint32_t id,
			   uint64_t now_ns)
{
	const struct image_content *content = image_content(image);
	struct holders h = {};

	if (!content)
		return;
	h.content = *content;

	/* By id, because renewing a mapset adds another one. */
	mapset_store_each(rt->options.mapsets, add_holder, &h);
	for (size_t i = 0; i < h.n; i++) {
		struct mapset *m = mapset_store_find(rt->options.mapsets, h.ids[i]);

		if (m && is_asked_for(m, id) && attach_mapset(rt, m, id, true, now_ns) == -ESTALE)
			rt->options.renew(m, rt->options.arg);
	}
	free(h.ids);
}

static void note_unsupported(struct runtimes *rt, const struct interpreter_ops *ops,
			     const struct image *image, const char *why)
{
	snprintf(rt->unsupported[ops->id], sizeof(rt->unsupported[0]), "%s", why);
	metric_add(M_RUNTIME_ATTACH_UNSUPPORTED, 1);
	/* Once a build, and for a limited number of builds. */
	if (rt->logged++ < LOGGED_VERSIONS_MAX)
		log_warn("runtime", "%s: %s: only its native frames are shown: %s", ops->name,
			 image->path, why[0] ? why : "this version is not supported");
}

void runtimes_probed(struct runtimes *rt, const struct image *image, struct runtime_probe *probe,
		     uint64_t now_ns)
{
	const struct image_content *content = image_content(image);

	for (size_t i = 0; content && i < probe->n; i++) {
		const struct interpreter_ops *ops = probe->found[i].ops;
		struct known *k;

		if (find_known(rt, image, ops->id))
			continue;
		if (HASH_COUNT(rt->known) >= RUNTIME_IMAGES_MAX || !(k = calloc(1, sizeof(*k)))) {
			metric_add(M_RUNTIME_ATTACH_FULL, 1);
			continue;
		}
		k->key.content = *content;
		k->key.id = (uint8_t)ops->id;
		k->ops = ops;
		k->image = TAKE_PTR(probe->found[i].image);
		HASH_ADD(hh, rt->known, key, sizeof(k->key), k);
		if (!k->image || k->image->native_only)
			note_unsupported(rt, ops, image, probe->found[i].why);
		else
			log_debug("runtime", "%s: %s %s", image->path, ops->name,
				  k->image->version);
		if (k->image)
			attach_holders(rt, image, ops->id, now_ns);
	}
	runtime_probe_done(probe);
}

void runtimes_identified(struct runtimes *rt, const struct image *image, uint64_t now_ns)
{
	for (uint32_t id = 1; rt->known && id < RUNTIME_MAX; id++) {
		const struct known *k = find_known(rt, image, id);

		if (k && k->image)
			attach_holders(rt, image, id, now_ns);
	}
}

/* ---- status ---------------------------------------------------------------------------------- */

const char *runtimes_name(const struct runtimes *rt, uint32_t id)
{
	return id < RUNTIME_MAX && rt->by_id[id] ? rt->by_id[id]->name : "runtime";
}

bool runtimes_any(const struct runtimes *rt)
{
	for (uint32_t id = 1; id < RUNTIME_MAX; id++)
		if (rt->by_id[id])
			return true;
	return false;
}

bool runtimes_status(const struct runtimes *rt, uint32_t id, struct runtime_status *ret)
{
	for (size_t i = 0; rt->options.table[i]; i++) {
		const struct interpreter_ops *ops = rt->options.table[i];
		const struct seen_versions *seen = &rt->seen[ops->id];

		if (ops->id != id)
			continue;
		*ret = (struct runtime_status){
		    .enabled = rt->by_id[ops->id] != NULL,
		    .attached = rt->attached[ops->id],
		    .attached_ever = rt->attached_ever[ops->id],
		    .unsupported = rt->unsupported[ops->id],
		    .n_versions = seen->n,
		};
		for (size_t k = 0; k < seen->n; k++)
			ret->versions[k] = seen->text[k];
		return true;
	}
	return false;
}
