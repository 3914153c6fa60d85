/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V8 as a runtime: what a file says of it, what the kernel's walker is told, and names. All that a
 * process adds is the cache of its scripts' lines; everything else is the file's, so nothing is
 * read when a process is attached. probe() runs on any thread, the rest on the loop.
 */
#include "agent/runtime/v8/function.h"
#include "agent/runtime/v8/image.h"
#include "agent/runtime/v8/optimized.h"
#include "agent/runtime/v8/script.h"

enum {
	INTERPRETER_MAX = 1 << 16, /* bytes of InterpreterEntryTrampoline */
	BUILTINS_MAX = 64 << 20,
	V8_OPCODES_MIN = 1204, /* whose deoptimization data is known */
};

struct v8_state {
	const struct v8_image *image;
	struct v8_scripts scripts;
	uint64_t code_map; /* of the last object with code */
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
				/* Behind the pushes of context and function, which are a byte each.
				 */
				ret->interpreter_frame = (uint32_t)(i + sizeof(entry[k]) + 2);
				return 0;
			}
	return error_set(err, -ENOTSUP, "V8's interpreter builds no frame");
}

/* What is not known is 0, and then no lines of baseline code are. */
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

/* What is not known is 0, and then the lines of calls in Maglev's code are those of its tables. */
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

/* What the walk of V8's frames and their names need. */
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

/* The built-in functions: their rules are exact (agent/elf/code_frames.h). */
static int read_builtins(const struct image *image, const struct v8_places *places,
			 struct runtime_image *ri, struct error *err)
{
	int32_t size;

	if (!places->builtins.name || !places->builtins_size.name ||
	    !v8_image_int(image, places->builtins_size.vaddr, &size) || size <= 0 ||
	    size > BUILTINS_MAX)
		return error_set(err, -ENOTSUP, "V8's built-in functions have no size");
	ri->ranges[0] = (struct runtime_range){
	    .start = places->builtins.vaddr,
	    .end = places->builtins.vaddr + (uint64_t)size,
	    .keeps_rbp = true,
	};
	ri->n_ranges = 1;
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
		r = read_builtins(image, &places, ri, err);
	else
		(void)read_builtins(image, &places, ri, &ignored);
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
	struct v8_state *s = calloc(1, sizeof(*s));

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	s->image = v;
	_Static_assert(sizeof(v->kernel) <= sizeof(ret_kernel->data), "kiln_v8");
	memcpy(ret_kernel->data, &v->kernel, sizeof(v->kernel));
	*ret_state = s;
	return 0;
}

static void v8_detach(void *state)
{
	struct v8_state *s = state;

	if (!s)
		return;
	v8_scripts_done(&s->scripts);
	free(s);
}

/* ---- names -----------------------------------------------------------------------------------
 */

/* Is SHARED still the function that was seen? Its pages may be another object's by now. */
static int check_cookie(const struct v8_heap *h, uint64_t shared, uint32_t cookie)
{
	uint64_t lengths, flags;

	if (v8_type(h, shared) != h->layout->type_shared ||
	    v8_word(h, shared, h->layout->shared_lengths, &lengths) < 0 ||
	    v8_word(h, shared, h->layout->shared_flags, &flags) < 0 ||
	    v8_cookie(lengths, flags) != cookie)
		return -EFAULT;
	return 0;
}

static int add_symbol(struct v8_state *s, const struct v8_heap *h, const struct v8_place *place,
		      struct v8_text *text, struct symbol_result *ret)
{
	struct symbol *sym = &ret->symbols[ret->n];
	struct v8_function f;
	int r = v8_function_read(h, place->shared, text, &f);

	if (r < 0)
		return r;
	*sym = (struct symbol){.name = f.name, .system_name = f.name, .file = ""};
	if (f.script) {
		r = v8_script_name(h, f.script, text, &sym->file);
		if (r < 0)
			return r;
		sym->start_line = v8_script_line(&s->scripts, h, f.script, f.start);
		sym->line = v8_script_line(&s->scripts, h, f.script, place->position);
		/* V8 keeps positions only of functions that it has needed them of. */
		if (!sym->line)
			sym->line = sym->start_line;
	}
	ret->n++;
	return 0;
}

/* The places of machine code at PC. */
static size_t code_places(struct v8_state *s, const struct v8_heap *h, uint64_t shared, uint64_t pc,
			  bool returns, struct v8_place places[V8_INLINE_MAX])
{
	struct v8_code code;
	uint64_t array;
	int32_t offset;

	places[0] = (struct v8_place){.shared = shared, .position = -1};
	if (v8_code_find(h, pc, &s->code_map, &code) < 0)
		return 1;
	if (!code.baseline)
		return v8_optimized_places(h, &code, &s->image->opcodes,
					   (uint32_t)(pc - code.start), returns, shared, places);
	if (v8_bytecode_of(h, shared, &array) < 0)
		return 1;
	offset =
	    v8_baseline_offset(h, &code, array, &s->image->bytecodes, (uint32_t)(pc - code.start));
	if (offset >= 0)
		places[0].position = v8_bytecode_position(h, array, (uint32_t)offset);
	return 1;
}

static size_t bytecode_places(const struct v8_heap *h, uint64_t shared, uint64_t value,
			      struct v8_place places[V8_INLINE_MAX])
{
	/* From the tagged pointer, so that V8 can add it. */
	uint64_t first = (uint64_t)h->layout->bytecode_data - 1;
	uint64_t array;

	places[0] = (struct v8_place){.shared = shared, .position = -1};
	if (v8_bytecode_of(h, shared, &array) == 0)
		places[0].position =
		    v8_bytecode_position(h, array, value > first ? (uint32_t)(value - first) : 0);
	return 1;
}

static int stub_symbol(uint64_t stub, struct symbol_result *ret)
{
	const char *name = "(code)";

	if (stub == KILN_V8_WASM)
		name = "(WebAssembly)";
	else if (stub == KILN_V8_REGEXP)
		name = "(regular expression)";
	ret->symbols[0] = (struct symbol){.name = name, .system_name = name, .file = ""};
	ret->n = 1;
	return 0;
}

static int v8_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
			char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	struct v8_state *s = state;
	struct v8_heap h = {.memory = memory, .layout = &s->image->layout};
	struct v8_text text = {.at = scratch, .left = scratch_size};
	uint64_t address = words[0] & KILN_FRAME_PC_MASK, value = KILN_V8_VALUE(words[1]);
	uint32_t kind = KILN_FRAME_FLAGS(words[0]) & KILN_V8_KIND_MASK;
	struct v8_place places[V8_INLINE_MAX];
	size_t n;
	int r = 0;

	ret->type = FRAME_V8JS;
	ret->n = 0;
	if (kind == KILN_V8_STUB)
		return stub_symbol(value, ret);
	if (check_cookie(&h, address, KILN_V8_COOKIE(words[1])) < 0)
		return -EFAULT;
	n = kind == KILN_V8_BYTECODE
		? bytecode_places(&h, address, value, places)
		: code_places(s, &h, address, value, KILN_FRAME_FLAGS(words[0]) & KILN_V8_RETURN,
			      places);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_symbol(s, &h, &places[i], &text, ret);
	/* Of a text that is full what fits is told. */
	return ret->n && r == -ENOSPC ? 0 : r;
}

/* V8's code lies in its code range, but that of WebAssembly, which may be anywhere. */
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
