/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records stacks of a running JVM for test_hotspot_recorded: stops a thread, walks, names, and
 * keeps what was read. By hand, when a version comes or a reader reads more: record_hotspot PID TID
 * OUT.rec FUNCTION [FRAME] takes stacks until FUNCTION is the innermost Java function of one, and
 * FRAME is in it. record_hotspot PID TID --steps N steps through N instructions of the thread and
 * walks at each: all stacks must reach the root, and have all frames of the one before but the
 * innermost ones.
 */
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "agent/elf/unwind.h"
#include "bpf/arch.h"
#include "tests/unit/agent/runtime/hotspot/world.h"

enum { FILES_MAX = 64, TRIES = 2000, INNER_FRAMES = 4, PLACES_MAX = 4096, SHOWN = 40 };

static struct {
	char path[256];
	struct image *image;
	struct unwind_table *table;
} files[FILES_MAX];
static uint32_t n_files;
static struct world *world;
static struct unwind_table *code;
static struct hotspot_process *process;
static int pid, tid;
static char out[1 << 16];

/* ---- the process ------------------------------------------------------------------------------
 */

static int read_live(void *arg, uint64_t address, void *dst, size_t len)
{
	struct iovec to = {dst, len}, from = {(void *)(uintptr_t)address, len};

	return process_vm_readv(pid, &to, 1, &from, 1, 0) == (ssize_t)len ? 0 : -EFAULT;
}

static const struct target_memory live = {.read = read_live};

static void attach(struct image *image, uint64_t bias)
{
	struct runtime_target target = {.memory = live, .bias = bias};
	struct kiln_runtime ignored, kernel;
	struct runtime_image *ri;
	struct error err = {0};

	if (process || hotspot_ops.probe(image, &ri, &err) < 0)
		return;
	if (hotspot_ops.attach(ri, &target, &ignored, (void **)&process, &err) < 0)
		fprintf(stderr, "cannot attach: %s\n", err.message);
	else if (hotspot_ops.read_code(process, &live, true, &kernel, &code) < 0)
		fprintf(stderr, "cannot read the machine's code\n");
}

/* NAME, which is mapped at [START, END). */
static uint32_t file_of(const char *name, uint64_t start, uint64_t end)
{
	char path[64];
	struct error err = {0};
	uint32_t i;

	for (i = 0; i < n_files; i++)
		if (strcmp(files[i].path, name) == 0)
			return i + 1;
	if (n_files == FILES_MAX)
		return 0;
	snprintf(files[i].path, sizeof(files[i].path), "%s", name);
	snprintf(path, sizeof(path), "/proc/%d/map_files/%lx-%lx", pid, start, end);
	if ((strcmp(name, "[vdso]") == 0
		 ? image_vdso(&files[i].image, &err)
		 : image_open(open(path, O_RDONLY | O_CLOEXEC), path, &files[i].image, &err)) < 0 ||
	    unwind_compile(files[i].image, &files[i].table, &err) < 0) {
		fprintf(stderr, "%s: %s\n", path, err.message);
		return 0;
	}
	n_files++;
	return i + 1;
}

static void read_maps(void)
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
		if (name[0] == '/' || strcmp(name, "[vdso]") == 0) {
			m->image = file_of(name, start, end);
			if (!m->image ||
			    !image_offset_to_vaddr(files[m->image - 1].image, offset, &vaddr))
				continue;
			m->bias = start - vaddr;
			attach(files[m->image - 1].image, m->bias);
		} else if (name[0]) {
			continue;
		} else {
			m->flags = KILN_MAPPING_JIT | KILN_RUNTIME_HOTSPOT
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

		if (pc < m->start || pc >= m->end)
			continue;
		if (m->image) {
			*ret = *unwind_lookup(files[m->image - 1].table, pc - m->bias);
			return 0;
		}
		if (code)
			*ret = *unwind_lookup(code, pc);
		if (!code || ret->kind == KILN_RULE_INVALID)
			*ret = (struct kiln_rule){.kind = KILN_RULE_FP,
						  .flags = KILN_RULE_RUNTIME | KILN_RULE_GUESS,
						  .deref_off = KILN_RUNTIME_HOTSPOT};
		return 0;
	}
	return -1;
}

static void begin(void)
{
	world->walk.n_reads = world->walk.n_rules = world->walk.n_bytes = 0;
	recorded_walk_registers(&world->walk, tid);
}

/* Waits until the thread stops. Returns the signal to pass on when it continues; -1: it has ended.
 */
static int wait_stop(void)
{
	int status;

	if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
		return -1;
	if (status >> 16 || WSTOPSIG(status) == SIGTRAP)
		return 0;
	return WSTOPSIG(status);
}

/* ---- instruction by instruction ---------------------------------------------------------------
 */

static struct {
	uint64_t pc;
	uint32_t n;
	char why[64];
	char stack[512], before[256];
	uint8_t code[96]; /* from 48 bytes before it on */
} places[PLACES_MAX];
static uint32_t n_places;

static char last[256]; /* the stack of the instruction before */

static void blame(const char *why)
{
	uint64_t pc = world->walk.leaf[ARCH_REG_PC];
	uint32_t i;

	for (i = 0; i < n_places; i++)
		if (places[i].pc == pc && strcmp(places[i].why, why) == 0)
			break;
	if (i == PLACES_MAX)
		return;
	if (i == n_places) {
		n_places++;
		places[i].pc = pc;
		snprintf(places[i].why, sizeof(places[i].why), "%s", why);
		world_stack(world, out, sizeof(out));
		snprintf(places[i].stack, sizeof(places[i].stack), "%.500s", out);
		memcpy(places[i].before, last, sizeof(last));
		(void)read_live(NULL, pc - 48, places[i].code, sizeof(places[i].code));
	}
	places[i].n++;
}

static int compare_places(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)((const char *)a + sizeof(uint64_t)),
		       y = *(const uint32_t *)((const char *)b + sizeof(uint64_t));

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Words of frames that lie further out than both stacks' innermost ones must be the same. */
static bool fits(const uint64_t *a, uint32_t n_a, const uint64_t *b, uint32_t n_b)
{
	uint32_t n = 0, frames = 0;

	while (n < n_a && n < n_b && a[n_a - 1 - n] == b[n_b - 1 - n])
		n++;
	for (uint32_t i = 0; i < n_b - n; i += kiln_frame_words(b[i]))
		frames++;
	return frames <= INNER_FRAMES;
}

static int steps(long n)
{
	static uint64_t before[KILN_MAX_USER_WORDS];
	uint32_t n_before = 0;
	long whole = 0, java = 0, missing = 0;
	int signal = 0;

	for (long i = 0; i < n; i++) {
		bool is_java, ok = true;

		begin();
		world_walk(world);
		is_java = world->walk.leaf[ARCH_REG_PC] - process->kernel.low <
			  process->kernel.high - process->kernel.low;
		java += is_java;
		for (uint32_t k = 0; k < world->n_words; k += kiln_frame_words(world->words[k]))
			ok &= KILN_FRAME_KIND(world->words[k]) != KILN_FRAME_MISSING;
		missing += !ok;
		if (world->walk.end != KILN_END_ROOT) {
			blame("no root");
		} else if (!ok) {
			blame("missing");
		} else if (n_before && is_java &&
			   !fits(before, n_before, world->words, world->n_words)) {
			blame("other frames");
			whole++;
		} else {
			whole++;
		}
		n_before = world->n_words;
		if (getenv("BEFORE")) {
			world_stack(world, out, sizeof(out));
			snprintf(last, sizeof(last), "before: %lx\n%.200s",
				 world->walk.leaf[ARCH_REG_PC], out);
		}
		memcpy(before, world->words, n_before * sizeof(before[0]));
		if (ptrace(PTRACE_SINGLESTEP, tid, 0, signal) < 0)
			return 1;
		signal = wait_stop();
		if (signal < 0)
			return 1;
	}
	ptrace(PTRACE_DETACH, tid, 0, signal);
	qsort(places, n_places, sizeof(places[0]), compare_places);
	printf("%ld of %ld whole, %ld in the machine's code, %ld with something missing\n", whole,
	       n, java, missing);
	for (uint32_t i = 0; i < MIN(n_places, (uint32_t)SHOWN); i++) {
		printf("%u at 0x%lx: %s\n%s%s\n", places[i].n, places[i].pc, places[i].why,
		       places[i].before, places[i].stack);
		for (size_t k = 0; k < sizeof(places[i].code); k++)
			printf("%02x%s", places[i].code[k], k % 48 == 47 ? "\n" : " ");
		printf("---\n");
	}
	return 0;
}

/* ---- recordings -------------------------------------------------------------------------------
 */

static int record(const char *path, const char *function, const char *frame)
{
	for (int i = 0; i < TRIES; i++) {
		const char *at = out;

		begin();
		world_stack(world, out, sizeof(out));
		while (strncmp(at, "native\n", 7) == 0)
			at += 7;
		if (strncmp(at, function, strlen(function)) == 0 && strstr(out, frame) &&
		    world->walk.end == KILN_END_ROOT) {
			ptrace(PTRACE_DETACH, tid, 0, 0);
			world->walk.pid = 0;
			printf("%s", out);
			return world_save(world, path) < 0;
		}
		ptrace(PTRACE_CONT, tid, 0, 0);
		usleep(3000);
		ptrace(PTRACE_INTERRUPT, tid, 0, 0);
		waitpid(tid, NULL, __WALL);
	}
	printf("%s", out);
	return 1;
}

int main(int argc, char **argv)
{
	world = world_new();
	if (argc < 5 || !world)
		return 2;
	pid = atoi(argv[1]);
	tid = atoi(argv[2]);
	world->walk.pid = pid;
	world->walk.find_rule = find_rule;
	read_maps();
	if (!process)
		return 1;
	world->process = *process;
	if (ptrace(PTRACE_SEIZE, tid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0 ||
	    waitpid(tid, NULL, __WALL) != tid) {
		perror("ptrace");
		return 1;
	}
	if (strcmp(argv[3], "--rules") == 0) {
		uint64_t from = strtoull(argv[4], NULL, 16);

		for (uint64_t pc = from; pc < from + 0x120; pc++) {
			struct kiln_rule r;

			(void)find_rule(pc, &r);
			printf("%lx kind %u reg %u flags %x ra %d cfa %d bp %d deref %x\n", pc,
			       r.kind, r.reg, r.flags, r.ra_off, r.cfa_off, r.fp_off,
			       (uint32_t)r.deref_off);
		}
		return 0;
	}
	if (strcmp(argv[3], "--steps") == 0)
		return steps(atol(argv[4]));
	return record(argv[3], argv[4], argc > 5 ? argv[5] : "");
}
