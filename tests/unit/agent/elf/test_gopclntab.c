// SPDX-License-Identifier: Apache-2.0
/*
 * The Go function table against the Go runtime itself: go_oracle/main.go prints what
 * runtime.CallersFrames says of thousands of its own addresses, for a plain, a stripped, a PIE and
 * an externally linked PIE program. Without a Go compiler only the hand-made tables are tested.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/elf/gopclntab.h"
#include "agent/elf/unwind.h"
#include "tests/fuzz/elf_image.h"

static struct image *open_image(const char *path)
{
	struct image *image = NULL;
	struct error err = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	if (image_open(fd, path, &image, &err) < 0)
		fail_msg("%s", err.message);
	return image;
}

#ifdef GO_PROGRAMS
/* The runtime prints type arguments as [...]. */
static void shorten(const char *name, char *out, size_t size)
{
	const char *open = strchr(name, '['), *close = strrchr(name, ']');

	if (open && close)
		snprintf(out, size, "%.*s[...]%s", (int)(open - name), name, close + 1);
	else
		snprintf(out, size, "%s", name);
}

static void check_program(const char *name, const char *argument)
{
	_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	char command[1024], function[512], file[512], got[512];
	unsigned long long vaddr;
	size_t lines = 0, inlined = 0, wrong = 0;
	unsigned int line;
	FILE *f;

	snprintf(command, sizeof(command), "%s/%s", GO_PROGRAMS, name);
	image = open_image(command);
	assert_int_equal(gopclntab_open(image, &t, NULL), 0);
	snprintf(command, sizeof(command), "%s/%s %s", GO_PROGRAMS, name, argument);
	f = popen(command, "re");
	assert_non_null(f);
	while (fscanf(f, "%llx %511s %511s %u\n", &vaddr, function, file, &line) == 4) {
		struct gopclntab_frame frames[GOPCLNTAB_INLINE_MAX];
		size_t n;

		/* PIE programs print the distance from their first mapping. */
		if (argument[0])
			vaddr += image->segments[0].vaddr;
		n = gopclntab_symbolize(t, vaddr, frames, ARRAY_SIZE(frames));
		lines++;
		inlined += n > 1;
		shorten(n ? frames[0].name : "?", got, sizeof(got));
		if (n && streq(got, function) && streq(frames[0].file, file) &&
		    frames[0].line == line && frames[0].is_inlined == (n > 1) &&
		    !frames[n - 1].is_inlined)
			continue;
		if (wrong++ < 3)
			print_message("%s %#llx: want %s %s:%u, got %s %s:%u\n", name, vaddr,
				      function, file, line, got, n ? frames[0].file : "",
				      n ? frames[0].line : 0);
	}
	assert_int_equal(pclose(f), 0);
	print_message("%s: %zu addresses, %zu in inlined code, %zu wrong\n", name, lines, inlined,
		      wrong);
	assert_int_equal(wrong, 0);
	assert_true(lines > 1000);
	assert_true(inlined > 50);
}
#endif

static void agrees_with_the_go_runtime(void **state)
{
#ifdef GO_PROGRAMS
	check_program("go_plain", "");
	check_program("go_stripped", "");
	check_program("go_pie", "pie");
	check_program("go_extpie", "pie");
#else
	skip();
#endif
}

/* ---- hand-made tables --------------------------------------------------------------------------
 */

enum { TEXT = 0x1000, TABLE = 0x100000, GOFUNC = 0x40000, MODULE = 0x8000, RELOCATIONS = 0x9000 };

struct table {
	uint8_t bytes[1024];
	size_t size;
};

static size_t put(struct table *t, const void *data, size_t n)
{
	size_t at = t->size;

	assert_true(t->size + n <= sizeof(t->bytes));
	memcpy(t->bytes + at, data, n);
	t->size += n;
	return at;
}

static void put32(struct table *t, uint32_t v)
{
	put(t, &v, sizeof(v));
}

static const uint8_t pushes[64] = {0x55}; /* push %rbp */
static const uint8_t *text = pushes;

/*
 * One function of 64 bytes, main.main, line 10 then 12. At [8, 16) main.inner is inlined into
 * main.outer (called at offset 20), and that into main.main (called at offset 40).
 */
static struct image *make_go(bool is_120, bool is_relocated, struct table *t)
{
	static const char names[] = "\0main.main\0main.inner\0main.outer",
			  files[] = "\0/src/main.go";
	/* Pairs of value change (zig-zag) and pc change; the value starts at -1. */
	static const uint8_t values[] = {0,
					 /* 1: sp 0, 8, 40, 8, 0 */ 2,
					 1,
					 16,
					 4,
					 64,
					 40,
					 63,
					 5,
					 15,
					 14,
					 0,
					 /* 12: file 0 */ 2,
					 64,
					 0,
					 /* 15: line 10 up to 20, then 12 */ 22,
					 20,
					 4,
					 44,
					 0,
					 /* 20: tree -1, 0, -1, 1 (at 20), -1 */ 0,
					 8,
					 2,
					 8,
					 1,
					 4,
					 4,
					 1,
					 3,
					 43,
					 0};
	static const uint32_t tree120[] = {0, 11, 20, 7, 0, 22, 40, 8};
	static const uint32_t tree118[] = {0, 0, 0, 11, 20, 0, 0, 0, 22, 40};
	uint64_t module[64] = {[0] = TABLE, [22] = TEXT, [38] = GOFUNC, [40] = GOFUNC};
	Elf64_Rela relocations[64];
	const struct elf_image_section sections[] = {
	    {".text", text, 64, TEXT, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".data", module, sizeof(module), MODULE, SHF_ALLOC | SHF_WRITE, 0},
	    {".go.func", is_120 ? tree120 : tree118, is_120 ? sizeof(tree120) : sizeof(tree118),
	     GOFUNC, SHF_ALLOC, 0},
	    {".gopclntab", t->bytes, sizeof(t->bytes), TABLE, SHF_ALLOC, 0},
	    {".rela.dyn", relocations, is_relocated ? sizeof(relocations) : 0, RELOCATIONS,
	     SHF_ALLOC, SHT_RELA},
	};
	uint64_t header[9] = {0, 1, 1, 0};
	struct image *image = NULL;
	uint8_t *file;
	size_t size;

	t->size = sizeof(header);
	header[4] = put(t, names, sizeof(names));
	t->size = ALIGN_UP(t->size, 8);
	header[5] = put(t, &(uint32_t){1}, 4);
	header[6] = put(t, files, sizeof(files));
	header[7] = put(t, values, sizeof(values));
	t->size = ALIGN_UP(t->size, 8);
	header[8] = t->size;
	put32(t, 0), put32(t, 12), put32(t, 64); /* one function, and the end of the last */
	put32(t, 0), put32(t, 1), put32(t, 0), put32(t, 0); /* entry, name, args, deferreturn */
	put32(t, 1), put32(t, 12), put32(t, 15), put32(t, 3), put32(t, 0);
	if (is_120)
		put32(t, 9);   /* start line */
	put(t, "\0\4\0\4", 4); /* funcID, flag ASM, padding, nfuncdata */
	put32(t, 0), put32(t, 0), put32(t, 20);
	put32(t, UINT32_MAX), put32(t, UINT32_MAX), put32(t, UINT32_MAX), put32(t, 0);
	header[0] = (is_120 ? 0xfffffff1 : 0xfffffff0) | 1ULL << 48 | 8ULL << 56;
	memcpy(t->bytes, header, sizeof(header));
	module[1] = TABLE + header[4];
	for (size_t i = 0; i < ARRAY_SIZE(relocations); i++) {
		relocations[i] = (Elf64_Rela){.r_offset = MODULE + i * 8,
					      .r_info = ELF64_R_INFO(0, R_X86_64_RELATIVE),
					      .r_addend = (int64_t)module[i]};
		module[i] = is_relocated ? 0 : module[i];
	}
	file = elf_image_make(sections, ARRAY_SIZE(sections), TEXT, &size);
	assert_non_null(file);
	assert_int_equal(image_from_memory(file, size, "go", &image, NULL), 0);
	free(file);
	return image;
}

static void inlined_calls_are_expanded_innermost_first(void **state)
{
	for (int i = 0; i < 4; i++) {
		bool is_120 = i & 1,
		     is_relocated = i & 2; /* moduledata in the file, or in .rela.dyn */
		_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
		_cleanup_(image_unrefp) struct image *image = NULL;
		struct gopclntab_frame f[GOPCLNTAB_INLINE_MAX];
		struct table table = {0};

		image = make_go(is_120, is_relocated, &table);
		assert_int_equal(gopclntab_open(image, &t, NULL), 0);
		assert_int_equal(gopclntab_count(t), 1);
		assert_int_equal(gopclntab_symbolize(t, TEXT + 9, f, ARRAY_SIZE(f)), 3);
		assert_string_equal(f[0].name, "main.inner");
		assert_string_equal(f[1].name, "main.outer");
		assert_string_equal(f[2].name, "main.main");
		assert_string_equal(f[0].file, "/src/main.go");
		assert_int_equal(f[0].line, 10);
		assert_int_equal(f[1].line, 12);
		assert_true(f[0].is_inlined && f[1].is_inlined && !f[2].is_inlined);
		assert_int_equal(f[2].start_line, is_120 ? 9 : 0);
		/* No room: the outermost is still there. */
		assert_int_equal(gopclntab_symbolize(t, TEXT + 9, f, 1), 1);
		assert_string_equal(f[0].name, "main.main");
		assert_int_equal(gopclntab_symbolize(t, TEXT + 2, f, ARRAY_SIZE(f)), 1);
		assert_int_equal(gopclntab_symbolize(t, TEXT + 64, f, ARRAY_SIZE(f)), 0);
		assert_int_equal(gopclntab_symbolize(t, TEXT - 1, f, ARRAY_SIZE(f)), 0);
	}
}

static void frames_follow_the_stack_pointer(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *u = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	struct table table = {0};
	static const struct {
		unsigned int at;
		int cfa;
		bool has_bp;
	} want[] = {{0, 8, false},  {1, 16, true},  {4, 16, true}, {5, 48, true},
		    {44, 48, true}, {45, 16, true}, {50, 8, false}};

	image = make_go(true, false, &table);
	assert_int_equal(unwind_compile(image, &u, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		const struct kiln_rule *r = unwind_lookup(u, TEXT + want[i].at);

		assert_int_equal(r->kind, KILN_RULE_CFA);
		assert_int_equal(r->reg, 7);
		assert_int_equal(r->ra_off, -8);
		assert_int_equal(r->cfa_off, want[i].cfa);
		assert_int_equal(r->flags, want[i].has_bp ? KILN_RULE_SAVED_FP : 0);
		assert_int_equal(r->fp_off, want[i].has_bp ? -2 : 0);
	}
}

static void rbp_is_saved_behind_the_store(void **state)
{
	/* mov %rbp, 32(%rsp) at 5, as compilers before Go 1.21 do it */
	static const uint8_t stores[64] = {[5] = 0x48, 0x89, 0x6c, 0x24, 0x20};
	_cleanup_(unwind_table_freep) struct unwind_table *u = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	struct table table = {0};

	text = stores;
	image = make_go(true, false, &table);
	text = pushes;
	assert_int_equal(unwind_compile(image, &u, NULL), 0);
	assert_int_equal(unwind_lookup(u, TEXT + 4)->flags, 0);
	assert_int_equal(unwind_lookup(u, TEXT + 9)->flags, 0);
	assert_int_equal(unwind_lookup(u, TEXT + 9)->cfa_off, 48);
	assert_int_equal(unwind_lookup(u, TEXT + 10)->flags, KILN_RULE_SAVED_FP);
	assert_int_equal(unwind_lookup(u, TEXT + 10)->fp_off, -2);
	assert_int_equal(unwind_lookup(u, TEXT + 50)->flags, 0);
}

#ifdef GO_PROGRAMS
static bool has_rule(const struct unwind_table *u, const struct gopclntab_func *f,
		     enum kiln_rule_kind kind, uint8_t flags)
{
	for (uint64_t pc = f->entry; pc < f->end; pc++) {
		const struct kiln_rule *r = unwind_lookup(u, pc);

		if (r->kind == kind && r->flags == flags)
			return true;
	}
	return false;
}

static void check_special(const struct unwind_table *u, const struct gopclntab_func *f,
			  unsigned int *seen)
{
	const struct kiln_rule *first = unwind_lookup(u, f->entry);

	if (streq(f->name, "runtime.goexit") || streq(f->name, "runtime.mstart")) {
		assert_int_equal(first->kind, KILN_RULE_STOP);
		assert_int_equal(unwind_lookup(u, f->entry + 1)->kind, KILN_RULE_STOP);
	} else if (streq(f->name, "runtime.mcall")) {
		assert_int_equal(first->kind, KILN_RULE_CFA);
		assert_true(has_rule(u, f, KILN_RULE_STOP, 0));
	} else if (streq(f->name, "runtime.sigreturn__sigaction")) {
		assert_int_equal(first->kind, KILN_RULE_SIGNAL);
		assert_int_equal(unwind_lookup(u, f->entry - 1)->kind, KILN_RULE_SIGNAL);
	} else if (streq(f->name, "runtime.systemstack") || streq(f->name, "runtime.asmcgocall")) {
		/* Two functions have each name; one is a wrapper, which does not switch stacks. */
		if (!has_rule(u, f, KILN_RULE_FP, KILN_RULE_SAVED_FP | KILN_RULE_SWITCH))
			return;
	} else {
		return;
	}
	(*seen)++;
}
#endif

static void the_runtime_switches_stacks_where_it_should(void **state)
{
#ifdef GO_PROGRAMS
	_cleanup_(unwind_table_freep) struct unwind_table *u = NULL;
	_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
	_cleanup_(image_unrefp) struct image *image = open_image(GO_PROGRAMS "/go_stripped");
	unsigned int seen = 0;
	size_t plain = 0;

	assert_int_equal(gopclntab_open(image, &t, NULL), 0);
	assert_int_equal(unwind_compile(image, &u, NULL), 0);
	for (size_t i = 0; i < gopclntab_count(t); i++) {
		const struct kiln_rule *first;
		struct gopclntab_func f;

		if (!gopclntab_at(t, i, &f))
			continue;
		check_special(u, &f, &seen);
		/* At a function's entry the return address is at the stack pointer. */
		first = unwind_lookup(u, f.entry);
		plain += first->kind == KILN_RULE_CFA && first->cfa_off == 8 && !first->flags;
	}
	assert_true(seen >= 6); /* each name once at least */
	assert_true(plain * 100 > gopclntab_count(t) * 98);
#else
	skip();
#endif
}

static void damaged_tables_are_refused_or_find_nothing(void **state)
{
	struct gopclntab_frame f[GOPCLNTAB_INLINE_MAX];

	/* Damages every byte of the table in turn; ASan sees reads outside. */
	for (size_t i = 0; i < 400; i++) {
		_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
		_cleanup_(image_unrefp) struct image *good = NULL, *image = NULL;
		_cleanup_free_ uint8_t *copy = NULL;
		struct table table = {0};
		uint8_t *at;

		good = make_go(true, false, &table);
		copy = malloc(good->size);
		memcpy(copy, good->data, good->size);
		at = memmem(copy, good->size, table.bytes, 64);
		assert_non_null(at);
		at[i] ^= 0xff;
		assert_int_equal(image_from_memory(copy, good->size, "go", &image, NULL), 0);
		if (gopclntab_open(image, &t, NULL) == 0)
			for (uint64_t pc = TEXT; pc < TEXT + 64; pc++)
				assert_true(gopclntab_symbolize(t, pc, f, ARRAY_SIZE(f)) <=
					    GOPCLNTAB_INLINE_MAX);
	}
}

static void other_programs_have_no_table(void **state)
{
	_cleanup_(gopclntab_freep) struct gopclntab *t = NULL;
	_cleanup_(image_unrefp) struct image *image = open_image("/proc/self/exe");

	assert_int_equal(gopclntab_open(image, &t, NULL), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(agrees_with_the_go_runtime),
	    cmocka_unit_test(inlined_calls_are_expanded_innermost_first),
	    cmocka_unit_test(frames_follow_the_stack_pointer),
	    cmocka_unit_test(rbp_is_saved_behind_the_store),
	    cmocka_unit_test(the_runtime_switches_stacks_where_it_should),
	    cmocka_unit_test(damaged_tables_are_refused_or_find_nothing),
	    cmocka_unit_test(other_programs_have_no_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
