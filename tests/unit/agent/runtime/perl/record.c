// SPDX-License-Identifier: Apache-2.0
/*
 * Records what the walk and the names of a Perl process are made of, so that a version can be
 * tested without its interpreter: record PID. Writes to standard output the facts of the file, the
 * frames as found, and each piece of memory that was read:
 *   image MINOR THREADED BIAS RUNOPS STATE-FROM VARIABLE...   (struct kiln_perl_variables)
 *   state ADDRESS
 *   frame LINE<tab>START-LINE<tab>NAME<tab>FILE      (without its directory)
 *   group                                            the end of a native frame's
 *   memory ADDRESS HEX
 * Used by hack/record-perl; the process must stand still.
 */
#include <elf.h>
#include <fcntl.h>

#include "tests/unit/agent/runtime/perl/host_walk.h"
#include "tests/unit/agent/runtime/recorder.h"

static struct target_memory memory;
static pid_t pid;

/* The image of a mapping that is Perl. */
static struct perl_image *find(uint64_t *ret_bias, struct image **ret_image)
{
	char path[64], line[4096], file[4096], at[5000];
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
		snprintf(at, sizeof(at), "/proc/%d/root%s", pid, file);
		if (access(at, R_OK) < 0)
			snprintf(at, sizeof(at), "%s", file);
		if (image_open(open(at, O_RDONLY | O_CLOEXEC), file, &image, NULL) < 0)
			continue;
		if (perl_probe(image, &ri, NULL) == 0 &&
		    image_offset_to_vaddr(image, offset, &vaddr)) {
			*ret_bias = start - vaddr;
			*ret_image = image;
			return container_of(ri, struct perl_image, base);
		}
		image_unref(image);
	}
	return NULL;
}

/* PL_curinterp, where the first interpreter's state is. */
static uint64_t find_state(const struct image *image, uint64_t bias)
{
	const struct image_section *section = image_section(image, ".dynsym");
	struct cursor c = image_section_data(image, section), strings;
	uint64_t state = 0;

	strings = image_section_data(image, &image->sections[section->link]);
	while (cursor_left(&c) >= sizeof(Elf64_Sym)) {
		Elf64_Sym s;
		const char *name;

		memcpy(&s, cursor_bytes(&c, sizeof(s)), sizeof(s));
		cursor_seek(&strings, s.st_name);
		name = cursor_str(&strings);
		if (name && streq(name, "PL_curinterp") && s.st_value)
			(void)target_read(&memory, s.st_value + bias, &state, sizeof(state));
	}
	return state;
}

static int write_frames(void *state, uint32_t n)
{
	size_t group = 0;

	for (uint32_t i = 0; i < n; i += 2) {
		struct symbol_result names;
		char scratch[8192];
		const char *slash;
		int r;

		for (; groups.ends[group] == i; group++)
			printf("group\n");
		r = perl_symbolize(state, &memory, host.words + i, scratch, sizeof(scratch),
				   &names);
		if (r < 0) {
			fprintf(stderr, "frame %u: %s\n", i / 2, strerror(-r));
			return -1;
		}
		slash = strrchr(names.symbols[0].file, '/');
		printf("frame %u\t%u\t%s\t%s\n", names.symbols[0].line, names.symbols[0].start_line,
		       names.symbols[0].name, slash ? slash + 1 : names.symbols[0].file);
	}
	printf("group\n");
	return 0;
}

int main(int argc, char **argv)
{
	struct runtime_target target = {0};
	struct kiln_runtime kernel;
	struct image *image;
	struct perl_image *p;
	struct error err = {0};
	uint64_t base;
	void *state;
	int r;

	if (argc != 2)
		return 2;
	pid = atoi(argv[1]);
	memory = target.memory = recorder_begin(pid);
	p = find(&target.bias, &image);
	if (!p)
		return 1;
	r = perl_attach(&p->base, &target, &kernel, &state, &err);
	if (r < 0) {
		fprintf(stderr, "attach: %s %s\n", strerror(-r), err.message);
		return 1;
	}
	base = find_state(image, target.bias);
	printf("image %u %d %#llx %#llx %u", p->minor, p->threaded, (unsigned long long)target.bias,
	       (unsigned long long)p->runops, p->state_from);
	for (size_t i = 0; i < sizeof(p->at) / 8; i++)
		printf(" %#llx", (unsigned long long)((const uint64_t *)&p->at)[i]);
	printf("\nstate %#llx\n", (unsigned long long)base);
	if (write_frames(state, host_walk(&memory, &kernel, base)) < 0)
		return 1;
	recorder_write();
	return 0;
}
