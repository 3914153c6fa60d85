/* SPDX-License-Identifier: Apache-2.0 */
/* What worthless tokens may cost, and that nobody pays for another. */
#include "operator/stream/review_budget.h"

#include "tests/support/test.h"

enum { START_MS = 1000000 };

struct scene {
	struct review_budget *budget;
	struct review_account account;
	uint64_t now_ms;
};

static void setup(struct scene *s)
{
	*s = (struct scene){.now_ms = START_MS};
	assert_int_equal(review_budget_new(&s->budget), 0);
}

static unsigned int draw_all(struct scene *s, const uint8_t *uid, unsigned int tries)
{
	unsigned int drawn = 0;

	for (unsigned int i = 0; i < tries; i++)
		drawn += review_budget_draw(s->budget, uid, s->now_ms, &s->account);
	return drawn;
}

static void worthless_tokens_cost_no_more_than_the_rate(void **state)
{
	unsigned int drawn = 0;
	struct scene s;

	setup(&s);
	/* 2,000 a second for ten seconds. */
	for (int ms = 0; ms < 10000; ms++, s.now_ms++)
		drawn += draw_all(&s, NULL, 2);
	assert_in_range(drawn, 10 * REVIEW_COMMON_RATE, 11 * REVIEW_COMMON_RATE);
	review_budget_free(s.budget);
}

static void granted_tokens_cost_nothing(void **state)
{
	struct scene s;

	setup(&s);
	for (int i = 0; i < 5000; i++) {
		assert_true(review_budget_draw(s.budget, NULL, s.now_ms, &s.account));
		review_budget_give_back(s.budget, &s.account, s.now_ms);
	}
	review_budget_free(s.budget);
}

static void a_pod_has_an_account_of_its_own(void **state)
{
	const uint8_t a[REVIEW_UID] = {1}, b[REVIEW_UID] = {2};
	struct scene s;

	setup(&s);
	assert_int_equal(draw_all(&s, NULL, 1000), REVIEW_COMMON_RATE);
	assert_int_equal(draw_all(&s, a, 1000), REVIEW_POD_BURST);
	assert_int_equal(draw_all(&s, b, 1000), REVIEW_POD_BURST);
	review_budget_give_back(s.budget, &s.account, s.now_ms);
	assert_int_equal(draw_all(&s, a, 1000), 0);
	assert_int_equal(draw_all(&s, b, 1000), 1);
	/* It fills slowly, and to its burst only; a sweep changes nothing of that. */
	s.now_ms += REVIEW_POD_REFILL_MS;
	review_budget_sweep(s.budget, s.now_ms);
	assert_int_equal(draw_all(&s, a, 1000), 1);
	s.now_ms += 3600000;
	review_budget_sweep(s.budget, s.now_ms);
	assert_int_equal(draw_all(&s, a, 1000), REVIEW_POD_BURST);
	review_budget_free(s.budget);
}

static void accounts_are_bounded(void **state)
{
	uint8_t uid[REVIEW_UID] = {0};
	struct scene s;

	setup(&s);
	for (uint32_t i = 0; i < REVIEW_PODS_MAX; i++) {
		memcpy(uid, &i, sizeof(i));
		assert_true(review_budget_draw(s.budget, uid, s.now_ms, &s.account));
		assert_true(s.account.of_pod);
	}
	memset(uid, 0xff, sizeof(uid));
	assert_int_equal(draw_all(&s, uid, 1000), REVIEW_COMMON_RATE);
	assert_false(s.account.of_pod);
	review_budget_free(s.budget);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(worthless_tokens_cost_no_more_than_the_rate),
	    cmocka_unit_test(granted_tokens_cost_nothing),
	    cmocka_unit_test(a_pod_has_an_account_of_its_own),
	    cmocka_unit_test(accounts_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
