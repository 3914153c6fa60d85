// SPDX-License-Identifier: Apache-2.0
/* Interned strings, and the slab and the table below them, against naive models. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "operator/cache/intern.h"
#include "lib/ref_table.h"
#include "operator/cache/slab.h"

static uint64_t state;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(mix64(state) % below);
}

static void equal_bytes_have_one_handle(void **unused)
{
	_cleanup_(intern_freep) struct intern *in = NULL;
	interned a, b, c;
	size_t len;

	(void)unused;
	assert_int_equal(intern_new(1 << 20, &in), 0);
	assert_int_equal(intern_get(in, "nginx", 5, &a), 0);
	assert_int_equal(intern_get(in, "nginx", 5, &b), 0);
	assert_int_equal(intern_get(in, "ngin\0", 5, &c), 0);
	assert_int_equal(a, b);
	assert_int_not_equal(a, c);
	assert_int_equal(intern_refs(in, a), 2);
	assert_string_equal(intern_text(in, a, &len), "nginx");
	assert_int_equal(len, 5);
	(void)intern_text(in, c, &len);
	assert_int_equal(len, 5);
	assert_int_equal(intern_find(in, "nginx", 5), a);
	assert_int_equal(intern_find(in, "nginy", 5), 0);
	intern_unref(in, a);
	assert_int_equal(intern_find(in, "nginx", 5), a);
	intern_unref(in, b);
	assert_int_equal(intern_find(in, "nginx", 5), 0);
	intern_unref(in, c);
	assert_int_equal(intern_count(in), 0);
}

static void the_empty_string_is_not_absent(void **unused)
{
	_cleanup_(intern_freep) struct intern *in = NULL;
	interned s = 0;
	size_t len = 1;

	(void)unused;
	assert_int_equal(intern_new(1 << 20, &in), 0);
	assert_int_equal(intern_get(in, NULL, 0, &s), 0);
	assert_int_not_equal(s, 0);
	assert_string_equal(intern_text(in, s, &len), "");
	assert_int_equal(len, 0);
	assert_string_equal(intern_text(in, 0, &len), "");
	assert_int_equal(intern_ref(in, 0), 0);
	intern_unref(in, 0);
}

static void the_cap_is_kept_and_counted(void **unused)
{
	_cleanup_(intern_freep) struct intern *in = NULL;
	char text[1000];
	interned s = 77, first = 0;
	size_t n = 0;
	int r;

	(void)unused;
	memset(text, 'x', sizeof(text));
	assert_int_equal(intern_new(256 << 10, &in), 0);
	for (r = 0; !r && n < 10000; n += !r) {
		memcpy(text, &n, sizeof(n));
		r = intern_get(in, text, sizeof(text), &s);
		if (!n)
			first = s;
	}
	assert_int_equal(r, -ENOSPC);
	assert_in_range(n, 180, 262);
	assert_true(intern_bytes(in) <= 256 << 10);
	assert_int_equal(intern_refused(in), 1);
	/* Strings that are in stay valid, and freed room is used again. */
	intern_unref(in, first);
	assert_int_equal(intern_get(in, text, sizeof(text), &s), 0);
}

static void random_strings_come_and_go(void **unused)
{
	enum { DISTINCT = 3000, ROUNDS = 200000 };
	_cleanup_(intern_freep) struct intern *in = NULL;
	static uint32_t refs[DISTINCT];
	static interned handles[DISTINCT];
	_cleanup_free_ char *text = malloc(8192);
	size_t len, live = 0, peak;

	(void)unused;
	memset(refs, 0, sizeof(refs));
	assert_int_equal(intern_new(64 << 20, &in), 0);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t i = draw(DISTINCT);

		len = 4 + (mix64(i) % 50 ? i % 300 : i % 8000);
		memset(text, (int)(i % 251), len);
		memcpy(text, &i, 4);
		if (draw(2)) {
			assert_int_equal(intern_get(in, text, len, &handles[i]), 0);
			live += !refs[i]++;
		} else if (refs[i]) {
			size_t got;

			assert_int_equal(intern_find(in, text, len), handles[i]);
			assert_memory_equal(intern_text(in, handles[i], &got), text, len);
			assert_int_equal(got, len);
			intern_unref(in, handles[i]);
			live -= !--refs[i];
		} else {
			assert_int_equal(intern_find(in, text, len), 0);
		}
		assert_int_equal(intern_count(in), live);
	}
	peak = intern_bytes(in);
	for (uint32_t i = 0; i < DISTINCT; i++)
		for (; refs[i]; refs[i]--)
			intern_unref(in, handles[i]);
	assert_int_equal(intern_count(in), 0);
	assert_true(intern_bytes(in) < peak / 10);
}

static void slab_pieces_do_not_overlap(void **unused)
{
	enum { PIECES = 4000, ROUNDS = 100000 };
	static struct {
		uint32_t ref;
		size_t size;
		uint8_t fill;
	} pieces[PIECES];
	struct slab s = {0};
	uint8_t *p;

	(void)unused;
	memset(pieces, 0, sizeof(pieces));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t i = draw(PIECES);

		if (!pieces[i].ref) {
			pieces[i].size = 1 + (draw(20) ? draw(400) : draw(20000));
			pieces[i].fill = (uint8_t)round;
			assert_int_equal(slab_alloc(&s, pieces[i].size, &pieces[i].ref), 0);
			memset(slab_at(&s, pieces[i].ref), pieces[i].fill, pieces[i].size);
			continue;
		}
		p = slab_at(&s, pieces[i].ref);
		for (size_t k = 0; k < pieces[i].size; k++)
			assert_int_equal(p[k], pieces[i].fill);
		for (size_t k = 0; k < MIN(pieces[i].size, (size_t)SLAB_REACH); k += SLAB_UNIT)
			assert_int_equal(slab_base(&s, pieces[i].ref + (uint32_t)(k / SLAB_UNIT)),
					 pieces[i].ref);
		slab_free(&s, pieces[i].ref);
		pieces[i].ref = 0;
	}
	for (uint32_t i = 0; i < PIECES; i++)
		slab_free(&s, pieces[i].ref);
	assert_int_equal(s.count, 0);
	assert_int_equal(s.bytes, 0);
	slab_done(&s);
}

static void slab_wastes_little(void **unused)
{
	struct slab s = {0};
	uint32_t ref;

	(void)unused;
	for (size_t size = 216; size <= 1024; size += 101) {
		size_t n = 64 * SLAB_CHUNK / size;

		for (size_t i = 0; i < n; i++)
			assert_int_equal(slab_alloc(&s, size, &ref), 0);
		assert_true(s.bytes < n * size * 5 / 4);
		slab_done(&s);
	}
}

static uint64_t few_hashes(uint32_t ref)
{
	return mix64(ref % 97); /* many equal ones, and clusters */
}

static void table_finds_what_was_put(void **unused)
{
	enum { REFS = 1500, ROUNDS = 60000 };
	static bool in[REFS];
	struct ref_table t = {0};
	uint32_t n = 0;

	(void)unused;
	memset(in, 0, sizeof(in));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t ref = 1 + draw(REFS - 1), pos = REF_TABLE_START, got, seen = 0;

		if (in[ref]) {
			assert_true(ref_table_remove(&t, few_hashes(ref), ref));
			n--;
		} else {
			assert_false(ref_table_remove(&t, few_hashes(ref), ref));
			assert_int_equal(ref_table_reserve(&t, 1), 0);
			ref_table_insert(&t, few_hashes(ref), ref);
			n++;
		}
		in[ref] = !in[ref];
		assert_int_equal(t.count, n);
		ref = 1 + draw(REFS - 1);
		while ((got = ref_table_next(&t, few_hashes(ref), &pos)))
			seen += got == ref;
		assert_int_equal(seen, in[ref]);
		if (round % 64 == 0)
			ref_table_trim(&t);
	}
	ref_table_done(&t);
}

static void table_gives_memory_back(void **unused)
{
	struct ref_table t = {0};

	(void)unused;
	assert_int_equal(ref_table_reserve(&t, 10000), 0);
	assert_true(ref_table_bytes(&t) >= 50000);
	ref_table_trim(&t);
	assert_true(ref_table_bytes(&t) < 200);
	ref_table_done(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(equal_bytes_have_one_handle),
	    cmocka_unit_test(the_empty_string_is_not_absent),
	    cmocka_unit_test(the_cap_is_kept_and_counted),
	    cmocka_unit_test(random_strings_come_and_go),
	    cmocka_unit_test(slab_pieces_do_not_overlap),
	    cmocka_unit_test(slab_wastes_little),
	    cmocka_unit_test(table_finds_what_was_put),
	    cmocka_unit_test(table_gives_memory_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
