/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA	     0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

__attribute__((visibility("default"), retain)) __thread struct thread_context *otel_thread_ctx_v1;

void thread_context_attach(struct thread_context *c)
{
	atomic_signal_fence(memory_order_seq_cst);
	*(struct thread_context *volatile *)&otel_thread_ctx_v1 = c;
	atomic_signal_fence(memory_order_seq_cst);
}

void thread_context_add(struct thread_context *c, uint8_t key, const char *value)
{
	uint8_t *to = c->attributes + c->attributes_size;
	size_t len = strlen(value);

	to[0] = key;
	to[1] = (uint8_t)len;
	memcpy(to + 2, value, len);
	c->attributes_size = (uint16_t)(c->attributes_size + 2 + len);
}

static uint64_t mix(uint64_t n)
{
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9ULL;
	n = (n ^ n >> 27) * 0x94d049bb133111ebULL;
	return n ^ n >> 31;
}

void thread_context_set_ids(struct thread_context *c, uint64_t n)
{
	uint64_t high = mix(n + 1), low = mix(high), span = mix(high ^ low << 1) | 1;

	memcpy(c->trace_id, &high, 8);
	memcpy(c->trace_id + 8, &low, 8);
	memcpy(c->span_id, &span, 8);
}

struct header {
	char signature[8];
	uint32_t version, payload_size;
	_Atomic uint64_t published_ns;
	uint64_t payload;
};

static uint8_t *put_bytes(uint8_t *to, uint8_t tag, const void *bytes, size_t len)
{
	*to++ = tag;
	if (len >= 128)
		*to++ = (uint8_t)(len | 128);
	*to++ = (uint8_t)(len >= 128 ? len >> 7 : len);
	memcpy(to, bytes, len);
	return to + len;
}

/* KeyValue {1 key, 2 value} as field 2 of the message. */
static uint8_t *put_attribute(uint8_t *to, const char *key, const uint8_t *value, size_t len)
{
	uint8_t attribute[4096], *end;

	end = put_bytes(attribute, 1 << 3 | 2, key, strlen(key));
	end = put_bytes(end, 2 << 3 | 2, value, len);
	return put_bytes(to, 2 << 3 | 2, attribute, (size_t)(end - attribute));
}

static size_t make_payload(uint8_t *to, const char *const *keys, size_t n)
{
	uint8_t value[2048], array[2048], item[256], *end = to, *v, *a = array, *i;

	v = put_bytes(value, 1 << 3 | 2, "tlsdesc_v1_dev", 14);
	end = put_attribute(end, "threadlocal.schema_version", value, (size_t)(v - value));
	for (size_t k = 0; k < n; k++) {
		i = put_bytes(item, 1 << 3 | 2, keys[k], strlen(keys[k]));
		a = put_bytes(a, 1 << 3 | 2, item, (size_t)(i - item));
	}
	v = put_bytes(value, 5 << 3 | 2, array, (size_t)(a - array));
	end = put_attribute(end, "threadlocal.attribute_key_map", value, (size_t)(v - value));
	return (size_t)(end - to);
}

int process_context_publish(const char *const *keys, size_t n)
{
	static struct header *h;
	static uint8_t payloads[2][8192];
	static int turn;
	struct timespec t;
	int fd;

	if (!h) {
		fd = memfd_create("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd < 0 || ftruncate(fd, 4096) < 0)
			return -1;
		h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
		close(fd);
		if (h == MAP_FAILED)
			return -1;
		(void)madvise(h, 4096, MADV_DONTFORK);
		memcpy(h->signature, "OTEL_CTX", 8);
		h->version = 2;
	}
	turn = !turn;
	atomic_store(&h->published_ns, 0);
	h->payload_size = (uint32_t)make_payload(payloads[turn], keys, n);
	h->payload = (uint64_t)(uintptr_t)payloads[turn];
	clock_gettime(CLOCK_BOOTTIME, &t);
	atomic_store(&h->published_ns, (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec);
	(void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, h, 4096, "OTEL_CTX");
	return 0;
}
