/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One timer reads the Secrets that are due. While the API server does not answer, the values read
 * last stay; a Secret that does not exist loses its values at once. API servers that restart, or
 * whose authorizer is away, also refuse requests (401, 403): a Secret that was read loses its
 * values when all answers were refusals for a while. The right to read a Secret is rendered
 * together with its use, so that it may take effect a moment later.
 */
#include "operator/secrets/secrets.h"

#include <cjson/cJSON.h>
#include <openssl/evp.h>

#include "lib/uthash.h"
#include "operator/kube/write.h"

enum { TICK_MS = 250, KEYS_MAX = 64, FULL_NAME_MAX = 320 };

struct value {
	char *key, *text;
};

struct secret {
	char full_name[FULL_NAME_MAX]; /* "ns/name" */
	char *ns, *name;
	struct secrets *owner;
	unsigned int refs;
	enum secret_state state;
	struct value values[KEYS_MAX];
	size_t n;
	struct kube_call *call;
	uint64_t due_ms;
	uint64_t refused_since_ms; /* 0: the last answer was no refusal */
	UT_hash_handle hh;
};

struct secrets {
	struct secrets_options options;
	struct secret *all;
	uv_timer_t timer;
};

static void wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

static void forget_values(struct secret *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->values[i].key);
		wipe(s->values[i].text);
	}
	s->n = 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

/*
 * Decodes base64 with padding, as the API server writes it. NULL: no base64, no text, too long, or
 * out of memory.
 */
static char *decode(const char *text)
{
	size_t n = strlen(text), padding;
	char *out;
	int len;

	if (n % 4 || n > SECRET_VALUE_MAX / 3 * 4)
		return NULL;
	out = calloc(1, n / 4 * 3 + 1);
	if (!out || !n)
		return out;
	padding = (size_t)(text[n - 1] == '=') + (size_t)(text[n - 2] == '=');
	len = EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)text, (int)n);
	if (len >= 0 && strlen(out) == (size_t)len - padding)
		return out;
	explicit_bzero(out, n / 4 * 3);
	free(out);
	return NULL;
}

static bool same_values(const struct secret *s, const struct value *values, size_t n)
{
	if (n != s->n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!streq(values[i].key, s->values[i].key) ||
		    !streq(values[i].text, s->values[i].text))
			return false;
	return true;
}

/* Replaces the values by those of DATA. True when the values or the state have changed. */
static bool take(struct secret *s, const cJSON *data)
{
	struct secret next = {};
	const cJSON *i;
	bool same;

	cJSON_ArrayForEach(i, data)
	{
		struct value *v = &next.values[next.n];

		if (next.n == KEYS_MAX || !cJSON_IsString(i))
			continue;
		*v = (struct value){.key = strdup(i->string), .text = decode(i->valuestring)};
		explicit_bzero(i->valuestring, strlen(i->valuestring));
		if (v->key && v->text) {
			next.n++;
			continue;
		}
		free(v->key);
		wipe(v->text);
	}
	same = s->state == SECRET_FOUND && same_values(s, next.values, next.n);
	if (same) {
		forget_values(&next);
		return false;
	}
	forget_values(s);
	memcpy(s->values, next.values, sizeof(s->values));
	s->n = next.n;
	s->state = SECRET_FOUND;
	return true;
}

static bool lose(struct secret *s, enum secret_state state)
{
	bool news = s->state != state;

	forget_values(s);
	s->state = state;
	return news;
}

static bool is_refusal(const struct kube_answer *a)
{
	return a->status == 403 || a->status == 401;
}

static bool understand_refusal(struct secret *s)
{
	const struct secrets_options *o = &s->owner->options;
	uint64_t now = uv_now(o->loop);

	if (!s->refused_since_ms)
		s->refused_since_ms = now;
	if (s->state == SECRET_FOUND && now - s->refused_since_ms < o->grace_ms)
		return false;
	if (s->state == SECRET_PENDING && now - s->refused_since_ms < o->settle_ms)
		return false;
	return lose(s, SECRET_FORBIDDEN);
}

static bool understand(struct secret *s, const struct kube_answer *a)
{
	cJSON *object;
	bool news;

	if (is_refusal(a))
		return understand_refusal(s);
	if (a->status == 200 || a->status == 404)
		s->refused_since_ms = 0;
	if (a->status == 404)
		return lose(s, SECRET_MISSING);
	if (a->status != 200)
		return false;
	object = cJSON_ParseWithLength((const char *)a->body, a->len);
	/* The buffer is the client's, which does not use it any more. */
	explicit_bzero((void *)(uintptr_t)a->body, a->len);
	if (!object)
		return false;
	news = take(s, cJSON_GetObjectItemCaseSensitive(object, "data"));
	cJSON_Delete(object);
	return news;
}

static uint64_t interval(const struct secrets *all)
{
	uint64_t n = HASH_COUNT(all->all);

	return MAX(all->options.refresh_ms, n * SECRETS_SPACING_MS);
}

static void on_answer(void *arg, const struct kube_answer *a)
{
	struct secret *s = arg;
	struct secrets *all = s->owner;
	bool answered = a->status == 200 || a->status == 404 || is_refusal(a);
	bool news = understand(s, a);

	s->call = NULL;
	answered &= s->state != SECRET_PENDING;
	s->due_ms = uv_now(all->options.loop) + (answered ? interval(all) : SECRETS_RETRY_MS);
	if (news)
		all->options.changed(all->options.arg, s->ns, s->name);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void ask(struct secret *s)
{
	struct secrets *all = s->owner;

	s->due_ms = uv_now(all->options.loop) + SECRETS_RETRY_MS;
	if (kube_get_recent(all->options.client, KUBE_SECRETS, s->ns, s->name, on_answer, s,
			    &s->call) < 0)
		s->call = NULL; /* tried again when it is due */
}

static void on_timer(uv_timer_t *timer)
{
	struct secrets *all = timer->data;
	uint64_t now = uv_now(all->options.loop);
	struct secret *s, *next;

	HASH_ITER (hh, all->all, s, next)
		if (!s->call && s->due_ms <= now)
			ask(s);
}

static void free_secret(struct secret *s)
{
	if (s->call)
		kube_cancel(s->call);
	forget_values(s);
	free(s->ns);
	free(s->name);
	free(s);
}

/* True when NS may use one more Secret. */
static bool has_room(const struct secrets *all, const char *ns)
{
	struct secret *s, *next;
	size_t own = 0, tenants = 0;

	if (HASH_COUNT(all->all) >= SECRETS_MAX)
		return false;
	if (!all->options.ns || streq(ns, all->options.ns))
		return true;
	HASH_ITER (hh, all->all, s, next) {
		own += streq(s->ns, ns);
		tenants += !streq(s->ns, all->options.ns);
	}
	return own < SECRETS_NS_MAX && tenants < SECRETS_TENANTS_MAX;
}

int secrets_use(struct secrets *all, const char *ns, const char *name, struct secret **ret)
{
	char full_name[FULL_NAME_MAX];
	struct secret *s;

	if ((size_t)snprintf(full_name, sizeof(full_name), "%s/%s", ns, name) >= sizeof(full_name))
		return -ENOSPC;
	HASH_FIND_STR(all->all, full_name, s);
	if (s) {
		s->refs++;
		*ret = s;
		return 0;
	}
	if (!has_room(all, ns))
		return -ENOSPC;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct secret){.owner = all, .refs = 1, .ns = strdup(ns), .name = strdup(name)};
	memcpy(s->full_name, full_name, sizeof(full_name));
	if (!s->ns || !s->name) {
		free_secret(s);
		return -ENOMEM;
	}
	HASH_ADD_STR(all->all, full_name, s);
	ask(s);
	*ret = s;
	return 0;
}

void secrets_leave(struct secrets *all, struct secret *s)
{
	if (!s || --s->refs)
		return;
	HASH_DEL(all->all, s);
	free_secret(s);
}

enum secret_state secret_state(const struct secret *s)
{
	return s->state;
}

const char *secret_ns(const struct secret *s)
{
	return s->ns;
}

const char *secret_name(const struct secret *s)
{
	return s->name;
}

const char *secret_get(const struct secret *s, const char *key)
{
	for (size_t i = 0; i < s->n; i++)
		if (streq(s->values[i].key, key))
			return s->values[i].text;
	return NULL;
}

size_t secrets_count(const struct secrets *all)
{
	return HASH_COUNT(all->all);
}

/* ---- life ------------------------------------------------------------------------------------ */

int secrets_new(const struct secrets_options *options, struct secrets **ret)
{
	struct secrets *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->options = *options;
	if (!all->options.refresh_ms)
		all->options.refresh_ms = SECRETS_REFRESH_MS;
	if (!all->options.grace_ms)
		all->options.grace_ms = SECRETS_GRACE_MS;
	uv_timer_init(options->loop, &all->timer); /* cannot fail */
	all->timer.data = all;
	uv_timer_start(&all->timer, on_timer, TICK_MS, TICK_MS);
	*ret = all;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct secrets *secrets_free(struct secrets *all)
{
	struct secret *s, *next;

	if (!all)
		return NULL;
	HASH_ITER (hh, all->all, s, next) {
		HASH_DEL(all->all, s);
		free_secret(s);
	}
	uv_close((uv_handle_t *)&all->timer, on_closed);
	return NULL;
}
