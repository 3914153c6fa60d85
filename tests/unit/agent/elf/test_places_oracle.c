// SPDX-License-Identifier: Apache-2.0
/*
 * Reading single places against call frame information: in real files of this machine, places all
 * over the code are read as if only the file's bytes were known. A rule that is found must give the
 * CFA and the place of the caller's rbp as the FDE does. A limited part of the places may have no
 * rule; no rule may be wrong.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#include "agent/elf/arch.h"
#include "agent/elf/cfi.h"
#include "agent/elf/code_flow.h"
#include "agent/elf/unwind.h"

struct score {
	size_t places, none, right, wrong, other;
	size_t shown, step;
	uint64_t bytes, ns;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static const struct code_piece *piece_at(const struct code_pieces *p, uint64_t vaddr)
{
	for (size_t i = 0; i < p->n; i++)
		if (vaddr >= p->v[i].start && vaddr < p->v[i].end)
			return &p->v[i];
	return NULL;
}

static bool is_same(const struct kiln_rule *want, const struct kiln_rule *got)
{
	bool saved = want->flags & KILN_RULE_SAVED_FP, found = got->flags & KILN_RULE_SAVED_FP;

	/*
	 * Where the register still or again holds the caller's value, rules with and without its
	 * place are right.
	 */
	return want->reg == got->reg && want->cfa_off == got->cfa_off &&
	       (!saved || !found || want->fp_off == got->fp_off) &&
	       (found || !saved || want->reg == ARCH_REG_SP);
}

static void check_place(struct score *s, const struct image *image, uint64_t vaddr,
			const struct kiln_rule *want)
{
	_cleanup_(code_pieces_done) struct code_pieces pieces = {0};
	struct code_place place = {.vaddr = vaddr};
	const struct code_piece *piece;
	uint64_t bytes, start = now_ns();

	assert_int_equal(code_places_read(image, &place, 1, &pieces, &bytes), 0);
	s->ns += now_ns() - start;
	s->bytes += bytes;
	s->places++;
	piece = piece_at(&pieces, vaddr);
	assert_non_null(piece);
	if (piece->rule.kind == KILN_RULE_INVALID) {
		s->none++;
	} else if (want->kind != KILN_RULE_CFA || (want->flags & KILN_RULE_SAVED_AT_FP) ||
		   piece->rule.kind != KILN_RULE_CFA || want->reg != piece->rule.reg) {
		s->other += want->kind != piece->rule.kind || want->reg != piece->rule.reg;
	} else if (is_same(want, &piece->rule)) {
		s->right++;
	} else {
		s->wrong++;
		if (s->shown++ < 12)
			print_message("  %#llx: CFI reg %d%+d bp %d; read reg %d%+d bp %d\n",
				      (unsigned long long)vaddr, want->reg, want->cfa_off,
				      want->fp_off, piece->rule.reg, piece->rule.cfa_off,
				      piece->rule.fp_off);
	}
}

/* Checks some instructions of the function; places are instruction starts. */
static void check_function(struct score *s, const struct image *image, const struct span *span,
			   const struct unwind_table *t, uint64_t *random)
{
	struct cursor c = image_at_vaddr(image, span->start);
	uint64_t skip = *random % (s->step / 5);
	struct code_insn insn;

	if (c.bad || !image_is_code(image, span->start))
		return;
	c.size = MIN(c.size, (size_t)span->size);
	while (cursor_left(&c) && code_decode(c, span->start + c.pos, true, &insn)) {
		if (!insn.is_padding && skip-- == 0) {
			check_place(s, image, span->start + c.pos,
				    unwind_lookup(t, span->start + c.pos));
			*random = mix64(*random);
			skip = s->step + *random % (2 * s->step);
		}
		cursor_skip(&c, insn.size);
	}
}

/*
 * Checks one of EVERY functions, at places that are STEP to 3 * STEP instructions apart. WRONG: how
 * many places may have a wrong rule. NONE: percentage of the places that may have no rule.
 */
static void check_file(const char *path, size_t every, size_t step, size_t wrong, double none)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	_cleanup_(spans_done) struct spans spans = {0};
	struct score s = {.step = step};
	uint64_t random = 1;
	const struct image_section *text;
	struct cfi cfi;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || image_open(fd, path, &image, NULL) < 0) {
		print_message("%s: not here\n", path);
		return;
	}
	assert_int_equal(unwind_compile(image, &t, NULL), 0);
	assert_int_equal(cfi_open_eh_frame(&cfi, image), 0);
	assert_int_equal(cfi_collect(&cfi, &spans), 0);
	assert_int_equal(spans_sort(&spans), 0);
	text = image_section(image, ".text");
	assert_non_null(text);
	for (size_t i = 0; i < spans.n; i += every)
		if (spans.v[i].start - text->vaddr < text->size)
			check_function(&s, image, &spans.v[i], t, &random);
	cfi_done(&cfi);
	print_message("%s: %zu places: %zu right, %zu wrong, %zu by another register, %zu without "
		      "a rule (%.2f %%); %.0f us and %llu bytes each\n",
		      path, s.places, s.right, s.wrong, s.other, s.none,
		      100.0 * (double)s.none / (double)s.places,
		      (double)s.ns / 1000 / (double)s.places,
		      (unsigned long long)(s.bytes / s.places));
	assert_true(s.places > 0);
	assert_true(s.wrong + s.other <= wrong);
	assert_true(100.0 * (double)s.none <= none * (double)s.places);
}

static void test_with_frame_pointers(void **state)
{
	(void)state;
	check_file(FRAMES_LIBRARY, 1, 20, 0, 5);
}

/*
 * Code without frame pointers: hardly any place can have a rule, and no rule may be guessed. The
 * allowed differences are hand-written code whose FDE leaves out its pushes (glibc's mpn) or counts
 * from another register.
 */
static void test_without(void **state)
{
	(void)state;
	check_file("/lib/x86_64-linux-gnu/libc.so.6", 9, 200, 2, 100);
	check_file("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", 60, 200, 0, 100);
	check_file("/usr/bin/perl", 60, 200, 0, 100);
	check_file("/usr/bin/bash", 60, 200, 0, 100);
	check_file("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 40, 200, 3, 100);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_with_frame_pointers),
	    cmocka_unit_test(test_without),
	};

	for (int i = 1; i < argc; i++)
		check_file(argv[i], 1, 200, SIZE_MAX, 100);
	return argc > 1 ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
