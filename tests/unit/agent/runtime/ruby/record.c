// SPDX-License-Identifier: Apache-2.0
/*
 * Records what the walk and the names of one thread of a Ruby process are made of, so that a
 * version can be tested without its interpreter: record_ruby PID THREAD-POINTER. Writes to standard
 * output the facts of the file, the frames as found, and each piece of memory that was read:
 *
 *   image VERSION BIAS LOOP LOOP-END EXEC EXEC-END PROLOGUE GLOBAL TLS SLOT OFFSET SYMBOLS
 *   thread ADDRESS
 *   frame LINE START-LINE FILE NAME         (FILE without its directory, "-" when there is none)
 *   memory ADDRESS HEX
 *
 * Used by hack/record-ruby; the process must stand still.
 */
#include <fcntl.h>

#include "tests/unit/agent/runtime/ruby/host_walk.h"
#include "tests/unit/agent/runtime/recorder.h"

static struct target_memory memory;
static pid_t pid;

/* The image of a mapping that is Ruby. */
static struct ruby_image *find(uint64_t *ret_bias)
{
	char path[64], line[4096], file[4096];
	unsigned long long start, end, offset;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		struct runtime_image *ri;
		struct image *image;
		uint64_t vaddr;

		if (sscanf(line, "%llx-%llx r-xp %llx %*s %*s %4095s", &start, &end, &offset,
			   file) != 4 ||
		    file[0] != '/')
			continue;
		/* As the process sees it. */
		snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", pid, start, end);
		if (image_open(open(path, O_RDONLY | O_CLOEXEC), file, &image, NULL) < 0)
			continue;
		if (ruby_probe(image, &ri, NULL) == 0 &&
		    image_offset_to_vaddr(image, offset, &vaddr)) {
			*ret_bias = start - vaddr;
			return container_of(ri, struct ruby_image, base);
		}
		image_unref(image);
	}
	return NULL;
}

static int write_frames(struct ruby_process *p, uint32_t n)
{
	char scratch[16384];

	for (uint32_t i = 0; i < n; i += 2) {
		struct symbol_result names;
		const struct symbol *s = &names.symbols[0];
		const char *slash;
		int r;

		if (!kiln_frame_runtime(host.words[i])) {
			fprintf(stderr, "missing: %#llx\n", (unsigned long long)host.words[i]);
			return -1;
		}
		r = ruby_symbolize(p, &memory, host.words + i, scratch, sizeof(scratch), &names);
		if (r < 0) {
			fprintf(stderr, "frame %u: %s\n", i / 2, strerror(-r));
			return -1;
		}
		slash = strrchr(s->file, '/');
		printf("frame %u %u %s %s\n", s->line, s->start_line,
		       *s->file ? (slash ? slash + 1 : s->file) : "-", s->name);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct runtime_target target = {0};
	struct kiln_runtime kernel;
	struct ruby_image *image;
	struct error err = {0};
	struct ruby_process *p;
	uint64_t thread;
	void *state;
	int r;

	if (argc != 3)
		return 2;
	pid = atoi(argv[1]);
	memory = target.memory = recorder_begin(pid);
	thread = strtoull(argv[2], NULL, 0);
	image = find(&target.bias);
	if (!image)
		return 1;
	r = ruby_ops.attach(&image->base, &target, &kernel, &state, &err);
	if (r < 0) {
		fprintf(stderr, "attach: %s %s\n", strerror(-r), err.message);
		return 1;
	}
	p = state;
	if (write_frames(p, host_walk(&memory, &kernel, thread)) < 0)
		return 1;
	printf("image %u %#llx %#llx %#llx %#llx %#llx %u %#llx %d %#llx %lld %#llx\n",
	       image->version, (unsigned long long)target.bias,
	       (unsigned long long)image->code.loop.start, (unsigned long long)image->code.loop.end,
	       (unsigned long long)image->code.exec.start, (unsigned long long)image->code.exec.end,
	       image->code.prologue, (unsigned long long)image->global, image->current.kind,
	       (unsigned long long)image->current.slot, (long long)image->current.offset,
	       (unsigned long long)(p->symbols - target.bias));
	printf("thread %#llx\n", (unsigned long long)thread);
	recorder_write();
	return 0;
}
