/* SPDX-License-Identifier: Apache-2.0 */
/* The tree: shape, lines, null, anchors; and that no document can make it large or deep. */
#include "lib/base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/buf.h"
#include "lib/yaml.h"

static struct yaml_node *load(const char *text)
{
	struct yaml_node *root = NULL;
	struct error err = {0};

	if (yaml_tree_load("y", text, strlen(text), &root, &err) < 0)
		fail_msg("%s", err.message);
	return root;
}

static void refuse(const char *text, size_t size, const char *message)
{
	struct yaml_node *root = NULL;
	struct error err = {0};
	int r = yaml_tree_load("y", text, size, &root, &err);

	yaml_tree_free(root);
	assert_int_equal(r, -EINVAL);
	assert_null(root);
	assert_string_equal(err.message, message);
}

static void test_a_tree_has_kinds_keys_and_lines(void **state)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root =
	    load("a: 1\nb:\n  - x\n  - {c: d}\n\ne: ~\nf: '~'\ng:\n");
	const struct yaml_node *b = yaml_get(root, "b");

	assert_int_equal(root->kind, YAML_MAP);
	assert_int_equal(yaml_count(root), 5);
	assert_string_equal(yaml_get(root, "a")->text, "1");
	assert_int_equal(b->kind, YAML_LIST);
	assert_int_equal(b->line, 2);
	assert_int_equal(yaml_count(b), 2);
	assert_int_equal(b->child->line, 3);
	assert_null(b->child->key);
	assert_string_equal(yaml_get(b->child->next, "c")->text, "d");
	assert_int_equal(yaml_get(root, "e")->kind, YAML_NULL);
	assert_int_equal(yaml_get(root, "e")->line, 6);
	assert_int_equal(yaml_get(root, "f")->kind, YAML_SCALAR); /* quoted */
	assert_int_equal(yaml_get(root, "g")->kind, YAML_NULL);
	assert_null(yaml_get(root, "nothing"));
	assert_null(yaml_get(b, "c"));
}

static void test_text_may_become_null_when_replaced(void **state)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root = load("a: x\nb: 'x'\nc: !!str ''\n");

	yaml_set_text(root->child, strdup(""));
	yaml_set_text(root->child->next, strdup(""));
	assert_int_equal(root->child->kind, YAML_NULL);
	assert_int_equal(root->child->next->kind, YAML_SCALAR);
	assert_int_equal(yaml_get(root, "c")->kind, YAML_SCALAR);
}

static void test_aliases_are_copies_and_merges_add_what_is_missing(void **state)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root =
	    load("a: &a {x: 1, y: [2, 3]}\nb: *a\nc:\n  <<: *a\n  x: 9\n"
		 "d: {<<: [{p: 1}, {p: 2, q: 3}]}\n");
	const struct yaml_node *c = yaml_get(root, "c"), *d = yaml_get(root, "d");

	assert_int_equal(yaml_get(root, "b")->line, 2);
	assert_true(yaml_get(root, "b")->child != yaml_get(root, "a")->child);
	assert_string_equal(yaml_get(yaml_get(root, "b"), "x")->text, "1");
	assert_string_equal(yaml_get(c, "x")->text, "9");
	assert_int_equal(yaml_count(yaml_get(c, "y")), 2);
	assert_string_equal(yaml_get(d, "p")->text, "1");
	assert_string_equal(yaml_get(d, "q")->text, "3");
}

/* The anchor is inside of a merge (<<), whose node is not in the final tree. */
static void test_an_anchor_inside_a_merge_can_be_named_later(void **state)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root =
	    load("a: {<<: &m {x: 1}}\nb: *m\nc: {<<: &m {x: 2}}\nd: *m\n");

	assert_string_equal(yaml_get(yaml_get(root, "a"), "x")->text, "1");
	assert_string_equal(yaml_get(yaml_get(root, "b"), "x")->text, "1");
	assert_string_equal(yaml_get(yaml_get(root, "d"), "x")->text, "2");
}

static void test_nothing_is_a_null_document(void **state)
{
	static const char *const texts[] = {"", "# only this\n", "---\n", "\xef\xbb\xbf"};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		_cleanup_(yaml_tree_freep) struct yaml_node *root = load(texts[i]);

		assert_int_equal(root->kind, YAML_NULL);
	}
}

static void test_mistakes_have_their_line(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
	    {"a: 1\na: 2\n", "y:2: the key a is already at line 1"},
	    {"a: 1\n---\nb: 2\n", "y:2: want one YAML document, got several"},
	    {"a: *b\n", "y:1: an alias without its anchor"},
	    {"a: &a {b: *a}\n", "y:1: an alias inside the value that it names"},
	    {"a:\n  <<: [[1]]\n", "y:2: <<: want a map or a list of maps"},
	    {"[a]: b\n", "y:1: a key must be plain text"},
	    {"a: !x 1\n", "y:1: tags of one's own are not supported"},
	    {"a: 1\n\nb: \"\\0\"\n", "y:3: a NUL character"},
	    {"a: 1\n b: 2\n", "y:2: not valid YAML: mapping values are not allowed in this "
			      "context"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		refuse(cases[i].text, strlen(cases[i].text), cases[i].message);
	refuse("a: 1\nb: \xff\n", 10, "y:2: not valid YAML: invalid leading UTF-8 octet");
	refuse("a: 1\n\0", 6, "y:2: not valid YAML: control characters are not allowed");
}

static void test_depth_is_capped(void **state)
{
	char text[2 * YAML_DEPTH_MAX + 8];

	memset(text, '[', YAML_DEPTH_MAX);
	memset(text + YAML_DEPTH_MAX, ']', YAML_DEPTH_MAX);
	yaml_tree_free(yaml_tree_free(NULL));
	{
		_cleanup_(yaml_tree_freep) struct yaml_node *root = NULL;

		text[2 * YAML_DEPTH_MAX] = 0;
		root = load(text);
		assert_non_null(root);
	}
	memset(text, '[', YAML_DEPTH_MAX + 2);
	memset(text + YAML_DEPTH_MAX + 2, ']', YAML_DEPTH_MAX + 2);
	refuse(text, 2 * YAML_DEPTH_MAX + 4, "y:1: nested too deeply");
}

/* Each list has nine aliases of the list before it. */
static void test_aliases_cannot_multiply(void **state)
{
	_cleanup_(buf_done) struct buf b;

	buf_init(&b, 1 << 16);
	buf_puts(&b, "a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
	for (int i = 1; i < 12; i++) {
		buf_printf(&b, "a%d: &a%d [", i, i);
		for (int j = 0; j < 9; j++)
			buf_printf(&b, "%s*a%d", j ? ", " : "", i - 1);
		buf_puts(&b, "]\n");
	}
	refuse(b.data, b.len, "y:5: too many values");
}

static void test_text_and_keys_are_capped(void **state)
{
	_cleanup_(buf_done) struct buf b;

	buf_init(&b, 4 << 20);
	buf_puts(&b, "a: &a ");
	memset(buf_extend(&b, 1 << 20), 'x', 1 << 20);
	buf_puts(&b, "\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n");
	refuse(b.data, b.len, "y:2: too much text");
	buf_reset(&b);
	for (int i = 0; i < 5000; i++)
		buf_printf(&b, "k%d:\n", i);
	refuse(b.data, b.len, "y:4097: too many keys");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_tree_has_kinds_keys_and_lines),
	    cmocka_unit_test(test_text_may_become_null_when_replaced),
	    cmocka_unit_test(test_aliases_are_copies_and_merges_add_what_is_missing),
	    cmocka_unit_test(test_an_anchor_inside_a_merge_can_be_named_later),
	    cmocka_unit_test(test_nothing_is_a_null_document),
	    cmocka_unit_test(test_mistakes_have_their_line),
	    cmocka_unit_test(test_depth_is_capped),
	    cmocka_unit_test(test_aliases_cannot_multiply),
	    cmocka_unit_test(test_text_and_keys_are_capped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
