/* SPDX-License-Identifier: Apache-2.0 */
/* kubeconfigs in all their forms, service accounts, and what paths are made of. No server. */
#include "lib/buf.h"
#include "operator/kube/client_limit.h"
#include "operator/kube/client_status.h"
#include "operator/kube/credentials.h"
#include "operator/kube/resource.h"
#include "tests/support/test.h"

#include <sys/stat.h>

static char dir[64];

static int make_dir(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/kiln-kubeconfig.XXXXXX");
	unsetenv("KUBECONFIG");
	unsetenv("KUBERNETES_SERVICE_HOST");
	return mkdtemp(dir) ? 0 : -1;
}

static const char *path_of(const char *name)
{
	static char ring[8][160];
	static unsigned int at;
	char *p = ring[at++ % ARRAY_SIZE(ring)];

	snprintf(p, sizeof(ring[0]), "%s/%s", dir, name);
	return p;
}

static const char *put(const char *name, const char *text)
{
	FILE *f = fopen(path_of(name), "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return path_of(name);
}

static int remove_dir(void **state)
{
	static const char *const names[] = {
	    "config", "a",	   "b",	       "ca",	       "crt", "key",
	    "token",  "sa/ca.crt", "sa/token", "sa/namespace", "sa"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		remove(path_of(names[i]));
	return remove(dir);
}

/* A kubeconfig of one context, CLUSTER and USER as flow maps. */
static const char *config(const char *cluster, const char *user)
{
	char text[4096];

	snprintf(text, sizeof(text),
		 "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
		 "contexts:\n- name: c\n  context: {cluster: k, user: u, namespace: work}\n"
		 "clusters:\n- name: k\n  cluster: {%s}\n"
		 "users:\n- name: u\n  user: {%s}\n",
		 cluster, user);
	return put("config", text);
}

static void test_every_key_gets_where_it_belongs(void **state)
{
	_cleanup_(kube_credentials_freep) struct kube_credentials *c = NULL;
	struct error err = {.message = ""};

	put("ca", "x");
	put("crt", "x");
	put("key", "x");
	put("token", "x");
	assert_int_equal(
	    kube_credentials_load(config("server: 'https://[fd00::1]:6443/k8s/', "
					 "certificate-authority: ca, tls-server-name: api, "
					 "proxy-url: 'socks5://p:1', disable-compression: true",
					 "client-certificate: crt, client-key: key, "
					 "tokenFile: token, token: unused"),
				  NULL, &c, &err),
	    0);
	assert_string_equal(c->server, "https://[fd00::1]:6443/k8s");
	assert_string_equal(c->server_name, "api");
	assert_string_equal(c->proxy_url, "socks5://p:1");
	assert_string_equal(c->ca_file, path_of("ca"));
	assert_string_equal(c->cert_file, path_of("crt"));
	assert_string_equal(c->key_file, path_of("key"));
	assert_string_equal(c->token_file, path_of("token"));
	assert_null(c->token);
	assert_string_equal(c->default_namespace, "work");
	assert_true(c->no_compression);
	assert_false(c->skip_verify || c->in_cluster);
}

/* "-----BEGIN A" and one, two, three characters more: every length of padding. */
static void test_data_is_decoded_and_wins_over_files(void **state)
{
	_cleanup_(kube_credentials_freep) struct kube_credentials *c = NULL;
	struct error err = {.message = ""};

	assert_int_equal(
	    kube_credentials_load(
		config("server: 'https://h:1', certificate-authority: /nowhere, "
		       "certificate-authority-data: LS0tLS1CRUdJTiBB",
		       "client-certificate-data: LS0tLS1CRUdJTiBBQg==, client-key: /nowhere, "
		       "client-key-data: \"LS0tLS1CRUdJ\\nTiBBQkM=\\n\", token: abc"),
		NULL, &c, &err),
	    0);
	assert_string_equal(c->ca_pem, "-----BEGIN A");
	assert_string_equal(c->cert_pem, "-----BEGIN AB");
	assert_string_equal(c->key_pem, "-----BEGIN ABC");
	assert_string_equal(c->token, "abc");
	assert_null(c->ca_file);
	assert_null(c->key_file);
}

static void test_what_is_refused_and_why(void **state)
{
	static const struct {
		const char *cluster, *user;
		int code;
		const char *words; /* after "config:" and the line */
	} rows[] = {
	    {"server: 'https://h:1'", "exec: {command: aws}", -ENOTSUP,
	     "12: users.\"u\".exec: exec plugins are not run"},
	    {"server: 'https://h:1'", "auth-provider: {name: gcp}", -ENOTSUP, "auth-provider"},
	    {"server: 'https://h:1'", "username: me, password: s3cret", -ENOTSUP,
	     "basic authentication"},
	    {"server: 'https://h:1'", "password: s3cret", -ENOTSUP, "basic authentication"},
	    {"server: 'https://h:1'", "as: root", -ENOTSUP, "impersonation"},
	    {"server: 'https://h:1'", "token: 's3cret\\ts3cret', as: ''", -EINVAL, NULL},
	    {"server: 'https://h:1'", "token: \"s3cret\\r\\nX: y\"", -EINVAL, "users.\"u\".token"},
	    {"server: 'https://h:1'", "tokenFile: nowhere", -EINVAL, "nowhere: No such file"},
	    {"server: 'https://h:1'", "client-key-data: czNjcmV0", -EINVAL,
	     "client-key-data: want a PEM"},
	    {"server: 'https://h:1'", "client-key-data: LS0tLS1CRUdJTiBBQg=", -EINVAL, "PEM"},
	    {"server: 'https://h:1'", "client-key-data: LS0tLS1CRUdJTiBBQg==x", -EINVAL, "PEM"},
	    {"server: 'https://h:1'", "client-key-data: LS0tLS1CRUdJTiBB", -EINVAL,
	     "come together"},
	    {"server: 'https://h:1', insecure-skip-tls-verify: perhaps", "", -EINVAL,
	     "9: clusters.\"k\".insecure-skip-tls-verify: want true or false"},
	    {"server: 'https://h:1', insecure-skip-tls-verify: true, "
	     "certificate-authority-data: LS0tLS1CRUdJTiBB",
	     "", -EINVAL, "only one of them"},
	    {"server: 'https://h:1', proxy-url: 'ftp://p'", "", -EINVAL, "proxy-url"},
	    {"server: 'https://me:s3cret@h:1'", "", -EINVAL, "server: want https"},
	    {"server: 'h:1'", "", -EINVAL, "server: want https"},
	    {"server: [a]", "", -EINVAL, "server: want text"},
	    {"", "", -EINVAL, "no server"},
	    {"server: 'http://h:1'", "token: s3cret", -EINVAL, "not sent over http"},
	    {"server: 'HTTP://h:1'", "token: s3cret", -EINVAL, "not sent over http"},
	    {"server: 'http://127.evil.example:1'", "token: s3cret", -EINVAL, "not sent over http"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct kube_credentials *c = NULL;
		struct error err = {.message = ""};
		int r =
		    kube_credentials_load(config(rows[i].cluster, rows[i].user), NULL, &c, &err);

		if (!rows[i].words) { /* in single quotes a backslash is one: a fine token */
			assert_int_equal(r, 0);
			kube_credentials_free(c);
			continue;
		}
		assert_int_equal(r, rows[i].code);
		assert_null(c);
		if (!strstr(err.message, rows[i].words))
			fail_msg("row %zu: %s", i, err.message);
		assert_non_null(strstr(err.message, path_of("config")));
		assert_null(strstr(err.message, "s3cret"));
		assert_null(strstr(err.message, "czNjcmV0"));
	}
}

static void test_contexts_over_several_files(void **state)
{
	char list[512];
	struct kube_credentials *c = NULL;
	struct error err = {.message = ""};

	put("a", "contexts:\n- {name: one, context: {cluster: k1, user: u}}\n"
		 "users:\n- {name: u, user: {token: from-a}}\n");
	put("b", "current-context: one\n"
		 "contexts:\n- {name: one, context: {cluster: lost}}\n"
		 "- {name: two, context: {cluster: k2}}\n- {name: three, context: {cluster: k9}}\n"
		 "clusters:\n- {name: k1, cluster: {server: 'https://one:1'}}\n"
		 "- {name: k2, cluster: {server: 'http://127.0.0.1:8001'}}\n"
		 "users:\n- {name: u, user: {token: from-b}}\n");
	snprintf(list, sizeof(list), "%s:%s::%s", path_of("a"), path_of("missing"), path_of("b"));
	setenv("KUBECONFIG", list, 1);
	assert_int_equal(kube_credentials_load(NULL, NULL, &c, &err), 0);
	assert_string_equal(c->server, "https://one:1");
	assert_string_equal(c->token, "from-a");
	assert_string_equal(c->default_namespace, "default");
	c = kube_credentials_free(c);
	assert_int_equal(kube_credentials_load(NULL, "two", &c, &err), 0);
	assert_string_equal(c->server, "http://127.0.0.1:8001");
	assert_null(c->token);
	c = kube_credentials_free(c);
	assert_int_equal(kube_credentials_load(NULL, "three", &c, &err), -EINVAL);
	assert_non_null(strstr(err.message, "no cluster called \"k9\""));
	assert_int_equal(kube_credentials_load(NULL, "four", &c, &err), -EINVAL);
	assert_non_null(strstr(err.message, "no context called \"four\""));
	setenv("KUBECONFIG", path_of("missing"), 1);
	assert_int_equal(kube_credentials_load(NULL, NULL, &c, &err), -ENOENT);
	unsetenv("KUBECONFIG");
	assert_int_equal(kube_credentials_load(path_of("missing"), NULL, &c, &err), -EINVAL);
	assert_non_null(strstr(err.message, "missing"));
	assert_null(c);
}

static void test_the_service_account_of_a_pod(void **state)
{
	struct kube_credentials *c = NULL;
	struct error err = {.message = ""};

	assert_int_equal(kube_credentials_in_cluster(path_of("sa"), &c, &err), -ENOENT);
	assert_non_null(strstr(err.message, "not in a pod"));
	mkdir(path_of("sa"), 0700);
	put("sa/ca.crt", "x");
	put("sa/namespace", "kiln-system\n");
	setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
	setenv("KUBERNETES_SERVICE_PORT", "443", 1);
	assert_int_equal(kube_credentials_in_cluster(path_of("sa"), &c, &err), -ENOENT);
	assert_non_null(strstr(err.message, "sa/token"));
	put("sa/token", "x");
	assert_int_equal(kube_credentials_in_cluster(path_of("sa"), &c, &err), 0);
	assert_string_equal(c->server, "https://[fd00::1]:443");
	assert_string_equal(c->default_namespace, "kiln-system");
	assert_string_equal(c->token_file, path_of("sa/token"));
	assert_string_equal(c->ca_file, path_of("sa/ca.crt"));
	assert_true(c->in_cluster);
	kube_credentials_free(c);
	unsetenv("KUBERNETES_SERVICE_HOST");
	unsetenv("KUBERNETES_SERVICE_PORT");
}

static void test_paths(void **state)
{
	static const struct {
		enum kube_kind kind;
		const char *ns, *name, *sub, *path; /* NULL: refused */
	} rows[] = {
	    {KUBE_PODS, NULL, NULL, NULL, "/api/v1/pods"},
	    {KUBE_PODS, "a", "b", "status", "/api/v1/namespaces/a/pods/b/status"},
	    {KUBE_NODES, NULL, "n", NULL, "/api/v1/nodes/n"},
	    {KUBE_DAEMON_SETS, "a", NULL, NULL, "/apis/apps/v1/namespaces/a/daemonsets"},
	    {KUBE_ROLES, "a", "system:x y?\xc3\xa9", NULL,
	     "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles/system%3Ax%20y%3F%C3%A9"},
	    {KUBE_PODS, "a", "..", NULL, NULL},
	    {KUBE_PODS, "a/b", "c", NULL, NULL},
	    {KUBE_PODS, "a", "", NULL, NULL},
	    {KUBE_PODS, "", NULL, NULL, NULL},
	    {KUBE_PODS, "a", "b%2f", NULL, NULL},
	    {KUBE_PODS, "a", NULL, "status", NULL},
	    {KUBE_NODES, "a", "n", NULL, NULL},
	};
	_cleanup_(buf_done) struct buf b;

	buf_init(&b, 1024);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		buf_reset(&b);
		assert_int_equal(kube_path(&b, rows[i].kind, rows[i].ns, rows[i].name, rows[i].sub),
				 rows[i].path ? 0 : -EINVAL);
		if (rows[i].path)
			assert_string_equal(b.data, rows[i].path);
	}
	buf_reset(&b);
	assert_int_equal(kube_path(&b, KUBE_PODS, NULL, NULL, NULL), 0);
	assert_int_equal(kube_path_query(&b, "continue", "a+/=&"), 0);
	assert_int_equal(kube_path_query(&b, "limit", "5"), 0);
	assert_string_equal(b.data, "/api/v1/pods?continue=a%2B%2F%3D%26&limit=5");
}

static void test_the_bucket_fills_in_time(void **state)
{
	struct kube_limit l;
	uint64_t now = 5000;
	int i;

	kube_limit_init(&l, 4, 3, now);
	for (i = 0; i < 3; i++)
		assert_int_equal(kube_limit_take(&l, now), 0);
	assert_in_range(kube_limit_take(&l, now), 250, 251);
	assert_int_equal(kube_limit_take(&l, now + 251), 0);
	assert_true(kube_limit_take(&l, now + 251) > 0);
	now += 100000; /* not more than the burst, however long nobody came */
	for (i = 0; i < 3; i++)
		assert_int_equal(kube_limit_take(&l, now), 0);
	assert_true(kube_limit_take(&l, now) > 0);
	assert_true(kube_limit_take(&l, 0) > 0); /* a clock that went back */
	kube_limit_init(&l, 0, 0, now);
	for (i = 0; i < 1000; i++)
		assert_int_equal(kube_limit_take(&l, now), 0);
}

static void test_broken_statuses_are_survived(void **state)
{
	static const char good[] = "k8s\0\x0a\x00\x12\x0e\x1a\x05stale\x22\x05"
				   "State\x2a";
	struct kube_status s;
	size_t n;

	for (n = 0; n <= sizeof(good) - 1; n++) {
		char *exact = malloc(n ? n : 1);

		memcpy(exact, good, n);
		kube_status_read(500, "application/vnd.kubernetes.protobuf", exact, n, &s);
		assert_true(s.message[0]);
		free(exact);
	}
	kube_status_read(409, "x", good, 4 + 2 + 2 + 14, &s);
	assert_string_equal(s.message, "stale");
	assert_string_equal(s.reason, "State");
	kube_status_read(500, "application/json", "{\"kind\":\"Status\",\"message\":5}", 29, &s);
	assert_string_equal(s.message, "the API server answered HTTP 500");
	kube_status_read(500, "application/json", "[[[[", 4, &s);
	assert_string_equal(s.message, "the API server answered HTTP 500");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_key_gets_where_it_belongs),
	    cmocka_unit_test(test_data_is_decoded_and_wins_over_files),
	    cmocka_unit_test(test_what_is_refused_and_why),
	    cmocka_unit_test(test_contexts_over_several_files),
	    cmocka_unit_test(test_the_service_account_of_a_pod),
	    cmocka_unit_test(test_paths),
	    cmocka_unit_test(test_the_bucket_fills_in_time),
	    cmocka_unit_test(test_broken_statuses_are_survived),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
