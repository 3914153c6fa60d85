/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots of the kernel's array of policies: which policy has which, and when a slot is used
 * again.
 */
#include "agent/policy/slots.h"

#include "agent/policy/policy.h"
#include "tests/support/test.h"

static struct policy_slots s;

static int setup(void **state)
{
	memset(&s, 0, sizeof(s));
	return 0;
}

static uint32_t get(uint64_t id, uint32_t hz, int want)
{
	const struct policy_slot slot = {.id = id, .hz = hz, .tracers = ~0U};
	uint32_t index = UINT32_MAX;

	assert_int_equal(policy_slots_get(&s, &slot, &index), want);
	return index;
}

static void the_same_policy_keeps_its_slot(void **state)
{
	uint32_t a, b;

	policy_slots_begin(&s);
	a = get(7, 20, 1);
	b = get(8, 97, 1);
	policy_slots_end(&s);
	assert_true(a >= POLICY_FIRST && b >= POLICY_FIRST && a != b);
	policy_slots_begin(&s);
	assert_int_equal(get(8, 97, 0), b);
	assert_int_equal(get(7, 20, 0), a);
	policy_slots_end(&s);
	assert_int_equal(policy_slots_count(&s), 2);
}

static void other_contents_are_another_slot(void **state)
{
	uint32_t index, a = get(7, 20, 1);

	assert_int_not_equal(get(7, 21, 1), a);
	assert_int_equal(
	    policy_slots_get(&s, &(struct policy_slot){.id = 7, .hz = 20, .tracers = 1}, &index),
	    1);
	assert_int_not_equal(index, a);
	assert_int_equal(
	    policy_slots_get(
		&s, &(struct policy_slot){.id = 7, .hz = 20, .tracers = ~0U, .off_cpu = 1}, &index),
	    1);
	assert_int_not_equal(index, a);
	assert_true(policy_slots_off_cpu(&s));
}

static void rate_is_the_highest_that_is_wanted(void **state)
{
	assert_int_equal(policy_slots_rate(&s), 0);
	policy_slots_begin(&s);
	get(7, 20, 1);
	get(8, 97, 1);
	policy_slots_end(&s);
	assert_int_equal(policy_slots_rate(&s), 97);
	policy_slots_begin(&s);
	get(7, 20, 0);
	policy_slots_end(&s);
	assert_int_equal(policy_slots_rate(&s), 20);
}

/* The window that is being named and the window that waits have samples that refer to the slot. */
static void slot_rests_before_it_is_given_out_anew(void **state)
{
	uint32_t first;

	s.window = 100;
	policy_slots_begin(&s);
	first = get(1, 20, 1);
	for (uint64_t id = 2;
	     id < 1000 + 2 && policy_slots_count(&s) < KILN_MAX_POLICIES - POLICY_FIRST; id++)
		get(id, 20, 1);
	policy_slots_end(&s);
	get(5000, 20, -ENOSPC);
	/* Keep all other policies in their slots. */
	policy_slots_begin(&s);
	for (uint32_t i = first + 1; i < KILN_MAX_POLICIES; i++)
		get(s.slots[i].id, 20, 0);
	get(5000, 20, -ENOSPC);
	policy_slots_end(&s);
	s.window += POLICY_REUSE_WINDOWS - 1;
	get(5000, 20, -ENOSPC);
	s.window++;
	assert_int_equal(get(5000, 20, 1), first);
}

static void policy_that_comes_back_has_its_old_slot(void **state)
{
	uint32_t first;

	policy_slots_begin(&s);
	first = get(1, 20, 1);
	policy_slots_end(&s);
	policy_slots_begin(&s);
	policy_slots_end(&s);
	assert_int_equal(policy_slots_count(&s), 0);
	policy_slots_begin(&s);
	assert_int_equal(get(1, 20, 0), first);
	policy_slots_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(the_same_policy_keeps_its_slot, setup),
	    cmocka_unit_test_setup(other_contents_are_another_slot, setup),
	    cmocka_unit_test_setup(rate_is_the_highest_that_is_wanted, setup),
	    cmocka_unit_test_setup(slot_rests_before_it_is_given_out_anew, setup),
	    cmocka_unit_test_setup(policy_that_comes_back_has_its_old_slot, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
