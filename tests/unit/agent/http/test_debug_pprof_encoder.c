/* SPDX-License-Identifier: Apache-2.0 */
/* The pprof extension with the real encoder: what arrives is gzip, and pid= chooses what is in it.
 */
#include "agent/http/debug_pprof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <zlib.h>

#include "tests/support/sample_batch.h"
#include "tests/unit/lib/httpd/harness.h"

static struct debug_pprof *pprof;
static struct batch *batch;

static void init(uv_loop_t *loop, void *user)
{
	char host[] = "127.0.0.1";
	const struct http_config config = {.enabled = true, .host = host};

	if (debug_pprof_new(loop, &config, 1000, &pprof, NULL) < 0)
		abort();
}

static void stop(void *user)
{
	pprof = debug_pprof_free(pprof);
}

static void consume(void *arg)
{
	*(unsigned int *)arg = debug_pprof_pending(pprof);
	if (*(unsigned int *)arg)
		debug_pprof_consume(pprof, batch);
}

/* The profile at this target, unpacked. */
static size_t fetch(struct loop_thread *thread, const char *target, char *out, size_t size)
{
	z_stream z = {0};
	struct reply r = {0};
	char request[256];
	int fd = client_connect(debug_pprof_port(pprof));
	unsigned int pending = 0;

	snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target);
	client_send(fd, request, strlen(request));
	for (int i = 0; i < 60000 && !pending; i++) {
		loop_thread_call(thread, consume, &pending);
		usleep(1000);
	}
	buf_init(&r.raw, 1 << 24);
	assert_true(client_read(fd, &r.raw));
	close(fd);
	reply_parse(&r);
	assert_int_equal(r.status, 200);
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	z.next_in = (unsigned char *)(uintptr_t)r.body;
	z.avail_in = (unsigned int)r.body_len;
	z.next_out = (unsigned char *)out;
	z.avail_out = (unsigned int)size - 1;
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	out[z.total_out] = 0;
	size = z.total_out;
	inflateEnd(&z);
	reply_done(&r);
	return size;
}

static void pid_chooses_the_samples(void **state)
{
	static char all[1 << 16], none[1 << 16];
	struct loop_thread *thread;
	size_t n_all, n_none;

	assert_int_equal(sample_batch_build(&batch), 0);
	/* The window spans now, whenever that is. */
	batch->duration_ns = UINT64_MAX - batch->start_unix_ns;
	thread = loop_thread_new(init, stop, NULL);
	n_all = fetch(thread, "/debug/pprof/profile?seconds=60&pid=0", all, sizeof(all));
	n_none =
	    fetch(thread, "/debug/pprof/profile?seconds=60&pid=2147483647", none, sizeof(none));
	assert_non_null(memmem(all, n_all, "worker", 6));
	assert_null(memmem(none, n_none, "worker", 6));
	loop_thread_free(thread);
	batch = batch_unref(batch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(pid_chooses_the_samples)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
