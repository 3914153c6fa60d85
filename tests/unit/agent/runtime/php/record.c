// SPDX-License-Identifier: Apache-2.0
/*
 * Records what the walk and the names of a PHP process are made of, so that a version can be tested
 * without its interpreter: record PID. Writes to standard output the facts of the file, the frames
 * as found, and each piece of memory that was read:
 *
 *   image VERSION BIAS GLOBALS LOOP LOOP-SIZE ENTERED
 *   frame LINE START-LINE NAME FILE        (tabs between)
 *   memory ADDRESS HEX
 *
 * Used by hack/record-php; the process must stand still.
 */
#include <fcntl.h>

#include "tests/unit/agent/runtime/php/host_walk.h"
#include "tests/unit/agent/runtime/recorder.h"

static struct target_memory memory;
static pid_t pid;

/* The image of a mapping that is PHP. ROOT: the directory that the process has as its root. */
static struct php_image *find(const char *root, uint64_t *ret_bias)
{
	char path[64], line[4096], file[4096], real[8192];
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
		snprintf(real, sizeof(real), "%s%s", has_prefix(file, root) ? "" : root, file);
		if (image_open(open(real, O_RDONLY | O_CLOEXEC), real, &image, NULL) < 0)
			continue;
		if (php_probe(image, &ri, NULL) == 0 &&
		    image_offset_to_vaddr(image, offset, &vaddr)) {
			*ret_bias = start - vaddr;
			return container_of(ri, struct php_image, base);
		}
		image_unref(image);
	}
	return NULL;
}

/* Reads the included file's name also in the way that is used when its own string is gone, so
 * that those reads are recorded. */
static void find_included(const struct php_process *p, const uint64_t words[2])
{
	const uint64_t gone[2] = {(words[0] & ~KILN_FRAME_PC_MASK) | p->globals, words[1]};
	struct symbol_result names;
	char scratch[8192];

	if (KILN_FRAME_FLAGS(words[0]) == PHP_INCLUDE)
		(void)php_symbolize((void *)(uintptr_t)p, &memory, gone, scratch, sizeof(scratch),
				    &names);
}

static int write_frames(void *state, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 2) {
		struct symbol_result names;
		char scratch[8192];
		int r;

		if (KILN_FRAME_KIND(host.words[i]) != KILN_FRAME_RUNTIME(KILN_RUNTIME_PHP)) {
			fprintf(stderr, "missing: %#llx\n", (unsigned long long)host.words[i]);
			return 1;
		}
		r = php_symbolize(state, &memory, host.words + i, scratch, sizeof(scratch), &names);
		if (r < 0) {
			fprintf(stderr, "frame %u: %s\n", i / 2, strerror(-r));
			return 1;
		}
		find_included(state, host.words + i);
		printf("frame\t%u\t%u\t%s\t%s\n", names.symbols[0].line,
		       names.symbols[0].start_line, names.symbols[0].name, names.symbols[0].file);
	}
	return 0;
}

/* Walks with a leaf in registers, at the third frame (user code), so that those reads are
 * recorded too. */
static void walk_from_registers(const struct kiln_runtime *kernel)
{
	const struct kiln_php *k = (const struct kiln_php *)kernel->data;
	uint64_t frame = php_word(k->globals + k->current);

	host_begin(&memory, kernel);
	for (int i = 0; i < 2; i++)
		frame = php_word(frame + PHP_FRAME_PREVIOUS * 8);
	host.walk.leaf_valid = host.walk.exact = 1;
	host.walk.leaf[14] = frame;
	host.walk.leaf[15] = php_word(frame);
	host_visit(k->loop + k->entered + 64);
}

int main(int argc, char **argv)
{
	struct runtime_target target = {0};
	struct kiln_runtime kernel;
	struct php_image *p;
	struct error err = {0};
	void *state;

	if (argc != 3)
		return 2;
	pid = atoi(argv[1]);
	memory = target.memory = recorder_begin(pid);
	p = find(argv[2], &target.bias);
	if (!p || php_ops.attach(&p->base, &target, &kernel, &state, &err) < 0) {
		fprintf(stderr, "no PHP: %s\n", err.message);
		return 1;
	}
	printf("image %u %#llx %#llx %#llx %#llx %u\n", p->layout->version,
	       (unsigned long long)target.bias, (unsigned long long)p->globals,
	       (unsigned long long)p->loop.start, (unsigned long long)p->loop.size,
	       p->edges.entered);
	if (write_frames(state, host_walk(&memory, &kernel)))
		return 1;
	walk_from_registers(&kernel);
	recorder_write();
	return 0;
}
