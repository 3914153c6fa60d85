/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kubeconfig files:
 * https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig and the keys
 * of k8s.io/client-go tools/clientcmd/api/v1/types.go (0.34). One context is looked up, and the
 * cluster and the user that it names become struct kube_credentials. Keys that would make us
 * another user if they were ignored (exec, auth-provider, username, as) are refused. Values of
 * secrets never get into a message. Plain functions, any thread.
 */
#include "operator/kube/kubeconfig.h"

#include <arpa/inet.h>

#include "lib/buf.h"
#include "lib/fields.h"
#include "lib/parse.h"
#include "lib/yaml.h"

struct config_file {
	char *path;
	struct yaml_node *root;
};

struct kubeconfig {
	struct config_file files[KUBECONFIG_FILES_MAX];
	size_t n;
	struct error *err;
};

/* A context, a cluster or a user: its map and the file that has it. */
struct entry {
	const struct config_file *file;
	const struct yaml_node *map; /* NULL: an entry without content */
	const char *kind;	     /* "clusters" */
	const char *name;
};

static void kubeconfig_done(struct kubeconfig *k)
{
	for (size_t i = 0; i < k->n; i++) {
		free(k->files[i].path);
		yaml_tree_free(k->files[i].root);
	}
}

static int no_memory(struct error *err)
{
	return error_set(err, -ENOMEM, "out of memory");
}

/* ---- files ----------------------------------------------------------------------------------- */

static int read_file(const char *path, struct buf *out, struct error *err)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	char chunk[4096];
	size_t n;
	int r = 0;

	if (!f)
		return error_set(err, -errno, "%s: %s", path, strerror(errno));
	while (r == 0 && (n = fread(chunk, 1, sizeof(chunk), f)) > 0)
		r = buf_append(out, chunk, n);
	if (r == 0 && ferror(f))
		r = -EIO;
	explicit_bzero(chunk, sizeof(chunk));
	return r < 0 ? error_set(err, r, "%s: %s", path, strerror(-r)) : 0;
}

static int add_file(struct kubeconfig *k, const char *path, bool required)
{
	_cleanup_(yaml_tree_freep) struct yaml_node *root = NULL;
	_cleanup_free_ char *copy = NULL;
	_cleanup_(buf_done) struct buf text;
	int r;

	buf_init(&text, KUBECONFIG_FILE_MAX);
	r = read_file(path, &text, k->err);
	if (r == -ENOENT && !required)
		return 0;
	if (r == 0 && k->n == KUBECONFIG_FILES_MAX)
		r = error_set(k->err, -E2BIG, "%s: more than %d kubeconfig files", path,
			      KUBECONFIG_FILES_MAX);
	if (r == 0)
		r = yaml_tree_load(path, text.data ? text.data : "", text.len, &root, k->err);
	if (text.data)
		explicit_bzero(text.data, text.len);
	if (r < 0)
		return r;
	if (root->kind == YAML_NULL)
		return 0; /* empty files are usual in a list */
	if (root->kind != YAML_MAP)
		return error_set(k->err, -EINVAL, "%s:%u: want a kubeconfig", path, root->line);
	copy = strdup(path);
	if (!copy)
		return no_memory(k->err);
	k->files[k->n++] = (struct config_file){.path = TAKE_PTR(copy), .root = TAKE_PTR(root)};
	return 0;
}

static int add_files(struct kubeconfig *k, const char *paths, bool required)
{
	_cleanup_free_ char *list = strdup(paths);
	char *rest = list, *path;
	int r = 0;

	if (!list)
		return no_memory(k->err);
	while (r == 0 && (path = strsep(&rest, ":")))
		if (*path)
			r = add_file(k, path, required);
	if (r == 0 && k->n == 0)
		r = error_set(k->err, -ENOENT, "%s: no kubeconfig there", paths);
	/* A caller may go on without a kubeconfig at -ENOENT. */
	return r == -ENOENT && required ? -EINVAL : r;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static int entry_error(const struct kubeconfig *k, const struct entry *e,
		       const struct yaml_node *node, const char *key, int code, const char *text)
{
	return error_set(k->err, code, "%s:%u: %s.%s.%s: %s", e->file->path, node->line, e->kind,
			 quote_text(e->name).text, key, text);
}

/* *RET is the text under KEY; NULL when it is absent or empty, which is the same to client-go. */
static int get(const struct kubeconfig *k, const struct entry *e, const char *key, const char **ret,
	       const struct yaml_node **ret_node)
{
	const struct yaml_node *node = yaml_get(e->map, key);

	*ret = NULL;
	*ret_node = node;
	if (!node || node->kind == YAML_NULL)
		return 0;
	if (node->kind != YAML_SCALAR)
		return entry_error(k, e, node, key, -EINVAL, "want text");
	if (*node->text)
		*ret = node->text;
	return 0;
}

static const char *current_context(const struct kubeconfig *k)
{
	for (size_t i = 0; i < k->n; i++) {
		const struct yaml_node *n = yaml_get(k->files[i].root, "current-context");

		if (n && n->kind == YAML_SCALAR && *n->text)
			return n->text;
	}
	return NULL;
}

/* Finds the first entry NAME of LIST in all files, and its content under KEY. */
static int find(const struct kubeconfig *k, const char *list, const char *key, const char *name,
		struct entry *ret)
{
	for (size_t i = 0; i < k->n; i++) {
		const struct yaml_node *l = yaml_get(k->files[i].root, list), *n;

		if (!l || l->kind != YAML_LIST)
			continue;
		for (n = l->child; n; n = n->next) {
			const struct yaml_node *id = yaml_get(n, "name");

			if (!id || !id->text || !streq(id->text, name))
				continue;
			*ret = (struct entry){.file = &k->files[i],
					      .map = yaml_get(n, key),
					      .kind = list,
					      .name = name};
			return 0;
		}
	}
	return error_set(k->err, -EINVAL, "%s: no %s called %s", k->files[0].path, key,
			 quote_text(name).text);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int copy_text(const struct kubeconfig *k, const struct entry *e, const char *key, char **ret)
{
	const struct yaml_node *node;
	const char *text;
	int r = get(k, e, key, &text, &node);

	if (r < 0 || !text)
		return r;
	*ret = strdup(text);
	return *ret ? 0 : no_memory(k->err);
}

static int copy_bool(const struct kubeconfig *k, const struct entry *e, const char *key, bool *ret)
{
	const struct yaml_node *node;
	const char *text;
	int r = get(k, e, key, &text, &node);

	if (r < 0 || !text)
		return r;
	return parse_bool(text, ret) < 0
		   ? entry_error(k, e, node, key, -EINVAL, "want true or false")
		   : 0;
}

/* The path of a file, relative to the directory of the kubeconfig. The file must be readable. */
static int copy_path(const struct kubeconfig *k, const struct entry *e, const char *key, char **ret)
{
	const struct yaml_node *node;
	const char *text, *slash = strrchr(e->file->path, '/');
	_cleanup_free_ char *path = NULL, *why = NULL;
	int r = get(k, e, key, &text, &node), dir = 0;

	if (r < 0 || !text)
		return r;
	if (*text != '/' && slash)
		dir = (int)(slash + 1 - e->file->path);
	if (asprintf(&path, "%.*s%s", dir, e->file->path, text) < 0) {
		path = NULL;
		return no_memory(k->err);
	}
	if (access(path, R_OK) < 0) {
		if (asprintf(&why, "%s: %s", path, strerror(errno)) < 0) {
			why = NULL;
			return no_memory(k->err);
		}
		return entry_error(k, e, node, key, -EINVAL, why);
	}
	*ret = TAKE_PTR(path);
	return 0;
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* RFC 4648 §4 with line breaks anywhere; padding is required. */
static int base64_decode(const char *text, struct buf *out)
{
	unsigned int n = 0, pad = 0;
	uint32_t group = 0;

	for (; *text; text++) {
		int v = base64_value(*text);

		if (strchr(" \t\r\n", *text))
			continue;
		if (*text == '=' && n >= 2 && n + pad < 4) {
			pad++;
			continue;
		}
		if (v < 0 || pad)
			return -EINVAL;
		group = group << 6 | (uint32_t)v;
		if (++n == 4) {
			buf_append(
			    out, (char[]){(char)(group >> 16), (char)(group >> 8), (char)group}, 3);
			n = 0;
			group = 0;
		}
	}
	if (n == 1 || (n && n + pad != 4))
		return -EINVAL;
	if (n)
		group <<= 6 * (4 - n);
	if (n >= 2)
		buf_append(out, (char[]){(char)(group >> 16), (char)(group >> 8)}, n - 1);
	return buf_error(out);
}

static int copy_pem(const struct kubeconfig *k, const struct entry *e, const char *key, char **ret)
{
	const struct yaml_node *node;
	_cleanup_(buf_done) struct buf pem;
	const char *text;
	int r = get(k, e, key, &text, &node);

	buf_init(&pem, KUBECONFIG_DATA_MAX);
	if (r < 0 || !text)
		return r;
	r = base64_decode(text, &pem);
	if (r == -ENOMEM)
		return no_memory(k->err);
	if (r == 0 &&
	    (!pem.data || strlen(pem.data) != pem.len || !strstr(pem.data, "-----BEGIN ")))
		r = -EINVAL;
	if (r < 0) {
		if (pem.data)
			explicit_bzero(pem.data, pem.len);
		return entry_error(k, e, node, key, -EINVAL, "want a PEM file in base64");
	}
	*ret = buf_take(&pem);
	return 0;
}

/* KEY-data wins over KEY, as in client-go. */
static int copy_file_or_pem(const struct kubeconfig *k, const struct entry *e, const char *key,
			    const char *data_key, char **ret_file, char **ret_pem)
{
	int r = copy_pem(k, e, data_key, ret_pem);

	return r < 0 || *ret_pem ? r : copy_path(k, e, key, ret_file);
}

/* ---- a cluster, a user ----------------------------------------------------------------------- */

static int load_cluster(const struct kubeconfig *k, const struct entry *e,
			struct kube_credentials *c)
{
	static const char *const proxies[] = {"http://", "https://", "socks5://", "socks5h://"};
	const struct yaml_node *node;
	const char *text;
	struct error why;
	size_t i = 0;
	int r = get(k, e, "server", &text, &node);

	if (r < 0)
		return r;
	if (!text)
		return error_set(k->err, -EINVAL, "%s: clusters.%s: no server", e->file->path,
				 quote_text(e->name).text);
	if (kube_server_check(text, &c->server, &why) < 0)
		return entry_error(k, e, node, "server", -EINVAL, why.message);
	r = copy_file_or_pem(k, e, "certificate-authority", "certificate-authority-data",
			     &c->ca_file, &c->ca_pem);
	if (r == 0)
		r = copy_text(k, e, "tls-server-name", &c->server_name);
	if (r == 0)
		r = copy_bool(k, e, "insecure-skip-tls-verify", &c->skip_verify);
	if (r == 0)
		r = copy_bool(k, e, "disable-compression", &c->no_compression);
	if (r == 0)
		r = copy_text(k, e, "proxy-url", &c->proxy_url);
	if (r < 0)
		return r;
	if (c->skip_verify && (c->ca_file || c->ca_pem))
		return entry_error(k, e, yaml_get(e->map, "insecure-skip-tls-verify"),
				   "insecure-skip-tls-verify", -EINVAL,
				   "and a certificate-authority: only one of them can be meant");
	while (c->proxy_url && i < ARRAY_SIZE(proxies) && !has_prefix(c->proxy_url, proxies[i]))
		i++;
	if (i == ARRAY_SIZE(proxies))
		return entry_error(k, e, yaml_get(e->map, "proxy-url"), "proxy-url", -EINVAL,
				   "want http://, https:// or socks5://");
	return 0;
}

/* Refuses a user with keys that are not supported: without them we would be another user. */
static int refuse(const struct kubeconfig *k, const struct entry *e)
{
	static const struct {
		const char *key, *text;
	} rows[] = {
	    {"exec", "exec plugins are not run; use a token, a tokenFile or a client certificate"},
	    {"auth-provider",
	     "auth providers are not supported; use a token, a tokenFile or a client certificate"},
	    {"username", "basic authentication is not supported; API servers dropped it in 1.19"},
	    {"password", "basic authentication is not supported; API servers dropped it in 1.19"},
	    {"as", "impersonation is not supported"},
	    {"as-uid", "impersonation is not supported"},
	    {"as-groups", "impersonation is not supported"},
	    {"as-user-extra", "impersonation is not supported"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct yaml_node *n = yaml_get(e->map, rows[i].key);

		if (n && n->kind != YAML_NULL && !(n->kind == YAML_SCALAR && !*n->text))
			return entry_error(k, e, n, rows[i].key, -ENOTSUP, rows[i].text);
	}
	return 0;
}

static int load_user(const struct kubeconfig *k, const struct entry *e, struct kube_credentials *c)
{
	int r = refuse(k, e);

	if (r == 0)
		r = copy_file_or_pem(k, e, "client-certificate", "client-certificate-data",
				     &c->cert_file, &c->cert_pem);
	if (r == 0)
		r = copy_file_or_pem(k, e, "client-key", "client-key-data", &c->key_file,
				     &c->key_pem);
	if (r == 0)
		r = copy_path(k, e, "tokenFile", &c->token_file);
	if (r == 0 && !c->token_file)
		r = copy_text(k, e, "token", &c->token);
	if (r < 0)
		return r;
	if (c->token && !kube_token_valid(c->token))
		return entry_error(k, e, yaml_get(e->map, "token"), "token", -EINVAL,
				   "not a token that a header can carry");
	if ((c->cert_file || c->cert_pem) != (c->key_file || c->key_pem))
		return error_set(k->err, -EINVAL,
				 "%s: users.%s: client-certificate and client-key come together",
				 e->file->path, quote_text(e->name).text);
	return 0;
}

/* True for a numeric loopback address. A name is not enough: it may resolve to any address. */
static bool loopback(const char *server)
{
	const char *host = server + strlen("http://");
	struct in_addr v4;
	char text[INET_ADDRSTRLEN];

	if (has_prefix(host, "[::1]"))
		return true;
	snprintf(text, sizeof(text), "%.*s", (int)strcspn(host, ":/"), host);
	return inet_pton(AF_INET, text, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

static int load_context(const struct kubeconfig *k, const char *name, struct kube_credentials *c)
{
	const char *cluster, *user, *ns;
	const struct yaml_node *node;
	struct entry context, e;
	int r;

	r = find(k, "contexts", "context", name, &context);
	if (r == 0)
		r = get(k, &context, "cluster", &cluster, &node);
	if (r == 0)
		r = get(k, &context, "user", &user, &node);
	if (r == 0)
		r = get(k, &context, "namespace", &ns, &node);
	if (r < 0)
		return r;
	if (!cluster)
		return error_set(k->err, -EINVAL, "%s: contexts.%s: no cluster", context.file->path,
				 quote_text(name).text);
	r = find(k, "clusters", "cluster", cluster, &e);
	if (r == 0)
		r = load_cluster(k, &e, c);
	if (r == 0 && user) {
		r = find(k, "users", "user", user, &e);
		if (r == 0)
			r = load_user(k, &e, c);
	}
	if (r < 0)
		return r;
	if ((c->token || c->token_file) && has_prefix(c->server, "http:") && !loopback(c->server))
		return error_set(k->err, -EINVAL, "%s: contexts.%s: a token is not sent over http",
				 context.file->path, quote_text(name).text);
	c->default_namespace = strdup(ns ? ns : "default");
	return c->default_namespace ? 0 : no_memory(k->err);
}

int kubeconfig_load(const char *paths, bool required, const char *context,
		    struct kube_credentials **ret, struct error *err)
{
	_cleanup_(kube_credentials_freep) struct kube_credentials *c = calloc(1, sizeof(*c));
	_cleanup_(kubeconfig_done) struct kubeconfig k = {.err = err};
	const char *name;
	int r;

	if (!c)
		return no_memory(err);
	r = add_files(&k, paths, required);
	if (r < 0)
		return r;
	name = context && *context ? context : current_context(&k);
	if (!name)
		return error_set(err, -EINVAL, "%s: no current-context", k.files[0].path);
	r = load_context(&k, name, c);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(c);
	return 0;
}
