/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that a peer sends through the front end; the first byte is the length of the pieces in
 * which the rest is read. The pieces give the same counts as the whole, and no frame that passes is
 * longer than the limit. The rest is also read as the first bytes of a ClientHello.
 */
#include "operator/frontend/frames.h"
#include "operator/frontend/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_hello(const uint8_t *data, size_t size)
{
	size_t n = 0;

	if (size < HELLO_START || hello_length(data, &n) < 0)
		return;
	if (n < HELLO_START || n > HELLO_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frames whole = {0}, pieces = {0};
	int r = 0, whole_r;
	size_t step;

	if (!size)
		return 0;
	step = data[0] ? data[0] : 1;
	data++;
	size--;
	try_hello(data, size);
	whole_r = frames_read(&whole, data, size);
	for (size_t at = 0; at < size && !r; at += step)
		r = frames_read(&pieces, data + at, MIN(step, size - at));
	if (r != whole_r || whole.all != pieces.all || whole.calls != pieces.calls ||
	    whole.calls > whole.all)
		abort();
	if (!r && (whole.left != pieces.left || whole.left > FRAMES_LENGTH_MAX ||
		   whole.n_header >= FRAMES_HEADER))
		abort();
	return 0;
}
