/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client on a leash: one command a line on standard input, words separated by tabs, one line of
 * JSON for each on standard output. Credentials as the operator finds them.
 *
 *   get KIND NS NAME | apply KIND NS NAME OBJECT | status KIND NS NAME OBJECT
 *   create KIND NS OBJECT | update KIND NS NAME OBJECT | delete KIND NS NAME UID
 *   event KIND NS NAME UID NOTE | review TOKEN AUDIENCE | stream PATH ACCEPT
 *
 * NS, NAME and UID may be "-": none. An event has no answer: {}.
 */
#include <signal.h>
#include <time.h>

#include "operator/kube/write.h"

enum { WORDS_MAX = 8, LINE_BYTES_MAX = 1 << 20 };

struct drive {
	uv_loop_t loop;
	struct kube_client *client;
	bool done;
	size_t streamed;
	cJSON *out;
};

static const char *none(const char *word)
{
	return word && !streq(word, "-") ? word : NULL;
}

static int kind_of(const char *plural, enum kube_kind *ret)
{
	for (int i = 0; i < KUBE_KIND_COUNT; i++) {
		if (streq(kube_resources[i].plural, plural)) {
			*ret = (enum kube_kind)i;
			return 0;
		}
	}
	return -EINVAL;
}

static void on_done(void *arg, const struct kube_answer *a)
{
	struct drive *d = arg;
	cJSON *body = a->body ? cJSON_ParseWithLength((const char *)a->body, a->len) : NULL;

	cJSON_AddNumberToObject(d->out, "status", a->status);
	cJSON_AddStringToObject(d->out, "message", a->message);
	cJSON_AddStringToObject(d->out, "reason", a->reason);
	cJSON_AddStringToObject(d->out, "type", a->content_type ? a->content_type : "");
	cJSON_AddNumberToObject(d->out, "streamed", (double)d->streamed);
	if (body)
		cJSON_AddItemToObject(d->out, "body", body);
	d->done = true;
}

static int on_data(void *arg, const char *content_type, const void *bytes, size_t len)
{
	((struct drive *)arg)->streamed += len;
	return 0;
}

static void on_review(void *arg, const struct kube_token_review *r, const struct kube_answer *a)
{
	struct drive *d = arg;

	cJSON_AddBoolToObject(d->out, "authenticated", r->authenticated);
	cJSON_AddStringToObject(d->out, "error", r->error);
	cJSON_AddStringToObject(d->out, "username", r->username);
	cJSON_AddStringToObject(d->out, "pod_name", r->pod_name);
	on_done(d, a);
}

static int emit(struct drive *d, enum kube_kind kind, char **w)
{
	struct kube_event e = {.kind = kind,
			       .ns = none(w[2]) ? w[2] : "",
			       .name = w[3],
			       .uid = none(w[4]),
			       .type = "Normal",
			       .reason = "Tested",
			       .action = "Test",
			       .note = w[5],
			       .instance = "drive"};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	d->done = true;
	return kube_emit_event(d->client, &e, now.tv_sec * 1000000LL + now.tv_nsec / 1000);
}

static int begin(struct drive *d, char **w)
{
	struct kube_request stream = {.method = "GET", .data = on_data, .done = on_done, .arg = d};
	const char *ns = none(w[2]), *name = none(w[3]);
	enum kube_kind kind = KUBE_PODS;
	cJSON *object = NULL;
	int r = -EINVAL;

	if (streq(w[0], "stream")) {
		stream.path = w[1];
		stream.accept = w[2];
		return kube_call(d->client, &stream, NULL);
	}
	if (streq(w[0], "review"))
		return kube_review_token(d->client, w[1], none(w[2]), on_review, d, NULL);
	if (!w[1] || kind_of(w[1], &kind) < 0)
		return -EINVAL;
	if (streq(w[0], "get"))
		return kube_get(d->client, kind, ns, name, on_done, d, NULL);
	if (streq(w[0], "delete"))
		return kube_delete(d->client, kind, ns, name, none(w[4]), on_done, d, NULL);
	if (streq(w[0], "event"))
		return emit(d, kind, w);
	object = cJSON_Parse(streq(w[0], "create") ? w[3] : w[4]);
	if (!object)
		return -EINVAL;
	if (streq(w[0], "create"))
		r = kube_create(d->client, kind, ns, object, on_done, d, NULL);
	else if (streq(w[0], "apply"))
		r = kube_apply(d->client, kind, ns, name, object, on_done, d, NULL);
	else if (streq(w[0], "status"))
		r = kube_apply_status(d->client, kind, ns, name, object, on_done, d, NULL);
	else if (streq(w[0], "update"))
		r = kube_update(d->client, kind, ns, name, object, on_done, d, NULL);
	cJSON_Delete(object);
	return r;
}

static void run(struct drive *d, char *line)
{
	char *words[WORDS_MAX] = {NULL}, *word, *text;
	size_t n = 0;
	int r;

	while (n < WORDS_MAX && (word = strsep(&line, "\t")))
		words[n++] = word;
	d->done = false;
	d->streamed = 0;
	d->out = cJSON_CreateObject();
	r = begin(d, words);
	if (r < 0)
		cJSON_AddNumberToObject(d->out, "refused", r);
	while (r == 0 && !d->done)
		uv_run(&d->loop, UV_RUN_ONCE);
	text = cJSON_PrintUnformatted(d->out);
	puts(text);
	fflush(stdout);
	free(text);
	cJSON_Delete(d->out);
}

int main(int argc, char **argv)
{
	struct kube_client_options options = {.user_agent = "kiln-drive/0", .gzip = true};
	_cleanup_(kube_credentials_freep) struct kube_credentials *credentials = NULL;
	_cleanup_free_ char *line = malloc(LINE_BYTES_MAX);
	struct drive d = {0};
	struct error err;

	signal(SIGPIPE, SIG_IGN);
	uv_loop_init(&d.loop);
	if (!line || kube_credentials_load(NULL, NULL, &credentials, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 2;
	}
	options.credentials = credentials;
	if (kube_client_new(&d.loop, &options, &d.client, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 2;
	}
	while (fgets(line, LINE_BYTES_MAX, stdin)) {
		line[strcspn(line, "\n")] = 0;
		run(&d, line);
	}
	kube_client_free(d.client);
	uv_run(&d.loop, UV_RUN_DEFAULT);
	return uv_loop_close(&d.loop) == 0 ? 0 : 1;
}
