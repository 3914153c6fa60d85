/* SPDX-License-Identifier: Apache-2.0 */
/* The exporters that write to this machine, on a real loop with real pipes and files. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "agent/export/exporter.h"
#include "agent/export/local.h"
#include "lib/log.h"
#include "tests/support/sample_batch.h"

struct fixture {
	uv_loop_t loop;
	char dir[64];
	char path[128];
	struct exporter *e;
	bool done;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	uv_loop_init(&f->loop);
	strcpy(f->dir, "/tmp/kiln-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/out", f->dir);
	*state = f;
	return 0;
}

/* Ends the exporter if the test has not; the loop must be left with no handle. */
static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	if (f->e)
		f->e->ops->destroy(f->e);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
	snprintf(command, sizeof(command), "rm -rf %s", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

static struct exporter_config text_config(const struct fixture *f)
{
	return (struct exporter_config){
	    .type = (char *)"customprofilesexporter",
	    .id = (char *)"debug/x",
	    .export_resource_attributes = true,
	    .export_sample_attributes = true,
	    .export_stack_frames = true,
	    .output = (char *)f->path,
	};
}

static void create(struct fixture *f, const struct exporter_config *config)
{
	static const struct exporter_ops *const all[] = {&text_exporter_ops, &top_exporter_ops,
							 &pprof_file_exporter_ops,
							 &folded_file_exporter_ops};
	struct error err = {0};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (streq(all[i]->type, config->type))
			assert_int_equal(all[i]->create(config, &f->loop, &f->e, &err), 0);
	assert_non_null(f->e);
	assert_string_equal(f->e->name, config->id);
}

static void consume(struct fixture *f, struct batch *batch)
{
	f->e->ops->consume(f->e, batch);
}

static void on_done(void *arg)
{
	struct fixture *f = arg;

	assert_false(f->done); /* once */
	f->done = true;
}

static void flush(struct fixture *f, uint64_t deadline_ms)
{
	f->e->ops->flush(f->e, deadline_ms, on_done, f);
	while (!f->done)
		uv_run(&f->loop, UV_RUN_ONCE);
}

static char *read_file(const char *path, size_t *ret_len)
{
	FILE *file = fopen(path, "rb");
	char *data = calloc(1, 32 << 20);

	if (!file) {
		free(data);
		return NULL;
	}
	*ret_len = fread(data, 1, (32 << 20) - 1, file);
	fclose(file);
	return data;
}

static size_t count(const char *text, const char *what)
{
	size_t n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

/* ---- text and top -----------------------------------------------------------------------------
 */

static void text_is_appended_to_its_output(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config = text_config(f);
	_cleanup_free_ char *data = NULL;
	size_t len;

	assert_int_equal(sample_batch_build(&batch), 0);
	create(f, &config);
	consume(f, batch);
	consume(f, batch);
	flush(f, 60000);
	data = read_file(f->path, &len);
	assert_int_equal(count(data, "New Resource Profile"), 4);
	assert_int_equal(count(data, "  Values: [3]\n"), 2);
	assert_int_equal(batch->refs, 1); /* nothing held on to */
}

struct reader {
	uv_thread_t thread;
	int fd;
	size_t samples, bytes;
	bool slow;
};

static void read_all(void *arg)
{
	struct reader *r = arg;
	char *data = calloc(1, 64 << 20);
	size_t reads = 0;
	ssize_t n;

	while ((n = read(r->fd, data + r->bytes, r->slow ? 700 : 65536)) > 0) {
		r->bytes += (size_t)n;
		if (r->slow && ++reads % 50 == 0)
			usleep(1000);
	}
	r->samples = count(data, "\n------------------- End Sample --------------------\n");
	free(data);
}

/* More than a pipe holds, to a reader that takes little at a time: every line arrives. */
static void a_slow_pipe_loses_nothing(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config = text_config(f);
	struct reader r = {.slow = true};

	assert_int_equal(mkfifo(f->path, 0600), 0);
	r.fd = open(f->path, O_RDONLY | O_NONBLOCK);
	assert_true(r.fd >= 0);
	create(f, &config); /* opens the other end */
	assert_int_equal(fcntl(r.fd, F_SETFL, 0), 0);
	assert_int_equal(uv_thread_create(&r.thread, read_all, &r), 0);
	assert_int_equal(sample_batch_large(800, &batch), 0);
	for (int i = 0; i < 3; i++)
		consume(f, batch);
	flush(f, 120000);
	f->e = f->e->ops->destroy(f->e);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	uv_thread_join(&r.thread);
	close(r.fd);
	assert_int_equal(r.samples, 3 * 800);
	assert_in_range(r.bytes, 1 << 20, 64 << 20);
}

/* The pipe is never read: the flush ends at its deadline, and the unwritten samples are counted. */
static void a_stuck_pipe_does_not_hold_the_end(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config = text_config(f);
	int64_t dropped = metric_get(M_TEXT_DROPPED);
	int fd;

	assert_int_equal(mkfifo(f->path, 0600), 0);
	fd = open(f->path, O_RDONLY | O_NONBLOCK);
	create(f, &config);
	assert_int_equal(sample_batch_large(800, &batch), 0);
	for (int i = 0; i < LOCAL_QUEUE_MAX + 5; i++)
		consume(f, batch);
	/* One batch is being written, LOCAL_QUEUE_MAX are queued, four were refused. */
	assert_int_equal(metric_get(M_TEXT_DROPPED) - dropped, 4 * batch_cpu_samples(batch));
	flush(f, 50);
	assert_int_equal(metric_get(M_TEXT_DROPPED) - dropped,
			 (LOCAL_QUEUE_MAX + 5) * batch_cpu_samples(batch));
	assert_int_equal(batch->refs, 1);
	close(fd);
}

static void a_closed_pipe_is_counted_and_survived(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config = text_config(f);
	int64_t dropped = metric_get(M_TEXT_DROPPED);
	int fd;

	assert_int_equal(mkfifo(f->path, 0600), 0);
	fd = open(f->path, O_RDONLY | O_NONBLOCK);
	create(f, &config);
	close(fd);
	assert_int_equal(sample_batch_build(&batch), 0);
	consume(f, batch);
	consume(f, batch);
	flush(f, 60000);
	assert_int_equal(metric_get(M_TEXT_DROPPED) - dropped, 2 * 6);
}

static void destroy_without_flush_lets_go_of_everything(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config = text_config(f);

	assert_int_equal(sample_batch_large(100, &batch), 0);
	create(f, &config);
	for (int i = 0; i < 5; i++)
		consume(f, batch);
	f->e = f->e->ops->destroy(f->e);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(batch->refs, 1);
}

static void an_output_that_cannot_be_opened_is_named(void **state)
{
	struct fixture *f = *state;
	struct exporter_config config = text_config(f);
	struct error err = {0};

	config.output = (char *)"/nonexistent/dir/file";
	assert_int_equal(text_exporter_ops.create(&config, &f->loop, &f->e, &err), -ENOENT);
	assert_non_null(strstr(err.message, "/nonexistent/dir/file: No such file"));
	assert_null(f->e);
	config = text_config(f);
	config.export_stack_frame_types = (struct config_strings){(char *[]){(char *)"klingon"}, 1};
	assert_int_equal(text_exporter_ops.create(&config, &f->loop, &f->e, &err), -EINVAL);
	assert_non_null(strstr(err.message, "export_stack_frame_types: unknown type \"klingon\""));
}

static void top_writes_a_table_a_window(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config = {
	    .type = (char *)"top", .id = (char *)"top", .output = f->path};
	_cleanup_free_ char *data = NULL;
	size_t len;

	assert_int_equal(sample_batch_build(&batch), 0);
	create(f, &config);
	consume(f, batch);
	consume(f, batch);
	flush(f, 60000);
	data = read_file(f->path, &len);
	assert_int_equal(count(data, "kiln: 6 samples of 2 processes in 5.0 s\n"), 2);
	assert_null(strchr(data, '\033')); /* a file is no terminal */
}

/* ---- files ------------------------------------------------------------------------------------
 */

static struct exporter_config file_config(const struct fixture *f, const char *type)
{
	return (struct exporter_config){
	    .type = (char *)type, .id = (char *)type, .path = (char *)f->path};
}

static void a_folded_file_covers_the_run(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config = file_config(f, "folded_file");
	_cleanup_free_ char *early = NULL, *data = NULL;
	size_t len;

	assert_int_equal(sample_batch_build(&batch), 0);
	create(f, &config);
	consume(f, batch);
	consume(f, batch);
	early = read_file(f->path, &len);
	assert_null(early); /* only at the end */
	flush(f, 60000);
	data = read_file(f->path, &len);
	assert_non_null(strstr(data, "x64_sys_call 8\n"));
	assert_int_equal(count(data, "\n"), 2);
}

static void a_rotated_file_without_a_mark_grows(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config = file_config(f, "folded_file");
	_cleanup_free_ char *first = NULL, *data = NULL;
	struct local_exporter *l;
	size_t len;

	config.rotation_ms = 5000; /* one batch */
	assert_int_equal(sample_batch_build(&batch), 0);
	create(f, &config);
	l = container_of(f->e, struct local_exporter, base);
	consume(f, batch);
	while (l->busy)
		uv_run(&f->loop, UV_RUN_ONCE);
	first = read_file(f->path, &len);
	assert_non_null(strstr(first, "x64_sys_call 4\n"));
	consume(f, batch);
	flush(f, 60000);
	data = read_file(f->path, &len);
	assert_non_null(strstr(data, "x64_sys_call 8\n"));
}

static void a_mark_in_the_path_gives_a_file_a_period(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct fixture *f = *state;
	struct exporter_config config;
	char path[256];

	snprintf(f->path, sizeof(f->path), "%s/p-%%s.folded", f->dir);
	config = file_config(f, "folded_file");
	config.rotation_ms = 5000;
	assert_int_equal(sample_batch_build(&batch), 0);
	create(f, &config);
	consume(f, batch);
	consume(f, batch); /* the second file: periods follow each other */
	flush(f, 60000);
	/* 1760000000 is 2025-10-09 08:53:20 UTC. */
	for (int i = 0; i < 2; i++) {
		_cleanup_free_ char *data = NULL;
		size_t len;

		snprintf(path, sizeof(path), "%s/p-20251009T0853%dZ.folded", f->dir, 20 + 5 * i);
		data = read_file(path, &len);
		assert_non_null(data);
		assert_non_null(strstr(data, "x64_sys_call 4\n"));
	}
	/* No third file, and no temporary one. */
	snprintf(path, sizeof(path), "test $(ls %s | wc -l) = 2", f->dir);
	assert_int_equal(system(path), 0);
}

static void a_clock_that_is_set_back_ends_a_period(void **state)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL, *earlier = NULL;
	struct fixture *f = *state;
	struct exporter_config config;
	char path[256];

	snprintf(f->path, sizeof(f->path), "%s/p-%%s.folded", f->dir);
	config = file_config(f, "folded_file");
	config.rotation_ms = 60000;
	assert_int_equal(sample_batch_build(&batch), 0);
	assert_int_equal(sample_batch_build(&earlier), 0);
	earlier->start_unix_ns -= 3600ULL * 1000000000;
	create(f, &config);
	consume(f, batch);
	consume(f, earlier);
	consume(f, earlier);
	flush(f, 60000);
	snprintf(path, sizeof(path), "test $(ls %s | wc -l) = 2", f->dir);
	assert_int_equal(system(path), 0);
}

static void a_pprof_file_is_gzip_even_for_an_empty_run(void **state)
{
	struct fixture *f = *state;
	struct exporter_config config = file_config(f, "pprof_file");
	_cleanup_free_ char *data = NULL;
	size_t len;

	create(f, &config);
	flush(f, 60000);
	data = read_file(f->path, &len);
	assert_non_null(data);
	assert_memory_equal(data, "\x1f\x8b", 2);
}

static void a_failed_replacement_leaves_the_old_file(void **state)
{
	struct fixture *f = *state;
	struct error err = {0};
	_cleanup_free_ char *data = NULL;
	char path[256];
	size_t len;

	assert_int_equal(local_replace_file(f->path, "old", 3, &err), 0);
	snprintf(path, sizeof(path), "mkdir %s.tmp.%d", f->path, (int)getpid());
	assert_int_equal(system(path), 0); /* in the temporary file's place */
	assert_int_equal(local_replace_file(f->path, "new", 3, &err), -EISDIR);
	assert_non_null(strstr(err.message, f->path));
	data = read_file(f->path, &len);
	assert_string_equal(data, "old");
}

static void a_file_exporter_needs_a_path(void **state)
{
	struct fixture *f = *state;
	struct exporter_config config = {.type = (char *)"pprof_file", .id = (char *)"pprof_file"};
	struct error err = {0};

	assert_int_equal(pprof_file_exporter_ops.create(&config, &f->loop, &f->e, &err), -EINVAL);
	assert_string_equal(err.message, "path: must be given");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(text_is_appended_to_its_output),
	    TEST(a_slow_pipe_loses_nothing),
	    TEST(a_stuck_pipe_does_not_hold_the_end),
	    TEST(a_closed_pipe_is_counted_and_survived),
	    TEST(destroy_without_flush_lets_go_of_everything),
	    TEST(an_output_that_cannot_be_opened_is_named),
	    TEST(top_writes_a_table_a_window),
	    TEST(a_folded_file_covers_the_run),
	    TEST(a_rotated_file_without_a_mark_grows),
	    TEST(a_mark_in_the_path_gives_a_file_a_period),
	    TEST(a_clock_that_is_set_back_ends_a_period),
	    TEST(a_pprof_file_is_gzip_even_for_an_empty_run),
	    TEST(a_failed_replacement_leaves_the_old_file),
	    TEST(a_file_exporter_needs_a_path),
	};

	signal(SIGPIPE, SIG_IGN); /* as the agent does */
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
