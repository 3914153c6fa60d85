/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each BPF program takes of the verifier's limits on the running kernel: call frames of
 * MAX_CALL_FRAMES, bytes of stack of MAX_BPF_STACK (as older kernels count: each frame rounded up
 * to 32), instructions followed of BPF_COMPLEXITY_LIMIT_INSNS (include/linux/bpf_verifier.h,
 * filter.h, bpf.h). Exit status 1: a program cannot be loaded, or takes more than 75 % of one.
 *
 * One line of JSON a program. Frames and stack are those of the deepest chains of calls. The calls
 * are read from the program, the functions' stacks and the instructions from the verifier's log.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include "agent/runtime/runtime.h"
#include "lib/base.h"
#include "profiler.skel.h"

enum {
	LOG_BYTES = 4 << 20,
	LOG_STATISTICS = 4, /* BPF_LOG_STATS */
	FUNCTIONS_MAX = 128,
	FRAMES_MAX = 8,
	STACK_MAX = 512,
	INSTRUCTIONS_MAX = 1000000,
	PERCENT_MAX = 75,
};

static char log_text[LOG_BYTES];
static bool too_much;

struct function {
	uint32_t begin, end; /* instructions */
	uint32_t stack;
	uint32_t frames_below, stack_below; /* of the deepest chain from here on, with itself */
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

/* The verifier's order of functions is that of their places. */
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

/* The verifier allows no recursion, and no program is loaded that has it. */
// NOLINTNEXTLINE(misc-no-recursion)
static void measure(struct program *p, struct function *f)
{
	uint32_t frames = 0, stack = 0;

	if (f->done)
		return;
	for (uint32_t i = f->begin; i < f->end; i++) {
		struct function *called;

		if (!is_call(&p->code[i]))
			continue;
		called = function_at(p, (uint32_t)((int32_t)i + 1 + p->code[i].imm));
		if (!called)
			continue;
		measure(p, called);
		frames = MAX(frames, called->frames_below);
		stack = MAX(stack, called->stack_below);
	}
	f->frames_below = frames + 1;
	f->stack_below = stack + (uint32_t)ALIGN_UP(MAX(f->stack, 1U), 32);
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

static void print_program(const char *name, const struct bpf_program *program)
{
	static struct program p;
	const char *processed = strstr(log_text, "processed ");
	unsigned long instructions = processed ? strtoul(processed + 10, NULL, 10) : 0;
	const struct function *main = &p.functions[0];

	p = (struct program){.code = bpf_program__insns(program),
			     .n_code = (uint32_t)bpf_program__insn_cnt(program)};
	if (!instructions || find_functions(&p) < 0 || !read_stacks(&p)) {
		fprintf(stderr, "%s: the verifier's log is not understood\n%s\n", name, log_text);
		too_much = true;
		return;
	}
	measure(&p, &p.functions[0]);
	printf("{\"program\": \"%s\", \"frames\": %u, \"stack\": %u, \"instructions\": %lu}\n",
	       name, main->frames_below, main->stack_below, instructions);
	too_much |= main->frames_below * 100 > FRAMES_MAX * PERCENT_MAX ||
		    main->stack_below * 100 > STACK_MAX * PERCENT_MAX ||
		    instructions * 100 > (unsigned long)INSTRUCTIONS_MAX * PERCENT_MAX;
}

/* Loads OBJECT once for each of its programs: the log's buffer is one. */
static int measure_object(struct bpf_object *object, const char *only)
{
	struct bpf_program *program;
	int r;

	bpf_object__for_each_program(program, object)
	{
		bool wanted = strcmp(bpf_program__name(program), only) == 0;

		bpf_program__set_autoload(program, wanted);
		if (!wanted)
			continue;
		bpf_program__set_log_level(program, LOG_STATISTICS);
		bpf_program__set_log_buf(program, log_text, sizeof(log_text));
	}
	memset(log_text, 0, sizeof(log_text));
	r = bpf_object__load(object);
	bpf_object__for_each_program(program, object)
	{
		if (strcmp(bpf_program__name(program), only) != 0)
			continue;
		if (r == 0) {
			print_program(only, program);
			continue;
		}
		fprintf(stderr, "%s: not loaded: %s\n%s\n", only, strerror(-r), log_text);
		too_much = true;
	}
	return r;
}

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

int main(void)
{
	static const char *const programs[] = {"sample", "finish", "on_fork", "on_exit"};
	struct profiler *profiler = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		profiler__destroy(profiler);
		profiler = profiler__open();
		if (!profiler || measure_object(profiler->obj, programs[i]) < 0)
			return 1;
	}
	for (size_t i = 0; runtime_table[i]; i++) {
		const struct walker_object *walker = runtime_table[i]->walker;
		struct bpf_object *object = bpf_object__open_mem(
		    walker->bytes, (size_t)(walker->end - walker->bytes), NULL);

		if (!object)
			return 1;
		share_maps(profiler->obj, object);
		(void)measure_object(object, walker->name);
		bpf_object__close(object);
	}
	profiler__destroy(profiler);
	return too_much;
}
