/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The toy's row of the runtime table. A file is the toy if it has the sections toy_code (the code
 * of the interpreter's loop), toy_top and toy_bundle. attach() reads where the compiled code is.
 */
#include "agent/runtime/runtime.h"
#include "tests/integration/toy/walker_data.h"

struct toy_image {
	struct runtime_image base;
	uint64_t top, bundle; /* ELF virtual addresses */
};

static const struct interpreter_ops *ops(void);

static int toy_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	const struct image_section *code = image_section(image, "toy_code"),
				   *top = image_section(image, "toy_top"),
				   *bundle = image_section(image, "toy_bundle");
	struct toy_image *toy;

	if (!code || !top || top->size < sizeof(uint64_t) || !bundle ||
	    bundle->size < sizeof(struct toy_bundle))
		return -ENOENT;
	toy = calloc(1, sizeof(*toy));
	if (!toy)
		return error_set(err, -ENOMEM, "out of memory");
	toy->base.ops = ops();
	snprintf(toy->base.version, sizeof(toy->base.version), "1");
	toy->base.ranges[0] =
	    (struct runtime_range){.start = code->vaddr, .end = code->vaddr + code->size};
	toy->base.n_ranges = 1;
	toy->top = top->vaddr;
	toy->bundle = bundle->vaddr;
	*ret = &toy->base;
	return 0;
}

static void toy_forget(struct runtime_image *ri)
{
	free(container_of(ri, struct toy_image, base));
}

static int toy_attach(const struct runtime_image *ri, struct runtime_target *target,
		      struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct toy_image *image = container_of(ri, struct toy_image, base);
	struct kiln_toy *toy = calloc(1, sizeof(*toy));
	int r;

	if (!toy)
		return error_set(err, -ENOMEM, "out of memory");
	toy->top = image->top + target->bias;
	r = target_read(&target->memory, image->bundle + target->bias, &toy->bundle,
			sizeof(toy->bundle));
	if (r < 0) {
		free(toy);
		return error_set(err, r, "toy_bundle cannot be read");
	}
	runtime_tell_walker(ret_kernel, toy, sizeof(*toy));
	*ret_state = toy;
	return 0;
}

static void toy_detach(void *state)
{
	free(state);
}

static enum jit_claim toy_owns(void *state, const struct target_memory *memory, uint64_t start,
			       uint64_t end)
{
	const struct toy_bundle *bundle = &((const struct kiln_toy *)state)->bundle;

	return start >= bundle->start && end <= bundle->end ? JIT_CERTAIN : JIT_NONE;
}

static int toy_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
			 char *scratch, size_t scratch_size, struct symbol_result *ret)
{
	struct toy_function function;
	int r = target_read(memory, words[0] & KILN_FRAME_PC_MASK, &function, sizeof(function));

	if (r < 0)
		return r;
	snprintf(scratch, scratch_size, "%.*s", TOY_NAME_MAX - 1, function.name);
	ret->n = 1;
	ret->symbols[0] =
	    (struct symbol){.name = scratch, .file = "program.toy", .line = (uint32_t)words[1]};
	return 0;
}

extern const struct walker_object toy_walker;
extern const struct interpreter_ops toy_ops;

const struct interpreter_ops toy_ops = {
    .name = "toy",
    .id = TOY_ID,
    .walker = &toy_walker,
    .type = FRAME_NATIVE, /* the semantic conventions have no type for it */
    .probe = toy_probe,
    .forget = toy_forget,
    .attach = toy_attach,
    .symbolize = toy_symbolize,
    .detach = toy_detach,
    .owns = toy_owns,
};

static const struct interpreter_ops *ops(void)
{
	return &toy_ops;
}
