/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the credentials, loads those of a pod's service account, and frees them. Secrets are
 * wiped before their memory is freed. Plain functions, any thread.
 */
#include "operator/kube/credentials.h"

#include <ctype.h>
#include <curl/curl.h>

#include "lib/buf.h"
#include "lib/parse.h"
#include "lib/tls.h"
#include "operator/kube/kubeconfig.h"

#define SERVICE_ACCOUNT_ROOT "/var/run/secrets/kubernetes.io/serviceaccount"

static void free_secret(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

struct kube_credentials *kube_credentials_free(struct kube_credentials *c)
{
	if (!c)
		return NULL;
	free(c->server);
	free(c->server_name);
	free_secret(c->proxy_url); /* may hold a password */
	free(c->ca_file);
	free(c->ca_pem);
	free(c->cert_file);
	free(c->cert_pem);
	free(c->key_file);
	free_secret(c->key_pem);
	free(c->token_file);
	free_secret(c->token);
	free(c->default_namespace);
	free(c);
	return NULL;
}

bool kube_token_valid(const char *token)
{
	size_t n = 0;

	for (; token[n]; n++)
		if (token[n] <= ' ' || token[n] > '~' || n >= KUBE_TOKEN_MAX)
			return false;
	return n > 0;
}

int kube_server_check(const char *server, char **ret, struct error *err)
{
	CURLU *url = curl_url();
	char *scheme = NULL, *path = NULL, *user = NULL, *query = NULL, *fragment = NULL;
	_cleanup_free_ char *clean = NULL;
	bool good = false;
	size_t n;

	if (!url)
		return error_set(err, -ENOMEM, "out of memory");
	if (curl_url_set(url, CURLUPART_URL, server, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK)
		good = streq(scheme, "https") || streq(scheme, "http");
	if (curl_url_get(url, CURLUPART_USER, &user, 0) == CURLUE_OK ||
	    curl_url_get(url, CURLUPART_QUERY, &query, 0) == CURLUE_OK ||
	    curl_url_get(url, CURLUPART_FRAGMENT, &fragment, 0) == CURLUE_OK)
		good = false;
	curl_free(scheme);
	curl_free(path);
	curl_free(user);
	curl_free(query);
	curl_free(fragment);
	curl_url_cleanup(url);
	if (!good) /* not shown: it may hold a password */
		return error_set(err, -EINVAL, "want https://HOST:PORT");
	clean = strdup(server);
	if (!clean)
		return error_set(err, -ENOMEM, "out of memory");
	for (n = 0; clean[n] && clean[n] != ':'; n++) /* the scheme, in lower case */
		clean[n] = (char)tolower((unsigned char)clean[n]);
	for (n = strlen(clean); n > 0 && clean[n - 1] == '/'; n--)
		clean[n - 1] = 0;
	*ret = TAKE_PTR(clean);
	return 0;
}

static int service_account_file(const char *root, const char *name, char **ret, struct error *err)
{
	_cleanup_free_ char *path = NULL;

	if (asprintf(&path, "%s/%s", root, name) < 0) {
		path = NULL;
		return error_set(err, -ENOMEM, "out of memory");
	}
	if (access(path, R_OK) < 0)
		return error_set(err, -errno, "the pod's service account: %s: %s", path,
				 strerror(errno));
	*ret = TAKE_PTR(path);
	return 0;
}

static int service_account_namespace(const char *root, char **ret, struct error *err)
{
	_cleanup_free_ char *path = NULL, *text = NULL;
	int r = service_account_file(root, "namespace", &path, err);

	if (r == 0)
		r = tls_read_pem(path, &text, err);
	if (r < 0)
		return r;
	text[strcspn(text, " \t\r\n")] = 0;
	if (!*text)
		return error_set(err, -EINVAL, "%s: want a namespace's name", path);
	*ret = TAKE_PTR(text);
	return 0;
}

int kube_credentials_in_cluster(const char *root, struct kube_credentials **ret, struct error *err)
{
	_cleanup_(kube_credentials_freep) struct kube_credentials *c = calloc(1, sizeof(*c));
	const char *host = getenv("KUBERNETES_SERVICE_HOST");
	const char *port = getenv("KUBERNETES_SERVICE_PORT");
	_cleanup_free_ char *server = NULL;
	bool v6;
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	if (!host || !*host || !port || !*port)
		return error_set(err, -ENOENT,
				 "not in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set");
	root = root ? root : SERVICE_ACCOUNT_ROOT;
	v6 = strchr(host, ':') && host[0] != '[';
	if (asprintf(&server, "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port) < 0) {
		server = NULL;
		return error_set(err, -ENOMEM, "out of memory");
	}
	r = kube_server_check(server, &c->server, err);
	if (r < 0)
		return error_wrap(err, r, "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT");
	r = service_account_file(root, "token", &c->token_file, err);
	if (r == 0)
		r = service_account_file(root, "ca.crt", &c->ca_file, err);
	if (r == 0)
		r = service_account_namespace(root, &c->default_namespace, err);
	if (r < 0)
		return r;
	c->in_cluster = true;
	*ret = TAKE_PTR(c);
	return 0;
}

int kube_credentials_load(const char *path, const char *context, struct kube_credentials **ret,
			  struct error *err)
{
	const char *env = getenv("KUBECONFIG"), *home = getenv("HOME");
	const char *host = getenv("KUBERNETES_SERVICE_HOST");
	_cleanup_free_ char *in_home = NULL;
	int r;

	if (path && *path)
		return kubeconfig_load(path, true, context, ret, err);
	if (env && *env)
		return kubeconfig_load(env, false, context, ret, err);
	if (host && *host)
		return kube_credentials_in_cluster(NULL, ret, err);
	if (!home || asprintf(&in_home, "%s/.kube/config", home) < 0)
		in_home = NULL;
	r = in_home ? kubeconfig_load(in_home, false, context, ret, err) : -ENOENT;
	if (r == -ENOENT)
		error_set(err, r,
			  "no credentials for an API server: want --kubeconfig, $KUBECONFIG, "
			  "a pod's service account or ~/.kube/config");
	return r;
}
