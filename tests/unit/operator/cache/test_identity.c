// SPDX-License-Identifier: Apache-2.0
/* Attributes of a container: one table for each rule. */
#include "lib/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "operator/cache/identity.h"
#include "operator/cache/image_ref.h"

#define HEX64  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SHA256 "sha256:" HEX64

static struct intern *in;
static struct pod_info pod;
static struct pod_container container;
static struct identity_source source;
static struct identity_options options;
static struct identity identity;

static interned handle(const char *s)
{
	interned h;

	assert_int_equal(intern_get(in, s, strlen(s), &h), 0);
	return h;
}

static void add_label(const char *key, const char *value)
{
	pod.labels[pod.n_labels++] = (struct pod_label){key, value};
}

static void add_annotation(const char *key, const char *value)
{
	pod.annotations[pod.n_annotations++] = (struct pod_label){key, value};
}

/* A pod "web-0" of namespace "shop" with container "app", without owner. */
static int setup(void **unused)
{
	(void)unused;
	assert_int_equal(intern_new(1 << 20, &in), 0);
	memset(&pod, 0, sizeof(pod));
	pod.name = "web-0";
	pod.ns = "shop";
	pod.node = pod.hostname = pod.owner_kind = pod.owner_name = "";
	container = (struct pod_container){.name = handle("app")};
	source = (struct identity_source){.intern = in, .pod = &pod, .container = &container};
	options = (struct identity_options){.otel_annotations = true};
	return 0;
}

static int teardown(void **unused)
{
	(void)unused;
	in = intern_free(in);
	return 0;
}

/*
 * The attributes that are built once for the pod and those of its container, which come first, must
 * be the same as those built at once.
 */
static void check_parts(void)
{
	static struct identity whole, part;
	struct identity_source only_pod = source;
	const char *got;

	only_pod.container = NULL;
	identity_build(&only_pod, &options, &whole);
	identity_build_container(&source, &whole, &part);
	for (size_t i = 0; i < identity.n; i++) {
		const struct attribute *a = &identity.attributes[i];

		got = identity_get(&part, a->key);
		got = got ? got : identity_get(&whole, a->key);
		if (!got || !streq(got, a->value))
			fail_msg("%s: %s, not %s", a->key, got ? got : "nothing", a->value);
	}
	for (size_t i = 0; i < part.n; i++)
		assert_string_equal(identity_get(&identity, part.attributes[i].key),
				    part.attributes[i].value);
	for (size_t i = 0; i < whole.n; i++)
		assert_non_null(identity_get(&identity, whole.attributes[i].key));
}

static void expect(const char *key, const char *value)
{
	const char *got;

	identity_build(&source, &options, &identity);
	check_parts();
	got = identity_get(&identity, key);
	if (!value) {
		assert_null(got);
		return;
	}
	assert_non_null(got);
	assert_string_equal(got, value);
}

static void image_references(void **unused)
{
	static const struct {
		const char *text, *name, *tag, *digest; /* name NULL: refused; "": absent */
	} table[] = {
	    {"nginx", "nginx", "", ""},
	    {"nginx:1.27", "nginx", "1.27", ""},
	    {"library/nginx", "library/nginx", "", ""},
	    {"registry:5000/nginx", "registry:5000/nginx", "", ""},
	    {"registry:5000/a/b:v1", "registry:5000/a/b", "v1", ""},
	    {"registry:5000/a/b:v1@" SHA256, "registry:5000/a/b", "v1", SHA256},
	    {"a/b@" SHA256, "a/b", "", SHA256},
	    {"[fd00::1]:5000/a/b:v1", "[fd00::1]:5000/a/b", "v1", ""},
	    {"docker-pullable://nginx@" SHA256, "nginx", "", SHA256},
	    {"docker://" SHA256, "", "", SHA256},
	    {SHA256, "", "", SHA256},
	    {"a__b/c-d.e:Tag_1.2-x", "a__b/c-d.e", "Tag_1.2-x", ""},
	    {"", NULL, NULL, NULL},
	    {"nginx:", NULL, NULL, NULL},
	    {"nginx:-x", NULL, NULL, NULL},
	    {":v1", NULL, NULL, NULL},
	    {"/nginx", NULL, NULL, NULL},
	    {"a//b", NULL, NULL, NULL},
	    {"nginx@sha256:123", NULL, NULL, NULL},
	    {"nginx@", NULL, NULL, NULL},
	    {"ngi nx", NULL, NULL, NULL},
	    {"nginx@" SHA256 "@" SHA256, NULL, NULL, NULL},
	    {"a:b:c", NULL, NULL, NULL},
	};
	struct image_ref ref;

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		int r = image_ref_parse(table[i].text, &ref);

		if (!table[i].name) {
			if (r != -EINVAL)
				fail_msg("%s is taken", table[i].text);
			continue;
		}
		if (r || ref.name.n != strlen(table[i].name) || ref.tag.n != strlen(table[i].tag) ||
		    ref.digest.n != strlen(table[i].digest))
			fail_msg("%s: r %d, %zu %zu %zu", table[i].text, r, ref.name.n, ref.tag.n,
				 ref.digest.n);
		assert_memory_equal(ref.name.n ? ref.name.p : "", table[i].name, ref.name.n);
		assert_memory_equal(ref.tag.n ? ref.tag.p : "", table[i].tag, ref.tag.n);
		assert_memory_equal(ref.digest.n ? ref.digest.p : "", table[i].digest,
				    ref.digest.n);
	}
}

static void owners(void **unused)
{
	static const struct {
		const char *kind, *name, *hash;	     /* of the pod's label; NULL: none */
		const char *above_kind, *above_name; /* known owner of that owner; NULL: unknown */
		const char *key, *value, *key2, *value2, *service;
	} table[] = {
	    {"ReplicaSet", "web-7d9c6b5f4d", "7d9c6b5f4d", NULL, NULL, "k8s.deployment.name", "web",
	     "k8s.replicaset.name", "web-7d9c6b5f4d", "web"},
	    /* Made by hand: no label, or a name that no Deployment gives. */
	    {"ReplicaSet", "web-7d9c6b5f4d", NULL, NULL, NULL, "k8s.deployment.name", NULL,
	     "k8s.replicaset.name", "web-7d9c6b5f4d", "web-7d9c6b5f4d"},
	    {"ReplicaSet", "web", "7d9c6b5f4d", NULL, NULL, "k8s.deployment.name", NULL,
	     "k8s.replicaset.name", "web", "web"},
	    {"ReplicaSet", "web7d9c6b5f4d", "7d9c6b5f4d", NULL, NULL, "k8s.deployment.name", NULL,
	     NULL, NULL, "web7d9c6b5f4d"},
	    {"ReplicaSet", "-7d9c6b5f4d", "7d9c6b5f4d", NULL, NULL, "k8s.deployment.name", NULL,
	     NULL, NULL, "-7d9c6b5f4d"},
	    {"ReplicaSet", "web-", "", NULL, NULL, "k8s.deployment.name", NULL, NULL, NULL, "web-"},
	    /* Short hashes, and names that end like a hash. */
	    {"ReplicaSet", "web-5bbf-x1", "x1", NULL, NULL, "k8s.deployment.name", "web-5bbf", NULL,
	     NULL, "web-5bbf"},
	    /* A known owner of the ReplicaSet counts more than the ReplicaSet's name. */
	    {"ReplicaSet", "cut-name-7d9c6b5f4d", "7d9c6b5f4d", "Deployment", "whole-name",
	     "k8s.deployment.name", "whole-name", "k8s.deployment.uid", "above-uid", "whole-name"},
	    {"ReplicaSet", "web-7d9c6b5f4d", "7d9c6b5f4d", "", "", "k8s.deployment.name", NULL,
	     "k8s.deployment.uid", NULL, "web-7d9c6b5f4d"},
	    {"ReplicaSet", "web-7d9c6b5f4d", "7d9c6b5f4d", "Rollout", "web", "k8s.deployment.name",
	     NULL, NULL, NULL, "web-7d9c6b5f4d"},
	    {"StatefulSet", "db", NULL, NULL, NULL, "k8s.statefulset.name", "db",
	     "k8s.statefulset.uid", "owner-uid", "db"},
	    {"DaemonSet", "cni", NULL, NULL, NULL, "k8s.daemonset.name", "cni", "k8s.daemonset.uid",
	     "owner-uid", "cni"},
	    {"Job", "backup-28901234", NULL, NULL, NULL, "k8s.job.name", "backup-28901234",
	     "k8s.cronjob.name", "backup", "backup"},
	    {"Job", "a-b-1", NULL, NULL, NULL, "k8s.cronjob.name", "a-b", "k8s.job.uid",
	     "owner-uid", "a-b"},
	    {"Job", "backup", NULL, NULL, NULL, "k8s.cronjob.name", NULL, NULL, NULL, "backup"},
	    {"Job", "backup12", NULL, NULL, NULL, "k8s.cronjob.name", NULL, NULL, NULL, "backup12"},
	    {"Job", "-12", NULL, NULL, NULL, "k8s.cronjob.name", NULL, NULL, NULL, "-12"},
	    {"Job", "backup-1x", NULL, NULL, NULL, "k8s.cronjob.name", NULL, NULL, NULL,
	     "backup-1x"},
	    {"Job", "migrate-2", NULL, "", "", "k8s.cronjob.name", NULL, "k8s.cronjob.uid", NULL,
	     "migrate-2"},
	    {"Job", "nightly-28901234", NULL, "CronJob", "nightly", "k8s.cronjob.name", "nightly",
	     "k8s.cronjob.uid", "above-uid", "nightly"},
	    {"Other", "thing", NULL, NULL, NULL, "k8s.deployment.name", NULL, "k8s.job.name", NULL,
	     "web-0"},
	    {"", "", NULL, NULL, NULL, "k8s.replicaset.name", NULL, "k8s.replicaset.uid", NULL,
	     "web-0"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct meta_object above = {.owner_kind = table[i].above_kind,
					    .owner_name = table[i].above_name,
					    .owner_uid = "above-uid"};

		pod.owner_kind = table[i].kind;
		pod.owner_name = table[i].name;
		(void)snprintf(pod.owner_uid_text, sizeof(pod.owner_uid_text), "owner-uid");
		pod.n_labels = 0;
		if (table[i].hash)
			add_label("pod-template-hash", table[i].hash);
		source.replica_set = source.job = table[i].above_kind ? &above : NULL;
		expect(table[i].key, table[i].value);
		if (table[i].key2)
			expect(table[i].key2, table[i].value2);
		expect("service.name", table[i].service);
	}
}

static void service_name_takes_the_first(void **unused)
{
	(void)unused;
	options.well_known_labels = true;
	expect("service.name", "web-0");
	pod.owner_kind = "DaemonSet";
	pod.owner_name = "cni";
	expect("service.name", "cni");
	add_label("app.kubernetes.io/name", "by-name");
	expect("service.name", "by-name");
	add_label("app.kubernetes.io/instance", "by-instance");
	expect("service.name", "by-instance");
	add_annotation("resource.opentelemetry.io/service.name", "by-annotation");
	expect("service.name", "by-annotation");
	options.otel_annotations = false;
	expect("service.name", "by-instance");
	options.well_known_labels = false;
	expect("service.name", "cni");
}

static void service_namespace_and_instance(void **unused)
{
	(void)unused;
	expect("service.namespace", "shop");
	expect("service.instance.id", "shop.web-0.app");
	source.container = NULL;
	expect("service.instance.id", NULL);
	add_annotation("resource.opentelemetry.io/service.namespace", "sales");
	add_annotation("resource.opentelemetry.io/service.instance.id", "one");
	expect("service.namespace", "sales");
	expect("service.instance.id", "one");
	expect("k8s.namespace.name", "shop");
}

static void service_version_and_image(void **unused)
{
	static const struct {
		const char *image, *version, *name, *tag;
	} table[] = {
	    {"r:5000/a/b:v1@" SHA256, "v1@" SHA256, "r:5000/a/b", "v1"},
	    {"r:5000/a/b:v1", "v1", "r:5000/a/b", "v1"},
	    {"a/b@" SHA256, SHA256, "a/b", NULL},
	    {"a/b", NULL, "a/b", "latest"},
	    {"not an image", NULL, NULL, NULL},
	    {"", NULL, NULL, NULL},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		container.image = handle(table[i].image);
		expect("service.version", table[i].version);
		expect("container.image.name", table[i].name);
		expect("container.image.tags", table[i].tag);
	}
	container.image = handle("a/b:v1");
	add_label("app.kubernetes.io/version", "label");
	expect("service.version", "v1");
	options.well_known_labels = true;
	expect("service.version", "label");
	add_annotation("resource.opentelemetry.io/service.version", "annotation");
	expect("service.version", "annotation");
}

static void repo_digests(void **unused)
{
	static const struct {
		const char *image_id, *digest;
	} table[] = {
	    {"docker.io/library/nginx@" SHA256, "docker.io/library/nginx@" SHA256},
	    {"docker-pullable://nginx@" SHA256, "nginx@" SHA256},
	    {"nginx:1.2@" SHA256, "nginx@" SHA256},
	    {SHA256, NULL},
	    {"docker://" SHA256, NULL},
	    {"", NULL},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		container.image_id = handle(table[i].image_id);
		expect("container.image.repo_digests", table[i].digest);
	}
}

static void facts(void **unused)
{
	struct meta_object node = {.uid = "node-uid"};
	const char *const services[] = {"alpha", "beta"};

	(void)unused;
	pod.node = "node-1";
	pod.hostname = "host";
	pod.created = 1700000000;
	(void)snprintf(pod.ip, sizeof(pod.ip), "fd00::1");
	(void)snprintf(pod.uid_text, sizeof(pod.uid_text), "pod-uid");
	memset(container.id, 0xab, 32);
	source.node = &node;
	source.cluster_uid = "cluster-uid";
	source.services = services;
	source.n_services = 2;
	expect("k8s.namespace.name", "shop");
	expect("k8s.pod.name", "web-0");
	expect("k8s.pod.uid", "pod-uid");
	expect("k8s.pod.ip", "fd00::1");
	expect("k8s.pod.hostname", "host");
	expect("k8s.pod.start_time", "2023-11-14T22:13:20Z");
	expect("k8s.node.name", "node-1");
	expect("k8s.node.uid", "node-uid");
	expect("k8s.cluster.uid", "cluster-uid");
	expect("k8s.cluster.name", NULL);
	options.cluster_name = "prod";
	expect("k8s.cluster.name", "prod");
	expect("k8s.container.name", "app");
	expect("container.id", "abababababababababababababababababababababababababababababababab");
	expect("k8s.service.name", "alpha");
	expect("k8s.container.restart_count", NULL);
	pod.created = INT64_MAX;
	expect("k8s.pod.start_time", NULL);
	memset(container.id, 0, 32);
	expect("container.id", NULL);
}

static void every_table_key_can_be_there(void **unused)
{
	/* kubernetes-operator.md: what the k8sattributes processor gives. */
	static const char *const keys[] = {
	    "k8s.namespace.name",   "k8s.pod.name",	    "k8s.pod.uid",
	    "k8s.pod.start_time",   "k8s.pod.ip",	    "k8s.pod.hostname",
	    "k8s.deployment.name",  "k8s.deployment.uid",   "k8s.node.name",
	    "k8s.node.uid",	    "k8s.replicaset.name",  "k8s.replicaset.uid",
	    "k8s.daemonset.name",   "k8s.daemonset.uid",    "k8s.statefulset.name",
	    "k8s.statefulset.uid",  "k8s.job.name",	    "k8s.job.uid",
	    "k8s.cronjob.name",	    "k8s.cronjob.uid",	    "k8s.cluster.uid",
	    "k8s.container.name",   "k8s.cluster.name",	    "container.id",
	    "container.image.name", "container.image.tags", "container.image.repo_digests",
	    "service.name",	    "service.namespace",    "service.version",
	    "service.instance.id",
	};
	static const char *const kinds[] = {"ReplicaSet", "StatefulSet", "DaemonSet", "Job"};
	struct meta_object above = {
	    .owner_kind = "Deployment", .owner_name = "x", .owner_uid = "y"};
	struct meta_object above_job = {
	    .owner_kind = "CronJob", .owner_name = "x", .owner_uid = "y"};
	struct meta_object node = {.uid = "node-uid"};
	bool seen[ARRAY_SIZE(keys)] = {0};

	(void)unused;
	pod.node = pod.hostname = "n";
	pod.created = 1;
	(void)snprintf(pod.ip, sizeof(pod.ip), "10.0.0.1");
	(void)snprintf(pod.uid_text, sizeof(pod.uid_text), "u");
	(void)snprintf(pod.owner_uid_text, sizeof(pod.owner_uid_text), "o");
	container.image = handle("a:b");
	container.image_id = handle("a@" SHA256);
	container.id[0] = 1;
	source.node = &node;
	source.replica_set = &above;
	source.job = &above_job;
	source.cluster_uid = "c";
	options.cluster_name = "n";
	pod.owner_name = "owner";
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		pod.owner_kind = kinds[k];
		identity_build(&source, &options, &identity);
		check_parts();
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
			seen[i] |= identity_get(&identity, keys[i]) != NULL;
		for (size_t i = 0; i < identity.n; i++)
			assert_int_equal(
			    identity.attributes[i].list,
			    has_prefix(identity.attributes[i].key, "container.image.") &&
				!streq(identity.attributes[i].key, "container.image.name"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (!seen[i])
			fail_msg("%s is never there", keys[i]);
}

static void only_what_was_asked_for(void **unused)
{
	static const char *const labels[] = {"team", "absent", NULL};
	static const char *const annotations[] = {"note", NULL};
	struct pod_label ns_labels[] = {{"env", "prod"}, {"other", "x"}};
	struct pod_label ns_annotations[] = {{"note", "ns"}};
	static const char *const ns_keys[] = {"env", NULL};
	struct meta_object ns = {
	    .labels = ns_labels, .n_labels = 2, .annotations = ns_annotations, .n_annotations = 1};

	(void)unused;
	add_label("team", "blue");
	add_label("secret", "x");
	add_annotation("note", "hello");
	source.namespace = &ns;
	expect("k8s.pod.label.team", NULL);
	options.pod_labels = labels;
	options.pod_annotations = annotations;
	options.namespace_labels = ns_keys;
	options.namespace_annotations = annotations;
	expect("k8s.pod.label.team", "blue");
	expect("k8s.pod.label.absent", NULL);
	expect("k8s.pod.label.secret", NULL);
	expect("k8s.pod.annotation.note", "hello");
	expect("k8s.namespace.label.env", "prod");
	expect("k8s.namespace.label.other", NULL);
	expect("k8s.namespace.annotation.note", "ns");
}

static void annotations_add_but_do_not_lie(void **unused)
{
	(void)unused;
	add_annotation("resource.opentelemetry.io/deployment.environment.name", "prod");
	add_annotation("resource.opentelemetry.io/k8s.pod.name", "someone-else");
	add_annotation("resource.opentelemetry.io/k8s.namespace.name", "kube-system");
	add_annotation("resource.opentelemetry.io/", "no key");
	add_annotation("other.io/x", "y");
	expect("deployment.environment.name", "prod");
	expect("k8s.pod.name", "web-0");
	expect("k8s.namespace.name", "shop");
	expect("", NULL);
	expect("x", NULL);
	options.otel_annotations = false;
	expect("deployment.environment.name", NULL);
}

static void too_much_is_cut_and_counted(void **unused)
{
	static const char *keys[VIEW_PAIRS_MAX + 1];
	static char names[VIEW_PAIRS_MAX][300];

	(void)unused;
	for (size_t i = 0; i < VIEW_PAIRS_MAX; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "%0290zu", i);
		keys[i] = names[i];
		add_label(names[i], "v");
	}
	options.pod_labels = keys;
	identity_build(&source, &options, &identity);
	assert_true(identity.cut > 0 && identity.n <= IDENTITY_MAX);
	assert_string_equal(identity_get(&identity, "service.name"), "web-0");
	assert_string_equal(identity_get(&identity, "k8s.pod.name"), "web-0");
	for (size_t i = 0; i < VIEW_PAIRS_MAX; i++)
		names[i][4] = 0;
	for (size_t i = 0; i < VIEW_PAIRS_MAX; i++)
		(void)snprintf(names[i], sizeof(names[i]), "%zu", i);
	identity_build(&source, &options, &identity);
	assert_int_equal(identity.n, IDENTITY_MAX);
	assert_true(identity.cut > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(image_references, setup, teardown),
	    cmocka_unit_test_setup_teardown(owners, setup, teardown),
	    cmocka_unit_test_setup_teardown(service_name_takes_the_first, setup, teardown),
	    cmocka_unit_test_setup_teardown(service_namespace_and_instance, setup, teardown),
	    cmocka_unit_test_setup_teardown(service_version_and_image, setup, teardown),
	    cmocka_unit_test_setup_teardown(repo_digests, setup, teardown),
	    cmocka_unit_test_setup_teardown(facts, setup, teardown),
	    cmocka_unit_test_setup_teardown(every_table_key_can_be_there, setup, teardown),
	    cmocka_unit_test_setup_teardown(only_what_was_asked_for, setup, teardown),
	    cmocka_unit_test_setup_teardown(annotations_add_but_do_not_lie, setup, teardown),
	    cmocka_unit_test_setup_teardown(too_much_is_cut_and_counted, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
