/* SPDX-License-Identifier: Apache-2.0 */
/* The server runs as a child and ends when its standard input does, whatever becomes of us. */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
struct fake fake;

int fake_start(void **state)
{
	int to[2], from[2];
	posix_spawn_file_actions_t actions;
	char *argv[] = {(char *)FAKEAPI, fake.dir, NULL};
	char line[256];

	signal(SIGPIPE, SIG_IGN);
	snprintf(fake.dir, sizeof(fake.dir), "/tmp/kiln-fakeapi.XXXXXX");
	if (!mkdtemp(fake.dir) || pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, to[0], 0);
	posix_spawn_file_actions_adddup2(&actions, from[1], 1);
	if (posix_spawn(&fake.pid, FAKEAPI, &actions, NULL, argv, environ) != 0)
		return -1;
	posix_spawn_file_actions_destroy(&actions);
	close(to[0]);
	close(from[1]);
	fake.in = fdopen(to[1], "w");
	fake.out = fdopen(from[0], "r");
	if (!fgets(line, sizeof(line), fake.out))
		return -1;
	return sscanf(line, "ready %d %d %d %d %d", &fake.port, &fake.http1_port,
		      &fake.garbage_port, &fake.proxy_port, &fake.plain_port) == 5
		   ? 0
		   : -1;
}

int fake_stop(void **state)
{
	char *argv[] = {(char *)"rm", (char *)"-rf", fake.dir, NULL};
	int status, pid;

	fclose(fake.in);
	waitpid(fake.pid, &status, 0);
	fclose(fake.out);
	if (posix_spawnp(&pid, "rm", NULL, NULL, argv, environ) == 0)
		waitpid(pid, &status, 0);
	return 0;
}

long fake_tell(const char *format, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, format);
	vfprintf(fake.in, format, ap);
	va_end(ap);
	fputc('\n', fake.in);
	fflush(fake.in);
	assert_non_null(fgets(line, sizeof(line), fake.out));
	assert_false(has_prefix(line, "what"));
	return strtol(line, NULL, 10);
}

const char *fake_file(const char *name)
{
	static char ring[16][128];
	static unsigned int at;
	char *path = ring[at++ % ARRAY_SIZE(ring)];

	snprintf(path, sizeof(ring[0]), "%s/%s", fake.dir, name);
	return path;
}

void write_file(const char *name, const char *text)
{
	FILE *f = fopen(fake_file(name), "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

void world_init(struct world *w)
{
	*w = (struct world){0};
	assert_int_equal(uv_loop_init(&w->loop), 0);
	uv_timer_init(&w->loop, &w->watchdog);
	snprintf(w->server, sizeof(w->server), "https://127.0.0.1:%d", fake.port);
	w->credentials.server = w->server;
	w->credentials.ca_file = (char *)fake_file("ca.pem");
}

void world_connect(struct world *w, const struct kube_client_options *more)
{
	struct kube_client_options options = more ? *more : (struct kube_client_options){0};
	struct error err = {.message = ""};

	options.credentials = &w->credentials;
	if (!options.user_agent)
		options.user_agent = "kiln-test/1";
	if (kube_client_new(&w->loop, &options, &w->client, &err) < 0)
		fail_msg("%s", err.message);
}

void world_done(struct world *w)
{
	kube_client_free(w->client);
	uv_close((uv_handle_t *)&w->watchdog, NULL);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&w->loop), 0);
}

/* Beats, since what a timer's callback ends does not wake UV_RUN_ONCE from its wait for sockets. */
static void on_beat(uv_timer_t *t)
{
	struct world *w = container_of(t, struct world, watchdog);

	w->ran_out = uv_now(&w->loop) >= w->until_ms;
}

static void begin(struct world *w, uint64_t ms)
{
	w->ran_out = false;
	uv_update_time(&w->loop);
	w->until_ms = uv_now(&w->loop) + ms;
	uv_timer_start(&w->watchdog, on_beat, MIN(ms, 5U), 5);
}

void world_run_until(struct world *w, const bool *flag)
{
	begin(w, WAIT_MS);
	while (!*flag && !w->ran_out)
		uv_run(&w->loop, UV_RUN_ONCE);
	uv_timer_stop(&w->watchdog);
	assert_true(*flag);
}

void world_run_for(struct world *w, uint64_t ms)
{
	begin(w, ms);
	while (!w->ran_out)
		uv_run(&w->loop, UV_RUN_ONCE);
	uv_timer_stop(&w->watchdog);
}

void got_done(struct got *g)
{
	free(g->body);
	free(g->stream);
	*g = (struct got){0};
}

void on_answer(void *arg, const struct kube_answer *a)
{
	struct got *g = arg;

	g->done = true;
	g->calls++;
	g->status = a->status;
	snprintf(g->message, sizeof(g->message), "%s", a->message);
	snprintf(g->reason, sizeof(g->reason), "%s", a->reason);
	snprintf(g->type, sizeof(g->type), "%s", a->content_type ? a->content_type : "");
	g->retry_after_ms = a->retry_after_ms;
	g->connection_reset = a->connection_reset;
	if (a->body) {
		g->body = malloc(a->len + 1);
		memcpy(g->body, a->body, a->len);
		g->body[a->len] = 0;
		g->len = a->len;
	}
}

int on_data(void *arg, const char *content_type, const void *bytes, size_t len)
{
	struct got *g = arg;

	assert_false(g->done);
	g->stream = realloc(g->stream, g->stream_len + len + 1);
	memcpy(g->stream + g->stream_len, bytes, len);
	g->stream_len += len;
	g->stream[g->stream_len] = 0;
	g->pieces++;
	return 0;
}

void ask(struct world *w, struct kube_request request, struct got *g)
{
	request.done = on_answer;
	request.arg = g;
	assert_int_equal(kube_call(w->client, &request, NULL), 0);
	assert_false(g->done); /* never from inside */
	world_run_until(w, &g->done);
	assert_int_equal(g->calls, 1);
}

void get(struct world *w, const char *path, struct got *g)
{
	ask(w, (struct kube_request){.method = "GET", .path = path}, g);
}

void get_stream(struct world *w, const char *path, uint64_t idle_ms, struct got *g)
{
	ask(w,
	    (struct kube_request){
		.method = "GET", .path = path, .data = on_data, .idle_ms = idle_ms},
	    g);
}

cJSON *echoed(const struct got *g)
{
	cJSON *root;

	assert_int_equal(g->status, 200);
	root = cJSON_Parse(g->body);
	assert_non_null(root);
	return root;
}

const char *member_text(const cJSON *object, const char *key)
{
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

	return s ? s : "";
}

const char *header_text(const cJSON *echo, const char *key)
{
	const cJSON *all = cJSON_GetObjectItemCaseSensitive(echo, "header");
	const char *s =
	    cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(all, key), 0));

	return s ? s : "";
}
