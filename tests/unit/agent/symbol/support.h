/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch directories, compilers and images for the tests of agent/symbol. */
#pragma once

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/elf/image.h"
#include "lib/base.h"
#include "lib/buf.h"

/* Runs a shell command made by FORMAT; returns its status. */
static inline int _printf_(1, 2) sh(const char *format, ...)
{
	char command[8192];
	va_list ap;

	va_start(ap, format);
	vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	return system(command);
}

/* The command's whole output; the caller frees. */
static inline char *_printf_(1, 2) sh_output(const char *format, ...)
{
	char command[8192];
	struct buf out;
	va_list ap;
	FILE *f;
	size_t n;
	void *p;

	va_start(ap, format);
	vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	buf_init(&out, 512 << 20);
	f = popen(command, "re");
	assert_non_null(f);
	do {
		char chunk[65536];

		n = fread(chunk, 1, sizeof(chunk), f);
		p = buf_extend(&out, n);
		assert_non_null(p);
		memcpy(p, chunk, n);
	} while (n);
	pclose(f);
	return out.data;
}

static inline bool have(const char *program)
{
	return sh("command -v %s >/dev/null 2>&1", program) == 0;
}

static inline void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	fclose(f);
}

/* A scratch directory for a group; removed by scratch_teardown(). */
static char scratch[64];

static inline int scratch_setup(void **state)
{
	strcpy(scratch, "/tmp/kiln-symbol-XXXXXX");
	return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_teardown(void **state)
{
	return sh("rm -rf '%s'", scratch);
}

/* "scratch/NAME", in one of a few buffers. */
static inline const char *in_scratch(const char *name)
{
	static char paths[8][256];
	static unsigned int next;
	char *path = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(path, sizeof(paths[0]), "%s/%s", scratch, name);
	return path;
}

static inline struct image *open_image(const char *path)
{
	struct image *image = NULL;
	struct error err = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	if (image_open(fd, path, &image, &err) < 0)
		fail_msg("%s: %s", path, err.message);
	return image;
}
