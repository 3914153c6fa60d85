/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of its corpus directories, so that every find stays found. */
#include <dirent.h>

#include "lib/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "rbe");
	_cleanup_free_ uint8_t *data = NULL;
	long size;

	if (!f || fseek(f, 0, SEEK_END) || (size = ftell(f)) < 0)
		return -1;
	rewind(f);
	/* Exactly SIZE bytes on the heap, so that ASan sees a read past the end. */
	data = malloc(size ? (size_t)size : 1);
	if (!data || fread(data, 1, (size_t)size, f) != (size_t)size)
		return -1;
	LLVMFuzzerTestOneInput(data, (size_t)size);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned int files = 0;

	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);
		struct dirent *e;

		while (dir && (e = readdir(dir))) {
			char path[4096];

			snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
			if (e->d_name[0] != '.' && replay_file(path) == 0)
				files++;
		}
		if (dir)
			closedir(dir);
	}
	printf("%u inputs replayed\n", files);
	return files ? 0 : 1;
}
