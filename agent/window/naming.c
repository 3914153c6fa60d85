/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over the window's counts. What repeats is looked up once per build: stacks and processes
 * have a mark in their struct; frames, functions and files are in memos. The symbolizer keeps names
 * for later builds.
 *
 * A return address belongs to the call before it, so the name is that of the address minus one. The
 * location's address is also the address minus one, so a backend that symbolizes again gets the
 * same function.
 */
#include "agent/window/naming.h"

#include <inttypes.h>

#include "agent/symbol/symbolizer.h"
#include "agent/window/memo.h"
#include "agent/window/outer_frames.h"
#include "agent/window/resource.h"
#include "agent/labels/decode.h"
#include "agent/window/wait_cause.h"
#include "lib/log.h"
#include "lib/metrics.h"
#include "lib/pace.h"

/* How many frames are searched for __schedule(): the BPF program, three frames of the tracepoint
 * and a helper come before it. */
enum { SCHEDULER_FRAMES = 12 };

struct naming {
	struct symbolizer *symbolizer;
	struct resource_builder *resources;
	struct runtimes *runtimes; /* NULL: no names of runtimes' frames */
	/* Indices in this build's batch. The key of each memo: */
	struct memo frames; /* image, mapset or stack (NULL: kernel), address, pid of JIT code */
	/* Frames of runtimes: second word, first word, name space. */
	struct memo runtime_frames;
	/* Name and file (the symbolizer's pointers, one for each string), line where it starts. */
	struct memo functions;
	struct memo mappings; /* image (NULL: kernel) */
	struct batch_builder *batch;
	struct batch_counts last; /* sizes of the previous build's batch */
	uint64_t last_whose;	  /* the routes that the previous build was for */
	uint32_t build;
	uint32_t root_mapset; /* of root: its id */
	char root_path[32];
	struct process_root root; /* root directory of that process */
	uint32_t hide_native; /* runtimes whose interpreter's own frames are hidden, as 1 << id */
	bool by_process;      /* the stack at hand has frames whose names depend on the process */
	/* One stack's locations while it is built. */
	uint32_t locations[KILN_MAX_KERNEL_FRAMES + KILN_MAX_USER_WORDS + 1];
};

int naming_new(const struct config *config, struct naming **ret, struct error *err)
{
	struct symbolizer_options options = {
	    .max_table_bytes = 16 << 20,
	    .max_cached_frames = 65536,
	    .debug_root = "/usr/lib/debug",
	    .proc = "/proc",
	    .kallsyms = "/proc/kallsyms",
	};
	_cleanup_(naming_freep) struct naming *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return error_set(err, -ENOMEM, "out of memory");
	r = symbolizer_new(&options, &n->symbolizer, err);
	if (r < 0)
		return r;
	for (uint32_t id = 1; id < CONFIG_RUNTIMES_MAX; id++)
		if (!config->receiver.runtimes[id].native_frames)
			n->hide_native |= 1U << id;
	r = resource_builder_new(config, &n->resources);
	if (r < 0)
		return error_set(err, r, "out of memory");
	*ret = TAKE_PTR(n);
	return 0;
}

struct naming *naming_free(struct naming *n)
{
	if (!n)
		return NULL;
	memo_done(&n->frames);
	memo_done(&n->runtime_frames);
	memo_done(&n->functions);
	memo_done(&n->mappings);
	resource_builder_free(n->resources);
	symbolizer_free(n->symbolizer);
	free(n);
	return NULL;
}

void naming_use_runtimes(struct naming *n, struct runtimes *rt)
{
	n->runtimes = rt;
}

size_t naming_bytes(const struct naming *n)
{
	return symbolizer_bytes(n->symbolizer) + memo_bytes(&n->frames) +
	       memo_bytes(&n->runtime_frames) + memo_bytes(&n->functions) +
	       memo_bytes(&n->mappings);
}

static uint32_t add_function(struct naming *n, const struct symbol *s)
{
	uint32_t function;

	/* Until the symbolizer is trimmed, name, file and start line identify a function. */
	if (memo_find(&n->functions, s->name, (uintptr_t)s->file, s->start_line, &function))
		return function;
	function = batch_add_function(n->batch, s->name, s->system_name, s->file, s->start_line);
	(void)memo_add(&n->functions, s->name, (uintptr_t)s->file, s->start_line, function);
	return function;
}

/* A location of the functions in SYM, or of FALLBACK when there are none. */
static uint32_t add_location(struct naming *n, uint32_t mapping, uint64_t address,
			     const struct symbol_result *sym, const char *fallback)
{
	struct batch_line lines[SYMBOL_INLINE_MAX];
	uint32_t count = MIN(sym->n, SYMBOL_INLINE_MAX);

	for (uint32_t i = 0; i < count; i++) {
		const struct symbol *s = &sym->symbols[i];

		lines[i].function = add_function(n, s);
		lines[i].line = s->line;
	}
	if (!count) {
		lines[0].function = batch_add_function(n->batch, fallback, fallback, "", 0);
		lines[0].line = 0;
		count = 1;
	}
	return batch_add_location(n->batch, mapping, address, sym->type, lines, count);
}

static uint32_t kernel_mapping(struct naming *n)
{
	struct batch_mapping m = {
	    .start = 0xffff800000000000ULL,
	    .limit = UINT64_MAX,
	    .filename = "[kernel.kallsyms]",
	    .build_id_gnu = "",
	    .build_id_go = "",
	    .htlhash = "",
	    .has_functions = true,
	};
	uint32_t mapping;

	if (memo_find(&n->mappings, NULL, 0, 0, &mapping))
		return mapping;
	mapping = batch_add_mapping(n->batch, &m);
	(void)memo_add(&n->mappings, NULL, 0, 0, mapping);
	return mapping;
}

static uint32_t name_kernel(struct naming *n, uint64_t address)
{
	struct symbol_result sym = {.type = FRAME_KERNEL};
	const char *module = "";
	char fallback[64] = "";

	(void)symbolize_kernel(n->symbolizer, address, &sym, &module);
	sym.type = FRAME_KERNEL;
	if (!sym.n) {
		metric_add(M_SYMBOLIZATION_MISSES_KERNEL, 1);
		snprintf(fallback, sizeof(fallback), "[kernel]+0x%" PRIx64, address);
	}
	return add_location(n, kernel_mapping(n), address, &sym, fallback);
}

/* There is one mapping per image, so has_functions must be the same for all its frames. */
static uint32_t image_mapping(struct naming *n, const struct image *image)
{
	char build_id[2 * IMAGE_BUILD_ID_MAX + 1];
	struct batch_mapping m = {
	    .filename = image->path,
	    .build_id_gnu = build_id,
	    .build_id_go = image->go_build_id,
	    .htlhash = image->htlhash,
	    .has_functions = true,
	    .has_lines = image->is_go,
	    .has_inlines = image->is_go,
	};
	uint32_t mapping;
	bool any = false;

	if (memo_find(&n->mappings, image, 0, 0, &mapping))
		return mapping;
	image_build_id_hex(image, build_id, sizeof(build_id));
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if (!(s->flags & 1)) /* PF_X */
			continue;
		if (!any || s->vaddr < m.start) {
			m.start = s->vaddr;
			m.file_offset = s->offset;
		}
		if (!any || s->vaddr + s->memsz > m.limit)
			m.limit = s->vaddr + s->memsz;
		any = true;
	}
	mapping = batch_add_mapping(n->batch, &m);
	(void)memo_add(&n->mappings, image, 0, 0, mapping);
	return mapping;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static uint32_t name_image(struct naming *n, const struct mapset *mapset, struct image *image,
			   uint64_t vaddr)
{
	struct symbol_result sym = {.type = FRAME_NATIVE};
	char fallback[320] = "";

	if (n->root_mapset != mapset->id) {
		n->root_mapset = mapset->id;
		n->root = (struct process_root){n->root_path, mapset->tgid, mapset->start_time};
		snprintf(n->root_path, sizeof(n->root_path), "/proc/%u/root", mapset->tgid);
	}
	(void)symbolize_image(n->symbolizer, image, &n->root, vaddr, &sym);
	if (!sym.n) {
		metric_add(M_SYMBOLIZATION_MISSES_NATIVE, 1);
		snprintf(fallback, sizeof(fallback), "%.255s+0x%" PRIx64, base_name(image->path),
			 vaddr);
	}
	return add_location(n, image_mapping(n, image), vaddr, &sym, fallback);
}

static uint32_t name_jit(struct naming *n, const struct process *p, uint64_t address)
{
	struct symbol_result sym = {.type = FRAME_NATIVE};

	(void)symbolize_jit(n->symbolizer, p->key.tgid, p->key.start_time, address, &sym);
	if (!sym.n)
		metric_add(M_SYMBOLIZATION_MISSES_JIT, 1);
	return add_location(n, BATCH_NO_MAPPING, address, &sym, "[jit]");
}

/* The location of a frame, named when this build meets it first. PID: 0 unless it is JIT code. */
static uint32_t find_location(struct naming *n, const void *where, uint64_t address, uint32_t pid,
			      const struct stack *stack, const struct process *p,
			      struct image *image)
{
	struct symbol_result none = {.type = FRAME_NATIVE};
	uint32_t location;

	if (memo_find(&n->frames, where, address, pid, &location))
		return location;
	if (!where)
		location = name_kernel(n, address);
	else if (image)
		location = name_image(n, stack->mapset, image, address);
	else if (pid)
		location = name_jit(n, p, address);
	else
		location = add_location(n, BATCH_NO_MAPPING, address, &none, "[unknown]");
	/* Without memory for it the frame is looked up again. */
	(void)memo_add(&n->frames, where, address, pid, location);
	return location;
}

static uint32_t user_location(struct naming *n, const struct stack *stack, const struct process *p,
			      uint64_t word)
{
	uint64_t pc = (word & KILN_FRAME_PC_MASK) - (word & KILN_FRAME_RETURN ? 1 : 0);
	const struct mapset_range *range = stack->mapset ? mapset_find(stack->mapset, pc) : NULL;
	struct image *image = range ? mapset_range_elf(range) : NULL;

	if (image)
		return find_location(n, image, pc - range->bias, 0, stack, p, image);
	if (range) {
		n->by_process = true;
		return find_location(n, stack->mapset, pc, p->key.tgid, stack, p, NULL);
	}
	/* Unknown memory: any key but NULL, which is the kernel. */
	return find_location(n, stack, pc, 0, stack, p, NULL);
}

/* A frame of a runtime, as it was read when the stack was first seen. */
static uint32_t runtime_location(struct naming *n, const struct stack *stack,
				 const uint64_t words[2])
{
	const struct interpreter_ops *ops =
	    n->runtimes ? runtimes_ops(n->runtimes, words[0]) : NULL;
	struct symbol_result sym = {.type = ops ? ops->type : FRAME_ABORT};
	uint32_t space = ops ? runtimes_space(stack->mapset, ops->id) : 0, location;
	char fallback[64];

	if (memo_find(&n->runtime_frames, (const void *)(uintptr_t)words[1], words[0], space,
		      &location))
		return location;
	if (space)
		(void)runtime_names_get(runtimes_names(n->runtimes), space, words, &sym);
	snprintf(fallback, sizeof(fallback), "[%s: no name]", ops ? ops->name : "runtime");
	location = add_location(n, BATCH_NO_MAPPING, 0, &sym, fallback);
	(void)memo_add(&n->runtime_frames, (const void *)(uintptr_t)words[1], words[0], space,
		       location);
	return location;
}

static const char *const missing_names[KILN_MISSING_COUNT] = {
    [KILN_MISSING_NONE] = "",
    [KILN_MISSING_UNKNOWN] = "not read yet",
    [KILN_MISSING_NO_THREAD] = "thread state not found",
    [KILN_MISSING_READ] = "memory not readable",
    [KILN_MISSING_BROKEN] = "structures make no sense",
    [KILN_MISSING_BUDGET] = "more frames than one walk may follow",
    [KILN_MISSING_NOT_LOADED] = "walker not loaded",
    [KILN_MISSING_SWITCHES] = "too many changes of runtime",
};

static uint32_t missing_location(struct naming *n, uint64_t word)
{
	struct symbol_result sym = {.type = FRAME_ABORT};
	const char *runtime =
	    n->runtimes ? runtimes_name(n->runtimes, kiln_missing_runtime(word)) : "runtime";
	char name[96];

	snprintf(name, sizeof(name), "[%s: %s]", runtime, missing_names[kiln_missing_reason(word)]);
	return add_location(n, BATCH_NO_MAPPING, 0, &sym, name);
}

/* The location of the user frame that begins with WORDS[AT]. */
static uint32_t frame_location(struct naming *n, const struct stack *stack, const struct process *p,
			       const uint64_t *words, uint32_t at)
{
	if (KILN_FRAME_KIND(words[at]) == KILN_FRAME_MISSING)
		return missing_location(n, words[at]);
	if (!kiln_frame_runtime(words[at]))
		return user_location(n, stack, p, words[at]);
	return runtime_location(
	    n, stack, (uint64_t[2]){words[at], at + 1 < stack->key.n_user ? words[at + 1] : 0});
}

static const char *const end_names[KILN_END_COUNT] = {
    [KILN_END_NO_PROCESS] = "[incomplete: process not known]",
    [KILN_END_NO_MAPPING] = "[incomplete: code in no known mapping]",
    [KILN_END_NO_TABLE] = "[incomplete: no unwind table]",
    [KILN_END_NO_RULE] = "[incomplete: no unwind information]",
    [KILN_END_BAD_READ] = "[incomplete: stack not readable]",
    [KILN_END_BAD_CFA] = "[incomplete: stack pointer out of order]",
    [KILN_END_DEPTH] = "[truncated: deeper than the limit]",
    [KILN_END_SHED] = "[truncated: its cgroup exceeded its share]",
    [KILN_END_UNRESOLVED] = "[incomplete: process cannot be read]",
};

/* The name of the frame that says why a stack is cut; NULL: it is not. */
static const char *end_name(const struct stack_key *key)
{
	/* This happens while the first page of a new program is not in memory yet. */
	if (key->end == KILN_END_NONE && !key->n_kernel && !key->n_user)
		return "[incomplete: no stack]";
	return key->end < KILN_END_COUNT ? end_names[key->end] : NULL;
}

static const struct image *image_of(const struct stack *stack, uint64_t word)
{
	uint64_t pc = (word & KILN_FRAME_PC_MASK) - (word & KILN_FRAME_RETURN ? 1 : 0);
	const struct mapset_range *range = stack->mapset ? mapset_find(stack->mapset, pc) : NULL;

	return range ? mapset_range_elf(range) : NULL;
}

/*
 * The image whose frames are hidden: the interpreter's. Its own frame comes after the frames of the
 * program that it runs.
 */
static const struct image *hidden_image(const struct naming *n, const struct stack *stack,
					const uint64_t *words)
{
	uint32_t next;

	for (uint32_t i = 0; n->hide_native && i < stack->key.n_user; i = next) {
		next = i + kiln_frame_words(words[i]);
		if (n->hide_native >> kiln_frame_runtime(words[i]) & 1 &&
		    next < stack->key.n_user && KILN_FRAME_KIND(words[next]) == KILN_FRAME_NATIVE)
			return image_of(stack, words[next]);
	}
	return NULL;
}

/* The outer frames that STACK shares with the stack of P that was named last. */
static struct outer_frames find_outer(const struct naming *n, const struct stack *stack,
				      const struct process *p)
{
	const struct stack *last = p->named_build == n->build ? p->last_stack : NULL;
	const struct stack_key *key = &stack->key;

	if (!last || last->mapset != stack->mapset || n->hide_native)
		return (struct outer_frames){.at = key->n_user};
	return outer_frames_shared(key->words + key->n_kernel, key->n_user,
				   last->key.words + last->key.n_kernel, last->key.n_user);
}

/* Appends the locations of these frames at LEN. Returns the new number of locations. */
static uint32_t copy_outer(struct naming *n, const struct process *p,
			   const struct outer_frames *outer, uint32_t len)
{
	const struct stack_key *last = &p->last_stack->key;
	uint32_t count, first = last->n_kernel - p->last_stack->named_without + outer->frames;
	const uint32_t *locations = batch_stack_locations(n->batch, p->last_named, &count);

	if (end_name(last))
		count -= MIN(count, 1U);
	if (first >= count || len + count - first >= ARRAY_SIZE(n->locations))
		return len;
	memcpy(n->locations + len, locations + first, (count - first) * sizeof(*locations));
	n->by_process |= p->last_by_process;
	return len + count - first;
}

/*
 * The number of kernel frames that are hidden for a thread that was switched out: those of the BPF
 * program that took the sample, and the scheduler up to __schedule(). 0 if that is not found.
 */
static uint32_t scheduler_frames(struct naming *n, const struct stack_key *key)
{
	for (uint32_t i = 0; i < MIN(key->n_kernel, SCHEDULER_FRAMES); i++) {
		struct symbol_result sym = {};
		const char *module = "";

		(void)symbolize_kernel(n->symbolizer, key->words[i] - (i ? 1 : 0), &sym, &module);
		if (sym.n && streq(sym.symbols[0].name, "__schedule"))
			return i + 1;
	}
	return 0;
}

/* What the thread waited for: the cause named by the first kernel frame from FIRST on that has
 * one. */
static const char *blocking_cause(struct naming *n, const struct stack_key *key, uint32_t first)
{
	const char *cause = NULL;

	for (uint32_t i = first; i < key->n_kernel && !cause; i++) {
		struct symbol_result sym = {};
		const char *module = "";

		(void)symbolize_kernel(n->symbolizer, key->words[i] - (i ? 1 : 0), &sym, &module);
		if (sym.n)
			cause = wait_cause_of_function(sym.symbols[0].name);
	}
	return cause ? cause : "other";
}

static uint32_t name_stack(struct naming *n, struct stack *stack, struct process *p,
			   enum kiln_origin origin)
{
	const struct stack_key *key = &stack->key;
	const uint64_t *user = key->words + key->n_kernel;
	struct outer_frames outer;
	const struct image *hidden;
	uint32_t len = 0, first = 0;

	if (p->named_build != n->build)
		p->last_stack = NULL;
	if (stack->named_build == n->build)
		return stack->named_stack;
	n->by_process = false;
	outer = find_outer(n, stack, p);
	if (origin == KILN_ORIGIN_OFF_CPU) {
		first = scheduler_frames(n, key);
		stack->named_cause = blocking_cause(n, key, first);
	}
	stack->named_without = first;
	for (uint32_t i = first; i < key->n_kernel; i++)
		n->locations[len++] =
		    find_location(n, NULL, key->words[i] - (i ? 1 : 0), 0, stack, p, NULL);
	hidden = hidden_image(n, stack, user);
	for (uint32_t i = 0; i < outer.at; i += kiln_frame_words(user[i])) {
		if (hidden && KILN_FRAME_KIND(user[i]) == KILN_FRAME_NATIVE &&
		    image_of(stack, user[i]) == hidden)
			continue;
		n->locations[len++] = frame_location(n, stack, p, user, i);
	}
	if (outer.at < key->n_user)
		len = copy_outer(n, p, &outer, len);
	if (end_name(key)) {
		struct symbol_result cut = {.type = FRAME_ABORT};

		n->locations[len++] = add_location(n, BATCH_NO_MAPPING, 0, &cut, end_name(key));
	}
	stack->named_stack = batch_add_stack(n->batch, n->locations, len);
	p->last_stack = stack;
	p->last_named = stack->named_stack;
	p->last_by_process = n->by_process;
	/* Forked processes share stacks, but the names of their JIT code differ. */
	if (!n->by_process)
		stack->named_build = n->build;
	return stack->named_stack;
}

static void name_process(struct naming *n, const struct window *w, struct process *p)
{
	const struct identity *who = p->identity ? &w->identities[p->identity] : NULL;

	if (p->named_build == n->build)
		return;
	p->named_process = batch_add_process(n->batch, p->key.tgid, p->info.executable_name,
					     p->info.executable_path);
	p->named_resource = resource_of(n->resources, n->batch, p, who);
	p->named_build = n->build;
}

/* The profile that samples of each origin go into. */
static const enum profile_kind kind_of[KILN_ORIGIN_COUNT] = {
    [KILN_ORIGIN_CPU] = PROFILE_CPU,
    [KILN_ORIGIN_OFF_CPU] = PROFILE_OFF_CPU,
    [KILN_ORIGIN_PROBE] = PROFILE_PROBE,
};

/* The labels of the sample and, for off-CPU samples, the cause of the wait. */
static uint32_t add_labels(struct naming *n, const struct count *c)
{
	const char *known = wait_cause_of_detail((uint8_t)c->key.detail),
		   *blocked = c->key.stack->named_cause;
	struct batch_label all[LABEL_LIST_MAX + 1];
	size_t used = 0;

	for (size_t i = 0; c->labels && i < MIN(c->labels->n, (size_t)LABEL_LIST_MAX); i++)
		all[used++] = c->labels->labels[i];
	if (c->key.origin == KILN_ORIGIN_OFF_CPU)
		all[used++] = (struct batch_label){WAIT_CAUSE_KEY, known     ? known
								   : blocked ? blocked
									     : "other"};
	return used ? batch_add_labels(n->batch, all, used) : BATCH_NO_LABELS;
}

static const char *probe_name(const struct window *w, uint32_t number)
{
	return w->probes && number < KILN_MAX_PROBES ? w->probes->names[number] : "";
}

static void name_count(struct naming *n, const struct window *w, struct count *c)
{
	struct process *p = c->key.process;
	enum profile_kind kind = kind_of[c->key.origin % KILN_ORIGIN_COUNT];
	struct batch_sample sample = {
	    .stack = name_stack(n, c->key.stack, p, (enum kiln_origin)c->key.origin),
	    .tid = c->key.tid,
	    .thread_name = c->thread_name ? c->thread_name : c->key.comm,
	    .value =
		profile_type_of(kind)->period_type ? c->samples : (int64_t)MIN(c->value, INT64_MAX),
	    .timestamps = c->times,
	};

	sample.labels = add_labels(n, c);
	name_process(n, w, p);
	sample.process = p->named_process;
	if (kind == PROFILE_PROBE)
		batch_add_probe_sample(n->batch, p->named_resource, probe_name(w, c->key.detail),
				       &sample);
	else
		batch_add_sample(n->batch, p->named_resource, kind, c->key.period, &sample);
}

int naming_build(struct naming *n, const struct window *w, uint64_t whose, uint64_t duration_ns,
		 struct batch **ret)
{
	int r = batch_builder_new(w->start_unix_ns, &n->batch);

	if (r < 0)
		return r;
	if (n->last_whose == whose)
		batch_builder_expect(n->batch, &n->last);
	n->build++;
	memo_begin(&n->frames);
	memo_begin(&n->runtime_frames);
	memo_begin(&n->functions);
	memo_begin(&n->mappings);
	for (struct count *c = w->list; c; c = c->next) {
		if (whose && !(window_route(w, c) & whose))
			continue;
		name_count(n, w, c);
		pace_wait();
	}
	r = batch_builder_finish(TAKE_PTR(n->batch), duration_ns, ret);
	n->last = r == 0 ? batch_counts(*ret) : (struct batch_counts){0};
	n->last_whose = whose;
	symbolizer_trim(n->symbolizer);
	return r;
}
