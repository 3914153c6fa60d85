/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/operator/informer/rig.h"

/* ---- libuv ----------------------------------------------------------------------------------- */

struct fake_uv fake;

uint64_t uv_now(const uv_loop_t *loop)
{
	return fake.now;
}

static struct fake_timer *timer_of(const void *handle)
{
	for (int i = 0; i < TIMERS; i++)
		if (fake.timers[i].timer == handle)
			return &fake.timers[i];
	fail_msg("no timer of the informer");
	return NULL;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
	timer_of(NULL)->timer = timer;
	return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms, uint64_t repeat)
{
	struct fake_timer *t = timer_of(timer);

	t->due = cb;
	t->due_ms = fake.now + ms;
	return 0;
}

int uv_timer_stop(uv_timer_t *timer)
{
	timer_of(timer)->due = NULL;
	return 0;
}

void uv_close(uv_handle_t *handle, uv_close_cb cb)
{
	struct fake_timer *t = timer_of(handle);

	t->due = NULL;
	t->closed = cb;
}

void pass(uint64_t ms)
{
	fake.now += ms;
	for (int i = 0; i < TIMERS; i++) {
		struct fake_timer *t = &fake.timers[i];
		uv_timer_cb due = t->due;

		if (!due || fake.now < t->due_ms)
			continue;
		t->due = NULL;
		due(t->timer);
	}
}

/* ---- store ----------------------------------------------------------------------------------- */

static void note(struct world *w, const char *what, const struct slice *name)
{
	size_t len = strlen(w->seen);

	snprintf(w->seen + len, sizeof(w->seen) - len, "%s%.*s ", what, name ? (int)name->n : 0,
		 name ? name->p : "");
}

static int put(void *arg, const struct kube_item *item, uint32_t generation)
{
	static struct meta_view view;
	struct world *w = arg;
	int r;

	if (w->put_result < 0)
		return w->put_result;
	r = kube_decode_meta(item, &view);
	if (r < 0)
		return r;
	w->generation = generation;
	note(w, "+", &view.name);
	return 0;
}

static int take_out(void *arg, const struct kube_item *item)
{
	static struct meta_view view;
	int r = kube_decode_meta(item, &view);

	if (r == 0)
		note(arg, "-", &view.name);
	return r;
}

static int replaced(void *arg, uint32_t generation)
{
	struct world *w = arg;

	w->replaced++;
	note(w, "replaced", NULL);
	assert_true(generation >= w->generation);
	return w->replaced_result;
}

static void synced(void *arg)
{
	struct world *w = arg;

	w->synced++;
	note(w, "synced", NULL);
	if (w->free_when_synced)
		w->informer = informer_free(w->informer);
}

const struct informer_ops ops = {
    .put = put, .remove = take_out, .replaced = replaced, .synced = synced};

static double zero(void)
{
	return 0;
}

int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	fake_reset();
	memset(&fake, 0, sizeof(fake));
	fake.now = 1000;
	w->options = (struct informer_options){.kind = KUBE_CONFIG_MAPS, .random = zero};
	*state = w;
	return 0;
}

void end(struct world *w)
{
	w->informer = informer_free(w->informer);
	for (int i = 0; i < TIMERS; i++)
		if (fake.timers[i].closed)
			fake.timers[i].closed((uv_handle_t *)fake.timers[i].timer);
	assert_true(fake_idle());
	fake_reset();
	memset(&fake, 0, sizeof(fake));
	fake.now = 1000;
}

int tear_down(void **state)
{
	struct world *w = *state;

	end(w);
	free(w);
	return 0;
}

void start(struct world *w)
{
	struct error err;

	assert_int_equal(informer_new(NULL, NULL, &w->options, &ops, w, &w->informer, &err), 0);
	informer_start(w->informer);
}

void start_classic(struct world *w)
{
	w->options.no_watch_list = true;
	start(w);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

int say(const char *text)
{
	return fake_data(fake_live(), text, strlen(text));
}

int event(const char *type, const char *name, const char *version)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"type\":\"%s\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\","
		 "\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\",\"uid\":\"u\","
		 "\"resourceVersion\":\"%s\"}}}\n",
		 type, name, version);
	return say(text);
}

int bookmark(const char *version, bool initial_end)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\","
		 "\"metadata\":{\"resourceVersion\":\"%s\"%s}}}\n",
		 version,
		 initial_end ? ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" : "");
	return say(text);
}

int error_event(int code, const char *message)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\","
		 "\"metadata\":{},\"status\":\"Failure\",\"message\":\"%s\",\"reason\":\"x\","
		 "\"code\":%d}}\n",
		 message, code);
	return say(text);
}

void list(const char *version, const char *token, const char *items)
{
	char text[1024];

	snprintf(text, sizeof(text),
		 "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{"
		 "\"resourceVersion\":\"%s\",\"continue\":\"%s\"},\"items\":[%s]}",
		 version, token, items);
	assert_int_equal(say(text), 0);
	fake_answer(fake_live(), 200, NULL);
}

void expect_path(const char *want)
{
	assert_string_equal(fake_live()->path, want);
}

void watching(struct world *w)
{
	start(w);
	assert_int_equal(bookmark("50", true), 0);
	w->seen[0] = '\0';
	pass(60000);
}

const struct informer_stats *stats(const struct world *w)
{
	return informer_stats(w->informer);
}
