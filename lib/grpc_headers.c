/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's fields (grpc/grpc, doc/PROTOCOL-HTTP2.md, "Requests"). Those that are the same for
 * all requests of a channel are made once and lent to nghttp2. The user's header values may be
 * secret, so they are never indexed by HPACK, and are wiped when freed.
 */
#include <ctype.h>
#include <inttypes.h>

#include "lib/grpc_channel.h"

enum { VARIABLE_FIELDS = 5, TIMEOUT_DIGITS = 8 };

static nghttp2_nv field(const char *name, const char *value, uint8_t flags)
{
	return (nghttp2_nv){.name = (uint8_t *)name,
			    .value = (uint8_t *)value,
			    .namelen = strlen(name),
			    .valuelen = strlen(value),
			    .flags = flags};
}

/* ---- the channel's -----------------------------------------------------------------------------
 */

/* HTTP/2 has no place for these (RFC 9113 §8.2.2), or they are gRPC's own. */
static bool is_reserved(const char *name)
{
	static const char *const names[] = {
	    "te",      "content-type",	   "host",	     "connection",	 "keep-alive",
	    "upgrade", "proxy-connection", "content-length", "transfer-encoding"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (streq(name, names[i]))
			return true;
	return has_prefix(name, "grpc-");
}

static bool can_be_sent(const char *name, const char *value)
{
	if (!*name || is_reserved(name))
		return false;
	for (; *name; name++)
		if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) &&
		    !strchr("_-.", *name))
			return false;
	for (; *value; value++)
		if (*value < ' ' || *value > '~')
			return false;
	return true;
}

static bool is_binary(const char *name)
{
	size_t len = strlen(name);

	return len > 4 && streq(name + len - 4, "-bin");
}

static int add_field(struct grpc_channel *ch, const char *name, const char *value, uint8_t flags)
{
	char *own_name = strdup(name);
	char *own_value =
	    is_binary(name) ? grpc_base64_encode(value, strlen(value)) : strdup(value);

	if (!own_name || !own_value) {
		free(own_name);
		free(own_value);
		return -ENOMEM;
	}
	ch->fields[ch->n_fields++] =
	    field(own_name, own_value,
		  flags | NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE);
	return 0;
}

static int add_users(struct grpc_channel *ch, const struct grpc_header *header, bool *has_agent,
		     struct error *err)
{
	_cleanup_free_ char *name = strdup(header->key);
	int r;

	if (!name)
		return error_set(err, -ENOMEM, "out of memory");
	for (char *p = name; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	if (!can_be_sent(name, header->value))
		return error_set(err, -EINVAL, "headers.%s: not a header that gRPC can send", name);
	*has_agent |= streq(name, "user-agent");
	r = add_field(ch, name, header->value, NGHTTP2_NV_FLAG_NO_INDEX);
	return r < 0 ? error_set(err, r, "out of memory") : 0;
}

int grpc_headers_new(struct grpc_channel *ch, const struct grpc_client_options *o,
		     struct error *err)
{
	bool has_agent = false;
	int r = 0;

	ch->fields = calloc(o->n_headers + 5, sizeof(*ch->fields));
	if (!ch->fields)
		return error_set(err, -ENOMEM, "out of memory");
	r |= add_field(ch, "te", "trailers", 0);
	r |= add_field(ch, "content-type", "application/grpc", 0);
	if (o->gzip)
		r |= add_field(ch, "grpc-encoding", "gzip", 0);
	r |= add_field(ch, "grpc-accept-encoding", "identity, gzip", 0);
	if (r < 0)
		return error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < o->n_headers; i++) {
		r = add_users(ch, &o->headers[i], &has_agent, err);
		if (r < 0)
			return r;
	}
	if (o->user_agent && !has_agent && add_field(ch, "user-agent", o->user_agent, 0) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	return 0;
}

void grpc_headers_free(struct grpc_channel *ch)
{
	for (size_t i = 0; i < ch->n_fields; i++) {
		free(ch->fields[i].name);
		explicit_bzero(ch->fields[i].value, ch->fields[i].valuelen);
		free(ch->fields[i].value);
	}
	free(TAKE_PTR(ch->fields));
	ch->n_fields = 0;
}

/* ---- a request's -------------------------------------------------------------------------------
 */

/* grpc-timeout has at most eight digits: milliseconds, or seconds when that is too short. */
static void write_timeout(const struct grpc_call *call, char *out, size_t size)
{
	uint64_t now = uv_now(call->channel->loop);
	uint64_t ms = call->deadline_ms > now ? call->deadline_ms - now : 1;

	if (ms < 100000000)
		snprintf(out, size, "%" PRIu64 "m", ms);
	else
		snprintf(out, size, "%" PRIu64 "S", MIN(ms / 1000, (uint64_t)99999999));
}

int32_t grpc_headers_submit(struct grpc_connection *c, struct grpc_call *call,
			    const nghttp2_data_provider *data)
{
	struct grpc_channel *ch = c->channel;
	nghttp2_nv *all = calloc(ch->n_fields + VARIABLE_FIELDS, sizeof(*all));
	char timeout[TIMEOUT_DIGITS + 2];
	size_t n = 0;
	int32_t id;

	if (!all)
		return NGHTTP2_ERR_NOMEM;
	all[n++] = field(":method", "POST", 0);
	all[n++] = field(":scheme", ch->target.plaintext ? "http" : "https", 0);
	all[n++] = field(":path", call->method, 0);
	all[n++] = field(":authority", ch->authority, 0);
	if (call->deadline_ms) {
		write_timeout(call, timeout, sizeof(timeout));
		all[n++] = field("grpc-timeout", timeout, 0);
	}
	memcpy(all + n, ch->fields, ch->n_fields * sizeof(*all));
	id = nghttp2_submit_request(c->session, NULL, all, n + ch->n_fields, data, NULL);
	free(all);
	return id;
}
