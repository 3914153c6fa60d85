/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of decoding pods: makes a list of pods of about the size of real ones, in protobuf and
 * in JSON. Prints ns a pod for decoding, for cutting the body into items and decoding it in 16 KiB
 * pieces, and, for comparison, for protobuf-c with the subset schema (item by item); beside it the
 * heap's peak and the number of allocations. Each row is the best of ROUNDS.
 *
 *   kiln_bench_pod_decode [PODS]
 */
#include <malloc.h>
#include <time.h>

#include "lib/buf.h"
#include "operator/kube/decode.h"

#include "k8s/core_v1_subset.pb-c.h"

enum { ROUNDS = 20, PODS = 500, PIECE = 16384 };
#define PROTOBUF "application/vnd.kubernetes.protobuf"

/* Counts allocations: replaces the allocator by --wrap. Single-threaded. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static size_t heap_now, heap_peak, allocations;

static void *count(void *p)
{
	allocations++;
	heap_now += p ? malloc_usable_size(p) : 0;
	heap_peak = MAX(heap_peak, heap_now);
	return p;
}

void *__wrap_malloc(size_t n)
{
	return count(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
	return count(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
	size_t before = p ? malloc_usable_size(p) : 0;
	void *q = __real_realloc(p, n);

	if (q)
		heap_now -= before;
	return count(q);
}

void __wrap_free(void *p)
{
	heap_now -= p ? malloc_usable_size(p) : 0;
	__real_free(p);
}

/* A list of pods in both encodings. Each field is written twice, once for each encoding. */
struct list {
	struct buf pb, json;	    /* the bodies of the lists */
	struct kube_item *pb_items; /* each points into its body */
	struct kube_item *json_items;
	size_t n;
};

static struct pod_view view;
static uint64_t sum; /* of decoded values, so that the compiler removes no decoding */

static void varint(struct buf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		buf_append(b, (uint8_t[]){(uint8_t)(v | 0x80)}, 1);
	buf_append(b, (uint8_t[]){(uint8_t)v}, 1);
}

static void bytes(struct buf *b, unsigned int field, const void *p, size_t n)
{
	varint(b, field << 3 | 2);
	varint(b, n);
	buf_append(b, p, n);
}

static void text(struct buf *b, unsigned int field, const char *s)
{
	bytes(b, field, s, strlen(s));
}

static void number(struct buf *b, unsigned int field, uint64_t v)
{
	varint(b, field << 3);
	varint(b, v);
}

/* Appends PART as FIELD and empties it. */
static void message(struct buf *b, unsigned int field, struct buf *part)
{
	bytes(b, field, part->data, part->len);
	buf_reset(part);
}

static void pair(struct buf *b, unsigned int field, const char *key, const char *value)
{
	struct buf entry;

	buf_init(&entry, 4096);
	text(&entry, 1, key);
	text(&entry, 2, value);
	message(b, field, &entry);
	buf_done(&entry);
}

/*
 * metadata.managedFields: half of every pod, and Kiln reads none of it. As in real pods, about
 * every tenth byte is a bracket, and about every 30th an escape.
 */
static void managed_fields(struct buf *json)
{
	buf_puts(json, "{\"f:metadata\":{}");
	for (int i = 0; i < 110; i++)
		buf_printf(json,
			   i % 4 ? ",\"f:someFieldName%d\":{}"
				 : ",\"k:{\\\"type\\\":\\\"t%d\\\"}\":{\".\":{},\"f:status\":{}}",
			   i);
	buf_puts(json, "}");
}

static void metadata(struct list *l, size_t i, struct buf *pb)
{
	static const char *const managers[] = {"kube-controller-manager", "kubelet"};
	struct buf fields, part;
	char name[64], uid[64];

	buf_init(&fields, 1 << 20);
	buf_init(&part, 1 << 20);
	snprintf(name, sizeof(name), "checkout-5d4f8c7b9-%05zu", i);
	snprintf(uid, sizeof(uid), "7c1c8a63-9e36-4d3a-a6b1-%012zu", i);
	managed_fields(&fields);
	text(pb, 1, name);
	text(pb, 2, "checkout-5d4f8c7b9-");
	text(pb, 3, "shop");
	text(pb, 4, "");
	text(pb, 5, uid);
	text(pb, 6, "1274612");
	number(pb, 7, 1);
	number(&part, 1, 1795261368);
	message(pb, 8, &part);
	buf_printf(&l->json,
		   "{\"metadata\":{\"name\":\"%s\",\"generateName\":\"checkout-5d4f8c7b9-\","
		   "\"namespace\":\"shop\",\"uid\":\"%s\",\"resourceVersion\":\"1274612\","
		   "\"generation\":1,\"creationTimestamp\":\"2026-11-21T11:42:48Z\",\"labels\":{",
		   name, uid);
	for (int k = 0; k < 6; k++) {
		char key[64];

		snprintf(key, sizeof(key), "app.kubernetes.io/label-%d", k);
		pair(pb, 11, key, "some-value");
		buf_printf(&l->json, "%s\"%s\":\"some-value\"", k ? "," : "", key);
	}
	pair(pb, 12, "cni.example.com/networks",
	     "[{\"name\": \"default\", \"ips\": [\"10.1.2.3\"]}]");
	buf_puts(&l->json,
		 "},\"annotations\":{\"cni.example.com/networks\":\"[{\\\"name\\\": "
		 "\\\"default\\\", \\\"ips\\\": [\\\"10.1.2.3\\\"]}]\"},\"ownerReferences\":["
		 "{\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\"name\":"
		 "\"checkout-5d4f8c7b9\",\"uid\":\"0f6ad1a4-6d7d-44c5-8f4e-3a5b8e3c1d11\","
		 "\"controller\":true,\"blockOwnerDeletion\":true}],\"managedFields\":[");
	text(&part, 1, "ReplicaSet");
	text(&part, 3, "checkout-5d4f8c7b9");
	text(&part, 4, "0f6ad1a4-6d7d-44c5-8f4e-3a5b8e3c1d11");
	text(&part, 5, "apps/v1");
	number(&part, 6, 1);
	number(&part, 7, 1);
	message(pb, 13, &part);
	for (size_t k = 0; k < ARRAY_SIZE(managers); k++) {
		struct buf raw;

		buf_init(&raw, 1 << 20);
		bytes(&raw, 1, fields.data, fields.len);
		text(&part, 1, managers[k]);
		text(&part, 2, "Update");
		text(&part, 3, "v1");
		text(&part, 6, "FieldsV1");
		message(&part, 7, &raw);
		message(pb, 17, &part);
		buf_done(&raw);
		buf_printf(&l->json,
			   "%s{\"manager\":\"%s\",\"operation\":\"Update\",\"fieldsV1\":%s}",
			   k ? "," : "", managers[k], fields.data);
	}
	buf_puts(&l->json, "]},");
	buf_done(&fields);
	buf_done(&part);
}

static void container(struct list *l, const char *name, struct buf *pb)
{
	struct buf part;

	buf_init(&part, 4096);
	text(pb, 1, name);
	text(pb, 2, "registry.example.com/shop/checkout:v1.24.3");
	buf_printf(&l->json,
		   "{\"name\":\"%s\",\"image\":\"registry.example.com/shop/checkout:v1.24.3\","
		   "\"env\":[",
		   name);
	for (int i = 0; i < 8; i++) {
		char key[32];

		snprintf(key, sizeof(key), "SETTING_NUMBER_%d", i);
		text(&part, 1, key);
		text(&part, 2, "a value of the usual length");
		message(pb, 7, &part);
		buf_printf(&l->json,
			   "%s{\"name\":\"%s\",\"value\":\"a value of the usual length\"}",
			   i ? "," : "", key);
	}
	text(pb, 13, "/dev/termination-log");
	text(pb, 14, "IfNotPresent");
	text(pb, 20, "File");
	buf_puts(&l->json,
		 "],\"resources\":{\"requests\":{\"cpu\":\"100m\",\"memory\":\"128Mi\"}},"
		 "\"terminationMessagePath\":\"/dev/termination-log\","
		 "\"terminationMessagePolicy\":\"File\",\"imagePullPolicy\":\"IfNotPresent\"}");
	buf_done(&part);
}

static void spec(struct list *l, struct buf *pb)
{
	struct buf part;

	buf_init(&part, 1 << 20);
	buf_puts(&l->json, "\"spec\":{\"initContainers\":[");
	/* Bytes of protobuf are in the order of field numbers: 20 comes last. */
	container(l, "migrate", &part);
	buf_puts(&l->json, "],\"containers\":[");
	for (int i = 0; i < 2; i++) {
		struct buf one;

		buf_init(&one, 1 << 20);
		container(l, i ? "proxy" : "checkout", &one);
		message(pb, 2, &one);
		buf_puts(&l->json, i ? "]" : ",");
		buf_done(&one);
	}
	text(pb, 3, "Always");
	number(pb, 4, 30);
	text(pb, 6, "ClusterFirst");
	text(pb, 10, "node-117.example.com");
	number(pb, 11, 0);
	message(pb, 20, &part);
	buf_puts(&l->json, ",\"restartPolicy\":\"Always\",\"terminationGracePeriodSeconds\":30,"
			   "\"dnsPolicy\":\"ClusterFirst\",\"nodeName\":\"node-117.example.com\","
			   "\"securityContext\":{},\"schedulerName\":\"default-scheduler\"},");
	buf_done(&part);
}

static void container_status(struct list *l, const char *name, unsigned int field, struct buf *pb)
{
	static const char id[] =
	    "containerd://4f5c1d2e3b4a59687786a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
	struct buf part;

	buf_init(&part, 4096);
	text(&part, 1, name);
	number(&part, 4, 1);
	number(&part, 5, 2);
	text(&part, 6, "registry.example.com/shop/checkout:v1.24.3");
	text(&part, 7,
	     "registry.example.com/shop/checkout@sha256:4f5c1d2e3b4a59687786a5b4c3d2e1f0");
	text(&part, 8, id);
	message(pb, field, &part);
	buf_printf(&l->json,
		   "{\"containerID\":\"%s\",\"image\":\"registry.example.com/shop/checkout:"
		   "v1.24.3\",\"imageID\":\"registry.example.com/shop/checkout@sha256:"
		   "4f5c1d2e3b4a59687786a5b4c3d2e1f0\",\"lastState\":{},\"name\":\"%s\","
		   "\"ready\":true,\"restartCount\":2,\"started\":true,\"state\":{\"running\":{"
		   "\"startedAt\":\"2026-11-21T11:42:48Z\"}}}",
		   id, name);
	buf_done(&part);
}

static void status(struct list *l, struct buf *pb)
{
	text(pb, 1, "Running");
	text(pb, 5, "192.0.2.17");
	text(pb, 6, "10.1.2.3");
	buf_puts(&l->json, "\"status\":{\"phase\":\"Running\",\"conditions\":[");
	for (int i = 0; i < 5; i++)
		buf_printf(&l->json,
			   "%s{\"type\":\"Ready%d\",\"status\":\"True\",\"lastProbeTime\":null,"
			   "\"lastTransitionTime\":\"2026-11-21T11:42:48Z\"}",
			   i ? "," : "", i);
	buf_puts(&l->json,
		 "],\"hostIP\":\"192.0.2.17\",\"podIP\":\"10.1.2.3\",\"containerStatuses\":[");
	container_status(l, "checkout", 8, pb);
	buf_puts(&l->json, ",");
	container_status(l, "proxy", 8, pb);
	buf_puts(&l->json, "],\"initContainerStatuses\":[");
	container_status(l, "migrate", 10, pb);
	buf_puts(&l->json, "]}}");
}

static void make(struct list *l, size_t n)
{
	struct buf body, pod, part, type;

	buf_init(&l->pb, 1U << 30);
	buf_init(&l->json, 1U << 30);
	buf_init(&body, 1U << 30);
	buf_init(&pod, 1 << 20);
	buf_init(&part, 1 << 20);
	buf_init(&type, 1 << 20);
	text(&part, 2, "1");
	message(&body, 1, &part);
	buf_puts(&l->json,
		 "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":"
		 "\"1\"},\"items\":[");
	for (size_t i = 0; i < n; i++) {
		if (i)
			buf_puts(&l->json, ",");
		metadata(l, i, &part);
		message(&pod, 1, &part);
		spec(l, &part);
		message(&pod, 2, &part);
		status(l, &part);
		message(&pod, 3, &part);
		message(&body, 2, &pod);
	}
	buf_puts(&l->json, "]}\n");
	buf_append(&l->pb, "k8s", 4);
	text(&type, 2, "PodList");
	message(&l->pb, 1, &type);
	message(&l->pb, 2, &body);
	if (buf_error(&l->pb) || buf_error(&l->json))
		abort();
	buf_done(&body);
	buf_done(&pod);
	buf_done(&part);
	buf_done(&type);
}

static void see(const struct pod_view *v)
{
	sum += v->meta.uid.n + v->meta.n_labels + v->meta.n_annotations + v->n_containers;
	for (size_t i = 0; i < v->n_containers; i++)
		sum += v->containers[i].id.n + v->containers[i].restart_count;
}

static int keep_item(void *arg, const struct kube_item *item)
{
	struct kube_item **at = arg, *copy = (*at)++;
	uint8_t *p = malloc(item->len);

	*copy = *item;
	if (!p)
		abort();
	copy->bytes = memcpy(p, item->bytes, item->len);
	copy->scratch = malloc(item->len);
	return 0;
}

static int decode_item(void *arg, const struct kube_item *item)
{
	if (kube_decode_pod(item, &view) < 0)
		abort();
	see(&view);
	(void)arg;
	return 0;
}

static int cut_item(void *arg, const struct kube_item *item)
{
	(void)arg;
	sum += item->len;
	return 0;
}

static void stream(const struct buf *body, const char *type,
		   int (*item)(void *, const struct kube_item *), void *arg)
{
	const struct kube_stream_ops ops = {.item = item};
	_cleanup_(kube_stream_freep) struct kube_stream *s = NULL;

	if (kube_stream_new(KUBE_LIST, &ops, arg, &s) < 0)
		abort();
	for (size_t at = 0; at < body->len; at += PIECE) {
		if (kube_stream_feed(s, type, body->data + at, MIN((size_t)PIECE, body->len - at)) <
		    0)
			abort();
	}
	if (kube_stream_end(s) < 0)
		abort();
}

static void decode_items(const struct kube_item *items, size_t n)
{
	for (size_t i = 0; i < n; i++)
		decode_item(NULL, &items[i]);
}

/* protobuf-c allocates through these: --wrap does not count calls inside a shared library. */
static void *lib_alloc(void *arg, size_t n)
{
	(void)arg;
	return malloc(n);
}

static void lib_free(void *arg, void *p)
{
	(void)arg;
	free(p);
}

static void decode_protobuf_c(const struct kube_item *items, size_t n)
{
	ProtobufCAllocator allocator = {.alloc = lib_alloc, .free = lib_free};

	for (size_t i = 0; i < n; i++) {
		K8s__Pod *pod = k8s__pod__unpack(&allocator, items[i].len, items[i].bytes);

		sum += pod->spec->n_containers + strlen(pod->metadata->uid);
		k8s__pod__free_unpacked(pod, &allocator);
	}
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void run_one(const struct list *l, int what)
{
	switch (what) {
	case 0:
		decode_items(l->pb_items, l->n);
		break;
	case 1:
		stream(&l->pb, PROTOBUF, cut_item, NULL);
		break;
	case 2:
		stream(&l->pb, PROTOBUF, decode_item, NULL);
		break;
	case 3:
		decode_items(l->json_items, l->n);
		break;
	case 4:
		stream(&l->json, "application/json", cut_item, NULL);
		break;
	case 5:
		stream(&l->json, "application/json", decode_item, NULL);
		break;
	default:
		decode_protobuf_c(l->pb_items, l->n);
	}
}

int main(int argc, char **argv)
{
	static const char *const names[] = {
	    "protobuf: decode", "protobuf: cut",      "protobuf: cut + decode",	  "json: decode",
	    "json: cut",	"json: cut + decode", "protobuf-c subset, malloc"};
	struct list l = {.n = argc > 1 ? (size_t)atoi(argv[1]) : PODS};
	struct kube_item *at;

	make(&l, l.n);
	at = l.pb_items = calloc(l.n, sizeof(*at));
	stream(&l.pb, PROTOBUF, keep_item, &at);
	at = l.json_items = calloc(l.n, sizeof(*at));
	stream(&l.json, "application/json", keep_item, &at);
	printf("%zu pods, %zu bytes each in protobuf, %zu in JSON\n", l.n, l.pb.len / l.n,
	       l.json.len / l.n);
	printf("%-28s %9s %10s %12s\n", "", "ns/pod", "heap peak", "allocations");
	for (int what = 0; what < (int)ARRAY_SIZE(names); what++) {
		double best = 1e30;
		size_t before = heap_now;

		for (int round = 0; round < ROUNDS; round++) {
			double start = now_ns();

			allocations = 0;
			heap_peak = heap_now;
			run_one(&l, what);
			best = MIN(best, (now_ns() - start) / (double)l.n);
		}
		printf("%-28s %9.0f %10zu %12zu\n", names[what], best, heap_peak - before,
		       allocations);
	}
	return sum == 0;
}
