// SPDX-License-Identifier: Apache-2.0
/*
 * Walks of bpf/unwind.h, compiled for arm64, with the tables that agent/elf makes of arm64
 * programs, over the registers and memory that record.py recorded: at every instruction that a
 * program executed, the walk must find the return addresses of all calls in progress and nothing
 * else.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <zstd.h>

#include "agent/elf/unwind.h"
#include "bpf/types.h"
#include "lib/cursor.h"
#include "tests/fuzz/elf_image.h"

enum {
	MAPS_MAX = 31,
	PAGES_MAX = 4096, /* a power of 2 */
	SLAB_WORDS = 1 << 21,
	CALLS_MAX = 256,
	RECORDING_MAX = 1 << 25,
	CACHE = 1024,
};

#include "bpf/unwind.h"

struct page {
	uint64_t address; /* 0: none */
	uint8_t bytes[KILN_PAGE];
};

struct call {
	uint64_t pc;
	bool exact; /* a signal interrupted this function at PC */
};

static struct {
	struct kiln_walk walk;
	struct kiln_mapping maps[MAPS_MAX];
	uint32_t n_maps;
	struct kiln_table tables[MAPS_MAX + 1];
	_Alignas(64) uint32_t slab[SLAB_WORDS];
	uint32_t slab_used; /* words */
	struct kiln_cache_entry cache[CACHE];
	uint64_t words[KILN_RECORD_WORDS];
	struct page pages[PAGES_MAX]; /* by their address */
	uint32_t n_pages;
	uint64_t regs[ARCH_LEAF_ROOM];
	uint64_t code_mask;
	struct call calls[CALLS_MAX]; /* outermost first */
	uint32_t n_calls;
	bool calls_unknown; /* the outer calls are taken from the first walk */
	uint32_t walks, wrong, signals, signed_addresses;
} t;

/* ---- what the walk asks ------------------------------------------------------------------------
 */

static inline struct kiln_walk *env_walk(uint32_t slot)
{
	return &t.walk;
}

static inline const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	return NULL;
}

static inline uint64_t *env_words(struct kiln_walk *w)
{
	return t.words;
}

static inline const struct kiln_mapping *env_mapping(uint32_t index)
{
	return index < t.n_maps ? &t.maps[index] : NULL;
}

static inline const struct kiln_table *env_table(uint32_t image)
{
	return image <= MAPS_MAX ? &t.tables[image] : NULL;
}

static inline const uint32_t *env_slot(uint32_t slot)
{
	return slot < SLAB_WORDS / 16 ? t.slab + (size_t)slot * 16 : NULL;
}

/* The page of ADDRESS, or where it would be put. */
static struct page *page_of(uint64_t address)
{
	uint64_t page = address & ~(uint64_t)(KILN_PAGE - 1);
	uint32_t i = (uint32_t)(page / KILN_PAGE * 0x9e3779b1u) & (PAGES_MAX - 1);

	while (t.pages[i].address && t.pages[i].address != page)
		i = (i + 1) & (PAGES_MAX - 1);
	return &t.pages[i];
}

static inline int env_read(void *dst, uint32_t len, uint64_t address)
{
	while (len > 0) {
		const struct page *page = page_of(address);
		uint32_t at = address % KILN_PAGE, part = MIN(len, KILN_PAGE - at);

		if (!page->address)
			return -1;
		memcpy(dst, page->bytes + at, part);
		dst = (uint8_t *)dst + part;
		address += part;
		len -= part;
	}
	return 0;
}

static inline struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	return &t.cache[pc % CACHE];
}

static inline struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	return NULL;
}

/* ---- tables ------------------------------------------------------------------------------------
 */

static uint32_t put(const void *data, size_t words)
{
	uint32_t at = t.slab_used;

	assert_true(words <= SLAB_WORDS - t.slab_used);
	memcpy(t.slab + at, data, words * 4);
	t.slab_used = (uint32_t)ALIGN_UP(at + words, 4);
	return at;
}

/* Maps IMAGE with its table. The walk wants mappings in order. */
static void map_image(const struct image *image, uint64_t start, uint64_t end, uint64_t bias)
{
	_cleanup_(unwind_table_freep) struct unwind_table *table = NULL;
	struct kiln_table *to;
	struct error err = {0};
	uint32_t n = t.n_maps + 1, i = t.n_maps;

	assert_true(n <= MAPS_MAX);
	assert_int_equal(unwind_compile(image, &table, &err), 0);
	for (; i > 0 && t.maps[i - 1].start > start; i--)
		t.maps[i] = t.maps[i - 1];
	t.maps[i] = (struct kiln_mapping){.start = start, .end = end, .bias = bias, .image = n};
	t.n_maps = n;
	to = &t.tables[n];
	*to = (struct kiln_table){.base = table->base,
				  .blocks = table->blocks,
				  .rows = table->n_rows,
				  .rules = table->n_rules};
	to->index_at = put(table->index, (size_t)table->blocks + 1);
	to->rows_at = put(table->rows, table->n_rows);
	to->rules_at = put(table->rules, (size_t)table->n_rules * 4);
}

/* Finds the path of the file NAME: in the recording's list, or among the test's own programs. */
static void find_file(const char *recording, const char *name, char *ret, size_t size)
{
	char list[512], line[512];
	FILE *f;

	snprintf(ret, size, "%s/arm64/%s", TEST_DATA, name);
	snprintf(list, sizeof(list), "%s.files", recording);
	f = fopen(list, "re");
	while (f && fgets(line, sizeof(line), f)) {
		const char *base = strrchr(line, '/');

		line[strcspn(line, "\n")] = 0;
		if (base && streq(base + 1, name))
			snprintf(ret, size, "%s", line);
	}
	if (f)
		fclose(f);
}

/* Skips a file that is not there: the dynamic linker, in which no recorded walk is. */
static void map_file(const char *recording, const char *name, uint64_t start, uint64_t end,
		     uint64_t bias)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	struct error err = {0};
	char path[512];
	int fd;

	find_file(recording, name, path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return;
	if (fd < 0 || image_open(fd, path, &image, &err) < 0)
		fail_msg("%s: %s", path, err.message);
	map_image(image, start, end, bias);
}

/*
 * Maps the code that a signal handler returns to. The kernel has it in the vDSO, behind a nop. The
 * emulator has it at the beginning of a page of its own: this maps the page before it too, which
 * ends with the nop.
 */
static void map_trampoline(uint64_t address)
{
	enum { NOP_AT = 0xffc, SIZE = 0x2000, TEXT = 0x10000 };
	static const uint8_t code[] = {0x1f, 0x20, 0x03, 0xd5,	/* nop */
				       0x68, 0x11, 0x80, 0xd2,	/* mov x8, #139 */
				       0x01, 0x00, 0x00, 0xd4}; /* svc #0 */
	static uint8_t text[SIZE];
	const struct elf_image_section section = {
	    ".text", text, sizeof(text), TEXT, SHF_ALLOC | SHF_EXECINSTR, 0};
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_free_ uint8_t *file = NULL;
	uint64_t start = (address & ~(uint64_t)0xfff) - 0x1000;
	size_t size;

	if (t.signals) /* it is there */
		return;
	memcpy(text + NOP_AT, code, sizeof(code));
	file = elf_image_make(&section, 1, TEXT, &size);
	assert_non_null(file);
	assert_int_equal(image_from_memory(file, size, "trampoline", &image, NULL), 0);
	map_image(image, start, start + SIZE, start - TEXT);
}

/* ---- one walk ----------------------------------------------------------------------------------
 */

static const char *const end_names[KILN_END_COUNT] = {
    "none",	"root",	   "no process", "no mapping", "no table",  "no rule",
    "bad read", "bad cfa", "depth",	 "shed",       "unresolved"};

static void print_walk(void)
{
	const struct kiln_walk *w = &t.walk;

	print_message("walk %u, sp %#llx x29 %#llx x30 %#llx; ended: %s\n", t.walks,
		      (unsigned long long)t.regs[ARCH_REG_SP],
		      (unsigned long long)t.regs[ARCH_REG_FP],
		      (unsigned long long)t.regs[ARCH_REG_RA], end_names[w->end]);
	for (uint32_t i = 0; i < MAX(w->n, t.n_calls + 1); i++) {
		const struct call *call = i ? &t.calls[t.n_calls - i] : NULL;

		print_message("  %#12llx%s",
			      i < w->n ? (unsigned long long)(t.words[i] & KILN_FRAME_PC_MASK) : 0,
			      i < w->n && t.words[i] & KILN_FRAME_RETURN ? " ret" : "    ");
		if (i <= t.n_calls)
			print_message("  want %#12llx%s",
				      (unsigned long long)(call ? call->pc : t.regs[ARCH_REG_PC]),
				      !call || call->exact ? "" : " ret");
		print_message("\n");
	}
}

static bool is_right(void)
{
	if (t.walk.end != KILN_END_ROOT || t.walk.n != t.n_calls + 1 ||
	    (t.words[0] & KILN_FRAME_PC_MASK) != t.regs[ARCH_REG_PC])
		return false;
	for (uint32_t i = 1; i < t.walk.n; i++) {
		const struct call *call = &t.calls[t.n_calls - i];

		if ((t.words[i] & KILN_FRAME_PC_MASK) != call->pc ||
		    !(t.words[i] & KILN_FRAME_RETURN) != call->exact)
			return false;
	}
	return true;
}

static void push(uint64_t pc, bool exact)
{
	assert_true(t.n_calls < CALLS_MAX);
	t.calls[t.n_calls++] = (struct call){.pc = pc, .exact = exact};
}

/*
 * In a recording of a program that was running already, the first walk gives the outer calls; all
 * later walks must agree with it.
 */
static void take_outer_calls(void)
{
	t.calls_unknown = false;
	assert_int_equal(t.walk.end, KILN_END_ROOT);
	for (uint32_t i = t.walk.n; i > 1; i--)
		push(t.words[i - 1] & KILN_FRAME_PC_MASK, false);
}

static void walk(void)
{
	struct kiln_walk *w = &t.walk;

	*w = (struct kiln_walk){
	    .regs = {.pc = t.regs[ARCH_REG_PC],
		     .sp = t.regs[ARCH_REG_SP],
		     .fp = t.regs[ARCH_REG_FP],
		     .extra = t.regs[ARCH_REG_EXTRA]},
	    .tag = 1,
	    .count = t.n_maps,
	    .exact = 1,
	    .leaf_valid = 1,
	};
	memcpy(w->leaf, t.regs, sizeof(w->leaf));
	arch_walk_init(&w->arch, t.code_mask);
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	assert_int_equal(walk_put(w, walk_frame(w)), 0);
	walk_on(w);
	t.walks++;
	if (t.calls_unknown)
		take_outer_calls();
	if (is_right())
		return;
	if (t.wrong++ < 5)
		print_walk();
}

/* ---- recordings ---------------------------------------------------------------------------------
 */

static void add_page(uint64_t address)
{
	assert_true(t.n_pages++ < PAGES_MAX / 2);
	page_of(address)->address = address;
}

static void set_word(uint64_t address, uint64_t value)
{
	struct page *page = page_of(address);

	/* A code address with bits above it is one that pointer authentication (PAC) has signed. */
	if (value & ~t.code_mask &&
	    (value & t.code_mask) - t.maps[0].start < t.maps[0].end - t.maps[0].start)
		t.signed_addresses++;
	assert_true(page->address && address % 8 == 0);
	memcpy(page->bytes + address % KILN_PAGE, &value, 8);
}

static void change_interrupted(uint64_t pc)
{
	uint32_t i = t.n_calls;

	while (i > 0 && !t.calls[i - 1].exact)
		i--;
	assert_true(i > 0);
	t.calls[i - 1].pc = pc;
}

static void replay(struct cursor *c)
{
	uint64_t address;

	while (cursor_left(c) && !c->bad) {
		switch (cursor_u8(c)) {
		case 'R':
			address = cursor_u8(c);
			assert_true(address < ARCH_REGS);
			t.regs[address] = cursor_u64(c);
			break;
		case 'G':
			add_page(cursor_u64(c));
			break;
		case 'M':
			address = cursor_u64(c);
			set_word(address, cursor_u64(c));
			break;
		case 'C':
			push(cursor_u64(c), false);
			break;
		case 'S':
			address = cursor_u64(c);
			map_trampoline(address);
			push(cursor_u64(c), true);
			push(address, false);
			t.signals++;
			break;
		case 'P':
			change_interrupted(cursor_u64(c));
			break;
		case 'O':
			t.calls_unknown = true;
			break;
		case 'T':
		case 'U':
			assert_true(t.n_calls > 0);
			t.n_calls--;
			break;
		case 'W':
			walk();
			break;
		default:
			fail_msg("recording is damaged at %zu", c->pos);
		}
	}
	assert_false(c->bad);
}

/* As zstd packs it, or not packed. */
static void *read_recording(const char *path, size_t *ret_size)
{
	_cleanup_free_ void *packed = malloc(RECORDING_MAX);
	void *data = malloc(RECORDING_MAX);
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	n = read(fd, packed, RECORDING_MAX);
	close(fd);
	assert_true(n > 8 && n < RECORDING_MAX);
	*ret_size = (size_t)n;
	if (memcmp(packed, "KILN", 4) == 0) {
		memcpy(data, packed, (size_t)n);
		return data;
	}
	*ret_size = ZSTD_decompress(data, RECORDING_MAX, packed, (size_t)n);
	assert_false(ZSTD_isError(*ret_size));
	return data;
}

static void replay_file(const char *path)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct cursor c;
	size_t size;

	memset(&t, 0, sizeof(t));
	t.slab_used = 16; /* no table is at 0 */
	data = read_recording(path, &size);
	c = cursor_of(data, size);
	assert_memory_equal(cursor_bytes(&c, 8), "KILNARM1", 8);
	t.code_mask = cursor_u64(&c);
	for (uint64_t n = cursor_u64(&c); n && !c.bad; n--) {
		uint64_t start = cursor_u64(&c), end = cursor_u64(&c), bias = cursor_u64(&c);
		const char *file = (const char *)cursor_bytes(&c, 64);

		assert_non_null(file);
		map_file(path, file, start, end, bias);
	}
	replay(&c);
	print_message("%u walks, %u wrong, %u signals, %u signed addresses\n", t.walks, t.wrong,
		      t.signals, t.signed_addresses);
}

static void every_walk_is_right(void **state)
{
	const char *name = *state;
	char path[512];

	snprintf(path, sizeof(path), "%s/arm64/%s.rec.zst", TEST_DATA, name);
	replay_file(path);
	assert_int_equal(t.wrong, 0);
	assert_true(t.walks > 1000);
	assert_int_equal(t.signals, 3);
	assert_int_equal(!!strstr(name, "pac"), t.signed_addresses > 10);
}

/* For programs by others: their assembler code may have wrong call frame information. */
static void nearly_every_walk_is_right(void **state)
{
	replay_file(*state);
	assert_true(t.walks > 100);
	assert_true(t.wrong * 1000 <= t.walks);
}

#define RECORDING(name, test)                                                                      \
	{                                                                                          \
		name, test, NULL, NULL, (void *)(uintptr_t)(name)                                  \
	}

/* test_arm64_recorded [RECORDING]: without arguments, those of our own programs. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    RECORDING("gcc", every_walk_is_right),
	    RECORDING("gcc-nofp", every_walk_is_right),
	    RECORDING("gcc-pac", every_walk_is_right),
	    RECORDING("clang", every_walk_is_right),
	    RECORDING("clang-pac", every_walk_is_right),
	    RECORDING("gcc-shared", every_walk_is_right),
	    RECORDING("gcc-bare", every_walk_is_right),
	    RECORDING("clang-bare", every_walk_is_right),
	};

	if (argc > 1) {
		const struct CMUnitTest named[] = {RECORDING(argv[1], nearly_every_walk_is_right)};

		return cmocka_run_group_tests(named, NULL, NULL);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
