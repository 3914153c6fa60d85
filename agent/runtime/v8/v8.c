/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V8 as a runtime: finds it in files, and gives the walker its data. All of that data follows from
 * the file, so attach() reads nothing from the process; its state only keeps what symbolize() has
 * read (names.h). probe() runs on any thread, the rest on the loop.
 */
#include "agent/runtime/v8/image.h"
#include "agent/runtime/v8/names.h"

enum {
	INTERPRETER_MAX = 1 << 16, /* bytes of InterpreterEntryTrampoline */
	BUILTINS_MAX = 64 << 20,
	V8_OPCODES_MIN = 1204, /* first version whose deoptimization data is read */
};

/* ---- files -----------------------------------------------------------------------------------
 */

static int find_interpreter(const struct image *image, const struct v8_symbol *s,
			    struct kiln_v8 *ret, struct error *err)
{
	/* push %rbp; mov %rsp,%rbp, in either encoding */
	static const uint8_t entry[2][4] = {{0x55, 0x48, 0x89, 0xe5}, {0x55, 0x48, 0x8b, 0xec}};
	struct cursor c = image_at_vaddr(image, s->vaddr);

	if (c.bad || !s->size || s->size > INTERPRETER_MAX || c.size < s->size)
		return error_set(err, -ENOTSUP, "V8's interpreter has no bounds");
	ret->interpreter = s->vaddr;
	ret->interpreter_size = (uint32_t)s->size;
	for (size_t i = 0; i + sizeof(entry[0]) <= s->size; i++)
		for (size_t k = 0; k < ARRAY_SIZE(entry); k++)
			if (memcmp(c.data + i, entry[k], sizeof(entry[k])) == 0) {
				/* The frame is complete behind the pushes of context and function,
				 * a byte each. */
				ret->interpreter_frame = (uint32_t)(i + sizeof(entry[k]) + 2);
				return 0;
			}
	return error_set(err, -ENOTSUP, "V8's interpreter builds no frame");
}

/*
 * Reads the lengths of bytecodes. If the file does not have them they stay 0, and frames of
 * baseline code have the line where their function begins.
 */
static void read_bytecodes(const struct image *image, const struct v8_symbol *s,
			   struct v8_bytecodes *ret)
{
	struct cursor c;
	size_t n = s->size / 3;

	if (!s->name || s->size % 3 || !n || n > V8_BYTECODES_MAX)
		return;
	c = image_at_vaddr(image, s->vaddr);
	if (c.bad || c.size < s->size)
		return;
	for (size_t i = 0; i < 3; i++)
		memcpy(ret->sizes[i], c.data + i * n, n);
	ret->n = (uint32_t)n;
}

/*
 * Reads the operand counts of translations. If the file does not have them they stay 0, and calls
 * in Maglev's code have the lines of its position tables.
 */
static void read_opcodes(const struct image *image, const struct v8_symbol *s,
			 const struct v8_layout *l, struct v8_opcodes *ret)
{
	struct cursor c;

	if (!s->name || l->major * 100 + l->minor < V8_OPCODES_MIN)
		return;
	c = image_at_vaddr(image, s->vaddr);
	(void)v8_opcodes_init(ret, cursor_sub(&c, s->size));
}

static void tell_kernel(const struct v8_layout *l, struct kiln_v8 *k)
{
	k->shared = (uint16_t)l->function_shared;
	k->lengths = (uint16_t)l->shared_lengths;
	k->wasm_from = (uint8_t)l->frame_wasm;
	k->wasm_to = (uint8_t)l->frame_wasm_end;
	k->regexp = (uint8_t)l->frame_regexp;
}

static int32_t from_interpreter(const struct v8_places *p, const struct v8_symbol *s)
{
	int64_t distance = (int64_t)(s->vaddr - p->interpreter.vaddr);

	return s->name && distance == (int32_t)distance ? (int32_t)distance : 0;
}

static void v8_forget(struct runtime_image *ri)
{
	if (!ri)
		return;
	free(ri->own);
	free(ri);
}

/* Reads what the walk of V8's frames, and their names, need. */
static int read_frames(const struct image *image, const struct v8_places *places,
		       struct v8_image *v, struct error *err)
{
	int r = find_interpreter(image, &places->interpreter, &v->kernel, err);

	if (r < 0)
		return r;
	read_bytecodes(image, &places->bytecode_sizes, &v->bytecodes);
	read_opcodes(image, &places->opcodes, &v->layout, &v->opcodes);
	tell_kernel(&v->layout, &v->kernel);
	v->kernel.enter_next = from_interpreter(places, &places->enter_next);
	v->kernel.enter_either = from_interpreter(places, &places->enter_either);
	return 0;
}

static void add_range(struct runtime_image *ri, uint64_t start, uint64_t end, bool native)
{
	ri->ranges[ri->n_ranges++] =
	    (struct runtime_range){.start = start, .end = end, .keeps_fp = true, .native = native};
}

/*
 * Adds the ranges of the built-in functions. Their unwind rules are exact
 * (agent/elf/code_frames.h), so most of them are native. The walker is called only for those that
 * interpret: walker.h, v8_walk().
 */
static int read_builtins(const struct image *image, const struct v8_places *places,
			 const struct kiln_v8 *k, struct runtime_image *ri, struct error *err)
{
	const int32_t enter[] = {k->enter_next, k->enter_either};
	int32_t size;

	if (!places->builtins.name || !places->builtins_size.name ||
	    !v8_image_int(image, places->builtins_size.vaddr, &size) || size <= 0 ||
	    size > BUILTINS_MAX)
		return error_set(err, -ENOTSUP, "V8's built-in functions have no size");
	if (k->interpreter_size)
		add_range(ri, k->interpreter, k->interpreter + k->interpreter_size, false);
	/*
	 * A deoptimized frame returns to the function's first instruction, and its rule is that of
	 * the byte before.
	 */
	for (size_t i = 0; i < ARRAY_SIZE(enter); i++)
		if (enter[i])
			add_range(ri, k->interpreter + (uint64_t)(int64_t)enter[i] - 1,
				  k->interpreter + (uint64_t)(int64_t)enter[i], false);
	add_range(ri, places->builtins.vaddr, places->builtins.vaddr + (uint64_t)size, true);
	return 0;
}

static int v8_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	_cleanup_free_ struct runtime_image *ri = calloc(1, sizeof(*ri));
	_cleanup_free_ struct v8_image *v = calloc(1, sizeof(*v));
	struct v8_places places;
	struct error ignored = {};
	int r;

	if (!ri || !v)
		return -ENOMEM;
	r = v8_layout_read(image, &v->layout, &places, err);
	if (r < 0 && r != -ENOTSUP)
		return r;
	if (r == 0)
		r = read_frames(image, &places, v, err);
	if (r == 0)
		r = read_builtins(image, &places, &v->kernel, ri, err);
	else
		(void)read_builtins(image, &places, &v->kernel, ri, &ignored);
	ri->native_only = r < 0;
	if (ri->native_only)
		v->kernel = (struct kiln_v8){.native_only = 1};
	ri->ops = &v8_ops;
	snprintf(ri->version, sizeof(ri->version), "%d.%d.%d.%d", v->layout.major, v->layout.minor,
		 v->layout.build, v->layout.patch);
	ri->own = TAKE_PTR(v);
	*ret = TAKE_PTR(ri);
	return r;
}

/* ---- processes -------------------------------------------------------------------------------
 */

static int v8_attach(const struct runtime_image *ri, struct runtime_target *target,
		     struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct v8_image *v = ri->own;
	/* The process has a newer mapset: both attachments share the state. */
	struct v8_state *s = target->previous ? target->previous : calloc(1, sizeof(*s));

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	s->refs++;
	s->image = v;
	_Static_assert(sizeof(v->kernel) <= sizeof(ret_kernel->data), "kiln_v8");
	runtime_tell_walker(ret_kernel, &v->kernel, sizeof(v->kernel));
	*ret_state = s;
	return 0;
}

static void v8_detach(void *state)
{
	struct v8_state *s = state;

	if (!s || --s->refs)
		return;
	v8_scripts_done(&s->scripts);
	free(s);
}

/* V8's code is in its code range, but WebAssembly's may be in any anonymous memory. */
static enum jit_claim v8_owns(void *state, const struct target_memory *memory, uint64_t start,
			      uint64_t end)
{
	return JIT_LIKELY;
}
extern const struct walker_object v8_walker;

const struct interpreter_ops v8_ops = {
    .name = "v8",
    .id = KILN_RUNTIME_V8,
    .walker = &v8_walker,
    .files = (const char *const[]){"node", "libnode", NULL},
    .type = FRAME_V8JS,
    .probe = v8_probe,
    .forget = v8_forget,
    .attach = v8_attach,
    .symbolize = v8_symbolize,
    .detach = v8_detach,
    .owns = v8_owns,
};
