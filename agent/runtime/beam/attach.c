// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the data about a process that the walker needs. The offsets are operands in the code that
 * the JIT has made of process_main() (erts/emulator/beam/jit/x86/process_main.cpp), so they are
 * read from there. A process is attached to before it has made any code; read_code() then tries
 * again until the code is there, and gives the data to the walker. Loop thread.
 */
#include "agent/runtime/beam/beam.h"

#include <elf.h>

enum {
	MAIN_BYTES = 512, /* of process_main()'s code */
	SEGMENT_MAX = 16 << 20,
	PIECE = 1 << 16,
	PIECE_OVERLAP = 64,
	FRAME_MAX = 1 << 20,
	OFFSET_MAX = 4096,
	/* struct ErtsSchedulerData_ (erts/emulator/beam/erl_process.h): the same in 25, 27, 29. */
	DATA_MATCHING = 40, /* match_pseudo_process */
	DATA_PROCESS = 168, /* current_process */
	DATA_TYPE = 176,
};

/* Bytes around the modules that are known within which JIT code is expected. The JIT's code is in
 * one place at first; later code is not far from there. */
#define CODE_NEAR (4ULL << 30)

static int32_t int_at(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* ---- process_main() ---------------------------------------------------------------------------
 */

/* An instruction that begins with the SIZE bytes HEAD. Its operand follows: one byte if IS_SHORT,
 * else four. */
struct wanted {
	uint8_t head[4];
	uint32_t size;
	bool is_short;
};

/* The operand of the first instruction in CODE that is one of the N WANTED. -1: none. */
static int32_t operand(const uint8_t *code, size_t size, const struct wanted *wanted, size_t n)
{
	for (size_t i = 0; i + 8 <= size; i++)
		for (size_t k = 0; k < n; k++) {
			const struct wanted *w = &wanted[k];
			int32_t v;

			if (!same_bytes(code + i, w->head, w->size))
				continue;
			v = w->is_short ? (int8_t)code[i + w->size] : int_at(code + i + w->size);
			return v >= 0 && v < FRAME_MAX ? v : -1;
		}
	return -1;
}

/* Reads the size of process_main()'s frame, and offsets, from its CODE. False: not found. */
static bool learn_offsets(const uint8_t *code, size_t size, struct kiln_beam *k)
{
	static const struct wanted frame[] = {{{0x48, 0x81, 0xec}, 3, false}}; /* sub $n,%rsp */
	static const uint8_t line[] = {0x48, 0x83, 0xe4, 0xc0};		       /* and $-64,%rsp */
	static const uint8_t store[] = {0x48, 0x89, 0x27};		       /* mov %rsp,(%rdi) */
	static const struct wanted data[] = {{{0x48, 0x89, 0x67}, 3, true},
					     {{0x48, 0x89, 0xa7}, 3, false}}; /* mov %rsp,n(%rdi) */
	static const struct wanted registers[] = {{{0x48, 0x8d, 0x5c, 0x24}, 4, true},
						  {{0x48, 0x8d, 0x9c, 0x24}, 4, false}};
	static const struct wanted stop[] = {{{0x49, 0x8b, 0x65}, 3, true},
					     {{0x49, 0x8b, 0xa5}, 3, false}}; /* mov n(%r13),%rsp */
	const size_t begins = 32;
	int32_t f = operand(code, begins, frame, ARRAY_SIZE(frame)),
		d = operand(code, begins, data, ARRAY_SIZE(data)),
		r = operand(code, begins, registers, ARRAY_SIZE(registers)),
		s = operand(code, size, stop, ARRAY_SIZE(stop));

	if (memmem(code, begins, store, sizeof(store)))
		d = 0;
	if (f <= 0 || d < 0 || d > OFFSET_MAX || r < 0 || r > OFFSET_MAX || s < 0 ||
	    s > OFFSET_MAX || !memmem(code, begins, line, sizeof(line)))
		return false;
	k->frame = (uint32_t)f;
	k->data_registers = (uint16_t)d;
	k->registers = (uint16_t)r;
	k->process_stop = (uint16_t)s;
	return true;
}

/* Finds process_main() and reads it. It is in the oldest module, which is the JIT's own and has the
 * code that all other modules share. */
static int find_main(const struct beam_process *p, const struct target_memory *memory,
		     struct kiln_beam *k, struct error *err)
{
	const struct beam_module *m = &p->modules.oldest;
	_cleanup_free_ uint8_t *text = NULL;
	uint8_t code[MAIN_BYTES] = {0};
	struct beam_place place;
	size_t size;
	int r = beam_module_text(m, memory, &text);

	if (r < 0)
		return r;
	if (beam_module_named(text, m->symfile_size, "global::process_main", &place) < 0)
		return -EAGAIN;
	k->main_start = m->base + place.start;
	k->main_end = m->base + place.end;
	size = MIN((size_t)(place.end - place.start), sizeof(code));
	if (target_read(memory, k->main_start, code, size) < 0)
		return -EFAULT;
	return learn_offsets(code, size, k)
		   ? 0
		   : error_set(err, -ENOTSUP, "Erlang/OTP %s: process_main() is not as known",
			       p->image->base.version);
}

/* ---- the rest ---------------------------------------------------------------------------------
 */

/* Searches the file's writable segments for the list of modules, for files that do not export it.
 * 0: not found. */
static uint64_t search_descriptor(const struct beam_process *p, const struct image *image,
				  const struct target_memory *memory)
{
	_cleanup_free_ uint8_t *piece = malloc(PIECE);
	uint64_t found = 0;

	for (size_t i = 0; piece && i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];
		uint64_t size = MIN(s->memsz, (uint64_t)SEGMENT_MAX),
			 start = ALIGN_UP(s->vaddr + p->bias, (uint64_t)8);

		if (!(s->flags & PF_W))
			continue;
		for (uint64_t at = 0; at + PIECE_OVERLAP < size && !found;
		     at += PIECE - PIECE_OVERLAP) {
			size_t n = (size_t)MIN(size - at, (uint64_t)PIECE);

			if (target_read(memory, start + at, piece, n) == 0)
				found = beam_find_descriptor(memory, start + at, piece, n);
		}
	}
	return found;
}

/* Reads the pthread key from erts_get_scheduler_data(): `mov key(%rip),%edi; jmp
 * pthread_getspecific`. */
static uint16_t find_key(const struct beam_process *p, const struct image *image,
			 const struct target_memory *memory)
{
	struct cursor c = image_at_vaddr(image, p->image->getter);
	const uint8_t *code = p->image->getter ? cursor_bytes(&c, 7) : NULL;
	uint32_t key;

	if (!code || code[0] != 0x8b || code[1] != 0x3d || code[6] != 0xe9 ||
	    target_read(memory,
			p->image->getter + p->bias + 6 + (uint64_t)(int64_t)int_at(code + 2), &key,
			sizeof(key)) < 0 ||
	    key >= KILN_BEAM_KEYS)
		return KILN_BEAM_NO_KEY;
	return (uint16_t)key;
}

static void find_image_code(const struct image *image, uint64_t bias, struct kiln_beam *k)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if (!(s->flags & PF_X))
			continue;
		k->image_start = s->vaddr + bias;
		k->image_end = k->image_start + s->memsz;
	}
}

int beam_learn(struct beam_process *p, const struct target_memory *memory, struct error *err)
{
	struct kiln_beam k = p->kernel;
	struct beam_modules modules = {0};
	int r;

	if (!p->descriptor && p->file)
		p->descriptor = search_descriptor(p, p->file, memory);
	if (!p->descriptor)
		return -EAGAIN;
	r = beam_modules_read(memory, p->descriptor, NULL, &modules);
	if (r < 0)
		return r;
	beam_modules_done(&p->modules);
	p->modules = modules;
	if (!modules.normal_exit)
		return -EAGAIN;
	r = find_main(p, memory, &k, err);
	if (r < 0)
		return r;
	k.low = modules.v[0].base - MIN(CODE_NEAR, modules.v[0].base);
	k.high = modules.v[modules.n - 1].base + CODE_NEAR;
	k.normal_exit = modules.normal_exit;
	k.frame_pointers = modules.frame_pointers;
	k.data_process = DATA_PROCESS;
	k.data_matching = DATA_MATCHING;
	k.data_type = DATA_TYPE;
	if (p->file)
		k.key = find_key(p, p->file, memory);
	p->kernel = k;
	p->ready = true;
	return 0;
}

void beam_tell_kernel(const struct beam_process *p, struct kiln_runtime *ret)
{
	_Static_assert(sizeof(p->kernel) <= sizeof(ret->data), "kiln_beam");
	runtime_tell_walker(ret, &p->kernel, sizeof(p->kernel));
}

void beam_free(struct beam_process *p)
{
	beam_modules_done(&p->modules);
	free(p->kept_text);
	free(p);
}

static struct beam_process *new_process(const struct beam_image *image,
					const struct runtime_target *target)
{
	struct beam_process *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->image = image;
	p->bias = target->bias;
	p->descriptor = image->descriptor ? image->descriptor + target->bias : 0;
	p->kernel.high = UINT64_MAX;
	p->kernel.key = KILN_BEAM_NO_KEY;
	find_image_code(target->image, target->bias, &p->kernel);
	if (image->dirty_main) {
		p->kernel.dirty_start = image->base.ranges[0].start + target->bias;
		p->kernel.dirty_end = image->base.ranges[0].end + target->bias;
	}
	return p;
}

int beam_attach(const struct runtime_image *ri, struct runtime_target *target,
		struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct beam_image *image = container_of(ri, struct beam_image, base);
	/* Set if the process has only changed its mappings: the data read before is still valid. */
	struct beam_process *p = target->previous;
	int r = 0;

	if (!p)
		p = new_process(image, target);
	if (!p)
		return -ENOMEM;
	p->file = target->image;
	if (!p->ready)
		r = beam_learn(p, &target->memory, err);
	if (r == -ENOTSUP || r == -ESRCH) {
		if (!p->refs)
			beam_free(p);
		return r;
	}
	p->refs++;
	beam_tell_kernel(p, ret_kernel);
	*ret_state = p;
	return 0;
}

void beam_detach(void *state)
{
	struct beam_process *p = state;

	if (p && !--p->refs)
		beam_free(p);
}
