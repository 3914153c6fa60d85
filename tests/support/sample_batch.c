/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers here are the expectations of the tests that use them; see the header. */
#include "tests/support/sample_batch.h"

static const struct attr container_attrs[] = {
    {.key = "container.id",
     .type = ATTR_STR,
     .str = "cb8ebdde43ea93f184b41d77695ae90411f952e7850c4a37f42408de78b8faa4"},
    {.key = "k8s.pod.name", .type = ATTR_STR, .str = "kube-apiserver-kube-control-plane"},
    {.key = "service.name", .type = ATTR_STR, .str = "kube-apiserver-kube-control-plane"},
    {.key = "container.image.repo_digests",
     .type = ATTR_STRS,
     .strs = (const char *const[]){"registry.k8s.io/kube-apiserver@sha256:e04f6223"},
     .n_strs = 1},
    {.key = "foo", .type = ATTR_STR, .str = "bar"},
};

static const struct attr host_attrs[] = {
    {.key = "service.name", .type = ATTR_STR, .str = "worker"},
    {.key = "process.executable.name", .type = ATTR_STR, .str = "worker"},
    {.key = "process.executable.path", .type = ATTR_STR, .str = "/opt/worker"},
    {.key = "host.cpus", .type = ATTR_INT, .num = 0},
    {.key = "host.virtual", .type = ATTR_BOOL, .num = 1},
};

static uint32_t frame(struct batch_builder *b, uint32_t mapping, uint64_t address,
		      enum frame_type type, const char *name, const char *file, uint32_t line)
{
	struct batch_line l = {.function = batch_add_function(b, name, NULL, file, line / 2),
			       .line = line};

	return batch_add_location(b, mapping, address, type, &l, 1);
}

static uint32_t go_stack(struct batch_builder *b)
{
	uint32_t kernel, binary, frames[5];

	kernel = batch_add_mapping(b, &(struct batch_mapping){.filename = "[kernel.kallsyms]",
							      .start = 0xffffffff81000000,
							      .limit = 0xffffffff82000000,
							      .build_id_gnu = "c0ffee",
							      .has_functions = true});
	binary = batch_add_mapping(
	    b, &(struct batch_mapping){.filename = "/usr/local/bin/kube-apiserver",
				       .start = 0x400000,
				       .limit = 0x2400000,
				       .build_id_go = "abc/def",
				       .htlhash = "00112233",
				       .has_functions = true,
				       .has_lines = true,
				       .has_inlines = true});
	frames[0] = frame(b, kernel, 0xffffffff81001000, FRAME_KERNEL, "x64_sys_call", "", 0);
	frames[1] = frame(b, kernel, 0xffffffff81002000, FRAME_KERNEL, "do_syscall_64", "", 0);
	frames[2] = frame(b, binary, 0x401000, FRAME_GO, "internal/runtime/syscall.Syscall6",
			  "/go/src/asm_linux_amd64.s", 36);
	frames[3] = frame(b, binary, 0x402000, FRAME_GO, "syscall.write", "/go/src/z.go", 970);
	frames[4] = frame(b, binary, 0x403000, FRAME_GO, "runtime.goexit", "/go/src/asm.s", 1700);
	return batch_add_stack(b, frames, 5);
}

static uint32_t worker_stack(struct batch_builder *b)
{
	uint32_t mapping, frames[3];
	struct batch_line lines[2];

	mapping = batch_add_mapping(b, &(struct batch_mapping){.filename = "/opt/worker",
							       .start = 0x1000,
							       .limit = 0x9000,
							       .file_offset = 0x1000,
							       .build_id_gnu = "deadbeef",
							       .has_functions = true});
	lines[0].function = batch_add_function(b, "std::max<int>(int const&, int const&)",
					       "_ZSt3maxIiERKT_S2_S2_", "max.h", 3);
	lines[0].line = 5;
	lines[1].function = batch_add_function(b, "work(int)", "_Z4worki", "work.cc", 10);
	lines[1].line = 12;
	frames[0] = batch_add_location(b, mapping, 0x1234, FRAME_NATIVE, lines, 2);
	frames[1] = frame(b, mapping, 0x2222, FRAME_NATIVE, "main", "work.cc", 40);
	frames[2] = frame(b, BATCH_NO_MAPPING, 0, FRAME_CPYTHON, "<module>", "app.py", 1);
	return batch_add_stack(b, frames, 3);
}

int sample_batch_build(struct batch **ret)
{
	struct batch_builder *b;
	uint32_t container, host, apiserver, worker, go, cc;
	int r = batch_builder_new((uint64_t)SAMPLE_BATCH_START * 1000000000, &b);

	if (r < 0)
		return r;
	host = batch_add_resource(b, host_attrs, ARRAY_SIZE(host_attrs), "");
	container = batch_add_resource(b, container_attrs, ARRAY_SIZE(container_attrs),
				       container_attrs[0].str);
	apiserver = batch_add_process(b, 2751, "kube-apiserver", "/usr/local/bin/kube-apiserver");
	worker = batch_add_process(b, 77, "worker", "/opt/worker");
	go = go_stack(b);
	cc = worker_stack(b);
	struct batch_sample samples[] = {
	    {.stack = go,
	     .process = apiserver,
	     .tid = 2832,
	     .thread_name = "kube-apiserver",
	     .value = 2},
	    {.stack = cc, .process = worker, .tid = 77, .thread_name = "worker", .value = 2},
	    {.stack = go,
	     .process = apiserver,
	     .tid = 2832,
	     .thread_name = "kube-apiserver",
	     .value = 1},
	    {.stack = go,
	     .process = apiserver,
	     .tid = 2833,
	     .thread_name = "kube-apiserver",
	     .value = 1},
	};
	batch_add_sample(b, container, PROFILE_CPU, SAMPLE_BATCH_PERIOD, &samples[0]);
	batch_add_sample(b, host, PROFILE_CPU, SAMPLE_BATCH_PERIOD, &samples[1]);
	samples[1].value = 1500;
	batch_add_sample(b, host, PROFILE_OFF_CPU, 0, &samples[1]);
	batch_add_sample(b, container, PROFILE_CPU, SAMPLE_BATCH_PERIOD, &samples[2]);
	batch_add_sample(b, container, PROFILE_CPU, SAMPLE_BATCH_PERIOD, &samples[3]);
	return batch_builder_finish(b, 5000000000, ret);
}

int sample_batch_large(uint32_t n, struct batch **ret)
{
	enum { DEPTH = 20 };
	struct batch_builder *b;
	uint32_t resource, process, mapping, frames[DEPTH];
	char name[64];
	int r = batch_builder_new((uint64_t)SAMPLE_BATCH_START * 1000000000, &b);

	if (r < 0)
		return r;
	process = batch_add_process(b, 77, "worker", "/opt/worker");
	mapping = batch_add_mapping(b, &(struct batch_mapping){.filename = "/opt/worker",
							       .limit = 1 << 30,
							       .build_id_gnu = "deadbeef"});
	for (uint32_t i = 0; i < n; i++) {
		/* Three resources, so that splits fall between and inside of resources. */
		struct attr attr = {.key = "service.name", .type = ATTR_STR, .str = name};
		struct batch_sample s = {.process = process, .tid = i, .value = i % 7 + 1};

		snprintf(name, sizeof(name), "service-%u", i * 3 / MAX(n, 1u));
		resource = batch_add_resource(b, &attr, 1, "");
		for (uint32_t d = 0; d < DEPTH; d++) {
			uint32_t f = d ? (i * d) % (n / 2 + 1) : i;

			snprintf(name, sizeof(name), "function_with_a_long_name_%u", f);
			frames[d] = frame(b, mapping, 16 * f, FRAME_NATIVE, name, "file.c", f);
		}
		s.stack = batch_add_stack(b, frames, DEPTH);
		snprintf(name, sizeof(name), "thread-%u", i % 10);
		s.thread_name = name;
		batch_add_sample(b, resource, PROFILE_CPU, SAMPLE_BATCH_PERIOD, &s);
	}
	return batch_builder_finish(b, 5000000000, ret);
}

int sample_batch_flat(uint32_t n, uint32_t from, uint64_t start_ms, struct batch **ret)
{
	struct batch_builder *builder = NULL;
	uint32_t resource, process;
	int r = batch_builder_new(start_ms * 1000000, &builder);

	if (r < 0)
		return r;
	resource = batch_add_resource(builder, NULL, 0, "");
	process = batch_add_process(builder, 7, "p", "/p");
	for (uint32_t i = 0; i < n; i++) {
		char name[32];
		struct batch_line line = {0};
		struct batch_sample s = {
		    .process = process, .tid = 7, .thread_name = "t", .value = 1};
		uint32_t location;

		snprintf(name, sizeof(name), "f%u", from + i);
		line.function = batch_add_function(builder, name, name, "", 0);
		location = batch_add_location(builder, BATCH_NO_MAPPING, from + i + 1UL,
					      FRAME_NATIVE, &line, 1);
		s.stack = batch_add_stack(builder, &location, 1);
		batch_add_sample(builder, resource, PROFILE_CPU, 50000000, &s);
	}
	return batch_builder_finish(builder, 1000000000, ret);
}
