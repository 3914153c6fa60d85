/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records stacks of a running LuaJIT for test_recorded: stops it, walks, names, and keeps what was
 * read. By hand (hack/record-luajit), when a version comes or a reader reads more:
 *   luajit program.lua & record_luajit PID OUT.rec TEXT
 * Stacks are taken until one has TEXT.
 */
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "agent/elf/unwind.h"
#include "tests/unit/agent/runtime/luajit/world.h"

enum { FILES_MAX = 32, TRIES = 400 };

static struct {
	char path[256];
	struct image *image;
	struct unwind_table *table;
	struct runtime_image *runtime;
} files[FILES_MAX];
static uint32_t n_files;
static struct world *world;

static uint32_t file_of(const char *path)
{
	struct error err = {0};
	uint32_t i;

	for (i = 0; i < n_files; i++)
		if (strcmp(files[i].path, path) == 0)
			return i + 1;
	if (n_files == FILES_MAX)
		return 0;
	snprintf(files[i].path, sizeof(files[i].path), "%s", path);
	if (image_open(open(path, O_RDONLY | O_CLOEXEC), path, &files[i].image, &err) < 0 ||
	    unwind_compile(files[i].image, &files[i].table, &err) < 0) {
		fprintf(stderr, "%s: %s\n", path, err.message);
		return 0;
	}
	(void)luajit_ops.probe(files[i].image, &files[i].runtime, &err);
	n_files++;
	return i + 1;
}

static void read_maps(int pid)
{
	char path[64], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && world->walk.n_maps < RECORDED_MAPS_MAX) {
		struct kiln_mapping *m = &world->walk.maps[world->walk.n_maps];
		char flags[5], name[256] = "";
		uint64_t start, end, offset, vaddr;

		if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %255s", &start, &end, flags, &offset,
			   name) < 4 ||
		    flags[2] != 'x')
			continue;
		*m = (struct kiln_mapping){.start = start, .end = end};
		if (name[0] == '/') {
			m->image = file_of(name);
			if (!m->image ||
			    !image_offset_to_vaddr(files[m->image - 1].image, offset, &vaddr))
				continue;
			m->bias = start - vaddr;
			if (files[m->image - 1].runtime) {
				world->facts.kernel = container_of(files[m->image - 1].runtime,
								   struct luajit_image, base)
							  ->kernel;
				world->facts.kernel.vm += m->bias;
			}
		} else if (name[0]) {
			continue;
		} else {
			m->flags = KILN_MAPPING_JIT | KILN_RUNTIME_LUAJIT
							  << KILN_MAPPING_RUNTIME_SHIFT;
		}
		world->walk.n_maps++;
	}
	if (f)
		fclose(f);
}

static int find_rule(uint64_t pc, struct kiln_rule *ret)
{
	for (uint32_t i = 0; i < world->walk.n_maps; i++) {
		const struct kiln_mapping *m = &world->walk.maps[i];
		const struct runtime_image *ri;
		uint64_t vaddr = pc - m->bias;

		if (pc < m->start || pc >= m->end)
			continue;
		if (!m->image) {
			*ret = (struct kiln_rule){.kind = KILN_RULE_FP,
						  .flags = KILN_RULE_RUNTIME,
						  .deref_off = KILN_RUNTIME_LUAJIT};
			return 0;
		}
		*ret = *unwind_lookup(files[m->image - 1].table, vaddr);
		ri = files[m->image - 1].runtime;
		if (ri && vaddr >= ri->ranges[0].start && vaddr < ri->ranges[0].end) {
			ret->flags |= KILN_RULE_RUNTIME;
			ret->deref_off = KILN_RUNTIME_LUAJIT;
		}
		return 0;
	}
	return -1;
}

int main(int argc, char **argv)
{
	static char out[1 << 16];
	int pid = argc == 4 ? atoi(argv[1]) : 0;

	world = world_new();
	if (!pid || !world)
		return 2;
	ptrace(PTRACE_SEIZE, pid, 0, 0);
	for (int i = 0; i < TRIES; i++) {
		usleep(10000);
		ptrace(PTRACE_INTERRUPT, pid, 0, 0);
		waitpid(pid, NULL, 0);
		world->walk.n_reads = world->walk.n_rules = world->walk.n_maps =
		    world->walk.n_bytes = 0;
		world->walk.pid = pid;
		world->walk.find_rule = find_rule;
		read_maps(pid);
		recorded_walk_registers(&world->walk, pid);
		world_stack(world, out, sizeof(out));
		ptrace(PTRACE_CONT, pid, 0, 0);
		if (strstr(out, argv[3]) && !strstr(out, "missing")) {
			world->walk.pid = 0;
			printf("%s", out);
			return world_save(world, argv[2]) < 0;
		}
	}
	printf("%s", out);
	return 1;
}
