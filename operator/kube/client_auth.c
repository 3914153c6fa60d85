/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens and certificates in files that change. The kubelet swaps a symbolic link, others write in
 * place: a change is detected by device, inode, size and time of the file that the name leads to.
 * If a certificate and its key are read while only one of them has been replaced, connections fail
 * until the next change is seen, a second later. Loop thread.
 */
#include "operator/kube/client_auth.h"

#include "lib/log.h"
#include "lib/tls.h"
#include "operator/kube/kubeconfig.h"

static char *wiped(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
	return NULL;
}

struct kube_tls *kube_tls_ref(struct kube_tls *t)
{
	t->refs++;
	return t;
}

struct kube_tls *kube_tls_unref(struct kube_tls *t)
{
	if (!t || --t->refs)
		return NULL;
	free(t->ca);
	free(t->cert);
	wiped(t->key);
	free(t);
	return NULL;
}
DEFINE_CLEANUP(struct kube_tls *, kube_tls_unref)

static int read_token(struct kube_auth *a, uint64_t now_ms, struct error *err)
{
	char *text = NULL;
	size_t skip;
	int r;

	a->token_read_ms = now_ms;
	r = tls_read_pem(a->c->token_file, &text, err);
	if (r < 0)
		return r;
	skip = strspn(text, " \t\r\n");
	memmove(text, text + skip, strlen(text + skip) + 1);
	text[strcspn(text, " \t\r\n")] = 0;
	if (!kube_token_valid(text)) {
		wiped(text);
		return error_set(err, -EINVAL, "%s: want a token", a->c->token_file);
	}
	wiped(a->token);
	a->token = text;
	return 0;
}

static int read_part(const char *file, const char *pem, struct stat *seen, char **ret,
		     struct error *err)
{
	if (file) {
		if (stat(file, seen) < 0)
			return error_set(err, -errno, "%s: %s", file, strerror(errno));
		return tls_read_pem(file, ret, err);
	}
	if (!pem)
		return 0;
	*ret = strdup(pem);
	return *ret ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static int read_tls(struct kube_auth *a, struct error *err)
{
	_cleanup_(kube_tls_unrefp) struct kube_tls *t = calloc(1, sizeof(*t));
	struct stat seen[3] = {0};
	int r;

	if (!t)
		return error_set(err, -ENOMEM, "out of memory");
	t->refs = 1;
	r = read_part(a->c->ca_file, a->c->ca_pem, &seen[0], &t->ca, err);
	if (r == 0)
		r = read_part(a->c->cert_file, a->c->cert_pem, &seen[1], &t->cert, err);
	if (r == 0)
		r = read_part(a->c->key_file, a->c->key_pem, &seen[2], &t->key, err);
	if (r < 0)
		return r;
	kube_tls_unref(a->tls);
	a->tls = TAKE_PTR(t);
	memcpy(a->seen, seen, sizeof(seen));
	return 0;
}

static bool changed(const char *file, const struct stat *old)
{
	struct stat now;

	if (!file)
		return false;
	if (stat(file, &now) < 0)
		return true;
	return now.st_dev != old->st_dev || now.st_ino != old->st_ino ||
	       now.st_size != old->st_size || now.st_mtim.tv_sec != old->st_mtim.tv_sec ||
	       now.st_mtim.tv_nsec != old->st_mtim.tv_nsec;
}

static void keep_old(struct kube_auth *a, const struct error *err)
{
	static struct log_limit limit;
	unsigned int more;

	a->failed_reads++;
	if (log_allowed(&limit, 60, &more))
		log_warn("kube", "%s; going on with what was read before", err->message);
}

int kube_auth_init(struct kube_auth *a, const struct kube_credentials *c, uint64_t token_ms,
		   uint64_t now_ms, struct error *err)
{
	int r = 0;

	*a = (struct kube_auth){
	    .c = c, .token_ms = token_ms ? token_ms : KUBE_TOKEN_MS, .tls_checked_ms = now_ms};
	if (c->token_file)
		r = read_token(a, now_ms, err);
	else if (c->token) {
		a->token = strdup(c->token);
		r = a->token ? 0 : error_set(err, -ENOMEM, "out of memory");
	}
	if (r == 0)
		r = read_tls(a, err);
	if (r < 0)
		kube_auth_done(a);
	return r;
}

void kube_auth_done(struct kube_auth *a)
{
	a->token = wiped(a->token);
	a->tls = kube_tls_unref(a->tls);
}

void kube_auth_refresh(struct kube_auth *a, uint64_t now_ms)
{
	struct error err;

	if (a->c->token_file && now_ms - a->token_read_ms >= a->token_ms &&
	    read_token(a, now_ms, &err) < 0)
		keep_old(a, &err);
	if (now_ms - a->tls_checked_ms < KUBE_TLS_CHECK_MS)
		return;
	a->tls_checked_ms = now_ms;
	if ((changed(a->c->ca_file, &a->seen[0]) || changed(a->c->cert_file, &a->seen[1]) ||
	     changed(a->c->key_file, &a->seen[2])) &&
	    read_tls(a, &err) < 0)
		keep_old(a, &err);
}

bool kube_auth_refused(struct kube_auth *a, uint64_t now_ms)
{
	struct error err;

	if (!a->c->token_file)
		return false;
	if (read_token(a, now_ms, &err) < 0)
		keep_old(a, &err);
	return true;
}
