// SPDX-License-Identifier: Apache-2.0
/* Names that are made of what the walker sent, and of memory that has changed since. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/runtime/perl/perl.h"

enum { FUNCTION = 0x1000, FILE_AT = 0x2000, SCRATCH = 4096 };

static struct kiln_text text_of(uint32_t kind, uint64_t function, uint32_t place,
				const struct kiln_perl_text *from)
{
	struct kiln_text text = {.type = KILN_RECORD_TEXT, .runtime = KILN_RUNTIME_PERL};

	text.words[0] = (uint64_t)kind << KILN_FRAME_FLAG_SHIFT |
			(uint64_t)place << KILN_PERL_PLACE_SHIFT | function;
	memcpy(text.bytes, from, sizeof(*from));
	return text;
}

static void check_text(uint32_t kind, uint64_t function, uint32_t place,
		       const struct kiln_perl_text *from, const char *name, const char *file)
{
	struct kiln_text text = text_of(kind, function, place, from);
	struct symbol_result got = {0};
	char scratch[SCRATCH];

	assert_int_equal(perl_read_text(NULL, &text, scratch, sizeof(scratch), &got), 0);
	assert_int_equal(got.n, 1);
	assert_int_equal(got.type, FRAME_PERL);
	assert_string_equal(got.symbols[0].name, name);
	assert_string_equal(got.symbols[0].file, file);
	assert_int_equal(got.symbols[0].line, from->line);
	assert_int_equal(got.symbols[0].start_line, from->start);
}

static void each_kind_of_frame_has_its_form(void **unused)
{
	struct kiln_perl_text sub = {.line = 7,
				     .start = 5,
				     .file = "/srv/shop/cart.pl",
				     .package = "Shop::Cart",
				     .name = "total"};
	struct kiln_perl_text anon = sub, lexical = sub, code = {.line = 3, .file = "/a/Foo.pm"};

	(void)unused;
	check_text(KILN_PERL_GV, FUNCTION, KILN_PERL_PLACE_COP, &sub, "Shop::Cart::total",
		   "/srv/shop/cart.pl");
	check_text(KILN_PERL_CV, FUNCTION, KILN_PERL_PLACE_COP, &sub, "Shop::Cart::total",
		   "/srv/shop/cart.pl");
	check_text(KILN_PERL_FORMAT, FUNCTION, KILN_PERL_PLACE_COP, &sub,
		   "format Shop::Cart::total", "/srv/shop/cart.pl");
	/* A module has given it a name. */
	check_text(KILN_PERL_ANON, FUNCTION, KILN_PERL_PLACE_COP, &sub, "Shop::Cart::total",
		   "/srv/shop/cart.pl");
	strcpy(anon.name, "__ANON__");
	check_text(KILN_PERL_ANON, FUNCTION, KILN_PERL_PLACE_COP, &anon,
		   "Shop::Cart::__ANON__[cart.pl:5]", "/srv/shop/cart.pl");
	check_text(KILN_PERL_ANON, FUNCTION, KILN_PERL_PLACE_EVAL, &anon,
		   "Shop::Cart::__ANON__[(eval):5]", "(eval)");
	anon.start = 0;
	check_text(KILN_PERL_ANON, FUNCTION, KILN_PERL_PLACE_COP, &anon, "Shop::Cart::__ANON__",
		   "/srv/shop/cart.pl");
	lexical.package[0] = '\0';
	check_text(KILN_PERL_HEK, FUNCTION, KILN_PERL_PLACE_COP, &lexical, "total",
		   "/srv/shop/cart.pl");
	check_text(KILN_PERL_CODE, KILN_PERL_MAIN, KILN_PERL_PLACE_COP, &code, "(main)",
		   "/a/Foo.pm");
	check_text(KILN_PERL_CODE, KILN_PERL_REQUIRE, KILN_PERL_PLACE_COP, &code,
		   "(require Foo.pm)", "/a/Foo.pm");
	/* Above the kind is what tells the file. */
	check_text(KILN_PERL_CODE, KILN_PERL_REQUIRE | 0xabcdULL << KILN_PERL_FILE_SHIFT,
		   KILN_PERL_PLACE_FILE, &code, "(require Foo.pm)", "/a/Foo.pm");
	check_text(KILN_PERL_CODE, KILN_PERL_EVAL, KILN_PERL_PLACE_EVAL, &code, "(eval)", "(eval)");
}

static void names_of_both_kinds_become_utf8(void **unused)
{
	struct kiln_perl_text latin = {
	    .file = "f", .package = "p", .name = {'g', 'r', (char)0xf6, (char)0xdf, 'e'}};
	struct kiln_perl_text utf8 = {
	    .file = "f", .package = "p", .name = "größe", .utf8 = KILN_PERL_UTF8_NAME};

	(void)unused;
	check_text(KILN_PERL_GV, FUNCTION, KILN_PERL_PLACE_COP, &latin, "p::größe", "f");
	check_text(KILN_PERL_GV, FUNCTION, KILN_PERL_PLACE_COP, &utf8, "p::größe", "f");
}

static void texts_without_end_stay_within_bounds(void **unused)
{
	struct kiln_perl_text full;

	(void)unused;
	memset(&full, 0xff, sizeof(full));
	for (uint32_t kind = 0; kind < 8; kind++) {
		struct kiln_text text = text_of(kind, FUNCTION, KILN_PERL_PLACE_COP, &full);

		for (size_t size = 1; size < 1024; size += 7) {
			char *scratch = malloc(size);
			struct symbol_result got = {0};

			assert_non_null(scratch);
			assert_int_equal(perl_read_text(NULL, &text, scratch, size, &got), 0);
			assert_true(strlen(got.symbols[0].name) < size);
			free(scratch);
		}
	}
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static char file_name[256];

static int read_file_name(void *arg, uint64_t address, void *dst, size_t len)
{
	(void)arg;
	if (address < FILE_AT || address - FILE_AT + len > sizeof(file_name))
		return -EFAULT;
	memcpy(dst, file_name + (address - FILE_AT), len);
	return 0;
}

static const struct target_memory memory = {.read = read_file_name};

static void a_file_whose_name_was_replaced_is_noticed(void **unused)
{
	struct perl_process process = {.layout = perl_layout_of(36), .threaded = true};
	uint64_t name[KILN_PERL_NAME_WORDS] = {0}, words[2];
	struct symbol_result got = {0};
	char scratch[SCRATCH];

	(void)unused;
	strcpy(file_name, "/usr/share/perl/5.36/Foo.pm");
	memcpy(name, file_name, strlen(file_name));
	words[0] = (uint64_t)KILN_PERL_CODE << KILN_FRAME_FLAG_SHIFT |
		   (uint64_t)KILN_PERL_PLACE_FILE << KILN_PERL_PLACE_SHIFT | KILN_PERL_REQUIRE |
		   kiln_perl_file_cookie(name) << KILN_PERL_FILE_SHIFT;
	words[1] = (uint64_t)FILE_AT >> 3 << KILN_PERL_AT_SHIFT | 42;
	assert_int_equal(perl_symbolize(&process, &memory, words, scratch, sizeof(scratch), &got),
			 0);
	assert_string_equal(got.symbols[0].name, "(require Foo.pm)");
	assert_string_equal(got.symbols[0].file, file_name);
	assert_int_equal(got.symbols[0].line, 42);
	strcpy(file_name, "/usr/share/perl/5.36/Bar.pm");
	assert_int_equal(perl_symbolize(&process, &memory, words, scratch, sizeof(scratch), &got),
			 -EFAULT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_kind_of_frame_has_its_form),
	    cmocka_unit_test(names_of_both_kinds_become_utf8),
	    cmocka_unit_test(texts_without_end_stay_within_bounds),
	    cmocka_unit_test(a_file_whose_name_was_replaced_is_noticed),
	};

	return cmocka_run_group_tests_name("perl_names", tests, NULL, NULL);
}
