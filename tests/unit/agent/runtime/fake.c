/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/runtime/fake.h"

#include <fcntl.h>

#include "agent/elf/content.h"

struct fake fake;

static char own_path[512];

/* ---- the runtimes ---------------------------------------------------------------------------- */

static const struct interpreter_ops fake_python, fake_v8;

static int probe(const struct interpreter_ops *ops, const struct image *image,
		 struct runtime_image **ret, struct error *err)
{
	struct fake_runtime *f = &fake.r[ops->id];
	struct runtime_image *ri;

	f->probes++;
	if (!streq(image->path, own_path))
		return -ENOENT;
	if (f->probe_result < 0 && !f->native_only)
		return error_set(err, f->probe_result, "version 9.9 is not known");
	ri = calloc(1, sizeof(*ri));
	assert_non_null(ri);
	ri->ops = ops;
	snprintf(ri->version, sizeof(ri->version), "1.0");
	ri->native_only = f->native_only;
	*ret = ri;
	return f->native_only ? error_set(err, -ENOTSUP, "version 9.9 is not known") : 0;
}

static int probe_python(const struct image *image, struct runtime_image **ret, struct error *err)
{
	return probe(&fake_python, image, ret, err);
}

static int probe_v8(const struct image *image, struct runtime_image **ret, struct error *err)
{
	return probe(&fake_v8, image, ret, err);
}

static void forget(struct runtime_image *ri)
{
	free(ri);
}

static int attach(const struct runtime_image *ri, struct runtime_target *target,
		  struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	struct fake_runtime *f = &fake.r[ri->ops->id];

	f->attaches++;
	f->bias = target->bias;
	if (f->attach_result < 0)
		return error_set(err, f->attach_result, "not now");
	ret_kernel->data[0] = target->bias + ri->ops->id;
	ret_kernel->size = sizeof(ret_kernel->data[0]);
	if (f->version)
		snprintf(target->version, sizeof(target->version), "%s", f->version);
	target->code_start = f->code_start;
	target->code_end = f->code_end;
	*ret_state = calloc(1, 8);
	f->states++;
	return 0;
}

static int symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		     char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	uint64_t number;

	assert_non_null(state);
	for (int i = 1; i < KILN_RUNTIME_MAX; i++)
		fake.r[i].symbolizes++;
	if (target_read(memory, words[1], &number, sizeof(number)) < 0)
		return -EFAULT;
	snprintf(scratch, scratch_size, "f%u", (unsigned)number);
	/* The first symbol is inlined into the second. */
	ret->n = 2;
	ret->symbols[0] =
	    (struct symbol){.name = scratch, .file = "a.py", .line = 7, .start_line = 5};
	ret->symbols[1] = (struct symbol){.name = "outer", .file = "b.py", .line = 9};
	return 0;
}

/* The text of a V8 frame is its name. */
static int read_text(void *state, const struct kiln_text *text, char *scratch, size_t scratch_size,
		     struct symbol_result *ret)
{
	assert_non_null(state);
	if (!text->bytes[0])
		return -EFAULT;
	snprintf(scratch, scratch_size, "%.20s", (const char *)text->bytes);
	ret->n = 1;
	ret->symbols[0] = (struct symbol){.name = scratch, .file = "c.js", .line = 3};
	return 0;
}

static enum jit_claim claim(const struct fake_runtime *f, uint64_t start, uint64_t end)
{
	if (start >= f->jit_start && end <= f->jit_end)
		return JIT_CERTAIN;
	return f->owns_jit ? JIT_LIKELY : JIT_NONE;
}

static enum jit_claim python_owns(void *state, const struct target_memory *memory, uint64_t start,
				  uint64_t end)
{
	assert_non_null(state);
	return claim(&fake.r[FAKE_PYTHON], start, end);
}

static enum jit_claim v8_owns(void *state, const struct target_memory *memory, uint64_t start,
			      uint64_t end)
{
	assert_non_null(state);
	return claim(&fake.r[FAKE_V8], start, end);
}

static void detach(void *state)
{
	/* Counted together for both runtimes. */
	fake.r[0].states--;
	fake.r[0].detaches++;
	free(state);
}

static const struct interpreter_ops fake_python = {
    .name = "python",
    .id = FAKE_PYTHON,
    .type = FRAME_CPYTHON,
    .probe = probe_python,
    .forget = forget,
    .attach = attach,
    .symbolize = symbolize,
    .detach = detach,
    .owns = python_owns,
};

static const struct interpreter_ops fake_v8 = {
    .name = "v8",
    .id = FAKE_V8,
    .type = FRAME_V8JS,
    .probe = probe_v8,
    .forget = forget,
    .attach = attach,
    .symbolize = symbolize,
    .read_text = read_text,
    .detach = detach,
    .owns = v8_owns,
};

static const struct interpreter_ops *const fake_table[] = {&fake_python, &fake_v8, NULL};

/* ---- the kernel ------------------------------------------------------------------------------ */

static struct fake_entry *find(const struct kiln_runtime_key *key)
{
	for (size_t i = 0; i < FAKE_RUNTIMES; i++)
		if (fake.runtimes[i].used && same_bytes(&fake.runtimes[i].key, key, sizeof(*key)))
			return &fake.runtimes[i];
	return NULL;
}

static int set_runtime(void *arg, const struct kiln_runtime_key *key,
		       const struct kiln_runtime *value)
{
	struct fake_entry *e = find(key);

	for (size_t i = 0; !e && i < fake.max_runtimes; i++)
		if (!fake.runtimes[i].used)
			e = &fake.runtimes[i];
	if (!e)
		return -E2BIG;
	*e = (struct fake_entry){true, *key, *value};
	return 0;
}

static void delete_runtime(void *arg, const struct kiln_runtime_key *key)
{
	struct fake_entry *e = find(key);

	assert_non_null(e);
	e->used = false;
}

static int get_process(void *arg, uint32_t tgid, struct kiln_process *ret)
{
	if (!fake.has_process || tgid != (uint32_t)getpid())
		return -ENOENT;
	*ret = fake.process;
	return 0;
}

static int set_process(void *arg, uint32_t tgid, const struct kiln_process *p)
{
	struct kiln_runtime_key key = {p->mapset, FAKE_PYTHON};

	fake.process = *p;
	if (p->mapset && !find(&key))
		fake.published_bare = true;
	return 0;
}

/*
 * Reading at an even ADDRESS returns ADDRESS itself. Odd addresses, and reads of another length,
 * fail.
 */
static int read_memory(void *arg, uint32_t tgid, uint64_t address, void *dst, size_t len)
{
	fake.last_tgid = tgid;
	if (address & 1 || len != sizeof(address))
		return -EFAULT;
	memcpy(dst, &address, len);
	return 0;
}

static void image_dropped(struct stored_image *image, void *arg)
{
	unwind_store_remove(fake.unwind, image, 0);
}

/* Reads the maps again if the mapset is in force, as discovery does. */
static void renew(struct mapset *m, void *arg)
{
	if (mapset_store_in_force(fake.mapsets, m->tgid, m->exec_id) != m)
		return;
	runtimes_asked(fake.rt, m->tracers);
	(void)fake_read(m->read_ns + 1);
}

static void start(uint32_t tracers)
{
	struct runtimes_options options = {
	    .table = fake_table,
	    .renew = renew,
	    .tracers = tracers,
	    .memory = &fake.memory,
	    .source = {.read = read_memory, .proc_dirfd = fake.proc_dirfd},
	};

	assert_int_equal(unwind_store_new(&fake.memory, &fake.unwind), 0);
	assert_int_equal(image_store_new(64, image_dropped, NULL, &fake.images), 0);
	assert_int_equal(mapset_store_new(&fake.memory, fake.images, fake.unwind, &fake.mapsets),
			 0);
	options.mapsets = fake.mapsets;
	options.unwind = fake.unwind;
	assert_int_equal(runtimes_new(&options, &fake.rt), 0);
}

static void stop(void)
{
	fake.rt = runtimes_free(fake.rt);
	fake.mapsets = mapset_store_free(fake.mapsets);
	fake.images = image_store_free(fake.images);
	fake.unwind = unwind_store_free(fake.unwind);
}

int fake_setup(void **state)
{
	ssize_t n = readlink("/proc/self/exe", own_path, sizeof(own_path) - 1);

	memset(&fake, 0, sizeof(fake));
	fake.proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (n < 0 || fake.proc_dirfd < 0)
		return -1;
	own_path[n] = 0;
	fake.max_runtimes = FAKE_RUNTIMES;
	fake.has_process = true;
	fake.memory = (struct kernel_memory){
	    .slab = fake.slab,
	    .slab_slots = 64,
	    .tables = fake.tables,
	    .mappings = fake.mappings,
	    .n_mappings = FAKE_MAPPINGS,
	    .cache_epoch = &fake.epoch,
	    .set_process = set_process,
	    .get_process = get_process,
	    .set_runtime = set_runtime,
	    .delete_runtime = delete_runtime,
	};
	start(~0U);
	return 0;
}

int fake_teardown(void **state)
{
	int states = 0;

	stop();
	close(fake.proc_dirfd);
	for (size_t i = 0; i < KILN_RUNTIME_MAX; i++)
		states += fake.r[i].states;
	for (size_t i = 0; i < FAKE_RUNTIMES; i++)
		assert_false(fake.runtimes[i].used);
	assert_int_equal(states, 0);
	return 0;
}

void fake_restart(uint32_t tracers)
{
	stop();
	start(tracers);
}

struct mapset *fake_read(uint64_t now_ns)
{
	struct mapset *m = NULL;

	struct process_reading reading = {
	    .proc_dirfd = fake.proc_dirfd, .images = fake.images, .tgid = (uint32_t)getpid()};
	struct mapset_source source = {
	    .tgid = (uint32_t)getpid(), .start_time = 1, .read_ns = now_ns, .maps = &reading.maps};

	process_reading_init(&reading);
	reading.job.run(&reading.job);
	assert_int_equal(reading.result, 0);
	source.images = reading.images_of;
	assert_int_equal(mapset_store_make(fake.mapsets, &source, &m), 0);
	process_reading_done(&reading, 0);
	return m;
}

const struct mapset_range *fake_own_range(const struct mapset *m)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (m->ranges[i].image && streq(m->ranges[i].image->path, own_path))
			return &m->ranges[i];
	fail_msg("this program is not among its own mappings");
	return NULL;
}

void fake_probe(uint64_t now_ns)
{
	struct mapset *any = fake_read(now_ns);
	struct image *image = image_ref(fake_own_range(any)->image->image);
	struct image_content content;
	struct runtime_probe found = {0};
	uint32_t tracers = 0;

	for (size_t i = 0; fake_table[i]; i++) {
		struct runtime_status status;

		assert_true(runtimes_status(fake.rt, fake_table[i]->id, &status));
		tracers |= (uint32_t)status.enabled << fake_table[i]->id;
	}
	assert_int_equal(image_identify(image, &content), 0);
	runtime_probe(fake_table, tracers, image, &found);
	runtimes_probed(fake.rt, image, &found, now_ns);
	image_unref(image);
}

const struct fake_entry *fake_find(const struct mapset *m, uint32_t id)
{
	struct kiln_runtime_key key = {m->id, id};

	return find(&key);
}

uint64_t fake_word(uint32_t kind, uint64_t address)
{
	return ((uint64_t)kind << KILN_FRAME_KIND_SHIFT) | address;
}
