/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels of the gRPC C core from what the user says: endpoint, TLS, headers. No state and no
 * thread: what is made here belongs to whoever asked.
 *
 * Keepalive also sets TCP_USER_TIMEOUT, so a connection whose packets vanish is found dead after
 * 20 s when there was something to send.
 */
#include "lib/grpc_channel.h"

#include <ctype.h>
#include <dlfcn.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>

#include "lib/log.h"

enum {
	KEEPALIVE_TIMEOUT_MS = 20000,
	RECONNECT_MIN_MS = 500,
	CHANNEL_ARGS_MAX = 16,
};

/* ---- settings -------------------------------------------------------------------------------- */

static bool port_valid(const char *text, size_t len)
{
	unsigned long port = 0;
	size_t i;

	if (len == 0 || len > 5)
		return false;
	for (i = 0; i < len; i++) {
		if (!isdigit((unsigned char)text[i]))
			return false;
		port = port * 10 + (unsigned long)(text[i] - '0');
	}
	return port >= 1 && port <= 65535;
}

static int host_port_check(const char *endpoint, const char *text, size_t len, struct error *err)
{
	const char *colon = memrchr(text, ':', len);
	size_t host = colon ? (size_t)(colon - text) : 0;

	if (!colon || host == 0 || !port_valid(colon + 1, len - host - 1) ||
	    (text[0] == '[') != (text[host - 1] == ']') ||
	    (text[0] != '[' && memchr(text, ':', host)) || memchr(text, '/', len) ||
	    memchr(text, ' ', len))
		return error_set(err, -EINVAL, "endpoint: want host:port, got %s", endpoint);
	return 0;
}

int grpc_endpoint_parse(const char *endpoint, bool insecure, char **ret_target, bool *ret_plaintext,
			struct error *err)
{
	_cleanup_free_ char *target = NULL;
	bool plaintext = insecure;
	const char *rest = endpoint;
	size_t len;
	int r;

	if (has_prefix(endpoint, "unix:") || has_prefix(endpoint, "dns:") ||
	    has_prefix(endpoint, "ipv4:") || has_prefix(endpoint, "ipv6:")) {
		target = strdup(endpoint);
	} else {
		if (has_prefix(endpoint, "http://")) {
			rest += strlen("http://");
			plaintext = true;
		} else if (has_prefix(endpoint, "https://")) {
			rest += strlen("https://");
			plaintext = false;
		} else if (strstr(endpoint, "://")) {
			return error_set(
			    err, -EINVAL,
			    "endpoint: want host:port, http://, https://, dns:/// or unix:, "
			    "got %s",
			    endpoint);
		}
		len = strlen(rest);
		if (len > 0 && rest != endpoint && rest[len - 1] == '/')
			len--;
		r = host_port_check(endpoint, rest, len, err);
		if (r < 0)
			return r;
		if (asprintf(&target, "dns:///%.*s", (int)len, rest) < 0)
			target = NULL;
	}
	if (!target)
		return error_set(err, -ENOMEM, "out of memory");
	*ret_target = TAKE_PTR(target);
	*ret_plaintext = plaintext;
	return 0;
}

static void log_core(gpr_log_func_args *args)
{
	log_debug("grpc", "%s", args->message);
}

/*
 * Debian builds abseil with its mutexes' deadlock detection, a graph of all locks that costs a
 * server with many streams an eighth of its CPU; upstream's release builds are without. The
 * function is C++ (absl/synchronization/mutex.h, 20220623), so it is looked up by its names; what
 * has neither is left as it is. 0 is OnDeadlockCycle::kIgnore.
 */
static void ignore_lock_cycles(void)
{
	static const char *const names[] = {
	    "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE",
	    "_ZN4absl29SetMutexDeadlockDetectionModeENS_15OnDeadlockCycleE"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		void *symbol = dlsym(RTLD_DEFAULT, names[i]);
		void (*set_mode)(int) = NULL;

		memcpy(&set_mode, &symbol, sizeof(symbol));
		if (set_mode)
			set_mode(0);
	}
}

void grpc_library_ref(void)
{
	ignore_lock_cycles();
	gpr_set_log_function(log_core);
	grpc_init();
}

void grpc_library_unref(void)
{
	grpc_shutdown_blocking();
}

static int credentials_unverified(const char *roots, const char *cert, const char *key,
				  grpc_channel_credentials **ret)
{
	grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
	grpc_tls_certificate_verifier *anyone = grpc_tls_certificate_verifier_no_op_create();
	grpc_tls_identity_pairs *pairs = NULL;
	grpc_tls_certificate_provider *provider;

	if (cert) {
		pairs = grpc_tls_identity_pairs_create();
		grpc_tls_identity_pairs_add_pair(pairs, key, cert);
	}
	provider = grpc_tls_certificate_provider_static_data_create(roots, pairs);
	grpc_tls_credentials_options_set_certificate_provider(options, provider);
	if (roots)
		grpc_tls_credentials_options_watch_root_certs(options);
	if (cert)
		grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
	grpc_tls_credentials_options_set_certificate_verifier(options, anyone);
	grpc_tls_credentials_options_set_verify_server_cert(options, 0);
	grpc_tls_credentials_options_set_check_call_host(options, 0);
	*ret = grpc_tls_credentials_create(options);
	grpc_tls_certificate_verifier_release(anyone);
	grpc_tls_certificate_provider_release(provider);
	return *ret ? 0 : -EINVAL;
}

static int credentials_new(const struct tls_options *tls, bool plaintext,
			   grpc_channel_credentials **ret, struct error *err)
{
	_cleanup_free_ char *roots = NULL, *cert = NULL, *key = NULL;
	const char *ca = tls->ca_file ? tls->ca_file : tls_system_roots();
	grpc_ssl_pem_key_cert_pair pair;
	enum tls_version version;
	int r;

	if (plaintext) {
		*ret = grpc_insecure_credentials_create();
		return *ret ? 0 : error_set(err, -ENOMEM, "out of memory");
	}
	r = tls_options_check(tls, err);
	if (r < 0)
		return r;
	if (tls_version_parse(tls->min_version, &version) == 0 && version > TLS_1_2)
		return error_set(
		    err, -EINVAL,
		    "tls.min_version: the gRPC library offers 1.2 and newer and cannot "
		    "be held to %s; otlp_http can",
		    tls->min_version);
	if (!ca && !tls->skip_verify)
		return error_set(err, -EINVAL,
				 "tls: this system has no root certificates; give tls.ca_file");
	if (ca)
		r = tls_read_pem(ca, &roots, err);
	if (r == 0 && tls->cert_file)
		r = tls_read_pem(tls->cert_file, &cert, err);
	if (r == 0 && tls->key_file)
		r = tls_read_pem(tls->key_file, &key, err);
	if (r < 0)
		return error_wrap(err, r, "tls");
	if (tls->skip_verify) {
		r = credentials_unverified(roots, cert, key, ret);
	} else {
		pair = (grpc_ssl_pem_key_cert_pair){.private_key = key, .cert_chain = cert};
		*ret = grpc_ssl_credentials_create_ex(roots, cert ? &pair : NULL, NULL, NULL);
		r = *ret ? 0 : -EINVAL;
	}
	return r < 0 ? error_set(err, r, "tls: the certificates cannot be used") : 0;
}

static grpc_arg arg_int(const char *key, int value)
{
	return (grpc_arg){
	    .type = GRPC_ARG_INTEGER, .key = (char *)key, .value = {.integer = value}};
}

static grpc_arg arg_string(const char *key, const char *value)
{
	return (grpc_arg){
	    .type = GRPC_ARG_STRING, .key = (char *)key, .value = {.string = (char *)value}};
}

int grpc_channel_open(const struct grpc_client_options *o, uint64_t keepalive_ms,
		      size_t message_max, grpc_channel **ret, struct error *err)
{
	int reconnect_max = (int)MIN(MAX(o->reconnect_max_ms, RECONNECT_MIN_MS), INT32_MAX);
	_cleanup_free_ char *target = NULL;
	grpc_channel_credentials *credentials;
	grpc_arg items[CHANNEL_ARGS_MAX];
	grpc_channel_args args = {.args = items};
	bool plaintext;
	int r;

	r = grpc_endpoint_parse(o->endpoint, o->tls.insecure, &target, &plaintext, err);
	if (r < 0)
		return r;
	r = credentials_new(&o->tls, plaintext, &credentials, err);
	if (r < 0)
		return r;
	/* The sender decides on retries; the core's would hold a second copy of each message. */
	items[args.num_args++] = arg_int(GRPC_ARG_ENABLE_RETRIES, 0);
	/* To the core 0 is an interval too: it would ping without pause. */
	items[args.num_args++] =
	    arg_int(GRPC_ARG_KEEPALIVE_TIME_MS,
		    keepalive_ms ? (int)MIN(keepalive_ms, INT32_MAX) : INT32_MAX);
	items[args.num_args++] = arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS);
	items[args.num_args++] = arg_int(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_MIN_MS);
	items[args.num_args++] = arg_int(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, reconnect_max);
	items[args.num_args++] =
	    arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)MIN(message_max, INT32_MAX));
	items[args.num_args++] = arg_int(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
	/* It measures how much to receive at once, by a timer: almost nothing is received. */
	items[args.num_args++] = arg_int(GRPC_ARG_HTTP2_BDP_PROBE, 0);
	/* Two exporters to one endpoint must not share a connection with other credentials. */
	items[args.num_args++] = arg_int(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
	if (o->gzip)
		items[args.num_args++] =
		    arg_int(GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM, GRPC_COMPRESS_GZIP);
	if (o->user_agent)
		items[args.num_args++] =
		    arg_string(GRPC_ARG_PRIMARY_USER_AGENT_STRING, o->user_agent);
	if (o->tls.server_name && !plaintext)
		items[args.num_args++] =
		    arg_string(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, o->tls.server_name);
	*ret = grpc_channel_create(target, credentials, &args);
	grpc_channel_credentials_release(credentials);
	return *ret ? 0 : error_set(err, -EINVAL, "endpoint: %s cannot be used", o->endpoint);
}

int grpc_headers_make(const struct grpc_client_options *o, struct grpc_headers *ret,
		      struct error *err)
{
	struct grpc_headers h = {0};
	grpc_metadata *m;
	size_t i;
	int r = 0;

	h.items = calloc(o->n_headers + 1, sizeof(*h.items));
	if (!h.items)
		return error_set(err, -ENOMEM, "out of memory");
	for (i = 0; i < o->n_headers && r == 0; i++) {
		_cleanup_free_ char *key = strdup(o->headers[i].key);
		char *p;

		if (!key) {
			r = error_set(err, -ENOMEM, "out of memory");
			break;
		}
		for (p = key; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		m = &h.items[h.n++];
		m->key = grpc_slice_from_copied_string(key);
		m->value = grpc_slice_from_copied_string(o->headers[i].value);
		if (!grpc_header_key_is_legal(m->key) || has_prefix(key, "grpc-") ||
		    !grpc_header_nonbin_value_is_legal(m->value))
			r = error_set(err, -EINVAL, "headers.%s: not a header that gRPC can send",
				      key);
	}
	if (r < 0) {
		grpc_headers_done(&h);
		return r;
	}
	*ret = h;
	return 0;
}

void grpc_headers_done(struct grpc_headers *h)
{
	size_t i;

	for (i = 0; i < h->n; i++) {
		grpc_slice_unref(h->items[i].key);
		grpc_slice_unref(h->items[i].value);
	}
	free(h->items);
	*h = (struct grpc_headers){0};
}
