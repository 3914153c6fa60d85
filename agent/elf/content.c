// SPDX-License-Identifier: Apache-2.0
/*
 * The hash is GMAC (NIST SP 800-38D) under a random key of this process and a fixed nonce: a
 * universal hash. Two different files of N 16-byte blocks collide with a probability of N / 2^128
 * for whoever does not know the key, and nobody can learn the key, because a hash never leaves this
 * process: it is neither exported nor logged. A hash without that proof, XXH3 with a secret, would
 * be as fast; a cryptographic one is 9 to 15 times slower. For 2 MiB in the cache, OpenSSL 3.0 on a
 * CPU with AES and SHA instructions: GMAC 0.13 ms, Poly1305 0.16, SipHash 0.73, SHA-256 1.16,
 * BLAKE2b 2.0; to compile libc's table takes 3.
 *
 * Each piece of the file is preceded by its place and length, so that files that differ only in
 * where a piece ends have different hashes. Any thread; the key is made once.
 */
#include "agent/elf/content.h"
#include "agent/elf/unread.h"
#include "lib/pace.h"

#include <elf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>

enum { CHUNK = 64 << 10, KEY_BYTES = 16, NONCE_BYTES = 12, SETTLED_SECONDS = 2 };

enum { CONTENT_UNKNOWN, CONTENT_BEING_SET, CONTENT_KNOWN, CONTENT_UNSHARED, CONTENT_REVOKED };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint8_t key[KEY_BYTES];
static EVP_MAC *gmac; /* NULL: there is no key, or no GMAC */

struct hash {
	EVP_MAC_CTX *context;
	const struct image *image;
	uint8_t *buffer;
	uint64_t total; /* bytes hashed so far; segments and sections may overlap */
	int error;
};

static void hash_done(struct hash *h)
{
	EVP_MAC_CTX_free(h->context);
	free(h->buffer);
}

static void make_key(void)
{
	if (getrandom(key, sizeof(key), 0) == sizeof(key))
		gmac = EVP_MAC_fetch(NULL, "GMAC", NULL);
}

static int hash_init(struct hash *h, const struct image *image)
{
	uint8_t nonce[NONCE_BYTES] = {0};
	OSSL_PARAM params[] = {
	    OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, (char *)"AES-128-GCM", 0),
	    OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, nonce, sizeof(nonce)),
	    OSSL_PARAM_construct_end(),
	};

	pthread_once(&once, make_key);
	h->image = image;
	h->buffer = malloc(CHUNK);
	h->context = gmac ? EVP_MAC_CTX_new(gmac) : NULL;
	if (!h->buffer)
		return -ENOMEM;
	if (!h->context || !EVP_MAC_init(h->context, key, sizeof(key), params))
		return -ENOTSUP;
	return 0;
}

/* ---- pieces -----------------------------------------------------------------------------------
 */

static void add(struct hash *h, const void *data, size_t size)
{
	if (!h->error && !EVP_MAC_update(h->context, data, size))
		h->error = -EIO;
}

static void add_numbers(struct hash *h, const uint64_t *numbers, size_t n)
{
	add(h, numbers, n * sizeof(*numbers));
}

static void add_text(struct hash *h, const void *text, size_t len)
{
	h->total += len;
	if (!h->error && h->total > IMAGE_CONTENT_BYTES_MAX)
		h->error = -EFBIG;
	add_numbers(h, (uint64_t[]){len}, 1);
	add(h, text, len);
}

static int read_chunk(struct hash *h, uint64_t offset, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n =
		    pread(h->image->fd, h->buffer + done, size - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* Hashes the part of [OFFSET, OFFSET + SIZE) that lies in the file. */
static void add_file_range(struct hash *h, uint64_t offset, uint64_t size)
{
	const struct image *image = h->image;

	offset = MIN(offset, image->size);
	size = MIN(size, image->size - offset);
	h->total += size;
	if (!h->error && h->total > IMAGE_CONTENT_BYTES_MAX)
		h->error = -EFBIG;
	add_numbers(h, (uint64_t[]){offset, size}, 2);
	if (image->fd < 0) {
		add(h, image->data + offset, size);
		return;
	}
	while (!h->error && size) {
		size_t n = MIN(size, (uint64_t)CHUNK);

		pace_wait();
		h->error = read_chunk(h, offset, n);
		add(h, h->buffer, n);
		offset += n;
		size -= n;
	}
}

/* ---- what is read of an image -----------------------------------------------------------------
 */

static void add_headers(struct hash *h)
{
	const struct image *image = h->image;

	add_numbers(h,
		    (uint64_t[]){image->size, image->machine, image->type, image->entry,
				 image->eh_frame_hdr, image->n_segments, image->n_sections},
		    7);
	add_text(h, image->build_id, image->build_id_len);
	add_text(h, image->go_build_id, strlen(image->go_build_id));
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		add_numbers(h, (uint64_t[]){s->vaddr, s->memsz, s->offset, s->filesz, s->flags}, 5);
	}
	for (size_t i = 0; i < image->n_sections && !h->error; i++) {
		const struct image_section *s = &image->sections[i];

		add_text(h, s->name, strlen(s->name));
		add_numbers(h,
			    (uint64_t[]){s->vaddr, s->offset, s->size, s->entsize, s->type, s->link,
					 s->info, s->flags},
			    8);
	}
}

static bool is_in_segment(const struct image *image, const struct image_section *section)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if (section->offset >= s->offset && section->size <= s->filesz &&
		    section->offset - s->offset <= s->filesz - section->size)
			return true;
	}
	return false;
}

static void add_bytes(struct hash *h)
{
	const struct image *image = h->image;
	_cleanup_free_ bool *unread = image_unread_sections(image);

	if (!unread) {
		h->error = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < image->n_segments; i++)
		add_file_range(h, image->segments[i].offset, image->segments[i].filesz);
	for (size_t i = 0; i < image->n_sections && !h->error; i++) {
		const struct image_section *s = &image->sections[i];

		if (s->type == SHT_NOBITS || s->type == SHT_NULL || !s->size ||
		    is_in_segment(image, s) || unread[i])
			continue;
		add_file_range(h, s->offset, s->size);
	}
}

int image_content_read(const struct image *image, struct image_content *ret)
{
	_cleanup_(hash_done) struct hash h = {0};
	struct image_content content;
	size_t n = 0;
	int r = hash_init(&h, image);

	if (r < 0)
		return r;
	add_headers(&h);
	add_bytes(&h);
	if (!h.error && (!EVP_MAC_final(h.context, content.hash, &n, sizeof(content.hash)) ||
			 n != sizeof(content.hash)))
		h.error = -EIO;
	if (h.error)
		return h.error;
	*ret = content;
	return 0;
}

/* ---- remembered -------------------------------------------------------------------------------
 */

const struct image_content *image_content(const struct image *image)
{
	int state = atomic_load_explicit(&image->content_state, memory_order_acquire);

	return state == CONTENT_KNOWN || state == CONTENT_UNSHARED ? &image->content : NULL;
}

/* STATE: CONTENT_KNOWN or CONTENT_UNSHARED. */
static void set_content(struct image *image, const struct image_content *content,
			const struct stat *before, int state)
{
	int unknown = CONTENT_UNKNOWN, being_set;

	if (!atomic_compare_exchange_strong(&image->content_state, &unknown, CONTENT_BEING_SET))
		return;
	image->content = *content;
	image->modified = before->st_mtim;
	image->changed = before->st_ctim;
	being_set = CONTENT_BEING_SET;
	/* Unless it was revoked meanwhile. */
	atomic_compare_exchange_strong(&image->content_state, &being_set, state);
}

void image_content_set(struct image *image, const struct image_content *content)
{
	set_content(image, content, &(struct stat){0}, CONTENT_KNOWN);
}

void image_content_revoke(struct image *image)
{
	atomic_store_explicit(&image->content_state, CONTENT_REVOKED, memory_order_release);
}

static bool is_revoked(const struct image *image)
{
	return atomic_load_explicit(&image->content_state, memory_order_acquire) == CONTENT_REVOKED;
}

/* 1: the content is known, and in *RET. 0: it has to be read. -ESTALE: it was revoked. */
static int known_content(const struct image *image, struct image_content *ret)
{
	const struct image_content *known = image_content(image);

	if (known) {
		*ret = *known;
		return 1;
	}
	return is_revoked(image) ? -ESTALE : 0;
}

/*
 * fstat() of the file, before it is read. All 0 when the file changed within the last
 * SETTLED_SECONDS, because a later write might then leave its times as they are: they are as coarse
 * as the kernel's tick, or as the server's clock on a network filesystem.
 */
static struct stat stat_before(const struct image *image)
{
	struct timespec now;
	struct stat st;

	if (image->fd < 0 || fstat(image->fd, &st) < 0 || clock_gettime(CLOCK_REALTIME, &now) < 0 ||
	    st.st_ctim.tv_sec > now.tv_sec - SETTLED_SECONDS)
		return (struct stat){0};
	return st;
}

int image_identify(struct image *image, struct image_content *ret)
{
	int r = known_content(image, ret);
	struct image_content content;
	struct stat before;

	if (r)
		return MIN(r, 0);
	before = stat_before(image);
	r = image_content_read(image, &content);
	if (r < 0)
		return r;
	set_content(image, &content, &before, CONTENT_KNOWN);
	*ret = content;
	return 0;
}

int image_identify_copy(struct image *image, struct image_content *ret, struct image **ret_copy)
{
	_cleanup_(image_unrefp) struct image *copy = NULL;
	struct image_content content;
	const struct image_content *set;
	int r = known_content(image, ret);
	struct stat before;

	*ret_copy = NULL;
	if (r)
		return MIN(r, 0);
	before = stat_before(image);
	r = image_copy(image, &copy, NULL);
	if (r == -EFBIG)
		return image_identify(image, ret);
	if (r == 0)
		r = image_content_read(copy, &content);
	if (r < 0)
		return r;
	set_content(image, &content, &before, CONTENT_KNOWN);
	*ret = content;
	/* Another thread may have set the content first, from other bytes than this copy's. */
	set = image_content(image);
	if (set && memcmp(set, &content, sizeof(content)) == 0)
		*ret_copy = TAKE_PTR(copy);
	return 0;
}

void image_keep_unshared(struct image *image)
{
	static _Atomic uint64_t last;
	uint64_t number = atomic_fetch_add(&last, 1) + 1;
	struct image_content content = {{0}};
	struct stat st = {0};

	memcpy(content.hash, &number, sizeof(number));
	if (image->fd >= 0 && fstat(image->fd, &st) < 0)
		return;
	st.st_ctim = (struct timespec){0};
	set_content(image, &content, &st, CONTENT_UNSHARED);
}

static bool is_unshared(const struct image *image)
{
	return atomic_load_explicit(&image->content_state, memory_order_acquire) ==
	       CONTENT_UNSHARED;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/*
 * Compares size and mtime. Whoever sets mtime back after a write spoils only the stacks of
 * processes that map this very file.
 */
static int check_unshared(const struct image *image)
{
	struct stat now;

	if (image->fd < 0)
		return 0;
	if (fstat(image->fd, &now) < 0)
		return -errno;
	return (uint64_t)now.st_size == image->size && is_same_time(&now.st_mtim, &image->modified)
		   ? 0
		   : -ESTALE;
}

bool image_is_untouched(const struct image *image, const struct stat *now)
{
	return image_content(image) && image->changed.tv_sec &&
	       (uint64_t)now->st_size == image->size &&
	       is_same_time(&now->st_mtim, &image->modified) &&
	       is_same_time(&now->st_ctim, &image->changed);
}

int image_content_check(const struct image *image, const struct image *parsed)
{
	const struct image_content *want = image_content(image);
	struct image_content now;
	int r;

	if (!want)
		return is_revoked(image) ? -ESTALE : 0;
	if (is_unshared(image))
		return check_unshared(image);
	r = image_content_read(parsed, &now);
	if (r < 0)
		return r;
	return memcmp(&now, want, sizeof(now)) == 0 ? 0 : -ESTALE;
}
