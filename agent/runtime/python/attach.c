// SPDX-License-Identifier: Apache-2.0
/*
 * Attaches to a process: finds the layout of its structures, and how a thread leads to its thread
 * state (PyThreadState).
 *
 * The running state is in a global variable up to 3.11 and in a thread-local one from 3.12 on. Both
 * have only the state of a thread that holds the interpreter's lock. The state of any other thread
 * is where PyGILState keeps it: in a thread-local variable (3.15), before that under a key of
 * pthread_key_create(). The C library does not tell where it stores the values of keys. But each
 * state names its thread by the address of the thread's control block (pthread_self() on glibc and
 * musl). So the known places are searched for the address of the state; where it is found, the
 * place is right. Loop thread.
 *
 * The places: glibc's struct pthread has `specific_1stblock[32]` of {seq, data} at 0x310 and
 * `specific[32]` of pointers to further blocks at 0x510 (glibc 2.36, nptl/descr.h; the same since
 * 2.4); musl's has a pointer `tsd` to an array of values in its first 0x100 bytes (musl 1.2.4,
 * src/internal/pthread_impl.h).
 */
#include "agent/runtime/python/python.h"

enum {
	INTERPRETERS_MAX = 64,
	THREADS_MAX = 256, /* thread states looked at, of all interpreters together */
	GLIBC_FIRST = 0x310,
	GLIBC_BLOCKS = 0x510,
	GLIBC_PAIR = 16, /* {seq, data} */
	GLIBC_BLOCK_KEYS = 32,
	MUSL_FIELDS = 0x100,
	KEYS_MAX = 1024, /* PTHREAD_KEYS_MAX of glibc; musl has 128 */
	MUSL_KEYS_MAX = 128,
	NO_KEY = -1,
};

struct attachment {
	const struct python_image *image;
	struct runtime_target *target;
	const struct target_memory *memory;
	struct python_layout layout;
	struct kiln_python kernel;
	int key; /* key under which PyGILState keeps a thread's state, or NO_KEY */
	bool has_state;
};

static uint64_t word_at(const struct attachment *a, uint64_t address)
{
	uint64_t v;

	return target_read(a->memory, address, &v, sizeof(v)) < 0 ? 0 : v;
}

static uint64_t loaded(const struct attachment *a, uint64_t vaddr)
{
	return vaddr ? vaddr + a->target->bias : 0;
}

static int read_layout(struct attachment *a, struct error *err)
{
	const struct python_layout *known = python_layout_of(a->image->minor);
	uint8_t offsets[PYTHON_OFFSETS_BYTES];
	size_t size = a->image->minor < 15 ? PYTHON_OFFSETS_BYTES_TO_3_14 : sizeof(offsets);
	int r;

	if (known) {
		a->layout = *known;
		return 0;
	}
	r = target_read(a->memory, loaded(a, a->image->runtime), offsets, size);
	if (r < 0)
		return r;
	return python_layout_read(offsets, size, a->image->minor, &a->layout, err);
}

/*
 * Fills in the part of the walker's data that follows from the layout. -ENOTSUP: the fields of a
 * frame lie more than KILN_PYTHON_FRAME_BYTES apart.
 */
static int fill_kernel(struct attachment *a, struct error *err)
{
	const struct python_layout *l = &a->layout;
	struct kiln_python *k = &a->kernel;
	uint32_t from = MIN(MIN(l->frame_code, l->frame_previous), l->frame_instr) & ~7U, end;

	end = MAX(MAX(l->frame_code, l->frame_previous), l->frame_instr) + 8;
	if (l->frame_owner != PYTHON_NO_FIELD)
		end = MAX(end, l->frame_owner + 1);
	if (l->kind == KILN_PYTHON_OBJECTS)
		end = MAX(MAX(l->frame_code, l->frame_previous) + 8, l->frame_instr + 4);
	if (end - from > KILN_PYTHON_FRAME_BYTES)
		return error_set(err, -ENOTSUP, "frames of %u bytes", end - from);
	k->code_type = loaded(a, a->image->code_type);
	k->eval = loaded(a, a->image->eval);
	k->interp_next = l->interp_next;
	k->interp_threads = l->interp_threads;
	k->thread_next = l->thread_next;
	k->thread_id = l->thread_id;
	k->thread_frame = l->thread_frame;
	k->cframe_frame = l->cframe_frame;
	k->code_from = l->object_type;
	k->code_mask = l->code_mask;
	k->code_start = l->code_start;
	k->frame_from = (uint16_t)from;
	k->frame_len = (uint16_t)(end - from);
	k->frame_code = (uint16_t)(l->frame_code - from);
	k->frame_previous = (uint16_t)(l->frame_previous - from);
	k->frame_instr = (uint16_t)(l->frame_instr - from);
	k->frame_owner = l->frame_owner == PYTHON_NO_FIELD ? 0 : (uint16_t)(l->frame_owner - from);
	if (l->code_copies != PYTHON_NO_FIELD) {
		k->code_copies = l->code_copies;
		k->frame_copy = (uint16_t)(l->frame_copy - from);
	}
	k->shim_owner = (uint8_t)l->shim_owner;
	k->kind = (uint8_t)l->kind;
	return 0;
}

/* ---- the running thread's state ---------------------------------------------------------------
 */

static void find_running(struct attachment *a)
{
	const struct python_image *image = a->image;
	struct kiln_python *k = &a->kernel;
	struct thread_variable_place place;

	if (image->current)
		k->current = loaded(a, image->current);
	else if (image->runtime && a->layout.runtime_current != PYTHON_NO_FIELD)
		k->current = loaded(a, image->runtime) + a->layout.runtime_current;
	if (k->current)
		k->flags |= KILN_PYTHON_HAS_CURRENT;
	if (!thread_variable_place(&image->running, a->target, &place))
		return;
	k->tls_module = place.module;
	k->tls_offset = place.offset;
	k->tls_shift = place.shift;
	k->flags |= KILN_PYTHON_HAS_TLS;
}

/* ---- the thread state of PyGILState -----------------------------------------------------------
 */

static void read_key(struct attachment *a)
{
	int32_t key[2] = {0}; /* Py_tss_t: {is it initialized, the key} */

	a->key = NO_KEY;
	if (a->image->key) {
		if (target_read(a->memory, loaded(a, a->image->key), key, 4) == 0)
			a->key = key[0];
	} else if (a->image->runtime && a->layout.runtime_key != PYTHON_NO_FIELD) {
		if (target_read(a->memory, loaded(a, a->image->runtime) + a->layout.runtime_key,
				key, 8) == 0 &&
		    key[0])
			a->key = key[1];
	}
	if (a->key < 0 || a->key >= KEYS_MAX)
		a->key = NO_KEY;
}

static bool take_bound(struct attachment *a, uint32_t first, int32_t second)
{
	a->kernel.tsd_first = first;
	a->kernel.tsd_second = second;
	a->kernel.flags |= KILN_PYTHON_HAS_TSD;
	return true;
}

/*
 * Does glibc keep STATE under KEY for the thread whose control block is at THREAD? Then A gets the
 * place.
 */
static bool try_glibc(struct attachment *a, uint64_t thread, uint64_t state, uint32_t key)
{
	uint32_t block = key / GLIBC_BLOCK_KEYS, in = key % GLIBC_BLOCK_KEYS * GLIBC_PAIR + 8;
	uint64_t base;

	if (block == 0)
		return word_at(a, thread + GLIBC_FIRST + in) == state &&
		       take_bound(a, 0, (int32_t)(GLIBC_FIRST + in));
	base = word_at(a, thread + GLIBC_BLOCKS + block * 8);
	return base && word_at(a, base + in) == state &&
	       take_bound(a, GLIBC_BLOCKS + block * 8, (int32_t)in);
}

static bool try_musl(struct attachment *a, uint64_t thread, uint64_t state, uint32_t key)
{
	for (uint32_t at = 16; at < MUSL_FIELDS; at += 8) {
		uint64_t values = word_at(a, thread + at);

		if (values && word_at(a, values + (uint64_t)key * 8) == state)
			return take_bound(a, at, (int32_t)key * 8);
	}
	return false;
}

static bool find_bound(struct attachment *a, uint64_t thread, uint64_t state)
{
	struct thread_variable_place place;
	int64_t offset;

	if (thread_variable_place(&a->image->bound, a->target, &place) && !place.module) {
		offset = place.offset;
		return offset == (int32_t)offset &&
		       word_at(a, thread + (uint64_t)offset) == state &&
		       take_bound(a, 0, (int32_t)offset);
	}
	if (a->key != NO_KEY)
		return try_glibc(a, thread, state, (uint32_t)a->key) ||
		       (a->key < MUSL_KEYS_MAX && try_musl(a, thread, state, (uint32_t)a->key));
	for (uint32_t key = 0; key < GLIBC_BLOCK_KEYS; key++) {
		if (try_glibc(a, thread, state, key))
			return true;
	}
	for (uint32_t key = 0; key < GLIBC_BLOCK_KEYS; key++) {
		if (try_musl(a, thread, state, key))
			return true;
	}
	return false;
}

/*
 * Searches the threads of the interpreter at INTERP for the place where PyGILState keeps the state.
 * True: A has it. *LOOKED counts the thread states that were looked at.
 */
static bool find_in_interpreter(struct attachment *a, uint64_t interp, size_t *looked)
{
	uint64_t state = word_at(a, interp + a->layout.interp_threads), thread;

	while (state && (*looked)++ < THREADS_MAX) {
		thread = word_at(a, state + a->layout.thread_id);
		a->has_state |= thread != 0;
		if (thread && find_bound(a, thread, state))
			return true;
		state = word_at(a, state + a->layout.thread_next);
	}
	return false;
}

static void find_threads(struct attachment *a)
{
	uint64_t interp;
	size_t looked = 0;

	if (a->image->interps)
		a->kernel.interpreters = loaded(a, a->image->interps);
	else if (a->image->runtime)
		a->kernel.interpreters =
		    loaded(a, a->image->runtime) + a->layout.runtime_interpreters;
	read_key(a);
	if (a->kernel.interpreters) {
		a->kernel.flags |= KILN_PYTHON_HAS_LIST;
		interp = word_at(a, a->kernel.interpreters);
		for (int i = 0; interp && i < INTERPRETERS_MAX; i++) {
			if (find_in_interpreter(a, interp, &looked))
				return;
			interp = word_at(a, interp + a->layout.interp_next);
		}
		return;
	}
	/* 3.6 without symbols: the running state, if any, leads to the interpreter. */
	interp = word_at(a, a->kernel.current);
	interp = interp ? word_at(a, interp + 16) : 0; /* PyThreadState.interp */
	if (interp)
		(void)find_in_interpreter(a, interp, &looked);
}

int python_attach(const struct runtime_image *ri, struct runtime_target *target,
		  struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	struct attachment a = {.target = target, .memory = &target->memory};
	struct python_process *p;
	int r;

	a.image = container_of(ri, struct python_image, base);
	r = read_layout(&a, err);
	if (r < 0)
		return r;
	r = fill_kernel(&a, err);
	if (r < 0)
		return r;
	find_running(&a);
	find_threads(&a);
	if (!a.has_state)
		return -EAGAIN;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->layout = a.layout;
	p->minor = a.image->minor;
	p->code_type = a.kernel.code_type;
	p->code_from = a.kernel.code_from;
	runtime_tell_walker(ret_kernel, &a.kernel, sizeof(a.kernel));
	*ret_state = p;
	return 0;
}

void python_detach(void *state)
{
	free(state);
}

extern const struct walker_object python_walker;

const struct interpreter_ops python_ops = {
    .name = "python",
    .id = KILN_RUNTIME_PYTHON,
    .walker = &python_walker,
    .files = (const char *const[]){"python", "libpython", NULL},
    .type = FRAME_CPYTHON,
    .probe = python_probe,
    .forget = python_forget,
    .attach = python_attach,
    .symbolize = python_symbolize,
    .detach = python_detach,
};
