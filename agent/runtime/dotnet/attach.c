// SPDX-License-Identifier: Apache-2.0
/*
 * Attaches to a process. The runtime fills in g_dacTable when it starts: the addresses of its
 * variables, the first of which is the map of all code (src/coreclr/inc/dacvars.h). The offsets in
 * Module and ReadyToRunInfo are found by a search. The runtime always has an image that was
 * compiled ahead of time (System.Private.CoreLib); the image itself tells its base and where its
 * tables are, and the two structures are searched for these values. Loop thread.
 */
#include "agent/runtime/dotnet/dotnet.h"

enum {
	MODULE_BYTES = 0x800, /* bytes of a Module that are searched; it has 0x6a8 in 8.0.4 */
	/* How many bytes of a ReadyToRunInfo are searched for the pointer to its function table,
	 * which is at offset 0x50 in .NET 8 and 9. */
	INFO_BYTES = 0x100,
	FUNCTIONS_MAX = 1 << 20,
	SECTIONS_MAX = 64, /* sections of an image compiled ahead of time */
	PE_MAX = 0x1000,   /* the PE header lies within the first page */
	/* Bytes below the first section that is known, for stubs that are made before it. */
	CODE_BEFORE = 1 << 20,
	R2R_FUNCTIONS = 102, /* v8.0.4, src/coreclr/inc/readytorun.h: ReadyToRunSectionType */
};

#define CODE_RESERVED (2ULL << 30) /* the distance that a call can reach */

/* ---- an image ---------------------------------------------------------------------------------
 */

struct image_functions {
	uint64_t at;
	uint32_t n;
};

/*
 * Finds the table of functions of the image that is mapped at BASE. The way to it: PE header, the
 * directory of the CLR's header (14), ManagedNativeHeader there, and READYTORUN_HEADER's sections
 * (ECMA-335, II.25.3.3; v8.0.4, docs/design/coreclr/botr/readytorun-format.md).
 */
static int read_functions(const struct target_memory *m, uint64_t base, struct image_functions *ret)
{
	uint32_t pe, clr, native, head[4], section[3];
	uint16_t mz, magic;

	if (dotnet_read(m, base, &mz, 2) < 0 || mz != 0x5a4d ||
	    dotnet_read(m, base + 0x3c, &pe, 4) < 0 || pe > PE_MAX ||
	    dotnet_read(m, base + pe + 24, &magic, 2) < 0 || magic != 0x20b ||
	    dotnet_read(m, base + pe + 24 + 112 + 14 * 8, &clr, 4) < 0 || !clr ||
	    dotnet_read(m, base + clr + 64, &native, 4) < 0 || !native ||
	    dotnet_read(m, base + native, head, sizeof(head)) < 0 || head[0] != 0x00525452)
		return -ENOENT;
	for (uint32_t i = 0; i < MIN(head[3], (uint32_t)SECTIONS_MAX); i++) {
		if (dotnet_read(m, base + native + 16 + i * 12, section, sizeof(section)) < 0)
			return -EFAULT;
		if (section[0] != R2R_FUNCTIONS)
			continue;
		ret->at = base + section[1];
		ret->n = section[2] / (uint32_t)sizeof(struct kiln_dotnet_function);
		return ret->n && ret->n <= FUNCTIONS_MAX ? 0 : -ENOENT;
	}
	return -ENOENT;
}

/*
 * Returns the offset of the functions F in the ReadyToRunInfo at INFO. Negative: they are not in
 * it.
 */
static int find_in_info(const struct target_memory *m, uint64_t info, uint64_t module,
			const struct image_functions *f)
{
	uint64_t words[INFO_BYTES / 8];

	if (info % 8 || dotnet_read(m, info, words, sizeof(words)) < 0 || words[0] != module)
		return -ENOENT;
	/* The count of functions may leave out the section's last entry, which is a guard. */
	for (size_t i = 1; i + 1 < ARRAY_SIZE(words); i++)
		if (words[i] == f->at && (uint32_t)words[i + 1] <= f->n &&
		    (uint32_t)words[i + 1] + 1 >= f->n)
			return (int)(i * 8);
	return -ENOENT;
}

struct search {
	struct dotnet_process *p;
	const struct target_memory *memory;
	uint64_t near;	 /* where the memory begins that the runtime reserves for code */
	uint64_t lowest; /* the lowest section from `near` on */
	bool learned;
};

/* Learns the offsets from SECTION, if it is an image. Called for each section. */
static int learn(void *arg, const struct dotnet_section *section)
{
	struct search *s = arg;
	struct kiln_dotnet *k = &s->p->kernel;
	uint64_t module = section->words[KILN_DOTNET_SECTION_MODULE];
	uint64_t begin = section->words[KILN_DOTNET_SECTION_BEGIN];
	uint64_t words[MODULE_BYTES / 8];
	struct image_functions f;
	int at;

	if (begin >= s->near && begin < s->lowest)
		s->lowest = begin;
	if (s->learned)
		return 0;
	if ((uint32_t)section->words[KILN_DOTNET_SECTION_FLAGS] || !module ||
	    read_functions(s->memory, begin, &f) < 0 ||
	    dotnet_read(s->memory, module, words, sizeof(words)) < 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		at = find_in_info(s->memory, words[i], module, &f);
		if (at <= 0)
			continue;
		if (s->p->module_base && words[s->p->module_base / 8] != begin)
			continue;
		k->module_r2r = (uint16_t)(i * 8);
		k->functions = (uint16_t)at;
		s->learned = true;
		return 0;
	}
	return 0;
}

/* ---- a process --------------------------------------------------------------------------------
 */

/*
 * Sets the offsets. Those of 8 and 9, on 64-bit machines, were looked at in processes of 8.0.4 and
 * 9.0.1 (names: src/coreclr/vm: codeman.h, _hpRealCodeHdr; ceeload.h, ModuleBase and Module;
 * methodtable.h; method.hpp, DynamicMethodDesc behind MethodDesc, which 9 made 8 bytes larger).
 * 10.0.13 says the same of itself, in the text that its DotNetRuntimeContractDescriptor leads to.
 */
static void set_layout(struct dotnet_process *p, uint32_t major)
{
	p->kernel.header_method = 24;
	p->kernel.header_infos = 32;
	p->kernel.dynamic_name = major >= 9 ? 0x20 : 0x18;
	p->simple_name = major <= 9 ? 0x108 : 0;
	p->module_base = major <= 9 ? 0 : 224;
	p->knows_stubs = major <= 9;
	p->method_module = 0x18;
	p->token_bits = 12;
	p->row_shift = major >= 9 ? 8 : 16;
}

static void tell(const struct dotnet_process *p, struct runtime_target *target,
		 struct kiln_runtime *ret_kernel)
{
	_Static_assert(sizeof(p->kernel) <= sizeof(ret_kernel->data), "kiln_dotnet");
	runtime_tell_walker(ret_kernel, &p->kernel, sizeof(p->kernel));
	target->code_start = p->code_start;
	target->code_end = p->code_end;
}

/*
 * Learns from the process, whose runtime is loaded at BASE, the remaining offsets and where its
 * code lies. When the runtime starts it reserves the memory right below itself for code (v8.0.4,
 * src/coreclr/pal/src/map/virtual.cpp, ExecutableMemoryAllocator), and takes a few pages of that at
 * a time.
 */
static int read_process(struct dotnet_process *p, const struct target_memory *memory,
			uint64_t table, uint64_t base)
{
	struct search s = {
	    .p = p,
	    .memory = memory,
	    .near = base > CODE_RESERVED ? base - CODE_RESERVED : 0,
	    .lowest = base,
	};
	int r = dotnet_read(memory, table, &p->kernel.map, 8);

	if (r < 0 || !p->kernel.map)
		return -EAGAIN;
	r = dotnet_each_section(&p->kernel, memory, learn, &s);
	if (r < 0 || !s.learned)
		return -EAGAIN;
	if (s.lowest < base) {
		p->code_start = MAX(s.near, s.lowest - MIN(s.lowest, (uint64_t)CODE_BEFORE));
		p->code_end = base;
	}
	return 0;
}

int dotnet_attach(const struct runtime_image *ri, struct runtime_target *target,
		  struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct dotnet_image *image = container_of(ri, struct dotnet_image, base);
	struct dotnet_process *p = target->previous;
	int r;

	(void)err;
	if (p) { /* the process has a newer mapset: both attachments share the state */
		p->refs++;
		tell(p, target, ret_kernel);
		*ret_state = p;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->refs = 1;
	set_layout(p, image->major);
	r = read_process(p, &target->memory, image->table + target->bias,
			 image->start + target->bias);
	if (r < 0) {
		free(p);
		return r;
	}
	tell(p, target, ret_kernel);
	*ret_state = p;
	return 0;
}

void dotnet_detach(void *state)
{
	struct dotnet_process *p = state;

	if (p && !--p->refs)
		free(p);
}
