// SPDX-License-Identifier: Apache-2.0
/*
 * The pod store against a naive model: random puts, removals and relists of pods that share names,
 * nodes, uids and container ids. After each step the store must answer as the model does, the
 * reported changes must add up to the same state, and at the end no string may be left.
 */
#include "lib/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "operator/cache/pod_store.h"
#include "tests/unit/operator/cache/views.h"

enum { PODS = 60, NAMES = 15, NAMESPACES = 4, NODES = 5, IDS = 40, CONTAINERS = 3 };

/* What the cluster says of one pod, all drawn from small sets; 0 is "absent". */
struct model_pod {
	bool there;
	uint32_t uid, node, label, annotation, image, created, owner, hostname, ip, mirror;
	uint32_t id[CONTAINERS], previous[CONTAINERS], restarts[CONTAINERS], n_containers;
	bool terminated, deleting, host_network;
	uint32_t generation;
};

struct fixture {
	struct intern *intern;
	struct pod_store *store;
	struct model_pod pods[NAMESPACES][NAMES];
	uint64_t random;
	/* What was told, by place. */
	bool told[NAMESPACES][NAMES];
	uint64_t news, updates, gone;
	struct pod_view view;
	char texts[64][96];
	size_t n_texts;
};

static uint32_t draw(struct fixture *f, uint32_t below)
{
	f->random = f->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(mix64(f->random) % below);
}

static const char *say(struct fixture *f, const char *format, unsigned int a, unsigned int b)
{
	char *p = f->texts[f->n_texts++];

	assert_true(f->n_texts <= ARRAY_SIZE(f->texts));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	(void)snprintf(p, sizeof(f->texts[0]), format, a, b);
#pragma GCC diagnostic pop
	return p;
}

static void id_bytes(uint32_t id, uint8_t ret[32])
{
	memset(ret, 0, 32);
	ret[0] = (uint8_t)(id >> 8);
	ret[31] = (uint8_t)id;
}

static const char *id_text(struct fixture *f, uint32_t id)
{
	return say(f, "containerd://%04x%060x", id >> 8 << 8, id & 0xff);
}

static void uid_bytes(uint32_t uid, uint8_t ret[16])
{
	memset(ret, 0, 16);
	ret[0] = 0xaa;
	ret[15] = (uint8_t)uid;
}

static void place_of(const struct pod_info *info, uint32_t *ns, uint32_t *name)
{
	*ns = (uint32_t)atoi(info->ns + 2);
	*name = (uint32_t)atoi(info->name + 3);
	assert_in_range(*ns, 0, NAMESPACES - 1);
	assert_in_range(*name, 0, NAMES - 1);
}

static struct pod_info told_now, told_old;

static void on_change(void *arg, const struct pod *pod, const struct pod *old)
{
	struct fixture *f = arg;
	uint32_t ns, name, ns2, name2;

	if (pod)
		pod_unpack(f->store, pod, &told_now);
	if (old)
		pod_unpack(f->store, old, &told_old);
	if (pod && old) {
		place_of(&told_now, &ns, &name);
		place_of(&told_old, &ns2, &name2);
		assert_true(ns == ns2 && name == name2 && f->told[ns][name]);
		assert_memory_equal(told_now.uid, told_old.uid, 16);
		f->updates++;
	} else if (pod) {
		place_of(&told_now, &ns, &name);
		assert_false(f->told[ns][name]);
		f->told[ns][name] = true;
		f->news++;
	} else {
		place_of(&told_old, &ns, &name);
		assert_true(f->told[ns][name]);
		f->told[ns][name] = false;
		f->gone++;
	}
}

static void make_view(struct fixture *f, uint32_t ns, uint32_t name, const struct model_pod *p)
{
	struct pod_view *v = &f->view;

	f->n_texts = 0;
	view_pod(v, say(f, "ns%u", ns, 0), say(f, "pod%u", name, 0),
		 say(f, "aa000000-0000-0000-0000-0000000000%02x", p->uid, 0),
		 p->node ? say(f, "node%u", p->node, 0) : NULL);
	if (p->label) {
		view_label(v, "app", say(f, "app%u", p->label, 0));
		view_label(v, "common", "same");
	}
	if (p->annotation)
		view_annotation(v, "profiling.kiln.dev/mode", say(f, "mode%u", p->annotation, 0));
	view_annotation(v, "not/kept", say(f, "%u", draw(f, 1000000), 0));
	if (p->mirror)
		view_annotation(v, "kubernetes.io/config.mirror", say(f, "bb%030x", p->mirror, 0));
	if (p->owner)
		view_owner(&v->meta, "ReplicaSet", say(f, "rs%u", p->owner, 0),
			   "cc000000-0000-0000-0000-000000000001");
	v->meta.created = p->created;
	v->meta.deleting = p->deleting;
	v->host_network = p->host_network;
	if (p->terminated)
		v->phase = text("Failed");
	if (p->hostname)
		v->hostname = text(p->hostname == 1 ? say(f, "pod%u", name, 0) : "other-name");
	if (p->ip)
		v->pod_ip =
		    text(p->ip & 1 ? say(f, "10.0.0.%u", p->ip, 0) : say(f, "fd00::%x", p->ip, 0));
	for (uint32_t i = 0; i < p->n_containers; i++) {
		view_container(v, say(f, "container%u", i, 0), say(f, "image:%u", p->image, 0),
			       p->id[i] ? id_text(f, p->id[i]) : NULL);
		v->containers[i].restart_count = p->restarts[i];
		v->containers[i].type = i ? CONTAINER_APP : CONTAINER_INIT;
	}
}

/* The model's own rule for ids that a container had. */
static void keep_previous(struct model_pod *now, const struct model_pod *before)
{
	for (uint32_t i = 0; i < now->n_containers; i++) {
		uint32_t id = i < before->n_containers ? before->id[i] : 0;
		uint32_t previous = i < before->n_containers ? before->previous[i] : 0;

		now->previous[i] = id && id != now->id[i] ? id : previous;
		if (now->previous[i] == now->id[i])
			now->previous[i] = 0;
	}
}

static void draw_pod(struct fixture *f, struct model_pod *p)
{
	*p = (struct model_pod){
	    .there = true,
	    .uid = draw(f, 40),
	    .node = draw(f, NODES),
	    .label = draw(f, 4),
	    .annotation = draw(f, 3),
	    .image = draw(f, 3),
	    .created = draw(f, 5),
	    .owner = draw(f, 4),
	    .hostname = draw(f, 3),
	    .ip = draw(f, 9),
	    .mirror = draw(f, 8) ? 0 : 1 + draw(f, 5),
	    .n_containers = draw(f, CONTAINERS + 1),
	    .terminated = !draw(f, 5),
	    .deleting = !draw(f, 5),
	    .host_network = !draw(f, 5),
	};
	for (uint32_t i = 0; i < p->n_containers; i++) {
		p->id[i] = draw(f, IDS);
		p->restarts[i] = draw(f, 3);
	}
}

static void put(struct fixture *f, uint32_t ns, uint32_t name, uint32_t generation)
{
	struct model_pod *p = &f->pods[ns][name], before = *p;
	uint64_t told = f->news + f->updates + f->gone;

	draw_pod(f, p);
	if (before.there && draw(f, 3)) { /* the same pod with something else */
		uint32_t keep = draw(f, 4);
		struct model_pod drawn = *p;

		*p = before;
		if (keep == 1)
			p->node = drawn.node;
		else if (keep == 2 && p->n_containers)
			p->id[draw(f, p->n_containers)] = draw(f, IDS);
		else if (keep == 3)
			p->label = drawn.label;
	}
	memset(p->previous, 0, sizeof(p->previous));
	if (before.there && before.uid == p->uid)
		keep_previous(p, &before);
	p->generation = generation;
	make_view(f, ns, name, p);
	assert_int_equal(pod_store_put_view(f->store, &f->view, generation), 0);
	before.generation = generation;
	if (before.there && !memcmp(&before, p, sizeof(before)))
		assert_int_equal(f->news + f->updates + f->gone, told);
	else
		assert_int_equal(f->news + f->updates + f->gone,
				 told + (before.there && before.uid != p->uid ? 2 : 1));
}

static void take(struct fixture *f, uint32_t ns, uint32_t name)
{
	uint64_t gone = f->gone;
	bool there = f->pods[ns][name].there;

	make_view(f, ns, name, &f->pods[ns][name]);
	assert_int_equal(pod_store_remove_view(f->store, &f->view.meta), 0);
	assert_int_equal(f->gone, gone + there);
	f->pods[ns][name].there = false;
}

static int count_pod(void *arg, const struct pod *pod)
{
	(void)pod;
	++*(size_t *)arg;
	return 0;
}

static void check_pod(struct fixture *f, uint32_t ns, uint32_t name)
{
	static struct pod_info info;
	const struct model_pod *p = &f->pods[ns][name];
	const struct pod *pod;
	uint8_t id[32];
	char node[16];

	make_view(f, ns, name, p);
	pod = pod_store_find(f->store, f->view.meta.ns.p, f->view.meta.name.p);
	assert_int_equal(pod != NULL, p->there);
	assert_int_equal(f->told[ns][name], p->there);
	if (!p->there)
		return;
	pod_unpack(f->store, pod, &info);
	assert_string_equal(info.ns, f->view.meta.ns.p);
	assert_string_equal(info.name, f->view.meta.name.p);
	assert_string_equal(info.uid_text, f->view.meta.uid.p);
	(void)snprintf(node, sizeof(node), "node%u", p->node);
	assert_string_equal(info.node, p->node ? node : "");
	assert_int_equal(info.created, p->created);
	assert_int_equal(info.terminated, p->terminated);
	assert_int_equal(info.deleting, p->deleting);
	assert_int_equal(info.host_network, p->host_network);
	assert_int_equal(info.n_labels, p->label ? 2 : 0);
	assert_int_equal(info.n_annotations, !!p->annotation + !!p->mirror);
	assert_string_equal(info.owner_kind, p->owner ? "ReplicaSet" : "");
	assert_string_equal(info.hostname, !p->hostname	      ? ""
					   : p->hostname == 1 ? f->view.meta.name.p
							      : "other-name");
	assert_int_equal(strlen(info.ip), f->view.pod_ip.n);
	assert_memory_equal(info.ip, f->view.pod_ip.p ? f->view.pod_ip.p : "", f->view.pod_ip.n);
	assert_int_equal(info.n_containers, p->n_containers);
	for (uint32_t i = 0; i < p->n_containers; i++) {
		id_bytes(p->id[i], id);
		assert_memory_equal(info.containers[i].id, id, 32);
		id_bytes(p->previous[i], id);
		assert_memory_equal(info.containers[i].previous_id, id, 32);
		assert_int_equal(info.containers[i].restart_count, p->restarts[i]);
		assert_string_equal(intern_text(f->intern, info.containers[i].name, NULL),
				    i == 0   ? "container0"
				    : i == 1 ? "container1"
					     : "container2");
	}
}

/* The rank of P as the pod of container id ID: current ids before former ones; 0: not its id. */
static int rank_id(const struct model_pod *p, uint32_t id)
{
	int rank = 0;

	for (uint32_t i = 0; p->there && i < p->n_containers; i++)
		rank = MAX(rank, p->id[i] == id ? 2 : p->previous[i] == id ? 1 : 0);
	return rank ? 1000 * rank + (p->terminated ? 0 : 100) + (int)p->created : 0;
}

static int rank_uid(const struct model_pod *p, bool mirror, uint32_t key)
{
	if (!p->there || (mirror ? p->mirror : p->uid) != key)
		return 0;
	return 1 + (p->terminated ? 0 : 100) + (int)p->created;
}

static int best_rank(struct fixture *f, int kind, uint32_t key)
{
	int best = 0;

	for (uint32_t ns = 0; ns < NAMESPACES; ns++)
		for (uint32_t name = 0; name < NAMES; name++)
			best = MAX(best, kind ? rank_uid(&f->pods[ns][name], kind == 2, key)
					      : rank_id(&f->pods[ns][name], key));
	return best;
}

static void check_keys(struct fixture *f)
{
	static struct pod_info info;
	const struct pod *pod;
	uint8_t id[32];
	uint32_t ns, name;
	size_t container;
	int want, got;

	for (uint32_t key = 1; key < IDS; key++) {
		id_bytes(key, id);
		want = best_rank(f, 0, key);
		pod = pod_store_find_container(f->store, id, &container);
		assert_int_equal(pod != NULL, want != 0);
		if (!pod)
			continue;
		pod_unpack(f->store, pod, &info);
		place_of(&info, &ns, &name);
		assert_int_equal(rank_id(&f->pods[ns][name], key), want);
		assert_true(f->pods[ns][name].id[container] == key ||
			    f->pods[ns][name].previous[container] == key);
	}
	for (int kind = 1; kind <= 2; kind++)
		for (uint32_t key = kind == 1 ? 0 : 1; key < 40; key++) {
			uid_bytes(key, id);
			if (kind == 2)
				id[0] = 0xbb;
			want = best_rank(f, kind, key);
			pod = pod_store_find_uid(f->store, id);
			assert_int_equal(pod != NULL, want != 0);
			if (!pod)
				continue;
			pod_unpack(f->store, pod, &info);
			place_of(&info, &ns, &name);
			got = rank_uid(&f->pods[ns][name], kind == 2, key);
			assert_int_equal(got, want);
		}
}

static void check_lists(struct fixture *f)
{
	size_t want, got, total = 0;
	char key[16];

	for (uint32_t ns = 0; ns < NAMESPACES; ns++) {
		want = got = 0;
		for (uint32_t name = 0; name < NAMES; name++)
			want += f->pods[ns][name].there;
		(void)snprintf(key, sizeof(key), "ns%u", ns);
		(void)pod_store_each_in_namespace(f->store, key, count_pod, &got);
		assert_int_equal(got, want);
		total += want;
	}
	for (uint32_t node = 1; node < NODES; node++) {
		want = got = 0;
		for (uint32_t i = 0; i < NAMESPACES * NAMES; i++)
			want += f->pods[i / NAMES][i % NAMES].there &&
				f->pods[i / NAMES][i % NAMES].node == node;
		(void)snprintf(key, sizeof(key), "node%u", node);
		(void)pod_store_each_on_node(f->store, key, count_pod, &got);
		assert_int_equal(got, want);
	}
	got = 0;
	(void)pod_store_each(f->store, count_pod, &got);
	assert_int_equal(got, total);
	assert_int_equal(pod_store_count(f->store), total);
}

static void check(struct fixture *f)
{
	for (uint32_t i = 0; i < NAMESPACES * NAMES; i++)
		check_pod(f, i / NAMES, i % NAMES);
	check_keys(f);
	check_lists(f);
}

static void relist(struct fixture *f, uint32_t generation)
{
	for (uint32_t i = 0; i < NAMESPACES * NAMES; i++)
		if (draw(f, 2))
			put(f, i / NAMES, i % NAMES, generation);
	pod_store_replaced(f->store, generation);
	for (uint32_t i = 0; i < NAMESPACES * NAMES; i++)
		if (f->pods[i / NAMES][i % NAMES].generation != generation)
			f->pods[i / NAMES][i % NAMES].there = false;
}

static void store_and_model_agree(void **unused)
{
	static struct fixture f;
	struct pod_store_options options = {.max_pods = 1000, .changed = on_change, .arg = &f};
	uint32_t generation = 1;

	(void)unused;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		memset(&f, 0, sizeof(f));
		f.random = seed;
		assert_int_equal(intern_new(16 << 20, &f.intern), 0);
		options.intern = f.intern;
		assert_int_equal(pod_store_new(&options, &f.store), 0);
		for (int round = 0; round < 3000; round++) {
			uint32_t at = draw(&f, NAMESPACES * NAMES), what = draw(&f, 100);

			if (!what)
				relist(&f, ++generation);
			else if (what < 70)
				put(&f, at / NAMES, at % NAMES, generation);
			else
				take(&f, at / NAMES, at % NAMES);
			if (round % 10 == 0 || !what)
				check(&f);
		}
		assert_true(f.news > 300 && f.updates > 300 && f.gone > 300);
		assert_int_equal(pod_store_dropped(f.store), 0);
		if (seed & 1) { /* both ways out must give every string back */
			pod_store_replaced(f.store, ++generation);
			assert_int_equal(pod_store_count(f.store), 0);
			assert_int_equal(intern_count(f.intern), 0);
		}
		f.store = pod_store_free(f.store);
		assert_int_equal(intern_count(f.intern), 0);
		f.intern = intern_free(f.intern);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(store_and_model_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
