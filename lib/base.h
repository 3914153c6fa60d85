/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes, ownership helpers and small arithmetic that every file of Kiln may use. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h> /* has MIN and MAX of its own, and uv.h includes it */
#include <unistd.h>

#define _must_check_   __attribute__((warn_unused_result))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _cleanup_(f)   __attribute__((cleanup(f)))
#define _unused_       __attribute__((unused))

#define ARRAY_SIZE(a)			(sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#undef MIN
#undef MAX
#define MIN(a, b)      ((a) < (b) ? (a) : (b))
#define MAX(a, b)      ((a) > (b) ? (a) : (b))
#define ALIGN_UP(n, a) (((n) + (a)-1) / (a) * (a))

/* Move ownership out of a _cleanup_ variable. */
#define TAKE_PTR(p)                                                                                \
	({                                                                                         \
		__typeof__(p) *take_ = &(p);                                                       \
		__typeof__(p) taken_ = *take_;                                                     \
		*take_ = NULL;                                                                     \
		taken_;                                                                            \
	})
#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int *take_ = &(fd);                                                                \
		int taken_ = *take_;                                                               \
		*take_ = -1;                                                                       \
		taken_;                                                                            \
	})

/* Defines NAMEp(), the _cleanup_ form of a destructor that takes and returns a pointer. */
#define DEFINE_CLEANUP(type, destructor)                                                           \
	static inline void destructor##p(type *p)                                                  \
	{                                                                                          \
		if (*p)                                                                            \
			destructor(*p);                                                            \
	}

static inline void freep(void *p)
{
	free(*(void **)p);
}

static inline void closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

#define _cleanup_free_	 _cleanup_(freep)
#define _cleanup_close_	 _cleanup_(closep)
#define _cleanup_fclose_ _cleanup_(fclosep)

/* R: a result. Memory or file descriptors are exhausted: the same call may succeed later. */
static inline bool is_shortage(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE;
}

static inline bool streq(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static inline bool same_bytes(const void *a, const void *b, size_t n)
{
	return memcmp(a, b, n) == 0;
}

static inline bool has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* For qsort() and bsearch() of uint32_t. */
static inline int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * Grows *array (elements of SIZE bytes, capacity *cap) so that it holds at least WANT elements,
 * doubling; MAX is the hard cap. Returns 0, -ENOMEM or -E2BIG; the array is valid in any case.
 */
static inline int grow_array(void **array, size_t *cap, size_t want, size_t size, size_t max)
{
	size_t n = *cap ? *cap : 16;
	void *p;

	if (want <= *cap)
		return 0;
	if (want > max)
		return -E2BIG;
	while (n < want)
		n *= 2;
	if (n > max)
		n = max;
	p = realloc(*array, n * size);
	if (!p)
		return -ENOMEM;
	*array = p;
	*cap = n;
	return 0;
}

/* 64-bit mixing for hash tables (the finalizer of MurmurHash3, public domain, A. Appleby). */
static inline uint64_t mix64(uint64_t h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	h ^= h >> 33;
	return h;
}

/* The upper 64 bits of the product A * B, XORed with the lower 64 bits. */
static inline uint64_t fold_multiply(uint64_t a, uint64_t b)
{
	__extension__ typedef unsigned __int128 u128;
	u128 product = (u128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/*
 * Hashes N words, for hash tables with long keys. Four words take two multiplications, which the
 * CPU can run in parallel; hash_bytes() takes eight, one after the other. SEED should be secret
 * where others choose the words, so that they cannot choose keys that collide: both lanes start
 * with it, so nobody else knows the word that makes a factor 0 and hides the word beside it. To mix
 * by a folded product is the method of wyhash (public domain, Wang Yi); the constants are digits of
 * the square roots of 2, 3, 5 and 7.
 */
static inline uint64_t hash_words(const uint64_t *words, size_t n, uint64_t seed)
{
	const uint64_t c = seed ^ 0x6a09e667f3bcc909, d = seed ^ 0xbb67ae8584caa73b;
	/* Rotated, because the seed in `d` would cancel it out when there are no words. */
	uint64_t a = (seed << 29 | seed >> 35) ^ n ^ 0x3c6ef372fe94f82b;
	uint64_t b = seed ^ 0xa54ff53a5f1d36f1;

	for (; n >= 4; words += 4, n -= 4) {
		a = fold_multiply(a ^ words[0], c ^ words[1]);
		b = fold_multiply(b ^ words[2], d ^ words[3]);
	}
	for (; n; words++, n--)
		a = fold_multiply(a ^ *words, c);
	return fold_multiply(a ^ d, b ^ c);
}

static inline uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)
{
	const unsigned char *p = data;
	uint64_t h = seed ^ (len * 0x9e3779b97f4a7c15ULL), w;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&w, p, 8);
		h = mix64(h ^ w);
	}
	w = 0;
	memcpy(&w, p, len);
	return mix64(h ^ w ^ 0x2545f4914f6cdd1dULL);
}
