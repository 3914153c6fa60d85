// SPDX-License-Identifier: Apache-2.0
/* Any bytes as /proc/kallsyms: what is found must cover the address that was asked for. */
#include <fcntl.h>
#include <sys/mman.h>

#include "agent/symbol/kallsyms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	_cleanup_(kallsyms_freep) struct kallsyms *k = NULL;
	struct kallsyms_symbol s;

	if (fd < 0)
		fd = memfd_create("kallsyms", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size ||
	    lseek(fd, 0, SEEK_SET) != 0)
		return 0;
	if (kallsyms_read(fd, &k, NULL) < 0)
		return 0;
	/* Addresses from the text itself, so that some are hit. */
	for (size_t i = 0; i + 16 <= size && i < 4096; i += 7) {
		char hex[17] = {0};
		uint64_t a;

		memcpy(hex, data + i, 16);
		a = strtoull(hex, NULL, 16);
		if (kallsyms_find(k, a, &s) &&
		    (a < s.start || a >= s.end || strlen(s.name) + strlen(s.module) > size))
			abort();
	}
	return 0;
}
