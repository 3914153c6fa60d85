/* SPDX-License-Identifier: Apache-2.0 */
/* TLS and HTTP proxies on the way of a gRPC call, as settings and the environment say. */
#include "lib/client_socket.h"

#include <openssl/ssl.h>

#include "tests/support/grpc_fake.h"
#include "tests/support/grpc_scene.h"

enum { WAIT_S = 30, REFUSED = 77 /* the server's answer to each call: it was reached */ };

/* ---- TLS ---------------------------------------------------------------------------------------
 */

static struct fake_pki pki, other, address, wildcard, partial;
static char dir[] = "/tmp/kiln-test-tls-XXXXXX";

static const char *file(const char *name)
{
	static char paths[4][64];
	static unsigned int n;
	char *path = paths[n++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void write_file(const char *name, const char *text)
{
	_cleanup_fclose_ FILE *f = fopen(file(name), "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
}

static int set_up(void **state)
{
	assert_non_null(mkdtemp(dir));
	assert_int_equal(fake_pki_make("kiln.example", &pki), 0);
	assert_int_equal(fake_pki_make("kiln.example", &other), 0);
	assert_int_equal(fake_pki_make("127.0.0.1", &address), 0);
	assert_int_equal(fake_pki_make("*.kiln.example", &wildcard), 0);
	assert_int_equal(fake_pki_make("a*.kiln.example", &partial), 0);
	write_file("ca", pki.ca_pem);
	write_file("cert", pki.cert_pem);
	write_file("key", pki.key_pem);
	write_file("other-ca", other.ca_pem);
	write_file("other-cert", other.cert_pem);
	write_file("other-key", other.key_pem);
	write_file("address-ca", address.ca_pem);
	write_file("wildcard-ca", wildcard.ca_pem);
	write_file("partial-ca", partial.ca_pem);
	return 0;
}

static int tear_down(void **state)
{
	static const char *const names[] = {"ca",	  "cert",	 "key",
					    "other-ca",	  "other-cert",	 "other-key",
					    "address-ca", "wildcard-ca", "partial-ca"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlink(file(names[i]));
	rmdir(dir);
	fake_pki_done(&pki);
	fake_pki_done(&other);
	fake_pki_done(&address);
	fake_pki_done(&wildcard);
	fake_pki_done(&partial);
	return 0;
}

struct tls_case {
	const char *host; /* NULL: 127.0.0.1 */
	/* Names of files; NULL: not given. */
	const char *ca, *cert, *key;
	struct tls_options tls;
	struct fake_options server;
	const struct fake_pki *pki; /* the server's; NULL: plain text */
	const char *words;	    /* of the failure; NULL: the call comes through */
};

struct tls_scene {
	uv_loop_t loop;
	struct fake_server *server;
	struct scene answer;
};

static bool is_done(void *arg)
{
	return ((struct tls_scene *)arg)->answer.done;
}

static void begin_server(struct tls_scene *s, const struct tls_case *c, int status)
{
	struct fake_options o = c->server;

	*s = (struct tls_scene){0};
	uv_loop_init(&s->loop);
	o.refuse_status = status;
	o.cert_pem = c->pki ? c->pki->cert_pem : NULL;
	o.key_pem = c->pki ? c->pki->key_pem : NULL;
	assert_int_equal(fake_server_start(&o, &s->server), 0);
}

static void begin_tls_call(struct tls_scene *s, const struct tls_case *c)
{
	struct grpc_client_options o = {.tls = c->tls};
	char endpoint[64];
	struct error err = {0};

	snprintf(endpoint, sizeof(endpoint), "%s:%d", c->host ? c->host : "127.0.0.1",
		 fake_server_port(s->server));
	o.endpoint = endpoint;
	o.tls.ca_file = c->ca ? file(c->ca) : NULL;
	o.tls.cert_file = c->cert ? file(c->cert) : NULL;
	o.tls.key_file = c->key ? file(c->key) : NULL;
	if (grpc_client_new(&o, &s->loop, &s->answer.client, &err) < 0)
		fail_msg("%s", err.message);
	scene_call(&s->answer, "x", 1, 60000);
}

static void call_server(struct tls_scene *s, const struct tls_case *c)
{
	begin_server(s, c, REFUSED);
	begin_tls_call(s, c);
	assert_true(fake_pump(s->server, &s->loop, is_done, s, WAIT_S));
}

static void end_server(struct tls_scene *s)
{
	grpc_client_free(s->answer.client);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&s->loop), 0);
	fake_server_stop(s->server);
}

static void check(const struct tls_case *c, size_t n)
{
	struct tls_scene s;

	call_server(&s, c);
	if (c->words ? s.answer.status != RPC_UNAVAILABLE || !strstr(s.answer.words, c->words)
		     : s.answer.status != REFUSED)
		fail_msg("row %zu: %d %s", n, s.answer.status, s.answer.words);
	end_server(&s);
}

static void test_who_is_trusted(void **state)
{
	static const struct tls_case rows[] = {
	    {.pki = &pki, .ca = "ca", .tls = {.server_name = "kiln.example"}},
	    {.pki = &pki, .ca = "ca", .tls = {.server_name = "KILN.example"}},
	    /* The server's own certificate as the trusted one, instead of its CA's. */
	    {.pki = &pki, .ca = "cert", .tls = {.server_name = "kiln.example"}},
	    {.pki = &pki,
	     .ca = "ca",
	     .tls = {.server_name = "other.example"},
	     .words = "TLS: the certificate is not of other.example"},
	    {.pki = &pki, .ca = "ca", .words = "TLS: the certificate is not of this address"},
	    {.pki = &pki,
	     .ca = "ca",
	     .host = "localhost",
	     .words = "TLS: the certificate is not of localhost"},
	    {.pki = &address, .ca = "address-ca"},
	    {.pki = &address,
	     .ca = "address-ca",
	     .tls = {.server_name = "kiln.example"},
	     .words = "TLS: the certificate is not of kiln.example"},
	    {.pki = &wildcard, .ca = "wildcard-ca", .tls = {.server_name = "a.kiln.example"}},
	    {.pki = &wildcard,
	     .ca = "wildcard-ca",
	     .tls = {.server_name = "a.b.kiln.example"},
	     .words = "TLS: the certificate is not of a.b.kiln.example"},
	    {.pki = &partial,
	     .ca = "partial-ca",
	     .tls = {.server_name = "ab.kiln.example"},
	     .words = "TLS: the certificate is not of ab.kiln.example"},
	    {.pki = &pki,
	     .ca = "other-ca",
	     .tls = {.server_name = "kiln.example"},
	     .words = "TLS: the certificate is refused: "},
	    {.pki = &pki,
	     .tls = {.server_name = "kiln.example"},
	     .words = "TLS: the certificate is refused: "},
	    {.pki = &pki, .tls = {.skip_verify = true}},
	    {.pki = &pki, .ca = "other-ca", .tls = {.skip_verify = true}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check(&rows[i], i);
}

static void test_what_both_sides_have_to_speak(void **state)
{
	static const struct tls_case rows[] = {
	    {.pki = &address, .ca = "address-ca", .server = {.max_version = TLS1_2_VERSION}},
	    {.pki = &address,
	     .ca = "address-ca",
	     .server = {.max_version = TLS1_2_VERSION},
	     .tls = {.min_version = "1.3"},
	     .words = "TLS: "},
	    {.pki = &address,
	     .ca = "address-ca",
	     .server = {.max_version = TLS1_1_VERSION},
	     .tls = {.min_version = "1.0"},
	     .words = "TLS: "},
	    {.pki = &address,
	     .ca = "address-ca",
	     .server = {.no_alpn = true},
	     .words = "TLS: the peer does not speak h2 (ALPN)"},
	    {.pki = NULL, .ca = "address-ca", .words = "it may speak plain text"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check(&rows[i], i);
}

static void test_client_certificates(void **state)
{
	const struct tls_case rows[] = {
	    {.cert = "other-cert", .key = "other-key"},
	    {.cert = "cert", .key = "key", .words = ""},
	    {.words = "certificate required"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct tls_case c = rows[i];

		c.pki = &address;
		c.ca = "address-ca";
		c.server.client_ca_pem = other.ca_pem;
		check(&c, i);
	}
}

static void test_names_that_the_server_is_told(void **state)
{
	static const struct {
		struct tls_case c;
		const char *sni, *authority; /* NULL: host:port */
	} rows[] = {
	    {{.pki = &address, .ca = "address-ca"}, "", NULL},
	    {{.pki = &pki, .host = "localhost", .tls = {.skip_verify = true}}, "localhost", NULL},
	    {{.pki = &pki, .ca = "ca", .tls = {.server_name = "kiln.example"}},
	     "kiln.example",
	     "kiln.example"},
	    {{.pki = NULL, .tls = {.insecure = true, .server_name = "kiln.example"}}, "", NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct tls_case *c = &rows[i].c;
		struct tls_scene s;
		char want[64];

		call_server(&s, c);
		assert_int_equal(s.answer.status, REFUSED);
		snprintf(want, sizeof(want), "%s:%d", c->host ? c->host : "127.0.0.1",
			 fake_server_port(s.server));
		assert_string_equal(fake_server_name(s.server), rows[i].sni);
		assert_string_equal(fake_server_call(s.server, 0)->authority,
				    rows[i].authority ? rows[i].authority : want);
		end_server(&s);
	}
}

static bool has_call(void *arg)
{
	return fake_server_calls(((struct tls_scene *)arg)->server) == 1;
}

static void test_a_server_that_closes(void **state)
{
	const struct tls_case c = {.pki = &address, .ca = "address-ca"};
	struct tls_scene s;

	begin_server(&s, &c, 0);
	begin_tls_call(&s, &c);
	assert_true(fake_pump(s.server, &s.loop, has_call, &s, WAIT_S));
	s.server = fake_server_stop(s.server);
	assert_true(fake_pump(NULL, &s.loop, is_done, &s, WAIT_S));
	assert_int_equal(s.answer.status, RPC_UNAVAILABLE);
	assert_non_null(strstr(s.answer.words, "127.0.0.1:"));
	assert_non_null(strstr(s.answer.words, ": the peer closed the connection"));
	end_server(&s);
}

static void test_system_roots(void **state)
{
	const struct tls_case c = {.pki = &address};

	setenv("SSL_CERT_FILE", file("address-ca"), 1);
	check(&c, 0);
	unsetenv("SSL_CERT_FILE");
}

static void test_files_that_cannot_work(void **state)
{
	static const struct {
		const char *ca, *cert, *key, *words;
	} rows[] = {
	    {"nowhere", NULL, NULL, "tls.ca_file: "},
	    {"key", NULL, NULL, "nothing in it can be used"},
	    {NULL, "cert", "other-key", "tls: key_file is not the key of cert_file"},
	    {NULL, "key", "key", "tls.cert_file: "},
	    {NULL, "cert", "cert", "tls.key_file: "},
	    {NULL, "cert", NULL, "come together"},
	};
	struct grpc_client *client;
	uv_loop_t loop;

	uv_loop_init(&loop);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct grpc_client_options o = {.endpoint = "kiln.example:1"};
		struct error err = {0};

		o.tls.ca_file = file(rows[i].ca ? rows[i].ca : "ca");
		o.tls.cert_file = rows[i].cert ? file(rows[i].cert) : NULL;
		o.tls.key_file = rows[i].key ? file(rows[i].key) : NULL;
		assert_int_equal(grpc_client_new(&o, &loop, &client, &err), -EINVAL);
		if (!strstr(err.message, rows[i].words))
			fail_msg("row %zu: %s", i, err.message);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- proxies -----------------------------------------------------------------------------------
 */

/* A call of ENDPOINT, or of the peer. */
static void begin_call(struct scene *s, const char *endpoint, bool insecure)
{
	struct grpc_client_options o = {.endpoint = endpoint ? endpoint : s->p.endpoint,
					.tls = {.insecure = insecure, .ca_file = file("ca")}};
	struct error err = {0};

	if (grpc_client_new(&o, &s->p.loop, &s->client, &err) < 0)
		fail_msg("%s", err.message);
	scene_call(s, "x", 1, 60000);
}

static void test_a_port_of_plain_text_is_told_from_one_of_tls(void **state)
{
	struct scene s = {0};

	h2_peer_start(&s.p);
	begin_call(&s, NULL, false);
	UNTIL(&s.p, s.p.n == 1 && s.p.c[0].n_in > 100);
	h2_peer_say(&s.p, 0, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_UNAVAILABLE);
	assert_non_null(strstr(s.words, "the port speaks plain text, not TLS"));
	scene_end(&s);
}

/* A call of target.example, which nobody can resolve; the peer is the proxy. */
static void begin_proxy(struct scene *s, bool insecure)
{
	char url[128];

	*s = (struct scene){0};
	h2_peer_start(&s->p);
	snprintf(url, sizeof(url), "http://user:pass%%3aword@%s", s->p.endpoint);
	setenv("https_proxy", url, 1);
	begin_call(s, "target.example:4317", insecure);
}

static void end_proxy(struct scene *s)
{
	unsetenv("https_proxy");
	scene_end(s);
}

static bool was_asked(const struct scene *s, size_t i)
{
	return s->p.n > i && s->p.c[i].n_in >= 4 &&
	       !memcmp(s->p.c[i].in + s->p.c[i].n_in - 4, "\r\n\r\n", 4);
}

static void test_through_a_proxy(void **state)
{
	/* printf 'user:pass:word' | base64 */
	static const char want[] = "CONNECT target.example:4317 HTTP/1.1\r\n"
				   "Host: target.example:4317\r\n"
				   "Proxy-Authorization: Basic dXNlcjpwYXNzOndvcmQ=\r\n\r\n";
	static const char reply[] = "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"
				    "\0\0\0\4\0\0\0\0"; /* the peer's SETTINGS, but for a byte */
	struct scene s;

	begin_proxy(&s, true);
	UNTIL(&s.p, was_asked(&s, 0));
	assert_int_equal(s.p.c[0].n_in, strlen(want));
	assert_memory_equal(s.p.c[0].in, want, strlen(want));
	s.p.c[0].n_in = 0;
	/*
	 * The reply comes in two parts, and the second one has bytes of the server behind the
	 * reply.
	 */
	h2_peer_say(&s.p, 0, reply, 20);
	for (unsigned int i = 0; i < 100; i++)
		uv_run(&s.p.loop, UV_RUN_NOWAIT);
	h2_peer_say(&s.p, 0, reply + 20, sizeof(reply) - 21);
	UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_SETTINGS, 0, NULL) == 1);
	h2_peer_say(&s.p, 0, "", 1);
	UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_DATA, H2_END_STREAM, NULL) == 1);
	scene_answer(&s, 0, 1);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_OK);
	end_proxy(&s);
}

static void test_tls_is_the_targets_not_the_proxys(void **state)
{
	struct scene s;

	begin_proxy(&s, false);
	UNTIL(&s.p, was_asked(&s, 0));
	s.p.c[0].n_in = 0;
	h2_peer_say(&s.p, 0, "HTTP/1.0 200\r\n\r\n", 16);
	UNTIL(&s.p, s.p.c[0].n_in > 100);
	assert_memory_equal(s.p.c[0].in, "\x16\x03", 2);
	assert_non_null(memmem(s.p.c[0].in, s.p.c[0].n_in, "target.example", 14));
	assert_null(memmem(s.p.c[0].in, s.p.c[0].n_in, "target.example:", 15));
	end_proxy(&s);
}

static void test_a_proxy_that_refuses(void **state)
{
	static const struct {
		const char *reply, *words;
	} rows[] = {
	    {"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the proxy answers HTTP 407"},
	    {"HTTP/1.1 302 Found\r\nLocation: x\r\n\r\n", "the proxy answers HTTP 302"},
	    {"SSH-2.0-x\r\n", "the proxy does not speak HTTP/1"},
	    {"HTTP/1.1 xyz\r\n\r\n", "the proxy does not speak HTTP/1"},
	    {"", "the proxy: "},
	};
	struct scene s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		begin_proxy(&s, true);
		UNTIL(&s.p, was_asked(&s, 0));
		h2_peer_say(&s.p, 0, rows[i].reply, strlen(rows[i].reply));
		h2_peer_close(&s.p, 0);
		UNTIL(&s.p, s.done == 1);
		assert_int_equal(s.status, RPC_UNAVAILABLE);
		assert_false(s.connected);
		if (!strstr(s.words, rows[i].words) || !strstr(s.words, "proxy 127.0.0.1:") ||
		    strstr(s.words, "word") || strstr(s.words, "dXNl"))
			fail_msg("row %zu: %s", i, s.words);
		end_proxy(&s);
	}
}

static void test_a_proxy_whose_reply_has_no_end(void **state)
{
	char line[1024];
	struct scene s;

	memset(line, 'v', sizeof(line));
	memcpy(line, "a: ", 3);
	memcpy(line + sizeof(line) - 2, "\r\n", 2);
	begin_proxy(&s, true);
	UNTIL(&s.p, was_asked(&s, 0));
	h2_peer_say(&s.p, 0, "HTTP/1.1 200 OK\r\n", 17);
	for (unsigned int i = 0; i < 1000 && !s.p.c[0].over; i++)
		h2_peer_say(&s.p, 0, line, sizeof(line));
	UNTIL(&s.p, s.done == 1);
	assert_non_null(strstr(s.words, "the proxy"));
	end_proxy(&s);
}

static void test_no_proxy(void **state)
{
	struct scene s;
	char url[128];

	scene_begin(&s, &(struct grpc_client_options){0});
	snprintf(url, sizeof(url), "http://%s", s.p.endpoint);
	setenv("https_proxy", url, 1);
	setenv("no_proxy", "x.example, 127.0.0.0/8", 1);
	scene_call(&s, "x", 1, 60000);
	UNTIL(&s.p, s.p.n == 1 && s.p.c[0].n_in >= 24);
	assert_memory_equal(s.p.c[0].in, "PRI * HTTP/2.0", 14);
	unsetenv("no_proxy");
	end_proxy(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_who_is_trusted),
	    cmocka_unit_test(test_what_both_sides_have_to_speak),
	    cmocka_unit_test(test_client_certificates),
	    cmocka_unit_test(test_names_that_the_server_is_told),
	    cmocka_unit_test(test_a_server_that_closes),
	    cmocka_unit_test(test_system_roots),
	    cmocka_unit_test(test_files_that_cannot_work),
	    cmocka_unit_test(test_a_port_of_plain_text_is_told_from_one_of_tls),
	    cmocka_unit_test(test_through_a_proxy),
	    cmocka_unit_test(test_tls_is_the_targets_not_the_proxys),
	    cmocka_unit_test(test_a_proxy_that_refuses),
	    cmocka_unit_test(test_a_proxy_whose_reply_has_no_end),
	    cmocka_unit_test(test_no_proxy),
	};
	static const char *const variables[] = {"grpc_proxy", "https_proxy",   "http_proxy",
						"no_proxy",   "no_grpc_proxy", "SSL_CERT_FILE"};

	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
