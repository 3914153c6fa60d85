// SPDX-License-Identifier: Apache-2.0
/*
 * Records what the walk and the names of one thread of a Python process are made of, so that a
 * version can be tested without its interpreter: record PID THREAD-POINTER. Writes to standard
 * output the facts of the file, the frames as found, and each piece of memory that was read:
 *   image MINOR BIAS RUNTIME CURRENT INTERPS KEY CODE_TYPE EVAL RUNNING BOUND
 *     RUNNING, BOUND: where a variable of the thread's own is: TLS SLOT OFFSET
 *   thread ADDRESS
 *   frame LINE START-LINE NAME FILE        (without its directory)
 *   memory ADDRESS HEX
 * Used by hack/record-python; the process must stand still.
 */
#include <fcntl.h>

#include "tests/unit/agent/runtime/python/host_walk.h"
#include "tests/unit/agent/runtime/recorder.h"

static struct target_memory memory;
static pid_t pid;

/* The image of a mapping that is CPython. */
static struct python_image *find(uint64_t *ret_bias)
{
	char path[64], line[4096], file[4096];
	unsigned long long start, offset;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		struct runtime_image *ri;
		struct image *image;
		uint64_t vaddr;

		if (sscanf(line, "%llx-%*x r-xp %llx %*s %*s %4095s", &start, &offset, file) != 3 ||
		    file[0] != '/')
			continue;
		if (image_open(open(file, O_RDONLY | O_CLOEXEC), file, &image, NULL) < 0)
			continue;
		if (python_probe(image, &ri, NULL) == 0 &&
		    image_offset_to_vaddr(image, offset, &vaddr)) {
			*ret_bias = start - vaddr;
			return container_of(ri, struct python_image, base);
		}
		image_unref(image);
	}
	return NULL;
}

static void print_variable(const struct thread_variable *v)
{
	printf(" %d %#llx %lld", v->kind, (unsigned long long)v->slot, (long long)v->offset);
}

int main(int argc, char **argv)
{
	struct runtime_target target = {0};
	struct kiln_runtime kernel;
	struct python_image *p;
	struct error err = {0};
	char scratch[8192];
	uint64_t thread;
	uint32_t n;
	void *state;
	int r;

	if (argc != 3)
		return 2;
	pid = atoi(argv[1]);
	memory = target.memory = recorder_begin(pid);
	thread = strtoull(argv[2], NULL, 0);
	p = find(&target.bias);
	if (!p)
		return 1;
	r = python_attach(&p->base, &target, &kernel, &state, &err);
	if (r < 0) {
		fprintf(stderr, "attach: %s %s\n", strerror(-r), err.message);
		return 1;
	}
	printf("image %u %#llx %#llx %#llx %#llx %#llx %#llx %#llx", p->minor,
	       (unsigned long long)target.bias, (unsigned long long)p->runtime,
	       (unsigned long long)p->current, (unsigned long long)p->interps,
	       (unsigned long long)p->key, (unsigned long long)p->code_type,
	       (unsigned long long)p->eval);
	print_variable(&p->running);
	print_variable(&p->bound);
	printf("\n");
	for (size_t i = 0; i < p->base.n_ranges; i++)
		fprintf(stderr, "%s: code %#llx-%#llx\n", p->base.version,
			(unsigned long long)p->base.ranges[i].start,
			(unsigned long long)p->base.ranges[i].end);
	printf("thread %#llx\n", (unsigned long long)thread);
	n = host_walk(&memory, &kernel, thread);
	for (uint32_t i = 0; i < n; i += 2) {
		struct symbol_result names;

		if (KILN_FRAME_KIND(host.words[i]) != KILN_FRAME_RUNTIME(KILN_RUNTIME_PYTHON)) {
			fprintf(stderr, "missing: %#llx\n", (unsigned long long)host.words[i]);
			break;
		}
		r = python_symbolize(state, &memory, host.words + i, scratch, sizeof(scratch),
				     &names);
		if (r < 0) {
			fprintf(stderr, "frame %u: %s\n", i / 2, strerror(-r));
			return 1;
		}
		printf("frame %u %u %s %s\n", names.symbols[0].line, names.symbols[0].start_line,
		       names.symbols[0].name,
		       strrchr(names.symbols[0].file, '/') ? strrchr(names.symbols[0].file, '/') + 1
							   : names.symbols[0].file);
	}
	recorder_write();
	return 0;
}
