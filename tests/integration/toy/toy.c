/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The toy's row. A file is the toy when it has the sections toy_code, which is the code of the
 * interpreter's loop, and toy_top. Nothing of a process is kept, so there is nothing to detach
 * from.
 */
#include "agent/runtime/runtime.h"
#include "tests/integration/toy/walker_data.h"

struct toy_image {
	struct runtime_image base;
	uint64_t top; /* ELF virtual address */
};

static const struct interpreter_ops *ops(void);

static int toy_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	const struct image_section *code = image_section(image, "toy_code"),
				   *top = image_section(image, "toy_top");
	struct toy_image *toy;

	if (!code || !top || top->size < sizeof(uint64_t))
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
	const struct kiln_toy toy = {container_of(ri, struct toy_image, base)->top + target->bias};

	memcpy(ret_kernel->data, &toy, sizeof(toy));
	*ret_state = NULL;
	return 0;
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
    .type = FRAME_NATIVE, /* the conventions have none for it */
    .probe = toy_probe,
    .forget = toy_forget,
    .attach = toy_attach,
    .symbolize = toy_symbolize,
};

static const struct interpreter_ops *ops(void)
{
	return &toy_ops;
}
