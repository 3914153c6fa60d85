/* SPDX-License-Identifier: Apache-2.0 */
/* The server breaks off, overloads, hangs and lies; certificates and tokens change meanwhile. */
#include "harness.h"

#include <arpa/inet.h>
#include <sys/socket.h>

static void test_what_was_cut_is_no_answer(void **state)
{
	static const char *const paths[] = {"/half", "/half?how=reset"};
	static const char *const streams[] = {"/stream?n=2&end=abort", "/stream?n=2&end=reset"};
	struct got g = {0};
	struct world w;
	int i, http;

	for (http = 0; http < 2; http++) {
		world_init(&w);
		if (http)
			snprintf(w.server, sizeof(w.server), "https://127.0.0.1:%d",
				 fake.http1_port);
		world_connect(&w, NULL);
		for (i = 0; i < 2; i++) {
			get(&w, paths[i], &g);
			assert_int_equal(g.status, 0);
			assert_null(g.body);
			assert_true(g.connection_reset);
			assert_true(g.message[0]);
			got_done(&g);
			get_stream(&w, streams[i], 0, &g);
			assert_int_equal(g.status, 0);
			/* A reset throws away what was not read yet. */
			if (i == 0)
				assert_string_equal(g.stream, "line 0\nline 1\n");
			else
				assert_true(!g.stream || has_prefix("line 0\nline 1\n", g.stream));
			assert_true(g.connection_reset);
			got_done(&g);
			get(&w, "/x", &g); /* and it goes on */
			assert_int_equal(g.status, 200);
			got_done(&g);
		}
		world_done(&w);
	}
}

static void test_a_connection_that_died_while_idle_is_not_noticed(void **state)
{
	struct got g = {0};
	struct world w;

	world_init(&w);
	world_connect(&w, NULL);
	get(&w, "/x", &g);
	got_done(&g);
	fake_tell("reset");
	usleep(20000);
	get(&w, "/x", &g);
	assert_int_equal(g.status, 200);
	got_done(&g);
	world_done(&w);
}

static void test_gets_wait_as_long_as_the_server_says(void **state)
{
	struct got g = {0};
	struct world w;
	long before;

	world_init(&w);
	world_connect(&w, NULL);
	get(&w, "/storm?id=a&n=2&after=1", &g);
	assert_int_equal(g.status, 200);
	assert_string_equal(g.body, "through");
	got_done(&g);
	get_stream(&w, "/storm?id=b&n=1&after=1&code=503", 0, &g);
	assert_string_equal(g.stream, "through");
	got_done(&g);
	/* No more than ten tries. */
	before = fake_tell("requests");
	get(&w, "/storm?id=c&n=1000&after=0", &g);
	assert_int_equal(g.status, 429);
	assert_string_equal(g.message, "slow down");
	assert_string_equal(g.reason, "TooManyRequests");
	assert_int_equal(fake_tell("requests") - before, 10);
	got_done(&g);
	world_done(&w);
}

/* The server did nothing for a refused request: the same body is sent again. */
static void test_writes_wait_as_long_as_the_server_says(void **state)
{
	static const struct kube_request rows[] = {
	    {.method = "POST", .path = "/storm?id=l&n=2&after=1", .body = "x", .len = 1},
	    {.method = "PATCH", .path = "/storm?id=m&n=1&after=1&code=503", .body = "x", .len = 1},
	    {.method = "DELETE", .path = "/storm?id=o&n=1&after=1"},
	};
	struct world w;

	world_init(&w);
	world_connect(&w, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct got g = {0};

		ask(&w, rows[i], &g);
		assert_int_equal(g.status, 200);
		assert_string_equal(g.body, "through");
		got_done(&g);
	}
	world_done(&w);
}

static void test_answers_that_are_handed_out_at_once(void **state)
{
	static const struct {
		struct kube_request request;
		int status;
		uint64_t retry_after_ms;
	} rows[] = {
	    {{.method = "GET", .path = "/storm?id=d&n=9"}, 429, 0},
	    {{.method = "GET", .path = "/storm?id=e&n=9&code=500"}, 500, 0},
	    {{.method = "GET", .path = "/storm?id=f&n=9&after=1&code=404"}, 404, 1000},
	    {{.method = "GET", .path = "/storm?id=g&n=9&after=1", .no_retry = true}, 429, 1000},
	    {{.method = "POST", .path = "/storm?id=h&n=9&after=1&code=500", .body = "x", .len = 1},
	     500,
	     1000},
	    {{.method = "GET", .path = "/storm?id=i&n=9&after=3600"}, 429, 3600000},
	    {{.method = "GET", .path = "/storm?id=j&n=9&after=20", .timeout_ms = 5000}, 429, 20000},
	    {{.method = "GET", .path = "/storm?id=k&n=9&after=soon"}, 429, 0},
	};
	struct world w;
	size_t i;

	world_init(&w);
	world_connect(&w, NULL);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		long before = fake_tell("requests");
		struct got g = {0};

		ask(&w, rows[i].request, &g);
		assert_int_equal(g.status, rows[i].status);
		assert_int_equal(g.retry_after_ms, rows[i].retry_after_ms);
		assert_int_equal(fake_tell("requests") - before, 1);
		got_done(&g);
	}
	world_done(&w);
}

/* A port that takes connections and says nothing. */
static int silent_port(int *ret_port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	*ret_port = ntohs(at.sin_port);
	return fd;
}

static void test_servers_that_do_not_answer(void **state)
{
	struct kube_request r = {.method = "GET", .path = "/x", .done = on_answer};
	struct got g = {0}, many[5] = {{0}};
	struct world w;
	size_t i;
	int port, fd = silent_port(&port);

	world_init(&w);
	world_connect(&w, NULL);
	ask(&w, (struct kube_request){.method = "GET", .path = "/slow?ms=90000", .timeout_ms = 100},
	    &g);
	assert_int_equal(g.status, 0);
	assert_non_null(strstr(g.message, "timed out"));
	got_done(&g);
	get(&w, "/x", &g); /* the connection is there: its making counts as silence */
	assert_int_equal(g.status, 200);
	got_done(&g);
	get_stream(&w, "/stream?n=1&end=hang", 1500, &g);
	assert_int_equal(g.status, 0);
	assert_string_equal(g.message, "no byte for 1500 ms");
	assert_string_equal(g.stream, "line 0\n");
	got_done(&g);
	get_stream(&w, "/slow?ms=90000", 200, &g); /* not even a header */
	assert_string_equal(g.message, "no byte for 200 ms");
	got_done(&g);
	/* With gaps shorter than the limit the stream goes on for longer than the limit. */
	get_stream(&w, "/stream?n=12&gap=200", 2000, &g);
	assert_int_equal(g.status, 200);
	got_done(&g);
	world_done(&w);

	world_init(&w);
	snprintf(w.server, sizeof(w.server), "https://127.0.0.1:%d", port);
	world_connect(&w, &(struct kube_client_options){.connect_ms = 100});
	get(&w, "/x", &g);
	assert_int_equal(g.status, 0);
	got_done(&g);
	get_stream(&w, "/x", 0, &g);
	assert_int_equal(g.status, 0);
	got_done(&g);
	/* All calls but the first wait for the first one's connection. */
	for (i = 0; i < ARRAY_SIZE(many); i++) {
		r.arg = &many[i];
		assert_int_equal(kube_call(w.client, &r, NULL), 0);
	}
	for (i = 0; i < ARRAY_SIZE(many); i++) {
		world_run_until(&w, &many[i].done);
		assert_int_equal(many[i].status, 0);
	}
	world_done(&w);
	close(fd);
}

static int refuse_data(void *arg, const char *content_type, const void *bytes, size_t len)
{
	return -EBADMSG;
}

static void test_garbage_and_too_much(void **state)
{
	struct got g = {0};
	struct world w;
	int tls;

	for (tls = 0; tls < 2; tls++) {
		world_init(&w);
		snprintf(w.server, sizeof(w.server), "%s://127.0.0.1:%d", tls ? "https" : "http",
			 fake.garbage_port);
		world_connect(&w, NULL);
		get(&w, "/x", &g);
		assert_int_equal(g.status, 0);
		assert_true(g.message[0]);
		got_done(&g);
		world_done(&w);
	}
	world_init(&w);
	world_connect(&w, &(struct kube_client_options){.gzip = true});
	get(&w, "/bytes?n=4194304", &g);
	assert_int_equal(g.status, 200);
	assert_int_equal(g.len, KUBE_BODY_MAX);
	got_done(&g);
	get(&w, "/bytes?n=4194305", &g);
	assert_int_equal(g.status, 0);
	assert_non_null(strstr(g.message, "larger"));
	got_done(&g);
	get(&w, "/gzip?n=50000000", &g);
	assert_int_equal(g.status, 0);
	assert_non_null(strstr(g.message, "larger"));
	got_done(&g);
	ask(&w, (struct kube_request){.method = "GET", .path = "/stream?n=1", .data = refuse_data},
	    &g);
	assert_int_equal(g.status, 0);
	assert_string_equal(g.message, strerror(EBADMSG));
	got_done(&g);
	/* A stream is as long as it likes. */
	get_stream(&w, "/stream?n=100&pad=100000", 0, &g);
	assert_int_equal(g.status, 200);
	assert_true(g.stream_len > 10000000);
	got_done(&g);
	world_done(&w);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void test_a_refused_token_is_read_again(void **state)
{
	struct got g = {0};
	struct world w;
	long before;

	world_init(&w);
	write_file("token", "first\n");
	fake_tell("token first");
	w.credentials.token_file = (char *)fake_file("token");
	world_connect(&w, NULL);
	get(&w, "/auth", &g);
	assert_int_equal(g.status, 200);
	got_done(&g);
	fake_tell("token second");
	write_file("token", "second");
	before = fake_tell("requests");
	ask(&w, (struct kube_request){.method = "POST", .path = "/auth", .body = "x", .len = 1},
	    &g);
	assert_int_equal(g.status, 200);
	/*
	 * One request more if it used the connection on which a body was not read
	 * (client_attempt.c).
	 */
	assert_in_range(fake_tell("requests") - before, 2, 3);
	got_done(&g);
	/* One retry, however often the server refuses; an empty file does not replace the token. */
	fake_tell("token third");
	write_file("token", "");
	before = fake_tell("requests");
	get(&w, "/auth", &g);
	assert_int_equal(g.status, 401);
	assert_string_equal(g.reason, "Unauthorized");
	assert_int_equal(fake_tell("requests") - before, 2);
	got_done(&g);
	fake_tell("token second");
	get(&w, "/auth", &g);
	assert_int_equal(g.status, 200);
	got_done(&g);
	world_done(&w);

	/* A token that is not read from a file cannot have changed. */
	world_init(&w);
	w.credentials.token = (char *)"wrong";
	world_connect(&w, NULL);
	before = fake_tell("requests");
	get(&w, "/auth", &g);
	assert_int_equal(g.status, 401);
	assert_int_equal(fake_tell("requests") - before, 1);
	assert_null(strstr(g.message, "wrong"));
	got_done(&g);
	world_done(&w);
}

static void test_the_token_is_read_again_in_time(void **state)
{
	struct got g = {0};
	struct world w;
	long before;

	world_init(&w);
	write_file("token", "old");
	w.credentials.token_file = (char *)fake_file("token");
	world_connect(&w, &(struct kube_client_options){.token_ms = 50});
	write_file("token", "new");
	fake_tell("token new");
	world_run_for(&w, 60);
	before = fake_tell("requests");
	get(&w, "/auth", &g);
	assert_int_equal(g.status, 200);
	assert_int_equal(fake_tell("requests") - before, 1); /* no 401 in between */
	got_done(&g);
	world_done(&w);
}

/* ---- certificates ---------------------------------------------------------------------------- */

static void test_a_server_that_nobody_vouches_for(void **state)
{
	struct got g = {0};
	struct world w;
	int i;

	rename(fake_file("ca.pem"), fake_file("old-ca.pem"));
	fake_tell("pki other");
	for (i = 0; i < 3; i++) {
		world_init(&w);
		/* Another CA; the system's CAs only; no verification. */
		w.credentials.ca_file = i == 0 ? (char *)fake_file("old-ca.pem") : NULL;
		w.credentials.skip_verify = i == 2;
		world_connect(&w, NULL);
		get(&w, "/x", &g);
		assert_int_equal(g.status, i == 2 ? 200 : 0);
		if (i < 2)
			assert_non_null(strstr(g.message, "certificate"));
		got_done(&g);
		world_done(&w);
	}
}

static void test_another_name_for_the_server(void **state)
{
	struct got g = {0};
	struct world w;
	cJSON *echo;
	int i;

	fake_tell("pki named"); /* its certificate knows no address */
	for (i = 0; i < 2; i++) {
		world_init(&w);
		w.credentials.server_name = i ? (char *)"kubernetes.default.svc" : NULL;
		world_connect(&w, NULL);
		get(&w, "/api/v1/x?y=z", &g);
		if (i == 0) {
			assert_int_equal(g.status, 0);
		} else {
			echo = echoed(&g);
			assert_string_equal(member_text(echo, "sni"), "kubernetes.default.svc");
			assert_string_equal(member_text(echo, "host"),
					    w.server + strlen("https://"));
			assert_string_equal(member_text(echo, "uri"), "/api/v1/x?y=z");
			cJSON_Delete(echo);
		}
		got_done(&g);
		world_done(&w);
	}
	fake_tell("pki plain");
}

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 8192);

	assert_non_null(f);
	assert_true(fread(text, 1, 8191, f) > 0);
	fclose(f);
	return text;
}

static void assert_client(struct world *w, const char *name)
{
	struct got g = {0};
	cJSON *echo;

	get(w, "/x", &g);
	if (g.status == 0)
		fail_msg("%s", g.message);
	echo = echoed(&g);
	assert_string_equal(member_text(echo, "client"), name);
	cJSON_Delete(echo);
	got_done(&g);
}

static void test_certificates_that_change_count_for_new_connections(void **state)
{
	struct got watch = {0};
	struct world w;
	long before;

	fake_tell("pki alice");
	world_init(&w);
	w.credentials.cert_file = (char *)fake_file("client.pem");
	w.credentials.key_file = (char *)fake_file("client.key");
	world_connect(&w, NULL);
	assert_client(&w, "alice");
	assert_int_equal(kube_call(w.client,
				   &(struct kube_request){.method = "GET",
							  .path = "/stream?n=30&gap=100",
							  .data = on_data,
							  .done = on_answer,
							  .arg = &watch},
				   NULL),
			 0);
	world_run_for(&w, 100);
	before = fake_tell("accepted");
	fake_tell("pki bob"); /* a new CA, a new server certificate, a new client */
	world_run_for(&w, 1100);
	assert_client(&w, "bob");
	assert_client(&w, "bob");
	assert_int_equal(fake_tell("accepted") - before, 1);
	/* The request in progress goes on. */
	world_run_until(&w, &watch.done);
	assert_int_equal(watch.status, 200);
	got_done(&watch);
	/* Files that are missing or incomplete: the ones that were read before stay in use. */
	assert_int_equal(rename(fake_file("client.key"), fake_file("hidden.key")), 0);
	world_run_for(&w, 1100);
	assert_client(&w, "bob");
	assert_int_equal(rename(fake_file("hidden.key"), fake_file("client.key")), 0);
	world_done(&w);
}

static void test_certificates_out_of_a_kubeconfig(void **state)
{
	struct world w;

	fake_tell("pki carol");
	world_init(&w);
	w.credentials.ca_file = NULL;
	w.credentials.ca_pem = slurp(fake_file("ca.pem"));
	w.credentials.cert_pem = slurp(fake_file("client.pem"));
	w.credentials.key_pem = slurp(fake_file("client.key"));
	world_connect(&w, NULL);
	assert_client(&w, "carol");
	world_done(&w);
	free(w.credentials.ca_pem);
	free(w.credentials.cert_pem);
	free(w.credentials.key_pem);
}

static void test_files_that_are_not_there_at_the_start(void **state)
{
	struct kube_client_options o = {.user_agent = "x"};
	struct kube_client *client = NULL;
	struct error err;
	struct world w;

	world_init(&w);
	o.credentials = &w.credentials;
	w.credentials.token_file = (char *)"/nowhere/token";
	assert_int_equal(kube_client_new(&w.loop, &o, &client, &err), -ENOENT);
	assert_non_null(strstr(err.message, "/nowhere/token"));
	write_file("token", "two words");
	w.credentials.token_file = (char *)fake_file("token");
	assert_int_equal(kube_client_new(&w.loop, &o, &client, &err),
			 0); /* the first line's first */
	kube_client_free(client);
	client = NULL;
	write_file("token", "caf\xc3\xa9");
	assert_int_equal(kube_client_new(&w.loop, &o, &client, &err), -EINVAL);
	assert_null(strstr(err.message, "caf"));
	w.credentials.token_file = NULL;
	w.credentials.ca_file = (char *)"/nowhere/ca";
	assert_int_equal(kube_client_new(&w.loop, &o, &client, &err), -ENOENT);
	assert_null(client);
	world_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_what_was_cut_is_no_answer),
	    cmocka_unit_test(test_a_connection_that_died_while_idle_is_not_noticed),
	    cmocka_unit_test(test_gets_wait_as_long_as_the_server_says),
	    cmocka_unit_test(test_writes_wait_as_long_as_the_server_says),
	    cmocka_unit_test(test_answers_that_are_handed_out_at_once),
	    cmocka_unit_test(test_servers_that_do_not_answer),
	    cmocka_unit_test(test_garbage_and_too_much),
	    cmocka_unit_test(test_a_refused_token_is_read_again),
	    cmocka_unit_test(test_the_token_is_read_again_in_time),
	    cmocka_unit_test(test_a_server_that_nobody_vouches_for),
	    cmocka_unit_test(test_another_name_for_the_server),
	    cmocka_unit_test(test_certificates_that_change_count_for_new_connections),
	    cmocka_unit_test(test_certificates_out_of_a_kubeconfig),
	    cmocka_unit_test(test_files_that_are_not_there_at_the_start),
	};

	return cmocka_run_group_tests(tests, fake_start, fake_stop);
}
