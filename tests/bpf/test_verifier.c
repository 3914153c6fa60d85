/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the verifier's limits each BPF program uses on the running kernel: call frames of
 * MAX_CALL_FRAMES, bytes of stack of MAX_BPF_STACK (as older kernels count: each frame rounded up
 * to 32), bytes of stack above a function that makes a tail call of 256, instructions followed of
 * BPF_COMPLEXITY_LIMIT_INSNS (include/linux/bpf_verifier.h, filter.h, bpf.h; the 256 are in
 * check_max_stack_depth() of kernel/bpf/verifier.c). Exit status 1: a program cannot be loaded, or
 * uses more than 75 % of a limit.
 *
 * Prints one line of JSON for each program of each object and for the walkers of all runtimes.
 * Frames and stack are those of the deepest call chain. The calls are read from the program; the
 * functions' stacks and the number of instructions from the verifier's log.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include "agent/runtime/runtime.h"
#include "lib/base.h"
#include "cgroups.skel.h"
#include "offcpu.skel.h"
#include "probe_hit.skel.h"
#include "probe_sample.skel.h"
#include "profiler.skel.h"

enum {
	LOG_BYTES = 4 << 20,
	LOG_STATISTICS = 4, /* BPF_LOG_STATS */
	FUNCTIONS_MAX = 128,
	FRAMES_MAX = 8,
	STACK_MAX = 512,
	TAIL_STACK_MAX = 256, /* of the callers of a function that is not the program's first */
	INSTRUCTIONS_MAX = 1000000,
	PERCENT_MAX = 75,
	PROGRAMS_MAX = 16, /* in one object */
};

static char log_text[LOG_BYTES];
static bool too_much;

struct function {
	uint32_t begin, end; /* indices of instructions */
	uint32_t stack;
	/*
	 * Call frames and bytes of stack of the deepest call chain from this function on, including
	 * it.
	 */
	uint32_t frames_below, stack_below;
	/*
	 * Bytes of stack down to a function that makes a tail call, without that one's own; -1:
	 * none.
	 */
	int32_t tail_below;
	bool done;
};

struct program {
	const struct bpf_insn *code;
	uint32_t n_code, n;
	struct function functions[FUNCTIONS_MAX];
};

static bool is_call(const struct bpf_insn *i)
{
	return i->code == (BPF_JMP | BPF_CALL) && i->src_reg == BPF_PSEUDO_CALL;
}

static bool is_tail_call(const struct bpf_insn *i)
{
	return i->code == (BPF_JMP | BPF_CALL) && !i->src_reg && i->imm == BPF_FUNC_tail_call;
}

static int add_function(struct program *p, uint32_t begin)
{
	uint32_t i = 0;

	while (i < p->n && p->functions[i].begin < begin)
		i++;
	if (i < p->n && p->functions[i].begin == begin)
		return 0;
	if (p->n == FUNCTIONS_MAX)
		return -E2BIG;
	memmove(&p->functions[i + 1], &p->functions[i], (p->n - i) * sizeof(p->functions[0]));
	p->functions[i] = (struct function){.begin = begin};
	p->n++;
	return 0;
}

/* Functions are sorted by their first instruction, as the verifier sorts them. */
static int find_functions(struct program *p)
{
	int r = add_function(p, 0);

	for (uint32_t i = 0; i < p->n_code && r == 0; i++)
		if (is_call(&p->code[i]))
			r = add_function(p, (uint32_t)((int32_t)i + 1 + p->code[i].imm));
	for (uint32_t i = 0; i < p->n; i++)
		p->functions[i].end = i + 1 < p->n ? p->functions[i + 1].begin : p->n_code;
	return r;
}

static struct function *function_at(struct program *p, uint32_t begin)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->functions[i].begin == begin)
			return &p->functions[i];
	return NULL;
}

/* The recursion ends: the verifier refuses programs whose functions call themselves. */
// NOLINTNEXTLINE(misc-no-recursion)
static void measure(struct program *p, struct function *f)
{
	uint32_t frames = 0, stack = 0, own = (uint32_t)ALIGN_UP(MAX(f->stack, 1U), 32);
	int32_t tail = -1;

	if (f->done)
		return;
	for (uint32_t i = f->begin; i < f->end; i++) {
		struct function *called;

		if (is_tail_call(&p->code[i]))
			tail = MAX(tail, 0);
		if (!is_call(&p->code[i]))
			continue;
		called = function_at(p, (uint32_t)((int32_t)i + 1 + p->code[i].imm));
		if (!called)
			continue;
		measure(p, called);
		frames = MAX(frames, called->frames_below);
		stack = MAX(stack, called->stack_below);
		if (called->tail_below >= 0)
			tail = MAX(tail, called->tail_below + (int32_t)own);
	}
	f->frames_below = frames + 1;
	f->stack_below = stack + own;
	f->tail_below = tail;
	f->done = true;
}

/* "stack depth 48+0+24": one number a function. */
static bool read_stacks(struct program *p)
{
	const char *at = strstr(log_text, "stack depth ");

	at = at ? at + strlen("stack depth ") : NULL;
	for (uint32_t i = 0; at && i < p->n; i++) {
		char *end;

		p->functions[i].stack = (uint32_t)strtoul(at, &end, 10);
		if (end == at || (i + 1 < p->n && *end != '+'))
			return false;
		at = end + 1;
	}
	return at != NULL;
}

static bool is_above(unsigned long got, unsigned long limit)
{
	return got * 100 > limit * PERCENT_MAX;
}

static void print_program(const char *name, const struct bpf_program *program)
{
	static struct program p;
	/* Of all functions together. Linux 7.2 has a line "insns processed A+B+..." before it. */
	static const char total[] = "\nprocessed ";
	const char *processed = strstr(log_text, total);
	unsigned long instructions =
	    processed ? strtoul(processed + sizeof(total) - 1, NULL, 10) : 0;
	const struct function *main = &p.functions[0];
	uint32_t tail_stack;

	p = (struct program){.code = bpf_program__insns(program),
			     .n_code = (uint32_t)bpf_program__insn_cnt(program)};
	if (!instructions || find_functions(&p) < 0 || !read_stacks(&p)) {
		fprintf(stderr, "%s: the verifier's log is not understood\n%s\n", name, log_text);
		too_much = true;
		return;
	}
	measure(&p, &p.functions[0]);
	tail_stack = main->tail_below > 0 ? (uint32_t)main->tail_below : 0;
	printf("{\"program\": \"%s\", \"frames\": %u, \"stack\": %u, \"tail_stack\": %u, "
	       "\"instructions\": %lu}\n",
	       name, main->frames_below, main->stack_below, tail_stack, instructions);
	too_much |=
	    is_above(main->frames_below, FRAMES_MAX) || is_above(main->stack_below, STACK_MAX) ||
	    is_above(tail_stack, TAIL_STACK_MAX) || is_above(instructions, INSTRUCTIONS_MAX);
}

/*
 * An object file. Its maps that also exist in MAPS_OF, which is loaded, are shared with it. NULL:
 * none are shared.
 */
struct source {
	const void *bytes;
	size_t size;
	const struct bpf_object *maps_of;
};

static void share_maps(const struct bpf_object *main, struct bpf_object *object)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, object)
	{
		const struct bpf_map *same = bpf_object__find_map_by_name(main, bpf_map__name(map));

		if (same && bpf_map__reuse_fd(map, bpf_map__fd(same)) < 0)
			fprintf(stderr, "map %s cannot be shared\n", bpf_map__name(map));
	}
}

static struct bpf_object *open_source(const struct source *source)
{
	struct bpf_object *object = bpf_object__open_mem(source->bytes, source->size, NULL);

	if (!object) {
		fprintf(stderr, "an object cannot be opened: %s\n", strerror(errno));
		too_much = true;
	} else if (source->maps_of) {
		share_maps(source->maps_of, object);
	}
	return object;
}

/*
 * Loads program INDEX of the object alone, because there is one log buffer. False: no such program.
 */
static bool measure_program(const struct source *source, size_t index)
{
	struct bpf_object *object = open_source(source);
	struct bpf_program *program, *found = NULL;
	size_t i = 0;
	int r;

	if (!object)
		return false;
	bpf_object__for_each_program(program, object)
	{
		bool wanted = i++ == index;

		bpf_program__set_autoload(program, wanted);
		if (wanted)
			found = program;
	}
	if (found) {
		memset(log_text, 0, sizeof(log_text));
		bpf_program__set_log_level(found, LOG_STATISTICS);
		bpf_program__set_log_buf(found, log_text, sizeof(log_text));
		r = bpf_object__load(object);
		if (r == 0) {
			print_program(bpf_program__name(found), found);
		} else {
			fprintf(stderr, "%s: not loaded: %s\n%s\n", bpf_program__name(found),
				strerror(-r), log_text);
			too_much = true;
		}
	}
	bpf_object__close(object);
	return found != NULL;
}

static void measure_object(const struct source *source)
{
	for (size_t i = 0; i < PROGRAMS_MAX && measure_program(source, i); i++)
		;
}

/* Checks that the kernel accepts OBJECT's program as the walker of runtime ID. */
static void try_as_walker(const struct bpf_object *main, const struct source *source, uint32_t id)
{
	struct bpf_object *object = open_source(source);
	int walkers = bpf_object__find_map_fd_by_name(main, "walkers"), fd;

	if (!object)
		return;
	fd = bpf_object__load(object) == 0 ? bpf_program__fd(bpf_object__next_program(object, NULL))
					   : -1;
	if (fd < 0 || bpf_map_update_elem(walkers, &id, &fd, BPF_ANY) < 0) {
		fprintf(stderr, "the walker of runtime %u: not taken\n", id);
		too_much = true;
	}
	bpf_object__close(object);
}

int main(void)
{
	struct source source = {};
	struct profiler *profiler = profiler__open_and_load();

	if (!profiler) {
		fprintf(stderr, "the profiler's programs: not loaded together\n");
		too_much = true;
	}
	source.bytes = profiler__elf_bytes(&source.size);
	measure_object(&source);
	source.bytes = cgroups__elf_bytes(&source.size);
	measure_object(&source);
	source.bytes = offcpu__elf_bytes(&source.size);
	measure_object(&source);
	source.bytes = probe_hit__elf_bytes(&source.size);
	measure_object(&source);
	source.bytes = probe_sample__elf_bytes(&source.size);
	measure_object(&source);
	for (size_t i = 0; profiler && runtime_table[i]; i++) {
		const struct walker_object *walker = runtime_table[i]->walker;

		source = (struct source){walker->bytes, (size_t)(walker->end - walker->bytes),
					 profiler->obj};
		measure_object(&source);
		try_as_walker(profiler->obj, &source, runtime_table[i]->id);
	}
	profiler__destroy(profiler);
	return too_much;
}
