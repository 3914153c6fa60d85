// SPDX-License-Identifier: Apache-2.0
/*
 * The index against binutils: for each function of large real files, what its first, middle and
 * last byte resolve to must be what the rules in elf_symbols.h give when applied, slowly and
 * plainly, to the list that readelf prints; PLT stubs against objdump.
 */
#include "support.h"

#include <elf.h>

#include "agent/symbol/elf_symbols.h"

/* ---- the oracle -------------------------------------------------------------------------------
 */

struct oracle_symbol {
	uint64_t start, size, section_end;
	uint64_t reach; /* the greatest end of this and all before */
	int rank;
	char *name;
};

struct oracle {
	struct oracle_symbol *symbols;
	size_t n, cap;
};

static int by_start(const void *a, const void *b)
{
	const struct oracle_symbol *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static void parse_line(struct oracle *o, const struct image *image, const char *line)
{
	char value[32], size[32], type[16], bind[16], vis[16], ndx[16], name[8192] = "";
	const struct image_section *s;
	unsigned long index;
	int rank;

	if (sscanf(line, " %*d: %31s %31s %15s %15s %15s %15s %8191[^\n]", value, size, type, bind,
		   vis, ndx, name) < 7)
		return;
	index = strtoul(ndx, NULL, 10);
	if (!index || index >= image->n_sections)
		return;
	s = &image->sections[index];
	if (!(s->flags & SHF_EXECINSTR))
		return;
	if (streq(type, "FUNC") || streq(type, "IFUNC"))
		rank = 4;
	else if (streq(type, "NOTYPE"))
		rank = 0;
	else
		return;
	rank += streq(bind, "LOCAL") ? 0 : streq(bind, "WEAK") ? 1 : 2;
	assert_int_equal(
	    grow_array((void **)&o->symbols, &o->cap, o->n + 1, sizeof(*o->symbols), 10 << 20), 0);
	o->symbols[o->n++] = (struct oracle_symbol){
	    .start = strtoull(value, NULL, 16),
	    .size = strtoull(size, NULL, 0),
	    .section_end = s->vaddr + s->size,
	    .rank = rank,
	    .name = strdup(name),
	};
}

static void oracle_read(struct oracle *o, const struct image *image, const char *path, bool dynamic)
{
	char *text =
	    sh_output("readelf -W %s '%s' 2>/dev/null", dynamic ? "--dyn-syms" : "-s", path);
	bool wanted = false;
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (has_prefix(line, "Symbol table"))
			wanted = strstr(line, dynamic ? ".dynsym" : ".symtab") != NULL;
		else if (wanted)
			parse_line(o, image, line);
	}
	free(text);
	if (dynamic) { /* readelf adds versions: "malloc@@GLIBC_2.2.5" */
		for (size_t i = 0; i < o->n; i++)
			o->symbols[i].name[strcspn(o->symbols[i].name, "@")] = 0;
	}
	qsort(o->symbols, o->n, sizeof(*o->symbols), by_start);
	for (size_t i = 0; i < o->n; i++) {
		uint64_t end = o->symbols[i].start + o->symbols[i].size;

		o->symbols[i].reach = i ? MAX(end, o->symbols[i - 1].reach) : end;
	}
}

static void oracle_free(struct oracle *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->symbols[i].name);
	free(o->symbols);
}

static bool better(const struct oracle_symbol *x, const struct oracle_symbol *y)
{
	size_t a = strspn(x->name, "_"), b = strspn(y->name, "_");

	if (x->rank != y->rank)
		return x->rank > y->rank;
	if (a != b)
		return a < b;
	if (strlen(x->name) != strlen(y->name))
		return strlen(x->name) < strlen(y->name);
	return strcmp(x->name, y->name) < 0;
}

/* What covers ADDRESS; LAST: index of the last symbol that starts at or before it. */
static const struct oracle_symbol *oracle_sized(const struct oracle *o, size_t last,
						uint64_t address)
{
	const struct oracle_symbol *best = NULL;

	for (size_t i = last + 1; i-- > 0 && o->symbols[i].reach > address;) {
		const struct oracle_symbol *s = &o->symbols[i];

		if (address - s->start >= s->size || address >= s->section_end)
			continue;
		if (best && s->start < best->start)
			break;
		if (!best || better(s, best))
			best = s;
	}
	return best;
}

static const struct oracle_symbol *oracle_find(const struct oracle *o, size_t last,
					       uint64_t address)
{
	const struct oracle_symbol *best = oracle_sized(o, last, address);

	/* The nearest symbol before, if one that says nothing of its size starts there. */
	if (best || oracle_sized(o, last, o->symbols[last].start))
		return best;
	for (size_t i = last + 1; i-- > 0 && o->symbols[i].start == o->symbols[last].start;) {
		const struct oracle_symbol *s = &o->symbols[i];

		if (address < s->section_end && (!best || better(s, best)))
			best = s;
	}
	return best;
}

static size_t last_at(const struct oracle *o, uint64_t address)
{
	size_t lo = 0, hi = o->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (o->symbols[mid].start <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo - 1;
}

static void check_address(const struct oracle *o, const struct elf_symbols *t, uint64_t address,
			  const char *path)
{
	const struct oracle_symbol *want = oracle_find(o, last_at(o, address), address);
	struct elf_symbol got;
	char name[8192] = "";
	bool found = elf_symbols_find(t, address, &got);

	if (found)
		elf_symbols_name(t, &got, name, sizeof(name));
	if (!want && found && strstr(name, "@plt"))
		return;
	if (!want != !found ||
	    (want && strcmp(want->name, name) != 0 &&
	     (strlen(want->name) < 4095 || strncmp(want->name, name, 4094) != 0)))
		fail_msg("%s at %llx: want '%s', got '%s'", path, (unsigned long long)address,
			 want ? want->name : "", name);
}

static size_t check_file(const char *path, bool dynamic)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	_cleanup_(oracle_free) struct oracle o = {0};
	struct elf_symbols_input input = {.dynamic = dynamic};
	size_t checked = 0;

	image = open_image(path);
	input.image = image;
	if (elf_symbols_listed(image, dynamic) < 2)
		return 0;
	oracle_read(&o, image, path, dynamic);
	assert_true(o.n > 0);
	assert_int_equal(elf_symbols_build(image, &input, 1, &t, NULL), 0);
	for (size_t i = 0; i < o.n; i++) {
		const struct oracle_symbol *s = &o.symbols[i];

		check_address(&o, t, s->start, path);
		if (s->size) {
			check_address(&o, t, s->start + s->size / 2, path);
			check_address(&o, t, s->start + s->size - 1, path);
			check_address(&o, t, s->start + s->size, path);
		}
		checked++;
	}
	printf("           %s: %zu symbols, %zu bytes\n", path, checked, elf_symbols_bytes(t));
	/* 12 bytes a piece, and hardly more pieces than symbols. */
	assert_true(elf_symbols_bytes(t) < 14 * o.n + (200 << 10));
	return checked;
}

static void every_function_of_real_files_has_binutils_name(void **state)
{
	const char *const globs =
	    "/lib/*-linux-gnu/libc.so.6 /lib/*-linux-gnu/libcrypto.so.3 "
	    "/lib/*-linux-gnu/libstdc++.so.6 /usr/bin/perl /usr/bin/node /usr/bin/python3 "
	    "/usr/lib/jvm/*/lib/server/libjvm.so /usr/lib/*-linux-gnu/libLLVM-14.so.1 "
	    "/usr/lib/*-linux-gnu/libpython3*.so.1.0 /usr/bin/qemu-system-x86_64";
	char *list = sh_output("ls -d %s 2>/dev/null | head -12", globs), *save = NULL;
	size_t n = 0;

	for (char *path = strtok_r(list, "\n", &save); path; path = strtok_r(NULL, "\n", &save)) {
		n += check_file(path, true);
		n += check_file(path, false);
	}
	free(list);
	assert_true(n > 2000); /* libc at least */
}

/* ---- files made for the purpose ---------------------------------------------------------------
 */

static const char asm_source[] =
    ".text\n"
    ".globl outer\n.type outer,@function\nouter:\n nop\n nop\n"
    ".type inner,@function\ninner:\n nop\n nop\n.size inner,.-inner\n"
    " nop\n nop\n.size outer,.-outer\n"
    /* aliases: a local, a weak and two global names of one function */
    ".type a_local,@function\n.weak a_weak\n.type a_weak,@function\n"
    ".globl __a_internal\n.type __a_internal,@function\n.globl a_public\n"
    ".type a_public,@function\n.globl a_pub\n.type a_pub,@function\n"
    "a_local:\na_weak:\n__a_internal:\na_public:\na_pub:\n nop\n nop\n"
    ".size a_local,2\n.size a_weak,2\n.size __a_internal,2\n.size a_public,2\n.size a_pub,2\n"
    /* without a size, up to the next symbol; then a typed one wins over an untyped one */
    ".globl unsized\nunsized:\n nop\n nop\n nop\n"
    ".globl untyped\n.globl typed\n.type typed,@function\nuntyped:\ntyped:\n nop\n"
    ".size typed,1\n.size untyped,1\n"
    " nop\n nop\n" /* nobody's */
    ".globl same\n.type same,@function\n.type same_long,@function\nsame:\nsame_long:\n"
    " nop\n nop\n nop\n.size same,1\n.size same_long,3\n"
    ".section .text.other,\"ax\",@progbits\n"
    ".globl last\nlast:\n nop\n nop\n"
    ".data\n.globl not_code\n.type not_code,@function\nnot_code: .quad 0\n.size not_code,8\n";

static const char *name_at(const struct elf_symbols *t, uint64_t vaddr)
{
	static char name[256];
	struct elf_symbol s;

	if (!elf_symbols_find(t, vaddr, &s))
		return "-";
	elf_symbols_name(t, &s, name, sizeof(name));
	return name;
}

static struct image *build_asm(void)
{
	write_file(in_scratch("a.s"), asm_source);
	assert_int_equal(sh("cd '%s' && gcc -shared -nostdlib -o a.so a.s", scratch), 0);
	return open_image(in_scratch("a.so"));
}

static void nesting_aliases_and_sizes_follow_the_rules(void **state)
{
	_cleanup_(image_unrefp) struct image *image = build_asm();
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	struct elf_symbols_input input = {.image = image};
	uint64_t text = image_section(image, ".text")->vaddr;
	static const char *const want[] = {
	    "outer", "outer",	  "inner",     "inner",	  "outer", "outer", "a_pub",
	    "a_pub", "unsized",	  "unsized",   "unsized", "typed", "-",	    "-",
	    "same",  "same_long", "same_long", "last",	  "last",  "-",
	};

	assert_int_equal(elf_symbols_build(image, &input, 1, &t, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		if (!streq(name_at(t, text + i), want[i]))
			fail_msg("byte %zu: want %s, got %s", i, want[i], name_at(t, text + i));
	}
	assert_false(elf_symbols_find(t, text - 1, &(struct elf_symbol){0}));
	assert_false(
	    elf_symbols_find(t, image_section(image, ".data")->vaddr, &(struct elf_symbol){0}));
	assert_false(elf_symbols_find(t, 0, &(struct elf_symbol){0}));
	assert_false(elf_symbols_find(t, UINT64_MAX, &(struct elf_symbol){0}));
}

static void names_of_memory_images_outlive_them(void **state)
{
	_cleanup_(image_unrefp) struct image *image = build_asm(), *copy = NULL;
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	struct elf_symbols_input input = {0};
	uint64_t text = image_section(image, ".text")->vaddr;

	assert_int_equal(image_from_memory(image->data, image->size, "copy", &copy, NULL), 0);
	input.image = copy;
	assert_int_equal(elf_symbols_build(image, &input, 1, &t, NULL), 0);
	copy = image_unref(copy);
	assert_string_equal(name_at(t, text + 2), "inner");
	assert_string_equal(name_at(t, text), "outer");
}

static void compressed_tables_are_unpacked(void **state)
{
	_cleanup_(image_unrefp) struct image *image = build_asm(), *debug = NULL;
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	struct image_section *symtab = NULL;
	struct elf_symbols_input input = {0};
	uint64_t text = image_section(image, ".text")->vaddr;

	/* No tool writes a compressed .symtab, so mark one in an image by hand: 24 bytes of header.
	 */
	assert_int_equal(
	    sh("cd '%s' && objcopy -O binary --only-section=.none a.so none 2>/dev/null;"
	       "python3 - <<'E'\n"
	       "import struct, zlib\n"
	       "d = bytearray(open('%s/a.so','rb').read())\n"
	       "shoff = struct.unpack_from('<Q', d, 40)[0]\n"
	       "n = struct.unpack_from('<H', d, 60)[0]\n"
	       "for i in range(n):\n"
	       "  o = shoff + 64 * i\n"
	       "  if struct.unpack_from('<I', d, o + 4)[0] == 2:\n"
	       "    off, size = struct.unpack_from('<QQ', d, o + 24)\n"
	       "    z = struct.pack('<IIQQ', 1, 0, size, 8) + "
	       "zlib.compress(bytes(d[off:off+size]))\n"
	       "    struct.pack_into('<Q', d, o + 8, 0x800)\n"
	       "    struct.pack_into('<QQ', d, o + 24, len(d), len(z))\n"
	       "    d += z\n"
	       "    break\n"
	       "open('%s/z.so','wb').write(d)\n"
	       "E\n",
	       scratch, scratch, scratch),
	    0);
	debug = open_image(in_scratch("z.so"));
	for (size_t i = 0; i < debug->n_sections; i++) {
		if (debug->sections[i].type == SHT_SYMTAB)
			symtab = &debug->sections[i];
	}
	assert_non_null(symtab);
	assert_true(symtab->flags & SHF_COMPRESSED);
	input.image = debug;
	assert_int_equal(elf_symbols_build(image, &input, 1, &t, NULL), 0);
	assert_string_equal(name_at(t, text + 2), "inner");
}

/* ---- PLT --------------------------------------------------------------------------------------
 */

/* Compares with objdump -d, whose stubs are "0000000000001030 <puts@plt>:". */
static size_t check_plt(const char *path)
{
	_cleanup_(image_unrefp) struct image *image = open_image(path);
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	char *text = sh_output("objdump -d -j .plt -j .plt.sec -j .plt.got '%s' 2>/dev/null", path);
	char name[4096], *save = NULL;
	unsigned long long at;
	size_t n = 0;

	assert_int_equal(elf_symbols_build(image, NULL, 0, &t, NULL), 0);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "%llx <%4095[^>]>:", &at, name) != 2 || !strstr(name, "@plt") ||
		    strstr(name, "@plt-0x"))
			continue;
		if (has_prefix(name, "*ABS*")) {
			/* The resolver is nameless to objdump; we know its address, too. */
			name[strcspn(name, "@")] = 0;
			assert_non_null(strstr(name_at(t, at), "@plt"));
		} else {
			/* objdump: "puts@plt"; versions come as "puts@GLIBC_2.2.5@plt" nowhere. */
			assert_string_equal(name_at(t, at), name);
			assert_string_equal(name_at(t, at + 5), name);
		}
		n++;
	}
	free(text);
	return n;
}

static void plt_stubs_are_named_as_objdump_does(void **state)
{
	static const char *const options[] = {
	    "-fcf-protection=none -Wl,-z,lazy",
	    "-fcf-protection=none -Wl,-z,now -fno-plt",
	    "-fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy",
	    "-fcf-protection=full -Wl,-z,ibtplt -Wl,-z,now",
	    "-no-pie -Wl,-z,lazy",
	};

	write_file(in_scratch("p.c"), "#include <stdio.h>\n#include <stdlib.h>\n"
				      "#include <string.h>\nvoid *keep;\n"
				      "int main(int c, char **v) { keep = (void *)puts; puts(v[0]);"
				      " return atoi(v[0]) + (int)strlen(getenv(v[0])); }\n");
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		assert_int_equal(sh("cd '%s' && gcc -O1 %s -o p p.c", scratch, options[i]), 0);
		if (!strstr(options[i], "-fno-plt"))
			assert_true(check_plt(in_scratch("p")) >= 3);
	}
	assert_true(check_plt("/usr/bin/perl") > 100);
	assert_true(check_plt("/bin/bash") > 100);
}

static void ifunc_stubs_are_named_after_their_function(void **state)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	struct elf_symbols_input input = {.dynamic = true};
	struct elf_symbol s;
	char name[256];
	size_t named = 0;

	image = open_image("/lib/x86_64-linux-gnu/libc.so.6");
	input.image = image;
	assert_int_equal(elf_symbols_build(image, &input, 1, &t, NULL), 0);
	for (size_t i = 0; elf_symbols_at(t, i, &s); i++) {
		elf_symbols_name(t, &s, name, sizeof(name));
		named += streq(name, "strlen@plt") || streq(name, "strchr@plt");
	}
	assert_int_equal(named, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nesting_aliases_and_sizes_follow_the_rules),
	    cmocka_unit_test(names_of_memory_images_outlive_them),
	    cmocka_unit_test(compressed_tables_are_unpacked),
	    cmocka_unit_test(plt_stubs_are_named_as_objdump_does),
	    cmocka_unit_test(ifunc_stubs_are_named_after_their_function),
	    cmocka_unit_test(every_function_of_real_files_has_binutils_name),
	};

	return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
