// SPDX-License-Identifier: Apache-2.0
/*
 * symbolizer.h as a whole: programs that this test compiles (C++, Rust, Go), Go's inlined calls,
 * files and lines against the toolchain's own answers, and the caps of all caches.
 */
#include "support.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "agent/process/procfs.h"
#include "agent/symbol/elf_symbols.h"
#include "agent/symbol/frame_cache.h"
#include "agent/symbol/symbolizer.h"

static struct symbolizer *make(size_t max_table_bytes, size_t max_cached_frames)
{
	struct symbolizer_options options = {
	    .max_table_bytes = max_table_bytes,
	    .max_cached_frames = max_cached_frames,
	    .debug_root = "/usr/lib/debug",
	    .proc = in_scratch("proc"),
	    .kallsyms = in_scratch("kallsyms"),
	};
	struct symbolizer *s = NULL;

	assert_int_equal(symbolizer_new(&options, &s, NULL), 0);
	return s;
}

static struct symbolizer *make_default(void)
{
	return make(16 << 20, 65536);
}

static void symbolizer_freep(struct symbolizer **s)
{
	symbolizer_free(*s);
}

/* Address of the first symbol that nm lists with TEXT in its line. */
static uint64_t address_of(const char *path, const char *text)
{
	char *line = sh_output("nm '%s' | grep -F '%s' | head -1", path, text);
	unsigned long long address = 0;

	if (!line || sscanf(line, "%llx", &address) != 1)
		fail_msg("no %s in %s", text, path);
	free(line);
	return address;
}

/* ---- languages --------------------------------------------------------------------------------
 */

static void cxx_functions_are_demangled(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	_cleanup_(image_unrefp) struct image *image = NULL;
	struct symbol_result r;
	const char *path = in_scratch("cxx");

	write_file(in_scratch("x.cc"),
		   "namespace app { template <class T> struct Box { T v;\n"
		   "__attribute__((noinline)) T work(T a, const char *) { return v + a; } }; }\n"
		   "int main(int c, char **v) { return app::Box<int>{c}.work(c, v[0]); }\n");
	assert_int_equal(sh("g++ -O1 -o '%s' '%s'", path, in_scratch("x.cc")), 0);
	image = open_image(path);
	assert_int_equal(symbolize_image(s, image, NULL, address_of(path, "workE") + 1, &r), 0);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.type, FRAME_NATIVE);
	assert_string_equal(r.symbols[0].name, "app::Box<int>::work(int, char const*)");
	assert_string_equal(r.symbols[0].system_name, "_ZN3app3BoxIiE4workEiPKc");
	assert_string_equal(r.symbols[0].file, "");
	assert_int_equal(r.symbols[0].line, 0);
	assert_int_equal(symbolize_image(s, image, NULL, address_of(path, " main"), &r), 0);
	assert_string_equal(r.symbols[0].name, "main");
	assert_ptr_equal(r.symbols[0].name, r.symbols[0].system_name);
	/* Address 1 has no symbol, the first time and from the cache. */
	for (int i = 0; i < 2; i++) {
		r.n = 99;
		assert_int_equal(symbolize_image(s, image, NULL, 1, &r), 0);
		assert_int_equal(r.n, 0);
	}
}

/* Calls of read() and its like that this process has made. */
static long reads(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/io", "r");
	char line[64];
	long n = -1;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "syscr: %ld", &n) == 1)
			break;
	assert_true(n >= 0);
	return n;
}

static void a_function_s_name_is_read_once(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	_cleanup_(image_unrefp) struct image *image = open_image(in_scratch("cxx"));
	uint64_t main_at = address_of(in_scratch("cxx"), " main");
	struct symbol_result r;
	long idle = -reads(), before, after;

	idle += reads(); /* the reads of reads() itself */
	assert_int_equal(symbolize_image(s, image, NULL, main_at, &r), 0);
	before = reads();
	for (uint64_t i = 1; i < 8; i++) {
		assert_int_equal(symbolize_image(s, image, NULL, main_at + i, &r), 0);
		assert_int_equal(r.n, 1);
		assert_string_equal(r.symbols[0].name, "main");
	}
	after = reads();
	assert_int_equal(after - before, idle);
	assert_int_equal(
	    symbolize_image(s, image, NULL, address_of(in_scratch("cxx"), "workE"), &r), 0);
	assert_string_equal(r.symbols[0].name, "app::Box<int>::work(int, char const*)");
}

static void rust_functions_are_told_apart(void **state)
{
	static const char *const options[] = {
	    "-C symbol-mangling-version=legacy -Z unstable-options",
	    "-C symbol-mangling-version=v0", "-C opt-level=2"};
	struct symbol_result r;

	if (!have("rustc"))
		skip();
	write_file(in_scratch("r.rs"),
		   "mod app { #[inline(never)] pub fn work(n: u64) -> u64 { n.wrapping_mul(3) } }\n"
		   "fn main() { let n = std::env::args().count() as u64; "
		   "std::process::exit(app::work(n) as i32); }\n");
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
		_cleanup_(image_unrefp) struct image *image = NULL;
		const char *path = in_scratch("rust");

		if (sh("cd '%s' && rustc %s --crate-name demo -o rust r.rs 2>/dev/null", scratch,
		       options[i]) != 0) {
			assert_int_equal(i, 0); /* legacy by name needs a nightly compiler */
			continue;
		}
		image = open_image(path);
		assert_int_equal(
		    symbolize_image(s, image, NULL, address_of(path, "3app4work") + 2, &r), 0);
		assert_int_equal(r.n, 1);
		assert_int_equal(r.type, FRAME_RUST);
		assert_string_equal(r.symbols[0].name, "demo::app::work");
		/* The C function that calls it all is native. */
		assert_int_equal(symbolize_image(s, image, NULL, address_of(path, " T main"), &r),
				 0);
		assert_int_equal(r.type, FRAME_NATIVE);
		assert_string_equal(r.symbols[0].name, "main");
	}
}

static const char go_source[] =
    "package main\n"
    "\n"
    "import (\n"
    "\t\"fmt\"\n"
    "\t\"os\"\n"
    "\t\"sort\"\n"
    "\t\"strings\"\n"
    ")\n"
    "\n"
    "type stack[T any] struct{ items []T }\n"
    "\n"
    "func (s *stack[T]) push(v T) { s.items = append(s.items, v) }\n"
    "\n"
    "func small(x int) int { return x*x + len(os.Args) }\n"
    "\n"
    "func middle(x int) int {\n"
    "\tif x > 3 {\n"
    "\t\treturn small(x) + small(x+1)\n"
    "\t}\n"
    "\treturn small(x - 1)\n"
    "}\n"
    "\n"
    "//go:noinline\n"
    "func outer(x int) int {\n"
    "\ts := &stack[int]{}\n"
    "\tfor i := 0; i < x; i++ {\n"
    "\t\ts.push(middle(i))\n"
    "\t}\n"
    "\tsort.Slice(s.items, func(a, b int) bool { return s.items[a] < s.items[b] })\n"
    "\treturn len(s.items) + strings.Count(strings.Repeat(\"a\", x), \"a\")\n"
    "}\n"
    "\n"
    "func main() { fmt.Println(outer(len(os.Args))) }\n";

static bool build_go(const char *flags, const char *name)
{
	write_file(in_scratch("main.go"), go_source);
	return sh("cd '%s' && GOFLAGS=-mod=mod GO111MODULE=off CGO_ENABLED=0 go build %s -o %s "
		  "main.go",
		  scratch, flags, name) == 0;
}

/* Addresses of instructions in functions that match PATTERN, one hex number a line. */
static void list_addresses(const char *program, const char *pattern, unsigned int step)
{
	assert_int_equal(sh("cd '%s' && go tool objdump -s '%s' %s 2>/dev/null | "
			    "awk '$2 ~ /^0x/ && NR %% %u == 0 {print $2}' > addresses",
			    scratch, pattern, program, step),
			 0);
}

/* go tool addr2line says the outermost function, and the file and line of the innermost. */
static size_t compare_with_go_tool(struct symbolizer *s, struct image *image, const char *program)
{
	char *text = sh_output("cd '%s' && go tool addr2line %s < addresses", scratch, program);
	char *list = sh_output("cat '%s'", in_scratch("addresses")), *save = NULL,
	     *save_list = NULL;
	char *function = strtok_r(text, "\n", &save), *place;
	char *address = strtok_r(list, "\n", &save_list);
	struct symbol_result r;
	char got[4096];
	size_t n = 0;

	while (function && address && (place = strtok_r(NULL, "\n", &save))) {
		assert_int_equal(symbolize_image(s, image, NULL, strtoull(address, NULL, 16), &r),
				 0);
		if (!r.n)
			fail_msg("%s: nothing, want %s", address, function);
		assert_int_equal(r.type, FRAME_GO);
		assert_string_equal(r.symbols[r.n - 1].name, function);
		snprintf(got, sizeof(got), "%s:%u", r.symbols[0].file, r.symbols[0].line);
		assert_string_equal(got, place);
		n++;
		function = strtok_r(NULL, "\n", &save);
		address = strtok_r(NULL, "\n", &save_list);
	}
	free(text);
	free(list);
	return n;
}

/* llvm-addr2line -i reads the DWARF (binutils 2.40 cannot read Go 1.25's): "address", then
 * "function", "file:line", innermost first.
 */
static size_t compare_inlining(struct symbolizer *s, struct image *image, const char *program)
{
	char *text =
	    sh_output("cd '%s' && llvm-addr2line -a -f -i -e %s < addresses", scratch, program);
	char *save = NULL, *line = strtok_r(text, "\n", &save);
	size_t inlined = 0;

	while (line && has_prefix(line, "0x")) {
		uint64_t address = strtoull(line, NULL, 16);
		struct symbol_result r;
		uint32_t i = 0;

		assert_int_equal(symbolize_image(s, image, NULL, address, &r), 0);
		while ((line = strtok_r(NULL, "\n", &save)) && !has_prefix(line, "0x")) {
			char *place = strtok_r(NULL, "\n", &save);
			char got[4096];

			if (i >= r.n)
				fail_msg("%llx: frame %u missing: %s", (unsigned long long)address,
					 i, line);
			assert_string_equal(r.symbols[i].name, line);
			place[strcspn(place, " ")] = 0;
			snprintf(got, sizeof(got), "%s:%u", r.symbols[i].file, r.symbols[i].line);
			assert_string_equal(got, place);
			i++;
		}
		assert_int_equal(i, r.n);
		inlined += r.n > 1;
	}
	free(text);
	return inlined;
}

static void go_functions_have_files_lines_and_inlined_calls(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	_cleanup_(image_unrefp) struct image *image = NULL, *stripped = NULL;
	size_t n;

	if (!have("go"))
		skip();
	assert_true(build_go("", "go"));
	assert_true(build_go("-ldflags='-s -w'", "stripped"));
	image = open_image(in_scratch("go"));
	stripped = open_image(in_scratch("stripped"));
	assert_int_equal(elf_symbols_listed(stripped, false), 0);

	list_addresses("go", "^(main|sort|strings)\\.", 1);
	n = compare_with_go_tool(s, image, "go");
	printf("           %zu instructions of main, sort, strings\n", n);
	assert_true(n > 500);
	list_addresses("go", "^main\\.", 1);
	n = compare_inlining(s, image, "go");
	printf("           %zu instructions of main are inlined\n", n);
	assert_true(n > 20);
	list_addresses("go", "^(runtime|fmt|sync)\\.", 23);
	assert_true(compare_with_go_tool(s, image, "go") > 500);
	/* The stripped one has the same code at the same place. */
	list_addresses("go", "^main\\.", 1);
	if (image_section(image, ".text")->size == image_section(stripped, ".text")->size)
		assert_true(compare_with_go_tool(s, stripped, "go") > 50);
}

static void the_function_keyword_s_line_is_known(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	_cleanup_(image_unrefp) struct image *image = NULL;
	struct symbol_result r;

	if (!have("go"))
		skip();
	assert_true(build_go("", "go"));
	image = open_image(in_scratch("go"));
	assert_int_equal(
	    symbolize_image(s, image, NULL, address_of(in_scratch("go"), "T main.outer"), &r), 0);
	assert_string_equal(r.symbols[r.n - 1].name, "main.outer");
	assert_int_equal(r.symbols[r.n - 1].start_line, 24);
}

/* ---- sources of symbols -----------------------------------------------------------------------
 */

static void mini_debug_info_and_dynamic_symbols_are_put_together(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	_cleanup_(image_unrefp) struct image *image = NULL;
	const char *full = in_scratch("full.so");
	struct symbol_result r;

	write_file(in_scratch("m.c"),
		   "static __attribute__((noinline)) int hidden(int x) { return x * 3 + 1; }\n"
		   "__attribute__((noinline)) int shown(int x) { return hidden(x) ^ 5; }\n");
	assert_int_equal(sh("cd '%s' && gcc -O1 -shared -fPIC -o full.so m.c && "
			    "objcopy --keep-symbol=hidden full.so mini && xz -kf mini && "
			    "objcopy -S --add-section .gnu_debugdata=mini.xz full.so both.so",
			    scratch),
			 0);
	image = open_image(in_scratch("both.so"));
	assert_int_equal(symbolize_image(s, image, NULL, address_of(full, " hidden"), &r), 0);
	assert_string_equal(r.symbols[0].name, "hidden");
	assert_int_equal(symbolize_image(s, image, NULL, address_of(full, " shown"), &r), 0);
	assert_string_equal(r.symbols[0].name, "shown");
}

static void a_partly_stripped_file_keeps_its_exported_names(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	_cleanup_(image_unrefp) struct image *image = NULL;
	const char *full = in_scratch("full.so");
	struct symbol_result r;

	assert_int_equal(sh("cd '%s' && strip -s --keep-symbol=hidden -o part.so full.so", scratch),
			 0);
	image = open_image(in_scratch("part.so"));
	assert_true(elf_symbols_listed(image, false) > 1);
	assert_int_equal(symbolize_image(s, image, NULL, address_of(full, " hidden"), &r), 0);
	assert_string_equal(r.symbols[0].name, "hidden");
	assert_int_equal(symbolize_image(s, image, NULL, address_of(full, " shown"), &r), 0);
	assert_string_equal(r.symbols[0].name, "shown");
}

static void a_debug_file_in_the_process_s_root_is_used(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default(), *bare = make_default();
	_cleanup_(image_unrefp) struct image *image = NULL;
	const char *full = in_scratch("full.so");
	struct symbol_result r;

	assert_int_equal(
	    sh("cd '%s' && gcc -O1 -shared -fPIC -Wl,--build-id=0xabcdef01 -o full.so m.c && "
	       "mkdir -p root/usr/lib/debug/.build-id/ab && "
	       "cp full.so root/usr/lib/debug/.build-id/ab/cdef01.debug && "
	       "strip -s -o bare.so full.so",
	       scratch),
	    0);
	image = open_image(in_scratch("bare.so"));
	assert_int_equal(symbolize_image(bare, image, NULL, address_of(full, " hidden"), &r), 0);
	assert_true(r.n == 0 || !streq(r.symbols[0].name, "hidden"));
	assert_int_equal(symbolize_image(s, image, &(struct process_root){in_scratch("root"), 0, 0},
					 address_of(full, " hidden"), &r),
			 0);
	assert_string_equal(r.symbols[0].name, "hidden");
}

static void the_vdso_has_names(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	struct elf_symbols_input input = {.dynamic = true};
	struct elf_symbol symbol;
	struct symbol_result r;
	size_t known = 0;

	assert_int_equal(image_vdso(&image, NULL), 0);
	input.image = image;
	assert_int_equal(elf_symbols_build(image, &input, 1, &t, NULL), 0);
	for (size_t i = 0; elf_symbols_at(t, i, &symbol); i++) {
		assert_int_equal(symbolize_image(s, image, NULL, symbol.start, &r), 0);
		assert_int_equal(r.n, 1);
		known += streq(r.symbols[0].name, "clock_gettime") ||
			 streq(r.symbols[0].name, "__vdso_clock_gettime");
	}
	assert_true(known >= 1);
}

/* ---- kernel and JIT ---------------------------------------------------------------------------
 */

static void kernel_frames_tell_their_module(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	struct symbol_result r;
	const char *module;

	write_file(in_scratch("kallsyms"), "ffffffff81000000 T schedule\n"
					   "ffffffffc0000000 t ext4_read\t[ext4]\n");
	assert_int_equal(symbolize_kernel(s, 0xffffffff81000004, &r, &module), 0);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.type, FRAME_KERNEL);
	assert_string_equal(r.symbols[0].name, "schedule");
	assert_string_equal(module, "");
	assert_int_equal(symbolize_kernel(s, 0xffffffffc0000004, &r, &module), 0);
	assert_string_equal(r.symbols[0].name, "ext4_read");
	assert_string_equal(module, "ext4");
	assert_int_equal(symbolize_kernel(s, 0x1000, &r, &module), 0);
	assert_int_equal(r.n, 0);
	assert_string_equal(module, "");
}

static void jit_frames_come_from_the_perf_map_once_a_window(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	const uint64_t start = 7 * KILN_TICK_NS + 1;
	struct symbol_result r;

	assert_int_equal(sh("mkdir -p '%s/proc/9/root/tmp' '%s/proc/9/task/9'", scratch, scratch),
			 0);
	write_file(in_scratch("proc/9/status"), "Name:\tx\nUid:\t0\t0\t0\t0\nNSpid:\t9\t1\n");
	write_file(in_scratch("proc/9/task/9/stat"),
		   "9 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0\n");
	write_file(in_scratch("proc/9/root/tmp/perf-1.map"), "1000 10 first\n");
	assert_int_equal(symbolize_jit(s, 9, start, 0x1004, &r), 0);
	assert_int_equal(r.n, 1);
	assert_string_equal(r.symbols[0].name, "first");
	write_file(in_scratch("proc/9/root/tmp/perf-1.map"), "1000 10 first\n2000 10 second\n");
	assert_int_equal(symbolize_jit(s, 9, start, 0x2004, &r), 0);
	assert_int_equal(r.n, 0);
	symbolizer_trim(s);
	assert_int_equal(symbolize_jit(s, 9, start, 0x2004, &r), 0);
	assert_string_equal(r.symbols[0].name, "second");
	/*
	 * The map belongs to the pid's present owner: another process with that pid gets no name.
	 */
	assert_int_equal(symbolize_jit(s, 9, start + KILN_TICK_NS, 0x2004, &r), 0);
	assert_int_equal(r.n, 0);
	/* Maps that are not used are freed. */
	assert_int_equal(sh("rm '%s'", in_scratch("proc/9/root/tmp/perf-1.map")), 0);
	for (int i = 0; i < 40; i++)
		symbolizer_trim(s);
	assert_int_equal(symbolize_jit(s, 9, start, 0x2004, &r), 0);
	assert_int_equal(r.n, 0);
}

/* A real map, written by V8: each line's last byte has the name of that line or of a later one. */
static void node_s_functions_are_found_in_its_map(void **state)
{
	struct symbolizer_options options = {
	    .max_table_bytes = 16 << 20,
	    .max_cached_frames = 64,
	    .debug_root = "/nonexistent",
	    .proc = "/proc",
	    .kallsyms = "/nonexistent",
	};
	_cleanup_(symbolizer_freep) struct symbolizer *s = NULL;
	char *text, *save = NULL, name[1024];
	unsigned long long start, size;
	struct symbol_result r;
	_cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t named = 0, lines = 0;
	uint64_t ticks;
	pid_t pid;
	int status;

	if (!have("node"))
		skip();
	write_file(in_scratch("hot.js"), "function hot(n) { let s = 0; for (let i = 0; i < n; i++) "
					 "s += i % 7; return s; }\n"
					 "for (let i = 0; i < 2000; i++) hot(2000);\n"
					 "console.log('ready'); setTimeout(() => {}, 600000);\n");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen(in_scratch("node.out"), "w", stdout))
			_exit(1);
		execlp("node", "node", "--perf-basic-prof", in_scratch("hot.js"), NULL);
		_exit(1);
	}
	for (int i = 0; i < 2000 && sh("grep -q ready '%s' 2>/dev/null", in_scratch("node.out"));
	     i++)
		usleep(50000);
	assert_int_equal(symbolizer_new(&options, &s, NULL), 0);
	assert_int_equal(process_start_ticks(proc, (uint32_t)pid, &ticks), 0);
	text = sh_output("cat /tmp/perf-%d.map", (int)pid);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "%llx %llx %1023[^\n]", &start, &size, name) != 3 || !size)
			continue;
		lines++;
		assert_int_equal(
		    symbolize_jit(s, (uint32_t)pid, ticks * KILN_TICK_NS, start + size - 1, &r), 0);
		assert_int_equal(r.n, 1);
		named += streq(r.symbols[0].name, name);
	}
	free(text);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	sh("rm -f /tmp/perf-%d.map", (int)pid);
	printf("           %zu lines, %zu not overwritten\n", lines, named);
	assert_true(lines > 50);
	assert_true(named > lines / 2);
}

/* ---- caps -------------------------------------------------------------------------------------
 */

/* A checksum of the names of all addresses in .text that are STEP bytes apart. */
static uint64_t name_all(struct symbolizer *s, struct image *image, size_t step, size_t *ret_n)
{
	const struct image_section *text = image_section(image, ".text");
	struct symbol_result r;
	uint64_t sum = 0;

	*ret_n = 0;
	for (uint64_t a = text->vaddr; a < text->vaddr + text->size; a += step) {
		assert_int_equal(symbolize_image(s, image, NULL, a, &r), 0);
		for (uint32_t i = 0; i < r.n; i++)
			sum = hash_bytes(r.symbols[i].name, strlen(r.symbols[i].name), sum + a);
		*ret_n += r.n;
	}
	return sum;
}

static void small_caches_give_the_same_names(void **state)
{
	static const char *const paths[] = {"/lib/x86_64-linux-gnu/libc.so.6",
					    "/lib/x86_64-linux-gnu/libcrypto.so.3",
					    "/usr/bin/perl"};
	_cleanup_(symbolizer_freep) struct symbolizer *big = make_default(),
						      *small = make(1024, 64);
	size_t n, want_n, bytes = 0;

	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
			_cleanup_(image_unrefp) struct image *image = open_image(paths[i]);
			const struct image_section *text = image_section(image, ".text");
			uint64_t want = name_all(big, image, 4099, &want_n), sum = 0;
			struct symbol_result r;

			assert_true(want_n > 20);
			n = 0;
			for (uint64_t a = text->vaddr, k = 0; a < text->vaddr + text->size;
			     a += 4099, k++) {
				assert_int_equal(symbolize_image(small, image, NULL, a, &r), 0);
				for (uint32_t j = 0; j < r.n; j++)
					sum = hash_bytes(r.symbols[j].name,
							 strlen(r.symbols[j].name), sum + a);
				n += r.n;
				if (k % 32 == 0)
					symbolizer_trim(small);
			}
			assert_int_equal(n, want_n);
			assert_true(sum == want);
		}
		symbolizer_trim(small);
		/* Hash tables, records and 64 frames; no symbol table. */
		assert_true(symbolizer_bytes(small) < 128 << 10);
		bytes = symbolizer_bytes(big);
	}
	assert_true(bytes > 128 << 10);
}

static void a_full_frame_cache_refuses_until_the_trim(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make(16 << 20, 64);
	_cleanup_(image_unrefp) struct image *image = open_image("/lib/x86_64-linux-gnu/libc.so.6");
	uint64_t at = image_section(image, ".text")->vaddr;
	struct symbol_result r;
	size_t named = 0;

	for (size_t i = 0; i < 5000; i++) {
		assert_int_equal(symbolize_image(s, image, NULL, at + i * 64, &r), 0);
		named += r.n;
	}
	assert_true(named <= 64 * FRAME_CACHE_SLACK);
	symbolizer_trim(s);
	assert_int_equal(symbolize_image(s, image, NULL, at + 4096 * 64, &r), 0);
	assert_int_equal(symbolize_image(s, image, NULL, at + 64, &r), 0);
	assert_int_equal(r.n, 1);
}

static void images_that_only_we_hold_are_let_go(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	_cleanup_(image_unrefp) struct image *image = open_image("/usr/bin/perl"), *copy = NULL;
	size_t before = symbolizer_bytes(s), with;
	struct symbol_result r;

	assert_int_equal(image_from_memory(image->data, image->size, "copy", &copy, NULL), 0);
	assert_int_equal(
	    symbolize_image(s, copy, NULL, image_section(image, ".text")->vaddr + 4096, &r), 0);
	with = symbolizer_bytes(s);
	assert_true(with > before + 10000);
	symbolizer_trim(s);
	symbolizer_trim(s);
	assert_true(symbolizer_bytes(s) >= with); /* in use elsewhere */
	copy = image_unref(copy);
	symbolizer_trim(s);
	assert_true(symbolizer_bytes(s) < before + 10000);
}

/* Names are read from the file, so the table holds it open, but no longer than others do. */
static void files_that_only_we_hold_are_closed(void **state)
{
	static const char *const paths[] = {"/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6",
					    "/proc/self/exe"};
	_cleanup_(symbolizer_freep) struct symbolizer *s = make_default();
	struct symbol_result r;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		struct image *image = open_image(paths[i]);
		int fd = image->fd;

		assert_int_equal(symbolize_image(s, image, NULL,
						 image_section(image, ".text")->vaddr + 4096, &r),
				 0);
		symbolizer_trim(s);
		symbolizer_trim(s);
		assert_true(fcntl(fd, F_GETFD) >= 0);
		image_unref(image);
		symbolizer_trim(s);
		assert_true(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
	}
}

static void a_go_function_is_no_native_one_of_the_same_name(void **state)
{
	_cleanup_(frame_cache_freep) struct frame_cache *c = NULL;
	struct frame_function *go;

	assert_int_equal(frame_cache_new(100, &c), 0);
	assert_int_equal(frame_cache_add_function(c, FRAME_GO, NULL, "_Z1fv", "", 0, &go), 0);
	assert_null(frame_cache_function(c, FRAME_NATIVE, "_Z1fv", "", 0));
	assert_ptr_equal(frame_cache_function(c, FRAME_GO, "_Z1fv", "", 0), go);
}

static void the_clock_keeps_what_is_asked_for(void **state)
{
	_cleanup_(frame_cache_freep) struct frame_cache *c = NULL;
	struct frame_function *f;
	const struct frame *frame;
	struct frame_line line;
	char name[32];

	assert_int_equal(frame_cache_new(100, &c), 0);
	for (uint64_t a = 0; a < 100; a++) {
		snprintf(name, sizeof(name), "f%llu", (unsigned long long)a % 10);
		f = frame_cache_function(c, FRAME_NATIVE, name, "", 0);
		if (!f)
			assert_int_equal(
			    frame_cache_add_function(c, FRAME_NATIVE, NULL, name, "", 0, &f), 0);
		line = (struct frame_line){.function = f};
		assert_int_equal(frame_cache_put(c, 1, a, &line, 1, &frame), 0);
	}
	frame_cache_trim(c); /* below the cap: nothing is evicted */
	assert_int_equal(frame_cache_count(c), 100);
	/* One more window: 10 hot addresses, 200 new ones. */
	for (int window = 0; window < 20; window++) {
		for (uint64_t a = 0; a < 10; a++) {
			frame = frame_cache_get(c, 1, a);
			if (!frame)
				continue;
			snprintf(name, sizeof(name), "f%llu", (unsigned long long)a);
			assert_string_equal(frame->lines[0].function->name, name);
		}
		for (uint64_t a = 0; a < 20; a++) {
			f = frame_cache_function(c, FRAME_NATIVE, "f1", "", 0);
			assert_true(f || window);
			if (!f)
				assert_int_equal(frame_cache_add_function(c, FRAME_NATIVE, NULL,
									  "f1", "", 0, &f),
						 0);
			line = (struct frame_line){.function = f};
			assert_int_equal(
			    frame_cache_put(c, 2, a + (uint64_t)window * 1000, &line, 1, &frame),
			    0);
		}
		frame_cache_trim(c);
		assert_true(frame_cache_count(c) <= 100);
	}
	assert_non_null(frame_cache_get(c, 1, 3));
	assert_null(frame_cache_get(c, 1, 77));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cxx_functions_are_demangled),
	    cmocka_unit_test(a_function_s_name_is_read_once),
	    cmocka_unit_test(rust_functions_are_told_apart),
	    cmocka_unit_test(go_functions_have_files_lines_and_inlined_calls),
	    cmocka_unit_test(the_function_keyword_s_line_is_known),
	    cmocka_unit_test(mini_debug_info_and_dynamic_symbols_are_put_together),
	    cmocka_unit_test(a_partly_stripped_file_keeps_its_exported_names),
	    cmocka_unit_test(a_debug_file_in_the_process_s_root_is_used),
	    cmocka_unit_test(the_vdso_has_names),
	    cmocka_unit_test(kernel_frames_tell_their_module),
	    cmocka_unit_test(jit_frames_come_from_the_perf_map_once_a_window),
	    cmocka_unit_test(node_s_functions_are_found_in_its_map),
	    cmocka_unit_test(small_caches_give_the_same_names),
	    cmocka_unit_test(a_full_frame_cache_refuses_until_the_trim),
	    cmocka_unit_test(images_that_only_we_hold_are_let_go),
	    cmocka_unit_test(files_that_only_we_hold_are_closed),
	    cmocka_unit_test(a_go_function_is_no_native_one_of_the_same_name),
	    cmocka_unit_test(the_clock_keeps_what_is_asked_for),
	};

	return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
