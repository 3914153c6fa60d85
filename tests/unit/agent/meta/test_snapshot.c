/* SPDX-License-Identifier: Apache-2.0 */
/* The copy on disk: what is read back, what is never written, and which files are refused. */
#include "agent/meta/snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "agent/meta/pods_update.h"
#include "agent/meta/token.h"
#include "tests/support/test.h"
#include "tests/unit/agent/meta/sample_node.h"

static struct pod_table *table_new(void)
{
	struct pod_events events = {0};
	struct pod_table *t;

	assert_int_equal(pod_table_new(&events, &t), 0);
	return t;
}

/* One object of every kind; each secret of the destination has "s3cret" in it. */
static void fill(struct pod_table *t)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	Kiln__Node__V1__Destination d = KILN__NODE__V1__DESTINATION__INIT, *ds[2] = {&d};
	Kiln__Node__V1__Destination open = KILN__NODE__V1__DESTINATION__INIT;
	Kiln__Node__V1__Header h = KILN__NODE__V1__HEADER__INIT, *hs[] = {&h};
	Kiln__Node__V1__Tls tls = KILN__NODE__V1__TLS__INIT;
	struct sample_policy p, def;
	Kiln__Node__V1__Budget budget = KILN__NODE__V1__BUDGET__INIT;
	struct sample_pod pod;
	struct error err;

	budget.cpu = 5000;
	budget.memory = 128 << 20;
	u.budget = &budget;
	h.name = (char *)"authorization";
	h.value = (char *)"Bearer s3cret";
	tls.ca_pem = (ProtobufCBinaryData){.data = (uint8_t *)"the CA", .len = 6};
	tls.certificate_pem = (ProtobufCBinaryData){.data = (uint8_t *)"the cert", .len = 8};
	tls.key_pem = (ProtobufCBinaryData){.data = (uint8_t *)"s3cret key", .len = 10};
	d.id = (char *)"main";
	d.kind = KILN__NODE__V1__DESTINATION__KIND__OTLP_HTTP;
	d.endpoint = (char *)"https://user:s3cret@x.example";
	d.tls = &tls;
	d.n_headers = 1;
	d.headers = hs;
	open.id = (char *)"open";
	open.endpoint = (char *)"gateway:4317";
	open.kind = KILN__NODE__V1__DESTINATION__KIND__OTLP_GRPC;
	ds[1] = &open;
	u.n_destinations = 2;
	u.destinations = ds;
	u.n_policies = 1;
	u.policies = sample_policy(&p, 5, 97);
	u.default_policy = *sample_policy(&def, 6, 20);
	u.n_pods = 1;
	u.pods = sample_pod(&pod, "a", 5, 1, 2);
	pod_table_snapshot_begin(t, 77);
	assert_int_equal(pod_table_apply(t, &u, 0, &err), 0);
	assert_int_equal(pod_table_snapshot_end(t, 77, 12, 0, &err), 0);
}

static void test_what_was_written_comes_back_without_secrets(void **state)
{
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(), *again = table_new();
	char dir[] = "/tmp/kiln-test-snapshot-XXXXXX", path[64];
	_cleanup_(buf_done) struct buf bytes;
	const struct pod_destination *d;
	uint64_t epoch, revision;
	uint8_t id[32];
	struct error err;
	struct stat st;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/pods", dir);
	fill(t);
	buf_init(&bytes, SNAPSHOT_MAX);
	assert_int_equal(snapshot_encode(t, &bytes), 0);
	assert_null(memmem(bytes.data, bytes.len, "s3cret", 6));
	assert_int_equal(snapshot_write(path, bytes.data, bytes.len), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(snapshot_load(path, again, 0, &err), 0);
	pod_table_state(again, &epoch, &revision);
	assert_int_equal(epoch, 77);
	assert_int_equal(revision, 12);
	memset(id, 2, sizeof(id));
	assert_string_equal(pod_table_find_container(again, id)->name, "a");
	assert_int_equal(pod_table_policy(again, 5)->hz, 97);
	assert_int_equal(pod_table_default_policy(again)->hz, 20);
	assert_int_equal(pod_table_budget(again).cpu, 5000);
	assert_int_equal(pod_table_budget(again).memory, 128 << 20);
	d = pod_table_destination(again, "main");
	assert_true(d->incomplete);
	assert_null(d->key_pem);
	assert_string_equal(d->ca_pem, "the CA");
	assert_string_equal(d->headers[0].value, "");
	assert_false(pod_table_destination(again, "open")->incomplete);
	assert_true(pod_table_incomplete(again));
	assert_false(pod_table_incomplete(t));
	/* The operator's next update completes the destination. */
	fill(again);
	assert_false(pod_table_incomplete(again));
	assert_string_equal(pod_table_destination(again, "main")->key_pem, "s3cret key");
	/* Files that others can write, missing files and symbolic links are refused. */
	assert_int_equal(chmod(path, 0620), 0);
	assert_int_equal(snapshot_load(path, again, 0, &err), -EPERM);
	unlink(path);
	assert_int_equal(snapshot_load(path, again, 0, &err), -ENOENT);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(snapshot_load(path, again, 0, &err), -ELOOP);
	unlink(path);
	rmdir(dir);
	assert_int_equal(snapshot_write(path, "x", 1), -ENOENT);
}

static void test_no_flipped_bit_and_no_shorter_file_is_believed(void **state)
{
	_cleanup_(pod_table_freep) struct pod_table *t = table_new();
	_cleanup_(buf_done) struct buf bytes;
	struct error err;
	size_t i;

	buf_init(&bytes, SNAPSHOT_MAX);
	assert_int_equal(snapshot_encode(t, &bytes), -ENODATA);
	fill(t);
	buf_reset(&bytes);
	assert_int_equal(snapshot_encode(t, &bytes), 0);
	for (i = 0; i < bytes.len; i++) {
		_cleanup_(pod_table_freep) struct pod_table *other = table_new();

		bytes.data[i] ^= (char)(1 << (i % 8));
		assert_int_equal(snapshot_decode(bytes.data, bytes.len, other, 0, &err), -EBADMSG);
		bytes.data[i] ^= (char)(1 << (i % 8));
		assert_int_equal(snapshot_decode(bytes.data, i, other, 0, &err), -EBADMSG);
		assert_int_equal(pod_table_count(other), 0);
	}
	assert_int_equal(snapshot_decode(bytes.data, bytes.len, t, 0, &err), 0);
}

static void test_tokens(void **state)
{
	static const struct {
		const char *text;
		int64_t expires;
	} rows[] = {
	    /* {"exp":1700000000}, {"exp":"x"}, {"exp":-1}, {"exp":1e300}, [], {} */
	    {"h.eyJleHAiOjE3MDAwMDAwMDB9.s", 1700000000},
	    {"h.eyJleHAiOiJ4In0.s", 0},
	    {"h.eyJleHAiOi0xfQ.s", 0},
	    {"h.eyJleHAiOjFlMzAwfQ.s", 0},
	    {"h.W10.s", 0},
	    {"h.e30.s", 0},
	    {"h.!!.s", 0},
	    {"h..s", 0},
	    {"h", 0},
	    {"", 0},
	};
	char path[] = "/tmp/kiln-test-token-XXXXXX", large[TOKEN_MAX + 2];
	_cleanup_close_ int fd = mkstemp(path);
	struct token t;
	struct error err;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(token_expiry(rows[i].text), rows[i].expires);
	assert_int_equal(token_read(path, &t, &err), -EINVAL); /* empty */
	assert_int_equal(write(fd, "a.b.c\n", 6), 6);
	assert_int_equal(token_read(path, &t, &err), 0);
	assert_string_equal(t.text, "a.b.c");
	token_done(&t);
	assert_int_equal(write(fd, "x: y", 4), 4);
	assert_int_equal(token_read(path, &t, &err), -EINVAL);
	assert_null(strstr(err.message, "a.b.c"));
	memset(large, 'x', sizeof(large));
	assert_int_equal(pwrite(fd, large, sizeof(large), 0), sizeof(large));
	assert_int_equal(token_read(path, &t, &err), -EFBIG);
	unlink(path);
	assert_int_equal(token_read(path, &t, &err), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_what_was_written_comes_back_without_secrets),
	    cmocka_unit_test(test_no_flipped_bit_and_no_shorter_file_is_believed),
	    cmocka_unit_test(test_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
