// SPDX-License-Identifier: Apache-2.0
/* Names as their language writes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "agent/runtime/beam/beam.h"

static const struct {
	const char *machine, *want;
} names[] = {
    {"lists:map/2", "lists:map/2"},
    {"shop:'-total/1-fun-0-'/1", "shop:'-total/1-fun-0-'/1"},
    {"shop:total/1-CodeInfoPrologue", "shop:total/1"},
    {"shop::codeHeader", "shop::codeHeader"},
    {"global::process_main", "global::process_main"},
    {"'Elixir.Shop.Cart':total/1", "Shop.Cart.total/1"},
    {"'Elixir.Shop.Cart':total/1-CodeInfoPrologue", "Shop.Cart.total/1"},
    {"'Elixir.Shop.Cart':'price!'/1", "Shop.Cart.price!/1"},
    {"'Elixir.Shop.Cart':'empty?'/1", "Shop.Cart.empty?/1"},
    {"'Elixir.Kernel':'<>'/2", "Kernel.<>/2"},
    {"'Elixir.Shop':'a b'/0", "Shop.\"a b\"/0"},
    {"'Elixir.Shop':'Total'/0", "Shop.\"Total\"/0"},
    {"'Elixir.Shop.Cart':'-total/1-fun-0-'/2", "anonymous fn/2 in Shop.Cart.total/1"},
    {"'Elixir.Shop.Cart':'-price!/1-fun-12-'/0", "anonymous fn/0 in Shop.Cart.price!/1"},
    {"'Elixir.Enum':'-reduce/3-lists^foldl/2-0-'/3", "Enum.\"-reduce/3-lists^foldl/2-0-\"/3"},
    {"'Elixir.Shop'::codeHeader", "'Elixir.Shop'::codeHeader"},
    {"'Elixir.Shop':'it\\'s'/0", "Shop.\"it\\'s\"/0"},
    {"'Elixir.':total/1", "'Elixir.':total/1"},
    {"'Elixir.Shop", "'Elixir.Shop"},
    {"'Elixir.Shop':total", "'Elixir.Shop':total"},
    {"'Elixir.Shop':'total", "'Elixir.Shop':'total"},
    {"'Elixir.Shop':''/1", "Shop.\"\"/1"},
    {"", ""},
};

static void names_are_those_of_the_language(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char room[128];
		struct beam_text t = {room, sizeof(room)};

		assert_string_equal(beam_name(names[i].machine, strlen(names[i].machine), &t),
				    names[i].want);
		assert_ptr_equal(t.at, room + strlen(names[i].want) + 1);
		assert_int_equal(t.left, sizeof(room) - strlen(names[i].want) - 1);
	}
}

static void a_name_ends_within_its_room(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (size_t n = 1; n < 40; n++) {
			char *room = malloc(n);
			struct beam_text t = {room, n};

			assert_non_null(room);
			beam_name(names[i].machine, strlen(names[i].machine), &t);
			assert_non_null(memchr(room, 0, n));
			assert_true(t.at <= room + n && t.left == (size_t)(room + n - t.at));
			free(room);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(names_are_those_of_the_language),
	    cmocka_unit_test(a_name_ends_within_its_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
