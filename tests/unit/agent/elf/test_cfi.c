// SPDX-License-Identifier: Apache-2.0
/*
 * Call frame information made by hand, one feature each: what every instruction does to the rule,
 * which expressions are understood, which encodings and layouts are read, and that damage stays
 * local.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/elf/unwind.h"
#include "lib/buf.h"
#include "tests/fuzz/elf_image.h"

enum { TEXT = 0x1000, TEXT_SIZE = 0x4000, EH_FRAME = 0x10000, DATA = 0x20000 };

/* Bytes of a section, and what the next FDE refers to. */
struct cfi_bytes {
	struct buf b;
	uint32_t cie;
};

struct piece {
	const char *bytes;
	size_t size;
};
#define BYTES(s) ((struct piece){s, sizeof(s) - 1})
#define PCREL	 "\x1b" /* DW_EH_PE_pcrel | sdata4 */

static void u8(struct buf *b, uint8_t v)
{
	buf_append(b, &v, 1);
}

static void u32(struct buf *b, uint32_t v)
{
	buf_append(b, &v, 4);
}

static void u64(struct buf *b, uint64_t v)
{
	buf_append(b, &v, 8);
}

/* Writes the length that was left open at AT, after padding with DW_CFA_nop. */
static void close_entry(struct buf *b, size_t at)
{
	uint32_t n;

	while (b->len % 4)
		u8(b, 0);
	n = (uint32_t)(b->len - at - 4);
	memcpy(b->data + at, &n, 4);
}

static void cie(struct cfi_bytes *c, const char *augmentation, struct piece data)
{
	c->cie = (uint32_t)c->b.len;
	u32(&c->b, 0);
	u32(&c->b, 0);
	u8(&c->b, 1);
	buf_append(&c->b, augmentation, strlen(augmentation) + 1);
	buf_append(&c->b, "\x01\x78\x10", 3); /* code 1, data -8, return address 16 */
	if (augmentation[0] == 'z') {
		u8(&c->b, (uint8_t)data.size);
		buf_append(&c->b, data.bytes, data.size);
	}
	buf_append(&c->b, "\x0c\x07\x08\x90\x01", 5); /* CFA rsp+8, return address at CFA-8 */
	close_entry(&c->b, c->cie);
}

static void fde(struct cfi_bytes *c, uint32_t start, uint32_t size, struct piece program)
{
	size_t at = c->b.len;

	u32(&c->b, 0);
	u32(&c->b, (uint32_t)c->b.len - c->cie);
	u32(&c->b, start - (EH_FRAME + (uint32_t)c->b.len));
	u32(&c->b, size);
	u8(&c->b, 0);
	buf_append(&c->b, program.bytes, program.size);
	close_entry(&c->b, at);
}

static void begin(struct cfi_bytes *c)
{
	buf_init(&c->b, 1 << 20);
	cie(c, "zR", BYTES(PCREL));
}

/* Text that is all nops, with the sections' bytes. */
static struct unwind_table *compile_sections(const struct buf *eh_frame,
					     const struct buf *debug_frame)
{
	static uint8_t text[TEXT_SIZE];
	static const uint64_t data[2] = {TEXT + 0x100, 0};
	const struct elf_image_section sections[] = {
	    {".text", text, sizeof(text), TEXT, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".data", data, sizeof(data), DATA, SHF_ALLOC, 0},
	    {".eh_frame", eh_frame ? eh_frame->data : NULL, eh_frame ? eh_frame->len : 0, EH_FRAME,
	     SHF_ALLOC, 0},
	    {".debug_frame", debug_frame ? debug_frame->data : NULL,
	     debug_frame ? debug_frame->len : 0, 0, 0, 0},
	};
	struct unwind_table *t = NULL;
	struct image *image = NULL;
	struct error err = {0};
	size_t size;
	uint8_t *file;

	memset(text, 0x90, sizeof(text));
	file = elf_image_make(sections, ARRAY_SIZE(sections), 0, &size);
	assert_non_null(file);
	assert_int_equal(image_from_memory(file, size, "test", &image, &err), 0);
	assert_int_equal(unwind_compile(image, &t, &err), 0);
	image_unref(image);
	free(file);
	return t;
}

static struct unwind_table *finish(struct cfi_bytes *c)
{
	struct unwind_table *t;

	assert_int_equal(buf_error(&c->b), 0);
	t = compile_sections(&c->b, NULL);
	buf_done(&c->b);
	return t;
}

/* One FDE for [TEXT + 0x100, + 0x100) under the usual CIE. */
static struct unwind_table *compile(struct piece program)
{
	struct cfi_bytes c;

	begin(&c);
	fde(&c, TEXT + 0x100, 0x100, program);
	return finish(&c);
}

static void expect(const struct unwind_table *t, uint64_t pc, struct kiln_rule want)
{
	const struct kiln_rule *got = unwind_lookup(t, pc);

	if (memcmp(got, &want, sizeof(want)) != 0)
		fail_msg(
		    "%#llx: kind %d reg %d flags %d ra %d cfa %d bp %d bx %d deref %d, want kind "
		    "%d reg %d flags %d ra %d cfa %d bp %d bx %d deref %d",
		    (unsigned long long)pc, got->kind, got->reg, got->flags, got->ra_off,
		    got->cfa_off, got->fp_off, got->extra_off, got->deref_off, want.kind, want.reg,
		    want.flags, want.ra_off, want.cfa_off, want.fp_off, want.extra_off,
		    want.deref_off);
}

static struct kiln_rule cfa(uint8_t reg, int32_t off)
{
	return (struct kiln_rule){.kind = KILN_RULE_CFA, .reg = reg, .ra_off = -8, .cfa_off = off};
}

static struct kiln_rule with_bp(struct kiln_rule r, int16_t off)
{
	r.flags |= KILN_RULE_SAVED_FP;
	r.fp_off = off;
	return r;
}

static struct kiln_rule with_bx(struct kiln_rule r, int16_t off)
{
	r.flags |= KILN_RULE_SAVED_EXTRA;
	r.extra_off = off;
	return r;
}

static const struct kiln_rule invalid = {.kind = KILN_RULE_INVALID};
static const struct kiln_rule stop = {.kind = KILN_RULE_STOP};

#define F (TEXT + 0x100)

static void a_frame_pointer_prologue_gives_a_row_each_step(void **state)
{
	/* push %rbp; mov %rsp,%rbp; ...; leave; ret */
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(BYTES("\x41\x0e\x10\x86\x02\x43\x0d\x06\x70\x0c\x07\x08\xc6"));

	expect(t, F - 1, invalid);
	expect(t, F, cfa(7, 8));
	expect(t, F + 1, with_bp(cfa(7, 16), -2));
	expect(t, F + 3, with_bp(cfa(7, 16), -2));
	expect(t, F + 4, with_bp(cfa(6, 16), -2));
	expect(t, F + 0x33, with_bp(cfa(6, 16), -2));
	expect(t, F + 0x34, cfa(7, 8));
	expect(t, F + 0xff, cfa(7, 8));
	expect(t, F + 0x100, invalid);
	assert_int_equal(t->malformed, 0);
	assert_int_equal(t->unsupported, 0);
}

static void advances_of_all_widths_count(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(BYTES("\x02\x10\x0e\x10\x03\x10\x00\x0e\x18\x04\x10\x00\x00\x00\x0e\x20"));

	expect(t, F + 0x0f, cfa(7, 8));
	expect(t, F + 0x10, cfa(7, 16));
	expect(t, F + 0x20, cfa(7, 24));
	expect(t, F + 0x30, cfa(7, 32));
}

static void states_are_remembered_and_restored(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(BYTES("\x41\x0e\x10\x83\x02\x41\x0a\x0c\x06\x30\xc3\x41\x0b"));

	expect(t, F + 1, with_bx(cfa(7, 16), -2));
	expect(t, F + 2, cfa(6, 48));
	expect(t, F + 3, with_bx(cfa(7, 16), -2));
}

static void signed_and_extended_forms_mean_the_same(void **state)
{
	/* def_cfa_sf rbp -2; offset_extended_sf rbx 3; negative_offset_extended rbp 4 */
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(BYTES("\x41\x12\x06\x7e\x11\x03\x03\x2f\x06\x04\x41\x05\x06\x04\x08\x03\x41\x06"
			  "\x06\x13\x7d"));

	expect(t, F + 1, with_bx(with_bp(cfa(6, 16), 4), -3));
	expect(t, F + 2, with_bp(cfa(6, 16), -4));
	expect(t, F + 3, cfa(6, 24));
}

static void an_undefined_return_address_ends_the_stack(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = compile(BYTES("\x41\x07\x10"));

	expect(t, F, cfa(7, 8));
	expect(t, F + 1, stop);
}

static void the_return_address_may_be_in_a_register(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = /* glibc's vfork: pop %rdi */
	    compile(BYTES("\x41\x0e\x00\x09\x10\x05"));
	struct kiln_rule want = cfa(7, 0);

	want.kind = KILN_RULE_RA_REG;
	want.ra_off = 5;
	expect(t, F + 1, want);
}

static void the_plt_expression_is_known(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(BYTES("\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"));

	expect(t, F,
	       (struct kiln_rule){.kind = KILN_RULE_PLT, .reg = 7, .ra_off = -8, .cfa_off = 11});
}

static void a_realigned_stack_is_dereferenced(void **state)
{
	/* gcc: CFA *(rbp-8); rbp at rbp+0; rbx at rbp-40 */
	_cleanup_(unwind_table_freep) struct unwind_table *t =
	    compile(BYTES("\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00\x10\x03\x02\x76\x58"));
	/* OpenSSL: CFA *(rsp+40) + 8 */
	_cleanup_(unwind_table_freep) struct unwind_table *u =
	    compile(BYTES("\x0f\x05\x77\x28\x06\x23\x08\x86\x02"));

	expect(t, F,
	       (struct kiln_rule){.kind = KILN_RULE_DEREF,
				  .reg = 6,
				  .flags = KILN_RULE_SAVED_FP | KILN_RULE_SAVED_EXTRA |
					   KILN_RULE_SAVED_AT_FP,
				  .ra_off = -8,
				  .cfa_off = -8,
				  .extra_off = -5});
	expect(u, F,
	       (struct kiln_rule){.kind = KILN_RULE_DEREF,
				  .reg = 7,
				  .flags = KILN_RULE_SAVED_FP,
				  .ra_off = -8,
				  .cfa_off = 40,
				  .fp_off = -2,
				  .deref_off = 8});
}

static void a_signal_frame_gives_its_ucontext(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	/* glibc's __restore_rt: CFA *(rsp+160), return address at rsp+168 */
	struct piece program = BYTES("\x0f\x04\x77\xa0\x01\x06\x10\x10\x03\x77\xa8\x01");
	struct cfi_bytes c;

	buf_init(&c.b, 1 << 20);
	cie(&c, "zRS", BYTES(PCREL));
	fde(&c, F, 16, program);
	t = finish(&c);
	expect(t, F, (struct kiln_rule){.kind = KILN_RULE_SIGNAL, .reg = 7});
	unwind_table_free(t);
	/* The same without 'S' is no signal frame, and no rule says it. */
	t = compile(program);
	expect(t, F, invalid);
	assert_int_equal(t->unsupported, 1);
}

static void what_no_rule_says_is_invalid_and_counted(void **state)
{
	static const struct piece programs[] = {
	    BYTES("\x0f\x02\x30\x06"),	       /* CFA expression: lit0; deref */
	    BYTES("\x0e\x80\x80\x80\x80\x10"), /* CFA rsp + 2^32 */
	    BYTES("\x86\x80\x80\x04"),	       /* rbp at CFA - 8 * 65536 */
	    BYTES("\x11\x06\x80\x80\x7c"),     /* rbp at CFA + 8 * 65536 */
	    BYTES("\x09\x06\x0c"),	       /* rbp in r12 */
	    BYTES("\x14\x06\x02"),	       /* rbp is CFA - 16 */
	    BYTES("\x16\x06\x01\x30"),	       /* rbp is 0, by expression */
	    BYTES("\x08\x10"),		       /* return address unchanged */
	    BYTES("\x90\x20"),		       /* return address at CFA - 256 */
	    BYTES("\x10\x10\x02\x73\x00"),     /* return address at *rbx */
	};

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		_cleanup_(unwind_table_freep) struct unwind_table *t = compile(programs[i]);

		expect(t, F, invalid);
		assert_int_equal(t->unsupported, 1);
		assert_int_equal(t->malformed, 0);
	}
}

static void damaged_programs_keep_what_was_before(void **state)
{
	static const struct piece programs[] = {
	    BYTES("\x41\x0e\x10\x41\x3f"),	   /* unknown instruction */
	    BYTES("\x41\x0e\x10\x41\x0b"),	   /* nothing to restore */
	    BYTES("\x41\x0e\x10\x41\x0f\x7f\x77"), /* block longer than the FDE */
	    BYTES("\x41\x0e\x10\x41\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a"
		  "\x0a\x0a\x0a\x0a"), /* remembers too often */
	};

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		_cleanup_(unwind_table_freep) struct unwind_table *t = compile(programs[i]);

		expect(t, F, cfa(7, 8));
		expect(t, F + 1, cfa(7, 16));
		expect(t, F + 2, invalid);
		expect(t, F + 0xff, invalid);
		assert_int_equal(t->malformed, 1);
	}
}

static void short_gaps_belong_to_the_function_before(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	struct cfi_bytes c;

	begin(&c);
	fde(&c, F, 0x10, BYTES(""));
	fde(&c, F + 0x1f, 0x10, BYTES("\x0e\x10")); /* 15 bytes behind */
	fde(&c, F + 0x3f, 0x10, BYTES("\x0e\x18")); /* 16 bytes behind */
	t = finish(&c);
	expect(t, F + 0x1e, cfa(7, 8));
	expect(t, F + 0x1f, cfa(7, 16));
	expect(t, F + 0x2e, cfa(7, 16));
	expect(t, F + 0x2f, invalid);
	expect(t, F + 0x3e, invalid);
	expect(t, F + 0x3f, cfa(7, 24));
	expect(t, F + 0x4f, invalid);
}

static void equal_rows_are_written_once(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	struct cfi_bytes c;

	begin(&c);
	for (uint32_t i = 0; i < 100; i++)
		fde(&c, F + i * 16, 16, BYTES("\x41\x2e\x10\x41\x2e\x00"));
	t = finish(&c);
	assert_int_equal(t->n_rows, 3); /* invalid, the rule, invalid */
	assert_int_equal(t->n_rules, 2);
	expect(t, F, cfa(7, 8));
	expect(t, F + 1599, cfa(7, 8));
}

static void overlapping_functions_end_at_the_next(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	struct cfi_bytes c;

	begin(&c);
	fde(&c, F + 0x20, 0x40, BYTES("\x0e\x10"));
	fde(&c, F, 0x40, BYTES("\x0e\x18"));	    /* out of order, runs into the first */
	fde(&c, F + 0x20, 0x40, BYTES("\x0e\x20")); /* a duplicate */
	fde(&c, 0, 0x40, BYTES("\x0e\x28"));	    /* dropped by the linker */
	fde(&c, DATA, 0x10, BYTES("\x0e\x28"));	    /* not code */
	t = finish(&c);
	expect(t, F, cfa(7, 24));
	expect(t, F + 0x1f, cfa(7, 24));
	expect(t, F + 0x20, cfa(7, 16));
	expect(t, F + 0x5f, cfa(7, 16));
	assert_int_equal(t->malformed, 0);
}

static void many_functions_sort_in_any_order(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	struct cfi_bytes c;
	char program[3] = "\x0e";

	begin(&c);
	for (uint32_t i = 0; i < 512; i++) {
		uint32_t k = i * 293 % 512;

		program[1] = (char)(8 + k % 100);
		fde(&c, TEXT + k * 32, 32, (struct piece){program, 2});
	}
	t = finish(&c);
	for (uint32_t k = 0; k < 512; k++) {
		expect(t, TEXT + k * 32, cfa(7, (int32_t)(8 + k % 100)));
		expect(t, TEXT + k * 32 + 31, cfa(7, (int32_t)(8 + k % 100)));
	}
	assert_int_equal(t->blocks, TEXT_SIZE >> KILN_BLOCK_SHIFT);
	assert_int_equal(t->index[t->blocks], t->n_rows);
	assert_int_equal(unwind_table_bytes(t) % 16, 0);
}

/* ---- layouts -----------------------------------------------------------------------------------
 */

static void pointers_of_every_encoding_are_read(void **state)
{
	static const struct {
		uint8_t encoding;
		uint64_t value; /* of TEXT + 0x100, before the base */
		uint8_t width;
	} encodings[] = {
	    {0x00, F, 8},     {0x04, F, 8},    {0x0c, F, 8}, {0x03, F, 4},
	    {0x0b, F, 4},     {0x02, F, 2},    {0x0a, F, 2}, {0x20, 0x100, 8},
	    {0x23, 0x100, 4}, {0x80, DATA, 8}, /* indirect: the word there is F */
	};

	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
		_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
		char encoding = (char)encodings[i].encoding;
		struct cfi_bytes c;
		uint64_t size = 0x100;
		size_t at;

		buf_init(&c.b, 1 << 20);
		cie(&c, "zR", (struct piece){&encoding, 1});
		at = c.b.len;
		u32(&c.b, 0);
		u32(&c.b, (uint32_t)c.b.len - c.cie);
		buf_append(&c.b, &encodings[i].value, encodings[i].width);
		buf_append(&c.b, &size, encodings[i].width);
		buf_append(&c.b, "\0\x0e\x10", 3);
		close_entry(&c.b, at);
		t = finish(&c);
		expect(t, F, cfa(7, 16));
		expect(t, F + 0xff, cfa(7, 16));
		expect(t, F + 0x100, invalid);
	}
}

static void augmentations_are_skipped_by_their_length(void **state)
{
	static const struct {
		const char *letters;
		struct piece data;
	} augmentations[] = {
	    {"zPLR", BYTES("\x03\x01\x02\x03\x04\x1b" PCREL)},
	    {"zRSB", BYTES(PCREL)},
	    {"zRX", BYTES(PCREL "\x01\x02\x03")},
	};

	for (size_t i = 0; i < ARRAY_SIZE(augmentations); i++) {
		_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
		struct cfi_bytes c;

		buf_init(&c.b, 1 << 20);
		cie(&c, augmentations[i].letters, augmentations[i].data);
		fde(&c, F, 0x10, BYTES("\x0e\x10"));
		t = finish(&c);
		expect(t, F, cfa(7, 16));
	}
}

static void debug_frame_entry(struct buf *b, bool is_64, bool is_cie, struct buf *body,
			      uint64_t cie_at)
{
	if (is_64) {
		u32(b, UINT32_MAX);
		u64(b, body->len + 8);
		u64(b, is_cie ? UINT64_MAX : cie_at);
	} else {
		u32(b, (uint32_t)body->len + 4);
		u32(b, is_cie ? UINT32_MAX : (uint32_t)cie_at);
	}
	buf_append(b, body->data, body->len);
	buf_reset(body);
}

static void debug_frame_fills_what_eh_frame_leaves(void **state)
{
	for (int is_64 = 0; is_64 < 2; is_64++) {
		for (uint8_t version = 1; version <= 4; version++) {
			_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
			struct cfi_bytes c;
			struct buf b, body;
			uint64_t cie_at;

			if (version == 2)
				continue;
			begin(&c);
			fde(&c, F + 0x10, 0x10, BYTES("\x0e\x20"));
			buf_init(&b, 1 << 20);
			buf_init(&body, 1 << 20);
			/* The FDE stands first, so its CIE lies ahead. */
			u64(&body, F);
			u64(&body, 0x40);
			buf_append(&body, "\x41\x0e\x10\x60\x0e\x18", 6);
			cie_at = (is_64 ? 20 : 8) + body.len;
			debug_frame_entry(&b, is_64, false, &body, cie_at);
			u8(&body, version);
			u8(&body, 0);
			if (version == 4)
				buf_append(&body, "\x08\x00", 2);
			buf_append(&body, "\x01\x78\x10\x0c\x07\x08\x90\x01", 8);
			debug_frame_entry(&b, is_64, true, &body, 0);
			t = compile_sections(&c.b, &b);
			expect(t, F, cfa(7, 8));
			expect(t, F + 0x0f, cfa(7, 16));
			expect(t, F + 0x10, cfa(7, 32));
			expect(t, F + 0x1f, cfa(7, 32));
			expect(t, F + 0x20, cfa(7, 16));
			expect(t, F + 0x21, cfa(7, 24));
			expect(t, F + 0x3f, cfa(7, 24));
			expect(t, F + 0x40, invalid);
			assert_int_equal(t->malformed, 0);
			buf_done(&body);
			buf_done(&b);
			buf_done(&c.b);
		}
	}
}

static void damaged_entries_are_skipped(void **state)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	struct cfi_bytes c;
	uint32_t good;

	begin(&c);
	good = c.cie;
	cie(&c, "q", BYTES("")); /* unknown augmentation */
	fde(&c, F, 0x10, BYTES("\x0e\x10"));
	c.cie = good + 3; /* no CIE there */
	fde(&c, F + 0x20, 0x10, BYTES("\x0e\x10"));
	c.cie = good;
	fde(&c, F + 0x40, 0x10, BYTES("\x0e\x10"));
	u32(&c.b, 0); /* an early terminator */
	fde(&c, F + 0x60, 0x10, BYTES("\x0e\x10"));
	u32(&c.b, 0x7fffffff); /* longer than the section */
	u32(&c.b, 0);
	t = finish(&c);
	expect(t, F, invalid);
	expect(t, F + 0x20, invalid);
	expect(t, F + 0x40, cfa(7, 16));
	expect(t, F + 0x60, cfa(7, 16));
	assert_int_equal(t->malformed, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_frame_pointer_prologue_gives_a_row_each_step),
	    cmocka_unit_test(advances_of_all_widths_count),
	    cmocka_unit_test(states_are_remembered_and_restored),
	    cmocka_unit_test(signed_and_extended_forms_mean_the_same),
	    cmocka_unit_test(an_undefined_return_address_ends_the_stack),
	    cmocka_unit_test(the_return_address_may_be_in_a_register),
	    cmocka_unit_test(the_plt_expression_is_known),
	    cmocka_unit_test(a_realigned_stack_is_dereferenced),
	    cmocka_unit_test(a_signal_frame_gives_its_ucontext),
	    cmocka_unit_test(what_no_rule_says_is_invalid_and_counted),
	    cmocka_unit_test(damaged_programs_keep_what_was_before),
	    cmocka_unit_test(short_gaps_belong_to_the_function_before),
	    cmocka_unit_test(equal_rows_are_written_once),
	    cmocka_unit_test(overlapping_functions_end_at_the_next),
	    cmocka_unit_test(many_functions_sort_in_any_order),
	    cmocka_unit_test(pointers_of_every_encoding_are_read),
	    cmocka_unit_test(augmentations_are_skipped_by_their_length),
	    cmocka_unit_test(debug_frame_fills_what_eh_frame_leaves),
	    cmocka_unit_test(damaged_entries_are_skipped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
