// SPDX-License-Identifier: Apache-2.0
/* demangle.h, against c++filt and against names whose text is known. */
#include "support.h"

#include "agent/symbol/demangle.h"

static void expect(const char *name, const char *want, bool want_rust)
{
	_cleanup_free_ char *text = NULL;
	bool rust = !want_rust;

	assert_int_equal(demangle(name, &text, &rust), 0);
	if (want) {
		assert_non_null(text);
		assert_string_equal(text, want);
	} else {
		assert_null(text);
	}
	assert_int_equal(rust, want_rust);
}

static void plain_names_stay(void **state)
{
	expect("main", NULL, false);
	expect("", NULL, false);
	expect("@", NULL, false);
	expect("_start", NULL, false);
	expect("_ReadSomething", NULL, false);
	expect("_Zombie", NULL, false);
	expect(".L12", NULL, false);
	expect("cold", NULL, false);
	expect("main.main", NULL, false);
	expect("nested.0", NULL, false); /* a number alone says nothing in C */
}

static void cxx_names_keep_their_parameters(void **state)
{
	expect("_ZN3foo3barEv", "foo::bar()", false);
	expect("_Z1fiPKc", "f(int, char const*)", false);
	expect("_ZNSt6vectorIiSaIiEE9push_backERKi",
	       "std::vector<int, std::allocator<int> >::push_back(int const&)", false);
	expect("_ZN1AD0Ev", "A::~A()", false);
	expect("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()() const", false);
}

static void rust_names_lose_their_hash_and_are_told_apart(void **state)
{
	expect("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE",
	       "core::fmt::Formatter::write_str", true);
	expect("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
	       "3bar17h930b740aa94f1d3aE",
	       "<Test + 'static as foo::Bar<Test>>::bar", true);
	expect("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example", true);
	expect("_RNvMNtCs1234_7mycrate3fooNtB2_3Foo3bar.llvm.9D1C9369", "<mycrate::foo::Foo>::bar",
	       true);
}

static void what_compilers_append_is_taken_off(void **state)
{
	expect("f.cold", "f", false);
	expect("f.part.0", "f", false);
	expect("f.isra.0.cold", "f", false);
	expect("f.constprop.3.isra.2", "f", false);
	expect("f.lto_priv.0", "f", false);
	expect("f.llvm.1234567890", "f", false);
	expect("_Z1fv.part.0.cold", "f()", false);
	expect("_Z1fv.5", "f()", false);
	expect("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE.llvm.123",
	       "core::fmt::Formatter::write_str", true);
	expect("malloc@@GLIBC_2.2.5", "malloc", false);
	expect("malloc@GLIBC_2.2.5", "malloc", false);
	expect("f.cold@@V1", "f", false);
	expect("_ZNSsC1Ev@@GLIBCXX_3.4",
	       "std::basic_string<char, std::char_traits<char>, std::allocator<char> "
	       ">::basic_string()",
	       false);
	expect("printf@plt", "printf@plt", false);
	expect("_Z1fv@plt", "f()@plt", false);
	expect("printf@GLIBC_2.2.5@plt", "printf", false);
	expect(".cold", NULL, false);
}

static void expect_cut(const char *name, bool want_rust)
{
	_cleanup_free_ char *text = NULL;
	bool rust;

	assert_int_equal(demangle(name, &text, &rust), 0);
	assert_non_null(text);
	assert_int_equal(strlen(text), DEMANGLE_MAX - 1);
	assert_int_equal(rust, want_rust);
}

/* Each parameter is a pair of the one before, so that 34 of them make 300 GB of text. */
static void hostile_names_end_at_the_cap(void **state)
{
	static const char ids[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char name[1024] = "_Z1fSt4pairIiiE", more[16];

	for (int i = 0; i < 34; i++) {
		snprintf(more, sizeof(more), "S_IS%c_S%c_E", ids[i], ids[i]);
		strcat(name, more);
	}
	expect_cut(name, false);
	/* The same of Rust's tuples and back references. */
	expect_cut(
	    "_RIC1aTyyETB3_B3_ETB7_B7_ETBf_Bf_ETBn_Bn_ETBv_Bv_ETBD_BD_ETBL_BL_ETBT_BT_ETB11_B11_"
	    "ETB19_B19_ETB1j_B1j_ETB1t_B1t_ETB1D_B1D_ETB1N_B1N_ETB1X_B1X_ETB27_B27_ETB2h_B2h_ETB2r_"
	    "B2r_ETB2B_B2B_ETB2L_B2L_ETB2V_B2V_ETB35_B35_ETB3f_B3f_ETB3p_B3p_ETB3z_B3z_ETB3J_B3J_"
	    "ETB3T_B3T_ETB43_B43_ETB4d_B4d_ETB4n_B4n_ETB4x_B4x_ETB4H_B4H_ETB4R_B4R_ETB51_B51_ETB5b_"
	    "B5b_ETB5l_B5l_ETB5v_B5v_ETB5F_B5F_ETB5P_B5P_ETB5Z_B5Z_EE",
	    true);
}

/* libiberty counts lifetimes one by one, also in parts of a name that it does not print. */
static void a_number_of_lifetimes_is_not_counted_to(void **state)
{
	alarm(60);
	expect("_RNvMIC1aFG0_EuEu1d", "<()>::d", true);
	expect("_RNvMIC1aFGzzzzzzzz_EuEu1d", NULL, false);
	expect("_RNvMIC1aDGzzzzzzzz_C1bEL_Eu1d", NULL, false);
	alarm(0);
}

/* A punycode identifier is printed from memory that libiberty frees: a leak for LeakSanitizer. */
static void a_punycode_identifier_is_cut_without_a_leak(void **state)
{
	char name[3100] = "_RNvC1au3000";

	memset(name + strlen(name), 'a', 3000);
	expect_cut(name, true);
}

static void names_beyond_the_cap_stay_mangled(void **state)
{
	_cleanup_free_ char *name = malloc(2 * DEMANGLE_MAX), *text = NULL;
	bool rust;

	strcpy(name, "_Z");
	memset(name + 2, 'i', 2 * DEMANGLE_MAX - 3);
	name[2 * DEMANGLE_MAX - 1] = 0;
	assert_int_equal(demangle(name, &text, &rust), 0);
	assert_null(text);
}

/* All C++ names of libstdc++, and of libjvm or libLLVM when there is one, as c++filt prints them.
 */
static void real_names_read_as_by_cxxfilt(void **state)
{
	static const char list[] =
	    "for f in /lib/*-linux-gnu/libstdc++.so.6 "
	    "/usr/lib/*-linux-gnu/libLLVM-14.so.1 /usr/lib/jvm/*/lib/server/libjvm.so;"
	    "do [ -f $f ] && { nm -D --defined-only $f; nm --defined-only $f; } "
	    "2>/dev/null; done | awk '$3 ~ /^_Z/ && $3 !~ /[.@]/ {print $3}' | sort -u"
	    " | awk 'NR % 4 == 0'";
	char *names, *texts, *name, *text, *save_name = NULL, *save_text = NULL;
	size_t n = 0;

	names = sh_output("%s", list);
	write_file(in_scratch("names"), names);
	texts = sh_output("c++filt < '%s'", in_scratch("names"));
	name = strtok_r(names, "\n", &save_name);
	text = strtok_r(texts, "\n", &save_text);
	for (; name && text;
	     name = strtok_r(NULL, "\n", &save_name), text = strtok_r(NULL, "\n", &save_text)) {
		_cleanup_free_ char *got = NULL;
		bool rust;

		assert_int_equal(demangle(name, &got, &rust), 0);
		assert_false(rust);
		if (strlen(text) >= DEMANGLE_MAX)
			assert_memory_equal(got, text, DEMANGLE_MAX - 1);
		else
			assert_string_equal(got ? got : name, text);
		n++;
	}
	printf("           %zu names\n", n);
	free(names);
	free(texts);
	assert_true(n > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(plain_names_stay),
	    cmocka_unit_test(cxx_names_keep_their_parameters),
	    cmocka_unit_test(rust_names_lose_their_hash_and_are_told_apart),
	    cmocka_unit_test(what_compilers_append_is_taken_off),
	    cmocka_unit_test(hostile_names_end_at_the_cap),
	    cmocka_unit_test(a_number_of_lifetimes_is_not_counted_to),
	    cmocka_unit_test(a_punycode_identifier_is_cut_without_a_leak),
	    cmocka_unit_test(names_beyond_the_cap_stay_mangled),
	    cmocka_unit_test(real_names_read_as_by_cxxfilt),
	};

	return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
