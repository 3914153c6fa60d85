/* SPDX-License-Identifier: Apache-2.0 */
/* Which proxy the environment asks for, and what is said to it and heard. */
#include "lib/http_proxy.h"

#include "tests/support/test.h"

static void forget(void)
{
	static const char *const names[] = {"grpc_proxy", "https_proxy",   "http_proxy",
					    "HTTP_PROXY", "no_grpc_proxy", "no_proxy"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
}

static void assert_proxy(const char *host, uint16_t port, const char *credentials)
{
	struct http_proxy p = {0};
	struct error err = {0};

	assert_int_equal(http_proxy_find("c.example", &p, &err), host ? 1 : 0);
	if (!host)
		return;
	assert_string_equal(p.host, host);
	assert_int_equal(p.port, port);
	if (credentials)
		assert_string_equal(p.credentials, credentials);
	else
		assert_null(p.credentials);
	http_proxy_done(&p);
	assert_null(p.credentials);
}

static void test_the_first_variable_that_is_set_counts(void **state)
{
	forget();
	assert_proxy(NULL, 0, NULL);
	setenv("HTTP_PROXY", "http://upper:1", 1);
	assert_proxy(NULL, 0, NULL);
	setenv("http_proxy", "http://c:3", 1);
	assert_proxy("c", 3, NULL);
	setenv("https_proxy", "http://b:2", 1);
	assert_proxy("b", 2, NULL);
	setenv("grpc_proxy", "http://a:1", 1);
	assert_proxy("a", 1, NULL);
	setenv("grpc_proxy", "", 1); /* is set: no proxy */
	assert_proxy(NULL, 0, NULL);
	setenv("grpc_proxy", "http://a:1", 1);
	setenv("no_proxy", "other,c.example", 1);
	assert_proxy(NULL, 0, NULL);
	setenv("no_grpc_proxy", "other", 1);
	assert_proxy("a", 1, NULL);
	forget();
}

static void test_urls(void **state)
{
	static const struct {
		const char *url, *host; /* NULL: -EINVAL */
		uint16_t port;
		const char *credentials;
	} rows[] = {
	    {"http://proxy.example:3128", "proxy.example", 3128, NULL},
	    {"http://proxy.example", "proxy.example", 443, NULL},
	    {"HTTP://10.0.0.1:80/", "10.0.0.1", 80, NULL},
	    {"http://[::1]:80/path?x", "::1", 80, NULL},
	    {"http://[::1]", "::1", 443, NULL},
	    {"http://user:password@p:1", "p", 1, "dXNlcjpwYXNzd29yZA"},
	    {"http://us%40er:p%3Aw@p:1", "p", 1, "dXNAZXI6cDp3"},
	    {"http://us@er:p@p", "p", 443, "dXNAZXI6cA"},
	    {"https://p:1", NULL, 0, NULL},
	    {"socks5://p:1", NULL, 0, NULL},
	    {"p:1", NULL, 0, NULL},
	    {"http://", NULL, 0, NULL},
	    {"http://:80", NULL, 0, NULL},
	    {"http://p:0", NULL, 0, NULL},
	    {"http://p:70000", NULL, 0, NULL},
	    {"http://a b:1", NULL, 0, NULL},
	    {"http://::1:80", NULL, 0, NULL},
	    {"http://secret%zz@p:1", NULL, 0, NULL},
	};

	forget();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_proxy p = {0};
		struct error err = {0};

		setenv("https_proxy", rows[i].url, 1);
		if (rows[i].host) {
			assert_proxy(rows[i].host, rows[i].port, rows[i].credentials);
			continue;
		}
		assert_int_equal(http_proxy_find("x", &p, &err), -EINVAL);
		assert_non_null(strstr(err.message, "$https_proxy is not http://"));
		assert_null(strstr(err.message, "secret"));
		assert_null(p.host);
	}
	forget();
}

static void test_hosts_without_a_proxy(void **state)
{
	static const struct {
		const char *list, *host;
		bool exempt;
	} rows[] = {
	    {"c.example", "c.example", true},
	    {"C.Example", "c.eXample", true},
	    {"example", "c.example", true},
	    {".example", "c.example", true},
	    {".c.example", "c.example", true},
	    {"xample", "c.example", false},
	    {"cc.example", "c.example", false},
	    {".", "c.example", false},
	    {"", "c.example", false},
	    {" , ,", "c.example", false},
	    {"a, c.example ,b", "c.example", true},
	    {"*", "c.example", true},
	    {"svc,cluster.local", "kiln-operator.kiln.svc", true},
	    {"10.0.0.1", "10.0.0.1", true},
	    {"10.0.0.1", "10.0.0.10", false},
	    {"0.0.1", "10.0.0.1", false},
	    {"10.0.0.0/8", "10.1.2.3", true},
	    {"10.0.0.0/8", "11.1.2.3", false},
	    {"10.96.0.0/12", "10.111.0.1", true},
	    {"10.96.0.0/12", "10.112.0.1", false},
	    {"10.0.0.0/33", "10.0.0.0", false},
	    {"10.0.0.0/", "10.0.0.0", false},
	    {"0.0.0.0/0", "1.2.3.4", true},
	    {"0.0.0.0/0", "::1", false},
	    {"fd00::/8", "fd12::1", true},
	    {"fd00::/8", "fe80::1", false},
	    {"::1", "0:0:0:0:0:0:0:1", true},
	    {"[::1]", "::1", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (http_proxy_exempt(rows[i].list, rows[i].host) != rows[i].exempt)
			fail_msg("'%s' and %s", rows[i].list, rows[i].host);
}

static void test_the_request(void **state)
{
	static const struct {
		const char *credentials, *line;
	} rows[] = {{NULL, ""},
		    {"YQ", "Proxy-Authorization: Basic YQ==\r\n"},
		    {"YWI", "Proxy-Authorization: Basic YWI=\r\n"},
		    {"YWJj", "Proxy-Authorization: Basic YWJj\r\n"}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_proxy p = {.credentials = (char *)(uintptr_t)rows[i].credentials};
		char *request = http_proxy_request(&p, "[::1]:4317"), want[256];

		snprintf(want, sizeof(want),
			 "CONNECT [::1]:4317 HTTP/1.1\r\nHost: [::1]:4317\r\n%s\r\n", rows[i].line);
		assert_string_equal(request, want);
		free(request);
	}
}

static void test_replies(void **state)
{
	static const struct {
		const char *text;
		int r, status;
		size_t left; /* behind it */
	} rows[] = {
	    {"HTTP/1.1 200 Connection established\r\n\r\n", 1, 200, 0},
	    {"HTTP/1.0 200\r\n\r\n", 1, 200, 0},
	    {"HTTP/1.1 407 no\r\nProxy-Authenticate: Basic\r\n\r\nbody", 1, 407, 4},
	    {"HTTP/1.1 200 ok\r\n\r\n\x16\x03\x03", 1, 200, 3},
	    {"", 0, 0, 0},
	    {"HT", 0, 0, 0},
	    {"HTTP/1.1 200 ok\r\nx: y\r\n", 0, 0, 0},
	    {"SSH-2.0", -EPROTO, 0, 0},
	    {"HTTP/2 200\r\n\r\n", -EPROTO, 0, 0},
	    {"HTTP/1.1\r\n\r\n", -EPROTO, 0, 0},
	    {"HTTP/1.1 2x0 ok\r\n\r\n", -EPROTO, 0, 0},
	    {"HTTP/1.1 20\r\n\r\n", -EPROTO, 0, 0},
	};
	char *endless;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t len = strlen(rows[i].text), end = 0;
		int status = 0;

		assert_int_equal(
		    http_proxy_reply((const uint8_t *)rows[i].text, len, &end, &status), rows[i].r);
		if (rows[i].r != 1)
			continue;
		assert_int_equal(status, rows[i].status);
		assert_int_equal(end, len - rows[i].left);
	}
	endless = malloc(HTTP_PROXY_REPLY_MAX + 10);
	memset(endless, 'x', HTTP_PROXY_REPLY_MAX + 10);
	memcpy(endless, "HTTP/1.1 200 ", 13);
	for (size_t len = HTTP_PROXY_REPLY_MAX - 1; len < HTTP_PROXY_REPLY_MAX + 10; len++) {
		size_t end;
		int status;

		assert_int_equal(http_proxy_reply((uint8_t *)endless, len, &end, &status),
				 len < HTTP_PROXY_REPLY_MAX ? 0 : -EPROTO);
	}
	free(endless);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_first_variable_that_is_set_counts),
	    cmocka_unit_test(test_urls),
	    cmocka_unit_test(test_hosts_without_a_proxy),
	    cmocka_unit_test(test_the_request),
	    cmocka_unit_test(test_replies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
