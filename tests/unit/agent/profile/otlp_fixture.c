/* SPDX-License-Identifier: Apache-2.0 */
/* otlp_fixture GENERATION DIR: writes sample_batch_build() as DIR/request-N.bin, for
 * otlp_decode.py. */
#include "agent/profile/otlp.h"
#include "tests/support/sample_batch.h"

static int write_request(const char *dir, size_t i, const struct otlp_request *request)
{
	_cleanup_fclose_ FILE *f = NULL;
	char path[4096];

	snprintf(path, sizeof(path), "%s/request-%zu.bin", dir, i);
	f = fopen(path, "wb");
	return f && fwrite(request->data, 1, request->len, f) == request->len ? 0 : -EIO;
}

int main(int argc, char **argv)
{
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	struct otlp_options options = {0};
	struct otlp_request *requests;
	struct error err = {0};
	size_t n;
	int r;

	if (argc < 3 || otlp_generation_parse(argv[1], &options.generation) < 0)
		return 2;
	if (argc > 3) /* SIZE LIMIT: the large batch, split */
		options.max_bytes = (size_t)atol(argv[4]);
	r = argc > 3 ? sample_batch_large((uint32_t)atoi(argv[3]), &batch)
		     : sample_batch_build(&batch);
	if (r < 0 || otlp_encode(batch, &options, &requests, &n, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	for (size_t i = 0; i < n && r == 0; i++)
		r = write_request(argv[2], i, &requests[i]);
	otlp_requests_free(requests, n);
	return r < 0;
}
