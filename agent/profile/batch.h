/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct batch: one reporting window, finished: names resolved, identity attached. Immutable once
 * batch_builder_finish() has returned it, so exporters on any thread may read it; reference
 * counted.
 *
 * Everything is an index into an array of the same batch. Strings live in the batch's arena and are
 * interned: equal strings have the same pointer. Entry 0 of functions, mappings, and locations is a
 * real entry (encoders that want an empty entry 0 shift by one).
 */
#pragma once

#include "lib/base.h"

/* profile.frame.type, OpenTelemetry semantic conventions 1.44 (registry/attributes/profile). */
enum frame_type {
	FRAME_NATIVE,
	FRAME_KERNEL,
	FRAME_GO,
	FRAME_RUST,
	FRAME_CPYTHON,
	FRAME_V8JS,
	FRAME_JVM,
	FRAME_RUBY,
	FRAME_PHP,
	FRAME_PERL,
	FRAME_DOTNET,
	FRAME_BEAM,
	FRAME_LUAJIT,
	FRAME_ABORT, /* "abort-marker": the stack is cut here; the function's name tells why */
	FRAME_TYPE_COUNT
};
const char *frame_type_name(enum frame_type type);
/* The frame type with this name; -ENOENT when there is none. */
int frame_type_parse(const char *name, enum frame_type *ret);

enum attr_type { ATTR_STR, ATTR_INT, ATTR_BOOL, ATTR_STRS };

struct attr {
	const char *key;
	enum attr_type type;
	const char *str;	 /* ATTR_STR */
	int64_t num;		 /* ATTR_INT, ATTR_BOOL */
	const char *const *strs; /* ATTR_STRS */
	size_t n_strs;
};

struct batch_function {
	const char *name;	 /* demangled, never empty */
	const char *system_name; /* as in the symbol table; equal to name when not mangled */
	const char *file;	 /* "" when not known */
	uint32_t start_line;	 /* 0 when not known */
};

struct batch_line {
	uint32_t function;
	uint32_t line; /* 0 when not known */
};

#define BATCH_NO_MAPPING UINT32_MAX

struct batch_mapping {
	uint64_t start, limit; /* ELF virtual addresses [start, limit) that the file's code spans */
	uint64_t file_offset;
	const char *filename;	  /* path in the process's view; "[kernel.kallsyms]", "[vdso]" */
	const char *build_id_gnu; /* lower-case hex, "" when there is none */
	const char *build_id_go;
	const char *htlhash;
	bool has_functions, has_lines, has_inlines;
};

struct batch_location {
	uint32_t mapping; /* BATCH_NO_MAPPING for frames of no file */
	uint64_t address; /* ELF virtual address (kernel: address); 0 for runtime frames */
	enum frame_type type;
	uint32_t first_line; /* into lines; innermost (inlined) function first */
	uint32_t n_lines;    /* at least 1: a frame without symbol is named "binary+0xoffset" */
};

struct batch_stack {	/* leaf first */
	uint32_t first; /* into stack_locations */
	uint32_t len;
};

struct batch_process {
	uint32_t pid;
	const char *executable_name; /* process.executable.name */
	const char *executable_path; /* process.executable.path */
};

struct batch_resource {		  /* one per container, or per executable outside of containers */
	const struct attr *attrs; /* in the order in which they are shown */
	size_t n_attrs;
	const char *container_id; /* "" outside of containers */
};

/* What the program itself says about a sample: trace context, custom labels. */
struct batch_label {
	const char *key, *value;
};

struct batch_label_set {
	const struct batch_label *labels;
	size_t n;
};

#define BATCH_NO_LABELS 0 /* the first set is empty */

struct batch_sample {
	uint32_t stack;
	uint32_t process;
	uint32_t tid;	 /* 0: not known; thread_name is "" then */
	uint32_t labels; /* into label_sets */
	const char *thread_name;
	int64_t value; /* in the unit of its profile's type */
	/* With timestamps enabled: UNIX ns of each sample, `value` entries; else NULL. */
	const uint64_t *timestamps;
};

enum profile_kind { PROFILE_CPU, PROFILE_OFF_CPU, PROFILE_PROBE, PROFILE_KIND_COUNT };

/* Type and unit of the values of a kind of profile, by the names that OTLP and pprof use. */
struct profile_type {
	const char *sample_type, *sample_unit;
	/* Values count samples that each stand for one period, in this unit; NULL: values are
	 * measured. */
	const char *period_type, *period_unit;
};
const struct profile_type *profile_type_of(enum profile_kind kind);

struct batch_profile {
	uint32_t resource;
	enum profile_kind kind;
	const char *probe;		  /* the probe's name; "" for other kinds */
	uint64_t period_ns;		  /* 0 when the type has none */
	uint32_t first_sample, n_samples; /* into samples */
};

struct batch {
	uint64_t start_unix_ns, duration_ns;
	struct batch_function *functions;
	struct batch_line *lines;
	struct batch_mapping *mappings;
	struct batch_location *locations;
	struct batch_stack *stacks;
	uint32_t *stack_locations;
	struct batch_process *processes;
	struct batch_resource *resources;
	struct batch_label_set *label_sets; /* [BATCH_NO_LABELS] is there when there are samples */
	struct batch_profile *profiles;	    /* sorted by resource; none is empty */
	struct batch_sample *samples;
	uint32_t n_functions, n_lines, n_mappings, n_locations, n_stacks, n_stack_locations,
	    n_processes, n_resources, n_label_sets, n_profiles, n_samples;
	struct batch_arena *arena;
	_Atomic int refs;
};

struct batch *batch_ref(struct batch *b);
struct batch *batch_unref(struct batch *b); /* takes NULL, returns NULL */
DEFINE_CLEANUP(struct batch *, batch_unref)

/* The name of the profile's values: the probe's name for a probe, else that of its kind. */
const char *batch_sample_type(const struct batch_profile *profile);

/* Sum of values of all CPU samples: "samples taken". */
int64_t batch_cpu_samples(const struct batch *b);

/* ---- building (one thread, before the batch is shared) --------------------------------------- */

/*
 * The builder interns: adding an equal string, function, mapping, location or stack again returns
 * the index of the first. Failures (-ENOMEM, -E2BIG) are sticky: batch_builder_finish() returns
 * them.
 */
struct batch_builder;
int batch_builder_new(uint64_t start_unix_ns, struct batch_builder **ret) _must_check_;
struct batch_builder *batch_builder_free(struct batch_builder *b);

/* Lengths of a batch's large arrays. */
struct batch_counts {
	uint32_t functions, lines, locations, stacks, stack_locations, samples;
};
struct batch_counts batch_counts(const struct batch *b);
/* Allocates space for C entries at once, which saves reallocations. Running out of memory here is
 * no error: arrays then grow as entries are added. */
void batch_builder_expect(struct batch_builder *b, const struct batch_counts *c);

const char *batch_string(struct batch_builder *b, const char *s); /* NULL reads as "" */
uint32_t batch_add_function(struct batch_builder *b, const char *name, const char *system_name,
			    const char *file, uint32_t start_line);
uint32_t batch_add_mapping(struct batch_builder *b, const struct batch_mapping *m);
/* LINES: N entries, copied. */
uint32_t batch_add_location(struct batch_builder *b, uint32_t mapping, uint64_t address,
			    enum frame_type type, const struct batch_line *lines, uint32_t n);
uint32_t batch_add_stack(struct batch_builder *b, const uint32_t *locations, uint32_t n);
/* The *RET_N locations of a stack that was added; valid until something else is added. */
const uint32_t *batch_stack_locations(const struct batch_builder *b, uint32_t stack,
				      uint32_t *ret_n);
uint32_t batch_add_process(struct batch_builder *b, uint32_t pid, const char *executable_name,
			   const char *executable_path);
/* Attributes are copied with their strings. Equal attribute lists give the same resource. */
uint32_t batch_add_resource(struct batch_builder *b, const struct attr *attrs, size_t n,
			    const char *container_id);
/* Labels are copied with their strings. Equal lists give the same set. */
uint32_t batch_add_labels(struct batch_builder *b, const struct batch_label *labels, size_t n);
/* TIMESTAMPS: value entries or NULL, copied. Equal samples (all but value) are added up. */
void batch_add_sample(struct batch_builder *b, uint32_t resource, enum profile_kind kind,
		      uint64_t period_ns, const struct batch_sample *sample);
/* Of the probe of that NAME; its values are hits. */
void batch_add_probe_sample(struct batch_builder *b, uint32_t resource, const char *name,
			    const struct batch_sample *sample);
/* Gives the batch (the builder is freed in any case). */
int batch_builder_finish(struct batch_builder *b, uint64_t duration_ns,
			 struct batch **ret) _must_check_;
DEFINE_CLEANUP(struct batch_builder *, batch_builder_free)
