// SPDX-License-Identifier: Apache-2.0
/*
 * What a pod costs in the operator's cache: makes the pods of a synthetic cluster as the API server
 * would send them in protobuf (about 8.8 KB each, more than half of it managedFields), decodes and
 * stores them, then lets an hour of pod starts go by. Prints one line of JSON for each part.
 *
 * The cluster: 7,600 workloads of about 20 pods, four fifths Deployments, the rest StatefulSets
 * (whose label sets are all different), DaemonSets and Jobs; 3 containers a pod; every workload has
 * its own names, images and digests, as measured clusters have.
 *
 *   kiln-bench-pod-store [--pods 150000] [--nodes 5000] [--workloads 7600] [--churn-seconds 3600]
 */
#include <getopt.h>
#include <malloc.h>
#include <stdarg.h>
#include <time.h>

#include "lib/buf.h"
#include "operator/cache/pod_store.h"

enum {
	STARTS_A_SECOND = 20,
	EVENTS_A_START = 5,
	FILLER = 4600,
	SPEC_FILLER = 1500,
	BATCH = 100, /* objects that are made before they are stored: a part of a page */
};

struct bench {
	uint32_t pods, nodes, workloads, churn_seconds;
	struct intern *intern;
	struct pod_store *store;
	struct buf item, part, inner;
	struct buf batch[BATCH];
	size_t n_batch;
	uint64_t told;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static size_t resident(void)
{
	unsigned long total = 0, rss = 0;
	_cleanup_fclose_ FILE *f = fopen("/proc/self/statm", "re");

	if (!f || fscanf(f, "%lu %lu", &total, &rss) != 2)
		return 0;
	return rss * (size_t)sysconf(_SC_PAGESIZE);
}

static void varint(struct buf *b, uint64_t v)
{
	uint8_t byte;

	do {
		byte = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		(void)buf_append(b, &byte, 1);
		v >>= 7;
	} while (v);
}

static void field_bytes(struct buf *b, unsigned int number, const void *data, size_t len)
{
	varint(b, number << 3 | 2);
	varint(b, len);
	(void)buf_append(b, data, len);
}

static void field_number(struct buf *b, unsigned int number, uint64_t v)
{
	varint(b, number << 3);
	varint(b, v);
}

static void field_buf(struct buf *b, unsigned int number, struct buf *inner)
{
	field_bytes(b, number, inner->data ? inner->data : "", inner->len);
	buf_reset(inner);
}

static void field_text(struct buf *b, unsigned int number, const char *format, ...) _printf_(3, 4);
static void field_text(struct buf *b, unsigned int number, const char *format, ...)
{
	char text[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	field_bytes(b, number, text, (size_t)n);
}

static void pair(struct bench *b, unsigned int number, const char *key, const char *format,
		 uint64_t value)
{
	field_text(&b->inner, 1, "%s", key);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	field_text(&b->inner, 2, format, (unsigned long)value);
#pragma GCC diagnostic pop
	field_buf(&b->part, number, &b->inner);
}

/* Ten letters and digits, as Kubernetes makes them. */
static const char *letters(uint64_t seed, size_t n, char ret[16])
{
	static const char alphabet[] = "bcdfghjklmnpqrstvwxz2456789";

	for (size_t i = 0; i < n; i++) {
		seed = mix64(seed + i + 1);
		ret[i] = alphabet[seed % (sizeof(alphabet) - 1)];
	}
	ret[n] = 0;
	return ret;
}

static void hex64(uint64_t seed, char ret[65])
{
	for (size_t i = 0; i < 4; i++) {
		seed = mix64(seed + i + 1);
		(void)snprintf(ret + 16 * i, 17, "%016lx", (unsigned long)seed);
	}
}

static void uuid(uint64_t seed, char ret[37])
{
	uint64_t a = mix64(seed), b = mix64(a + seed);

	(void)snprintf(ret, 37, "%08x-%04x-4%03x-a%03x-%012lx", (unsigned int)a,
		       (unsigned int)(a >> 48), (unsigned int)(a >> 36) & 0xfff,
		       (unsigned int)(b >> 48) & 0xfff, (unsigned long)(b & 0xffffffffffff));
}

enum sort { DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB };
static enum sort sort_of(uint32_t workload)
{
	uint32_t at = workload % 20;

	return at < 16 ? DEPLOYMENT : at < 18 ? STATEFUL_SET : at < 19 ? DAEMON_SET : JOB;
}

static void metadata(struct bench *b, uint32_t pod, uint64_t incarnation)
{
	static const char *const kinds[] = {"ReplicaSet", "StatefulSet", "DaemonSet", "Job"};
	uint32_t w = pod % b->workloads;
	enum sort sort = sort_of(w);
	char hash[16], random[16], name[80], owner[64], uid[37], filler[FILLER];

	(void)letters(w, 10, hash);
	(void)letters(pod + (incarnation << 32), 5, random);
	(void)snprintf(owner, sizeof(owner),
		       sort == DEPLOYMENT ? "service-%u-api-%s" : "service-%u-api", w,
		       sort == DEPLOYMENT ? hash : "");
	if (sort == STATEFUL_SET)
		(void)snprintf(name, sizeof(name), "%s-%u", owner, pod / b->workloads);
	else
		(void)snprintf(name, sizeof(name), "%s-%s", owner, random);
	uuid(pod + (incarnation << 32), uid);
	field_text(&b->part, 1, "%s", name);
	field_text(&b->part, 3, "team-%u", w % 400);
	field_text(&b->part, 5, "%s", uid);
	field_text(&b->part, 6, "%u", pod * 7 + 12345);
	field_number(&b->inner, 1, 1700000000 + pod);
	field_buf(&b->part, 8, &b->inner);
	pair(b, 11, "app", "service-%lu-api", w);
	pair(b, 11, "app.kubernetes.io/instance", "service-%lu", w);
	pair(b, 11, "app.kubernetes.io/version", "1.%lu.3", w % 90);
	if (sort == DEPLOYMENT)
		pair(b, 11, "pod-template-hash", hash, 0);
	if (sort == STATEFUL_SET) {
		pair(b, 11, "apps.kubernetes.io/pod-index", "%lu", pod / b->workloads);
		pair(b, 11, "controller-revision-hash", hash, 0);
		pair(b, 11, "statefulset.kubernetes.io/pod-name", name, 0);
	}
	pair(b, 11, "team", "team-%lu", w % 400);
	pair(b, 12, "cni.example.com/pod-ips", "10.1.%lu.7/32", pod % 250);
	if (w % 3 == 0)
		pair(b, 12, "resource.opentelemetry.io/service.name", "service-%lu", w);
	field_text(&b->inner, 1, "%s", kinds[sort]);
	field_text(&b->inner, 3, "%s", owner);
	uuid(~(uint64_t)w, uid);
	field_text(&b->inner, 4, "%s", uid);
	field_text(&b->inner, 5, "apps/v1");
	field_number(&b->inner, 6, 1);
	field_buf(&b->part, 13, &b->inner);
	memset(filler, 'f', sizeof(filler));
	field_bytes(&b->inner, 7, filler, sizeof(filler));
	field_buf(&b->part, 17, &b->inner);
	field_buf(&b->item, 1, &b->part);
}

static const char *const containers[] = {"init-schema", "api", "proxy"};

static void spec(struct bench *b, uint32_t pod)
{
	uint32_t w = pod % b->workloads;
	char filler[SPEC_FILLER];

	memset(filler, 'e', sizeof(filler));
	for (size_t i = 0; i < ARRAY_SIZE(containers); i++) {
		field_text(&b->inner, 1, "%s", containers[i]);
		if (i == 2)
			field_text(&b->inner, 2, "registry.example.com/mesh/proxy:1.9");
		else
			field_text(&b->inner, 2, "registry.example.com/team-%u/service-%u:v1.%u",
				   w % 400, w, w % 90);
		field_bytes(&b->inner, 7, filler, sizeof(filler) / 3);
		field_buf(&b->part, i ? 2 : 20, &b->inner);
	}
	field_text(&b->part, 10, "node-%u.example.internal", (uint32_t)(mix64(pod) % b->nodes));
	field_buf(&b->item, 2, &b->part);
}

/* STEP 0: created; 1: scheduled; 2..: containers run. */
static void status(struct bench *b, uint32_t pod, uint64_t incarnation, unsigned int step)
{
	uint32_t w = pod % b->workloads;
	char hex[65];

	field_text(&b->part, 1, step < 2 ? "Pending" : "Running");
	if (step >= 2)
		field_text(&b->part, 6, "10.%u.%u.%u", pod >> 16, pod >> 8 & 255, pod & 255);
	for (size_t i = 0; i < ARRAY_SIZE(containers) && step >= 2 + (i > 0); i++) {
		field_text(&b->inner, 1, "%s", containers[i]);
		field_number(&b->inner, 4, step >= 4);
		field_number(&b->inner, 5, 0);
		hex64(i == 2 ? 99 : w, hex);
		field_text(&b->inner, 7, "registry.example.com/x/%u", w);
		if (i == 2)
			field_text(&b->inner, 7, "registry.example.com/mesh/proxy@sha256:%s", hex);
		else
			field_text(&b->inner, 7,
				   "registry.example.com/team-%u/service-%u@sha256:%s", w % 400, w,
				   hex);
		hex64((pod * 8 + i) ^ (incarnation << 40), hex);
		field_text(&b->inner, 8, "containerd://%s", hex);
		field_buf(&b->part, i ? 8 : 10, &b->inner);
	}
	field_buf(&b->item, 3, &b->part);
}

static void make_item(struct bench *b, uint32_t pod, uint64_t incarnation, unsigned int step,
		      struct kube_item *ret)
{
	buf_reset(&b->item);
	metadata(b, pod, incarnation);
	spec(b, pod);
	status(b, pod, incarnation, step);
	*ret = (struct kube_item){.type = KUBE_MODIFIED,
				  .encoding = KUBE_PROTOBUF,
				  .bytes = (const uint8_t *)b->item.data,
				  .len = b->item.len};
}

static void on_change(void *arg, const struct pod *pod, const struct pod *old)
{
	struct bench *b = arg;

	(void)pod;
	(void)old;
	b->told++;
}

static void report(struct bench *b, const char *part, uint64_t ns, uint64_t puts, size_t rss)
{
	struct pod_store_stats s;
	double n = (double)pod_store_count(b->store);

	pod_store_read_stats(b->store, &s);
	printf("{\"part\": \"%s\", \"pods\": %.0f, \"strings\": %zu, \"told\": %lu, "
	       "\"bytes_per_pod\": %.1f, \"records\": %.1f, \"indexes\": %.1f, "
	       "\"strings_bytes\": %.1f, \"rss_per_pod\": %.1f, \"rss_mib\": %.1f, "
	       "\"us_per_put\": %.2f, \"dropped\": %lu}\n",
	       part, n, intern_count(b->intern), (unsigned long)b->told,
	       (double)(s.record_bytes + s.index_bytes + intern_bytes(b->intern)) / n,
	       (double)s.record_bytes / n, (double)s.index_bytes / n,
	       (double)intern_bytes(b->intern) / n, (double)(resident() - rss) / n,
	       (double)resident() / 1048576, puts ? (double)ns / 1e3 / (double)puts : 0.0,
	       (unsigned long)pod_store_dropped(b->store));
	(void)fflush(stdout);
}

/* Stores the batch. Adds the time that storing takes to *NS; making the pods is not timed. */
static int flush(struct bench *b, uint64_t *ns)
{
	struct kube_item item = {.type = KUBE_MODIFIED, .encoding = KUBE_PROTOBUF};
	uint64_t start = now_ns();
	int r = 0;

	for (size_t i = 0; i < b->n_batch && !r; i++) {
		item.bytes = (const uint8_t *)b->batch[i].data;
		item.len = b->batch[i].len;
		r = pod_store_put(b->store, &item, 1);
	}
	*ns += now_ns() - start;
	b->n_batch = 0;
	return r;
}

static int put(struct bench *b, uint32_t pod, uint64_t incarnation, unsigned int step, uint64_t *ns)
{
	struct kube_item item;
	struct buf *to = &b->batch[b->n_batch++];
	int r;

	make_item(b, pod, incarnation, step, &item);
	buf_reset(to);
	r = buf_append(to, item.bytes, item.len);
	if (r)
		return r;
	return b->n_batch == BATCH ? flush(b, ns) : 0;
}

/* The Nth pod of a list: the pods of a workload follow one another. */
static uint32_t pod_number(const struct bench *b, uint32_t n)
{
	uint32_t w = (uint32_t)((uint64_t)n * b->workloads / b->pods);
	uint32_t first = (uint32_t)(((uint64_t)w * b->pods + b->workloads - 1) / b->workloads);

	return (n - first) * b->workloads + w;
}

/* Each second STARTS_A_SECOND pods are removed and as many new ones start, 5 events each. */
static int churn(struct bench *b, size_t rss)
{
	uint64_t ns = 0, puts = 0;
	uint32_t *incarnation = calloc(b->pods, sizeof(*incarnation));
	struct kube_item item;
	uint32_t at = 0;
	int r = incarnation ? 0 : -ENOMEM;

	for (uint32_t s = 0; s < b->churn_seconds && !r; s++) {
		for (uint32_t i = 0; i < STARTS_A_SECOND && !r; i++) {
			at = (uint32_t)(mix64((uint64_t)s << 8 | i) % b->pods);
			r = flush(b, &ns); /* the batch may hold an event of the same pod */
			if (r)
				break;
			make_item(b, pod_number(b, at), incarnation[at], 4, &item);
			r = pod_store_remove(b->store, &item);
			incarnation[at]++;
			for (unsigned int step = 0; step < EVENTS_A_START && !r; step++, puts++)
				r = put(b, pod_number(b, at), incarnation[at], step, &ns);
		}
		if (!r)
			r = flush(b, &ns);
		if (s % 600 == 599) {
			report(b, "churn", ns, puts, rss);
			ns = puts = 0;
		}
	}
	free(incarnation);
	return r;
}

static int run(struct bench *b)
{
	struct pod_store_options options = {
	    .max_pods = b->pods + 1000, .changed = on_change, .arg = b};
	uint64_t ns = 0;
	size_t rss;
	int r;

	buf_init(&b->item, 1 << 20);
	buf_init(&b->part, 1 << 20);
	buf_init(&b->inner, 1 << 20);
	for (size_t i = 0; i < BATCH; i++)
		buf_init(&b->batch[i], 1 << 20);
	r = intern_new(256 << 20, &b->intern);
	if (r)
		return r;
	options.intern = b->intern;
	r = pod_store_new(&options, &b->store);
	rss = resident();
	for (uint32_t n = 0; n < b->pods && !r; n++)
		r = put(b, pod_number(b, n), 0, 4, &ns);
	if (!r)
		r = flush(b, &ns);
	if (r)
		return r;
	report(b, "list", ns, b->pods, rss);
	ns = 0;
	for (uint32_t n = 0; n < b->pods && !r; n++)
		r = put(b, pod_number(b, (uint32_t)((uint64_t)n * 7919 % b->pods)), 0, 4, &ns);
	if (!r)
		r = flush(b, &ns);
	report(b, "unchanged_in_random_order", ns, b->pods, rss);
	if (!r)
		r = churn(b, rss);
	pod_store_replaced(b->store, 2);
	(void)malloc_trim(0);
	printf("{\"part\": \"emptied\", \"pods\": %zu, \"strings\": %zu, \"store_kib\": %zu, "
	       "\"rss_growth_mib\": %.1f}\n",
	       pod_store_count(b->store), intern_count(b->intern),
	       (pod_store_bytes(b->store) + intern_bytes(b->intern)) / 1024,
	       ((double)resident() - (double)rss) / 1048576);
	return r;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"pods", required_argument, NULL, 'p'},
						{"nodes", required_argument, NULL, 'n'},
						{"workloads", required_argument, NULL, 'w'},
						{"churn-seconds", required_argument, NULL, 'c'},
						{0}};
	static struct bench b = {
	    .pods = 150000, .nodes = 5000, .workloads = 7600, .churn_seconds = 3600};
	int c, r;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		uint32_t v = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;

		switch (c) {
		case 'p':
			b.pods = v;
			break;
		case 'n':
			b.nodes = v;
			break;
		case 'w':
			b.workloads = v;
			break;
		case 'c':
			b.churn_seconds = v;
			break;
		default:
			return 2;
		}
	}
	if (!b.pods || !b.nodes || !b.workloads)
		return 2;
	r = run(&b);
	if (r)
		(void)fprintf(stderr, "bench: %s\n", strerror(-r));
	b.store = pod_store_free(b.store);
	b.intern = intern_free(b.intern);
	buf_done(&b.item);
	buf_done(&b.part);
	buf_done(&b.inner);
	for (size_t i = 0; i < BATCH; i++)
		buf_done(&b.batch[i]);
	return r ? 1 : 0;
}
