// SPDX-License-Identifier: Apache-2.0
/* Names of methods, of the small runtime of small.h, and what becomes of them when memory changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/agent/runtime/dotnet/small.h"

static struct small small;
static struct target_memory memory;
static char scratch[4096];

static void *attach(void)
{
	struct runtime_target target = small_target(&small);
	struct kiln_runtime kernel;
	struct error err = {0};
	void *state;

	memory = target.memory;
	assert_int_equal(dotnet_ops.attach(&small.image.base, &target, &kernel, &state, &err), 0);
	return state;
}

/* The name of WORDS; NULL: it has none. */
static const char *name_of(void *state, uint64_t kind, uint64_t pc, uint64_t second)
{
	const uint64_t words[2] = {kind << KILN_FRAME_FLAG_SHIFT | pc, second};
	struct symbol_result got = {0};

	if (dotnet_ops.symbolize(state, &memory, words, scratch, sizeof(scratch), &got) < 0)
		return NULL;
	assert_int_equal(got.type, FRAME_DOTNET);
	assert_int_equal(got.n, 1);
	return got.symbols[0].name;
}

static uint64_t second_of(uint64_t distance, uint64_t method, uint64_t name)
{
	uint64_t header;

	memcpy(&header, small.bytes + (SMALL_TOTAL - 8 - SMALL_BASE), sizeof(header));
	return KILN_DOTNET_CODE(distance, kiln_dotnet_cookie(method, header, name));
}

static const char *compiled(void *state, uint32_t n)
{
	small_compile(&small, small_method(n));
	return name_of(state, KILN_DOTNET_JIT, SMALL_TOTAL + 16, second_of(16, small_method(n), 0));
}

static void methods_are_named_as_they_were_written(void **unused)
{
	void *state;

	small_init(&small);
	state = attach();
	assert_string_equal(compiled(state, 1), "Shop.Cart.Total");
	assert_string_equal(compiled(state, 4), "Shop.Box<T>.Put");
	assert_string_equal(compiled(state, 5), "Shop.Cart.TotalAsync");
	assert_string_equal(compiled(state, 6), "Shop.Cart.Main.<lambda>");
	assert_string_equal(compiled(state, 7), "Shop.Cart.Main.Add");
	assert_string_equal(compiled(state, 8), "Shop.Cart.Main.<lambda>");
	assert_string_equal(compiled(state, 9), "Shop.Cart.Main.<lambda>");
	assert_string_equal(compiled(state, 10), "Shop.Cart.Main.Add");
	dotnet_ops.detach(state);
}

static void from_10_on_metadata_is_found_by_the_image(void **unused)
{
	void *state;

	small_init(&small);
	small.image.major = 10;
	small_word(&small, SMALL_STRINGS, 0); /* the name is not what it is found by */
	state = attach();
	assert_string_equal(compiled(state, 1), "Shop.Cart.Total");
	dotnet_ops.detach(state);
	/* An image that says nothing of any metadata. */
	small_word(&small, SMALL_IMAGE + 0x400 + 8, 0);
	state = attach();
	assert_null(compiled(state, 1));
	dotnet_ops.detach(state);
}

static void arguments_of_what_is_generic_are_named(void **unused)
{
	void *state;

	for (uint32_t major = 8; major <= 9; major++) {
		small_init(&small);
		small.image.major = major;
		small_generic(&small, 2, major);
		state = attach();
		assert_string_equal(compiled(state, 4), "Shop.Box<Cart>.Put");
		assert_string_equal(compiled(state, 1), "Shop.Cart.Total"); /* has no parameters */
		small_generic(&small, 4, major); /* the compiler made it for TotalAsync */
		assert_string_equal(compiled(state, 4), "Shop.Box<TotalAsync>.Put");
		dotnet_ops.detach(state);
	}
}

static void an_array_is_named_by_its_elements(void **unused)
{
	const uint64_t element = SMALL_ARGUMENT + 0x100;
	void *state;

	small_init(&small);
	small_generic(&small, 2, 8);
	small_put(&small, element, small.bytes + (SMALL_ARGUMENT - SMALL_BASE), 0x40);
	small_word(&small, SMALL_ARGUMENT, 0x80080000);
	small_word(&small, SMALL_ARGUMENT + 0x30, element);
	state = attach();
	assert_string_equal(compiled(state, 4), "Shop.Box<Cart[]>.Put");
	/* Of itself: no longer than the depth that is followed. */
	small_word(&small, SMALL_ARGUMENT + 0x30, SMALL_ARGUMENT);
	assert_string_equal(compiled(state, 4), "Shop.Box<T>.Put");
	dotnet_ops.detach(state);
}

static void an_argument_that_has_no_name_is_the_parameter(void **unused)
{
	void *state;

	small_init(&small);
	small_generic(&small, 99, 8); /* no such row */
	state = attach();
	assert_string_equal(compiled(state, 4), "Shop.Box<T>.Put");
	small_generic(&small, 2, 8);
	small_word(&small, SMALL_ARGUMENT + 0x18, 0); /* no module */
	assert_string_equal(compiled(state, 4), "Shop.Box<T>.Put");
	small_word(&small, SMALL_METHOD_TABLE + 0x30, 8); /* no memory */
	assert_string_equal(compiled(state, 4), "Shop.Box<T>.Put");
	/* A type whose argument is itself. */
	small_generic(&small, 3, 8);
	small_put(&small, SMALL_ARGUMENT, small.bytes + (SMALL_METHOD_TABLE - SMALL_BASE), 4);
	small_word(&small, SMALL_ARGUMENT + 0x30, SMALL_METHOD_TABLE + 0x100);
	assert_string_equal(compiled(state, 4), "Shop.Box<Box<Box<Box<Box<T>>>>>.Put");
	dotnet_ops.detach(state);
}

static void code_compiled_ahead_of_time_is_found_by_its_beginning(void **unused)
{
	void *state;

	small_init(&small);
	state = attach();
	assert_string_equal(name_of(state, KILN_DOTNET_R2R, SMALL_AHEAD + 8, 0), "Shop.Cart.Ahead");
	/* A handler is a function of its own behind the method. */
	assert_string_equal(name_of(state, KILN_DOTNET_R2R, SMALL_AHEAD_HANDLER + 8, 0),
			    "Shop.Cart.Ahead");
	/* The return address of a call that is the last instruction. */
	assert_string_equal(
	    name_of(state, KILN_DOTNET_R2R | KILN_DOTNET_RETURN, SMALL_AHEAD_HANDLER + 0x80, 0),
	    "Shop.Cart.Ahead");
	assert_null(name_of(state, KILN_DOTNET_R2R, SMALL_AHEAD_HANDLER + 0x80, 0));
	assert_null(name_of(state, KILN_DOTNET_R2R, SMALL_IMAGE, 0));
	dotnet_ops.detach(state);
}

static void code_that_is_another_method_now_has_no_name(void **unused)
{
	uint64_t second;
	void *state;

	small_init(&small);
	state = attach();
	second = second_of(16, small_method(1), 0);
	assert_non_null(name_of(state, KILN_DOTNET_JIT, SMALL_TOTAL + 16, second));
	small_compile(&small, small_method(2));
	assert_null(name_of(state, KILN_DOTNET_JIT, SMALL_TOTAL + 16, second));
	dotnet_ops.detach(state);
}

static void code_that_stays_is_named_without_a_cookie(void **unused)
{
	uint64_t second = KILN_DOTNET_CODE(16, KILN_DOTNET_STAYS);
	void *state;

	small_init(&small);
	state = attach();
	small_compile(&small, small_method(1));
	assert_string_equal(name_of(state, KILN_DOTNET_JIT, SMALL_TOTAL + 16, second),
			    "Shop.Cart.Total");
	dotnet_ops.detach(state);
}

static void a_dynamic_method_has_its_own_name_until_it_is_given_away(void **unused)
{
	uint64_t second;
	void *state;

	small_init(&small);
	state = attach();
	small_compile(&small, SMALL_DYNAMIC);
	second = second_of(16, SMALL_DYNAMIC, SMALL_DYNAMIC + 0x40);
	assert_string_equal(name_of(state, KILN_DOTNET_JIT, SMALL_TOTAL + 16, second), "Made");
	small_word(&small, SMALL_DYNAMIC + 0x18, SMALL_DYNAMIC + 0x60);
	assert_null(name_of(state, KILN_DOTNET_JIT, SMALL_TOTAL + 16, second));
	dotnet_ops.detach(state);
}

static void stubs_are_named_by_their_kind(void **unused)
{
	void *state;

	small_init(&small);
	state = attach();
	assert_string_equal(name_of(state, KILN_DOTNET_STUB, SMALL_STUBS, 0), "[stub]");
	assert_string_equal(name_of(state, KILN_DOTNET_STUB, SMALL_STUBS, 2), "[stub: precode]");
	assert_string_equal(name_of(state, KILN_DOTNET_STUB, SMALL_STUBS, ~0ULL), "[stub]");
	dotnet_ops.detach(state);
}

static void a_process_is_attached_to_when_an_image_is_loaded(void **unused)
{
	struct runtime_target target;
	struct kiln_runtime kernel;
	struct error err = {0};
	void *state;

	small_init(&small);
	target = small_target(&small);
	small_word(&small, SMALL_TABLE, 0);
	assert_int_equal(dotnet_ops.attach(&small.image.base, &target, &kernel, &state, &err),
			 -EAGAIN);
	small_init(&small);
	small_word(&small, SMALL_IMAGE, 0);
	assert_int_equal(dotnet_ops.attach(&small.image.base, &target, &kernel, &state, &err),
			 -EAGAIN);
}

static void only_what_is_in_its_map_is_surely_its_code(void **unused)
{
	void *state;

	small_init(&small);
	state = attach();
	assert_int_equal(dotnet_ops.owns(state, &memory, SMALL_HEAP, SMALL_HEAP + 0x1000),
			 JIT_CERTAIN);
	assert_int_equal(dotnet_ops.owns(state, &memory, SMALL_IMAGE, SMALL_IMAGE_END),
			 JIT_CERTAIN);
	assert_int_equal(dotnet_ops.owns(state, &memory, 0x900000, 0x901000), JIT_LIKELY);
	dotnet_ops.detach(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(methods_are_named_as_they_were_written),
	    cmocka_unit_test(from_10_on_metadata_is_found_by_the_image),
	    cmocka_unit_test(arguments_of_what_is_generic_are_named),
	    cmocka_unit_test(an_array_is_named_by_its_elements),
	    cmocka_unit_test(an_argument_that_has_no_name_is_the_parameter),
	    cmocka_unit_test(code_compiled_ahead_of_time_is_found_by_its_beginning),
	    cmocka_unit_test(code_that_is_another_method_now_has_no_name),
	    cmocka_unit_test(code_that_stays_is_named_without_a_cookie),
	    cmocka_unit_test(a_dynamic_method_has_its_own_name_until_it_is_given_away),
	    cmocka_unit_test(stubs_are_named_by_their_kind),
	    cmocka_unit_test(a_process_is_attached_to_when_an_image_is_loaded),
	    cmocka_unit_test(only_what_is_in_its_map_is_surely_its_code),
	};

	return cmocka_run_group_tests_name("dotnet_names", tests, NULL, NULL);
}
