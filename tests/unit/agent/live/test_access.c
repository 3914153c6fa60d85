/* SPDX-License-Identifier: Apache-2.0 */
/* Who may have data: tokens, origins, and the file that a token comes from. */
#include "agent/live/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <fcntl.h>

static unsigned int check(const struct access *a, const char *host, const char *origin,
			  const char *authorization)
{
	const struct access_request req = {
	    .host = host, .origin = origin, .authorization = authorization};

	return access_check(a, &req);
}

static void pages_of_other_sites_are_refused_without_an_origin_too(void **state)
{
	static const char *const own[] = {NULL, "same-origin", "none", "None"};
	static const char *const other[] = {"cross-site", "same-site", "Cross-Site", "", "else"};
	const struct access open_page = {0}, with_token = {.token = "0123456789abcdef"};
	struct access_request req = {.host = "localhost:7070",
				     .authorization = "Bearer 0123456789abcdef"};

	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		req.fetch_site = own[i];
		assert_int_equal(access_check(&open_page, &req), 0);
		assert_int_equal(access_check(&with_token, &req), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
		req.fetch_site = other[i];
		assert_int_equal(access_check(&open_page, &req), 403);
		assert_int_equal(access_check(&with_token, &req), 403);
	}
}

static void without_a_token_only_other_sites_are_refused(void **state)
{
	const struct access a = {0};

	assert_int_equal(check(&a, "localhost:7070", NULL, NULL), 0);
	assert_int_equal(check(&a, "localhost:7070", "http://localhost:7070", NULL), 0);
	assert_int_equal(check(&a, "Localhost:7070", "HTTPS://localHOST:7070", NULL), 0);
	assert_int_equal(check(&a, "localhost:7070", "http://evil.example", NULL), 403);
	assert_int_equal(check(&a, "localhost:7070", "http://localhost:8080", NULL), 403);
	assert_int_equal(check(&a, "localhost:7070", "http://localhost:7070.evil", NULL), 403);
	assert_int_equal(check(&a, "localhost:7070", "null", NULL), 403);
	assert_int_equal(check(&a, "localhost:7070", "", NULL), 403);
	assert_int_equal(check(&a, NULL, "http://localhost:7070", NULL), 403);
	assert_int_equal(check(&a, "", "http://", NULL), 403);
}

static void with_a_token_nobody_else_comes_in(void **state)
{
	static const char *const wrong[] = {"",
					    "Bearer",
					    "Bearer ",
					    "Bearer 0123456789abcde",
					    "Bearer 0123456789abcdefg",
					    "Bearer 0123456789abcdef0123456789abcdef",
					    "Bearer 0123456789abcdeF",
					    "Basic 0123456789abcdef",
					    "0123456789abcdef"};
	const struct access a = {.token = "0123456789abcdef"};

	assert_int_equal(check(&a, "h", NULL, "Bearer 0123456789abcdef"), 0);
	assert_int_equal(check(&a, "h", NULL, "bearer 0123456789abcdef"), 0);
	assert_int_equal(check(&a, "h", NULL, NULL), 401);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(check(&a, "h", NULL, wrong[i]), 401);
	assert_int_equal(check(&a, "h", "http://evil", "Bearer 0123456789abcdef"), 403);
}

static int read_token(const char *text, size_t len, struct access *a, struct error *err)
{
	char path[] = "/tmp/kiln-token-XXXXXX";
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	close(fd);
	r = access_read_token(path, a, err);
	unlink(path);
	return r;
}

static void a_token_is_one_long_line(void **state)
{
	char big[ACCESS_TOKEN_MAX + 8];
	struct access a = {0};
	struct error err = {0};

	assert_int_equal(read_token("0123456789abcdef\r\n", 18, &a, &err), 0);
	assert_string_equal(a.token, "0123456789abcdef");
	memset(big, 'x', sizeof(big));
	assert_int_equal(read_token(big, ACCESS_TOKEN_MAX, &a, &err), 0);
	assert_int_equal(strlen(a.token), ACCESS_TOKEN_MAX);
	a.token[0] = 0;
	assert_int_equal(read_token(big, sizeof(big), &a, &err), -EINVAL);
	assert_int_equal(read_token("short\n", 6, &a, &err), -EINVAL);
	assert_non_null(strstr(err.message, "want 16 to 512 characters"));
	assert_null(strstr(err.message, "short"));
	assert_int_equal(read_token("", 0, &a, &err), -EINVAL);
	assert_int_equal(read_token("with blanks in the middle\n", 26, &a, &err), -EINVAL);
	assert_int_equal(read_token("0123456789abcdef\x01", 17, &a, &err), -EINVAL);
	assert_int_equal(access_read_token("/nonexistent", &a, &err), -EINVAL);
	assert_non_null(strstr(err.message, "/nonexistent: No such file"));
	assert_string_equal(a.token, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(pages_of_other_sites_are_refused_without_an_origin_too),
	    cmocka_unit_test(without_a_token_only_other_sites_are_refused),
	    cmocka_unit_test(with_a_token_nobody_else_comes_in),
	    cmocka_unit_test(a_token_is_one_long_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
