/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishers that are a thread-local pointer with a name: OpenTelemetry's thread context (OTEP
 * 4947, otel_thread_ctx_v1) and custom-labels (Polar Signals, custom-labels-v1.md,
 * custom_labels_current_set with custom_labels_abi_version 1). Stateless.
 */
#include "agent/labels/rows.h"
#include "agent/labels/symbol_place.h"

struct native_image {
	struct runtime_image base;
	struct thread_variable variable;
};

static int make(const struct interpreter_ops *ops, const char *version,
		const struct thread_variable *variable, struct runtime_image **ret)
{
	struct native_image *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->base.ops = ops;
	snprintf(n->base.version, sizeof(n->base.version), "%s", version);
	n->variable = *variable;
	*ret = &n->base;
	return 0;
}

static void native_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct native_image, base));
}

static int native_attach(const struct runtime_image *ri, struct runtime_target *target,
			 struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct native_image *n = container_of(ri, struct native_image, base);
	struct thread_variable_place place;
	struct kiln_thread_place kernel;

	if (!thread_variable_place(&n->variable, target, &place))
		return error_set(err, -EAGAIN, "the variable has no place yet");
	kernel = (struct kiln_thread_place){
	    .offset = place.offset, .module = place.module, .shift = place.shift};
	runtime_tell_walker(ret_kernel, &kernel, sizeof(kernel));
	*ret_state = NULL;
	return 0;
}

static int otel_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	struct thread_variable variable;
	int r = symbol_place_find(image, "otel_thread_ctx_v1", &variable);

	if (r == -ENOTSUP)
		return error_set(err, r, "otel_thread_ctx_v1 has no relocation");
	return r < 0 ? r : make(&label_otel_ops, "1", &variable, ret);
}

static int custom_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	struct thread_variable variable;
	uint32_t version;
	int r = symbol_place_find(image, "custom_labels_current_set", &variable);

	if (r == -ENOENT)
		return r;
	if (symbol_value(image, "custom_labels_abi_version", &version) < 0)
		return -ENOENT;
	if (version != 1)
		return error_set(err, -ENOTSUP, "custom_labels_abi_version is %u, want 1", version);
	if (r == -ENOTSUP)
		return error_set(err, r, "custom_labels_current_set has no relocation");
	return make(&label_custom_ops, "1", &variable, ret);
}

const struct interpreter_ops label_otel_ops = {
    .name = "otel-thread-context",
    .id = KILN_LABELS_OTEL,
    .probe = otel_probe,
    .forget = native_forget,
    .attach = native_attach,
};

const struct interpreter_ops label_custom_ops = {
    .name = "custom-labels",
    .id = KILN_LABELS_CUSTOM,
    .probe = custom_probe,
    .forget = native_forget,
    .attach = native_attach,
};
