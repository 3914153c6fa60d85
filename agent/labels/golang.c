/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go's pprof labels: g.labels of the goroutine that a thread runs. Only programs that can set them
 * have a function for it; others cost nothing. Stateless.
 *
 * Offsets by version, of 64-bit builds: src/runtime/runtime2.go of each release (g.m, m.curg,
 * g.labels); also tabled in opentelemetry-ebpf-profiler, interpreter/go/offsets.go. What the labels
 * are: src/runtime/pprof/label.go (labelMap: a map up to 1.23, a slice from 1.24 on). Where g is:
 * the code of runtime.stackcheck reads it (src/runtime/asm_amd64.s); on arm64 it is in x28
 * (src/cmd/compile/abi-internal.md).
 */
#include "agent/elf/gopclntab.h"
#include "agent/labels/rows.h"
#include "agent/runtime/thread_variable.h"
#include "bpf/arch.h"

#define GO_VERSION(major, minor) ((major) << 8 | (minor))

enum { CODE_BYTES = 48, CODE_AHEAD = 16, FUNCTIONS_MAX = 4 << 20, BUILDINFO_STRING = 32 };

static const struct layout {
	uint32_t from; /* version */
	uint16_t curg, labels;
	bool is_map;
} layouts[] = {
    {GO_VERSION(1, 13), 192, 344, true},  {GO_VERSION(1, 17), 192, 360, true},
    {GO_VERSION(1, 21), 192, 344, true},  {GO_VERSION(1, 23), 192, 352, true},
    {GO_VERSION(1, 24), 192, 352, false}, {GO_VERSION(1, 25), 184, 344, false},
    {GO_VERSION(1, 26), 184, 352, false}, {GO_VERSION(1, 28), 0, 0, false},
};

enum { G_M = 48 };

struct go_image {
	struct runtime_image base;
	struct thread_variable g;
	const struct layout *layout;
};

/* The version in TEXT, such as "go1.21.3"; 0: there is none. */
static uint32_t parse_version(const char *text, size_t len)
{
	char copy[32] = "";
	unsigned int major, minor;

	memcpy(copy, text, MIN(len, sizeof(copy) - 1));
	return sscanf(copy, "go%u.%u", &major, &minor) == 2 && major == 1 && minor < 256
		   ? GO_VERSION(major, minor)
		   : 0;
}

/*
 * The version in .go.buildinfo (src/debug/buildinfo/buildinfo.go): 16 bytes of head, flags in the
 * last; with flag 2 the string lies inline at 32 behind its length, else a pointer to a string's
 * header is at 16.
 */
static uint32_t read_version(const struct image *image)
{
	static const char magic[] = "\xff Go buildinf:";
	const struct image_section *section = image_section(image, ".go.buildinfo");
	struct cursor c, s;
	uint64_t at, len;
	uint8_t flags;

	if (!section)
		return 0;
	c = image_section_data(image, section);
	if (cursor_left(&c) < BUILDINFO_STRING || memcmp(c.data, magic, sizeof(magic) - 1) != 0)
		return 0;
	flags = c.data[15];
	if (flags & 2) {
		cursor_seek(&c, BUILDINFO_STRING);
		len = cursor_uleb(&c);
		s = cursor_sub(&c, len > 64 ? 64 : (size_t)len);
		return s.bad ? 0 : parse_version((const char *)s.data, s.size);
	}
	memcpy(&at, c.data + 16, sizeof(at));
	s = image_at_vaddr(image, at);
	if (cursor_left(&s) < 16)
		return 0;
	memcpy(&at, s.data + s.pos, sizeof(at));
	memcpy(&len, s.data + s.pos + 8, sizeof(len));
	s = image_at_vaddr(image, at);
	if (cursor_left(&s) < len || len > 64)
		return 0;
	return parse_version((const char *)s.data + s.pos, (size_t)len);
}

static int32_t int_at(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* The variable that the code at ENTRY reads first (x86-64). */
static bool read_getter(const struct image *image, uint64_t entry, struct thread_variable *ret)
{
	struct cursor c = image_at_vaddr(image, entry);
	uint8_t code[CODE_BYTES + CODE_AHEAD] = {0};

	if (c.bad)
		return false;
	memcpy(code, c.data + c.pos, MIN(cursor_left(&c), (size_t)CODE_BYTES));
	for (size_t i = 0; i < CODE_BYTES - CODE_AHEAD; i++) {
		const uint8_t *at = code + i;

		/* mov %fs:d, %reg */
		if (at[0] == 0x64 && at[1] == 0x48 && at[2] == 0x8b && (at[3] & 0xc7) == 0x04 &&
		    at[4] == 0x25) {
			ret->kind = THREAD_VARIABLE_STATIC;
			ret->offset = int_at(at + 5);
			return ret->offset != 0;
		}
		/* mov $d, %reg; mov %fs:(%reg), ... */
		if (at[0] == 0x48 && at[1] == 0xc7 && (at[2] & 0xf8) == 0xc0 && at[7] == 0x64) {
			ret->kind = THREAD_VARIABLE_STATIC;
			ret->offset = int_at(at + 3);
			return ret->offset != 0;
		}
		/* mov d(%rip), %reg; mov %fs:(%reg), ... */
		if (at[0] == 0x48 && at[1] == 0x8b && (at[2] & 0xc7) == 0x05 && at[7] == 0x64) {
			ret->kind = THREAD_VARIABLE_INDIRECT;
			ret->slot = entry + i + 7 + (uint64_t)(int64_t)int_at(at + 3);
			return true;
		}
	}
	return false;
}

static const struct layout *layout_of(uint32_t version)
{
	const struct layout *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
		if (version >= layouts[i].from)
			found = &layouts[i];
	return found && found->curg ? found : NULL;
}

/* Can the program set labels? *RET_GETTER: the function whose code tells where g is; 0: none. */
static bool find_functions(const struct image *image, uint64_t *ret_getter)
{
	_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
	struct gopclntab_func f;
	bool sets = false;
	size_t n;

	*ret_getter = 0;
	if (gopclntab_open(image, &t, NULL) < 0)
		return false;
	n = MIN(gopclntab_count(t), (size_t)FUNCTIONS_MAX);
	for (size_t i = 0; i < n && !(sets && *ret_getter); i++) {
		if (!gopclntab_place(t, i, &f))
			continue;
		if (!gopclntab_head_begins(gopclntab_name_head(t, &f), "runtime"))
			continue;
		f.name = gopclntab_name(t, &f);
		if (streq(f.name, "runtime/pprof.runtime_setProfLabel"))
			sets = true;
		else if (streq(f.name, "runtime.stackcheck"))
			*ret_getter = f.entry;
	}
	return sets;
}

static int go_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	const struct layout *layout;
	struct thread_variable g = {0};
	uint32_t version;
	uint64_t getter;
	struct go_image *p;

	if (!image->is_go || !find_functions(image, &getter))
		return -ENOENT;
	version = read_version(image);
	layout = layout_of(version);
	if (!layout)
		return error_set(err, -ENOTSUP, "labels of Go %u.%u", version >> 8, version & 255);
#ifdef __x86_64__
	if (!getter || !read_getter(image, getter, &g))
		return error_set(err, -ENOTSUP, "Go %u.%u does not tell where g is", version >> 8,
				 version & 255);
#else
	(void)read_getter;
#endif
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->base.ops = &label_go_ops;
	snprintf(p->base.version, sizeof(p->base.version), "%u.%u", version >> 8, version & 255);
	p->g = g;
	p->layout = layout;
	*ret = &p->base;
	return 0;
}

static void go_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct go_image, base));
}

static int go_attach(const struct runtime_image *ri, struct runtime_target *target,
		     struct kiln_runtime *ret_kernel, void **ret_state, struct error *err)
{
	const struct go_image *p = container_of(ri, struct go_image, base);
	struct thread_variable_place place;
	struct kiln_go_place kernel = {
	    .m = G_M,
	    .curg = p->layout->curg,
	    .labels = p->layout->labels,
	    .is_map = p->layout->is_map,
	};

	if (p->g.kind == THREAD_VARIABLE_NONE) {
		kernel.in_register = 1;
		kernel.reg = 28; /* arm64 */
	} else if (thread_variable_place(&p->g, target, &place)) {
		kernel.g = (struct kiln_thread_place){
		    .offset = place.offset, .module = place.module, .shift = place.shift};
	} else {
		return error_set(err, -EAGAIN, "g has no place yet");
	}
	runtime_tell_walker(ret_kernel, &kernel, sizeof(kernel));
	*ret_state = NULL;
	return 0;
}

const struct interpreter_ops label_go_ops = {
    .name = "go-labels",
    .id = KILN_LABELS_GO,
    .probe = go_probe,
    .forget = go_forget,
    .attach = go_attach,
};
