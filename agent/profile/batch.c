/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A finished batch: immutable, shared by reference count; only `refs` ever changes, from any
 * thread. batch_builder.c makes them.
 */
#include "agent/profile/batch.h"

#include <stdatomic.h>

#include "agent/profile/arena.h"

static const char *const frame_type_names[FRAME_TYPE_COUNT] = {
    [FRAME_NATIVE] = "native", [FRAME_KERNEL] = "kernel",      [FRAME_GO] = "go",
    [FRAME_RUST] = "rust",     [FRAME_CPYTHON] = "cpython",    [FRAME_V8JS] = "v8js",
    [FRAME_JVM] = "jvm",       [FRAME_RUBY] = "ruby",	       [FRAME_PHP] = "php",
    [FRAME_PERL] = "perl",     [FRAME_DOTNET] = "dotnet",      [FRAME_BEAM] = "beam",
    [FRAME_LUAJIT] = "luajit", [FRAME_ABORT] = "abort-marker",
};

const char *frame_type_name(enum frame_type type)
{
	return (unsigned int)type < FRAME_TYPE_COUNT ? frame_type_names[type] : "native";
}

static const struct profile_type profile_types[PROFILE_KIND_COUNT] = {
    [PROFILE_CPU] = {"samples", "count", "cpu", "nanoseconds"},
    [PROFILE_OFF_CPU] = {"off_cpu", "nanoseconds", NULL, NULL},
    [PROFILE_PROBE] = {"events", "count", NULL, NULL},
};

const struct profile_type *profile_type_of(enum profile_kind kind)
{
	return &profile_types[(unsigned int)kind < PROFILE_KIND_COUNT ? kind : PROFILE_CPU];
}

const char *batch_sample_type(const struct batch_profile *profile)
{
	return profile->probe[0] ? profile->probe : profile_type_of(profile->kind)->sample_type;
}

int frame_type_parse(const char *name, enum frame_type *ret)
{
	for (int i = 0; i < FRAME_TYPE_COUNT; i++)
		if (streq(frame_type_names[i], name)) {
			*ret = (enum frame_type)i;
			return 0;
		}
	return -ENOENT;
}

struct batch *batch_ref(struct batch *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	return b;
}

struct batch *batch_unref(struct batch *b)
{
	if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	free(b->functions);
	free(b->lines);
	free(b->mappings);
	free(b->locations);
	free(b->stacks);
	free(b->stack_locations);
	free(b->processes);
	free(b->resources);
	free(b->label_sets);
	free(b->profiles);
	free(b->samples);
	batch_arena_free(b->arena);
	free(b);
	return NULL;
}

struct batch_counts batch_counts(const struct batch *b)
{
	return (struct batch_counts){.functions = b->n_functions,
				     .lines = b->n_lines,
				     .locations = b->n_locations,
				     .stacks = b->n_stacks,
				     .stack_locations = b->n_stack_locations,
				     .samples = b->n_samples};
}

int64_t batch_cpu_samples(const struct batch *b)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < b->n_profiles; i++) {
		const struct batch_profile *p = &b->profiles[i];

		if (p->kind != PROFILE_CPU)
			continue;
		for (uint32_t j = 0; j < p->n_samples; j++)
			sum += b->samples[p->first_sample + j].value;
	}
	return sum;
}
