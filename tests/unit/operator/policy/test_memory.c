/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fails the nth allocation, for every n, of parsing, of every change of a set and of resolving:
 * -ENOMEM, nothing half-made, no leak (the ASan build sees it), and the same call works afterwards.
 */
#include "tests/unit/operator/policy/support.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *s);

static unsigned long countdown; /* 0: nothing fails */

static bool fails(void)
{
	return countdown && --countdown == 0;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

static void *json_malloc(size_t size)
{
	return __wrap_malloc(size);
}

#define PROFILE                                                                                    \
	"{'mode':'OptIn','sampling':{'hz':30},'tracers':{'go':'Auto'},'destinationRefs':['a','b']" \
	"}"
#define OTLP                                                                                       \
	"{'name':'a','otlp':{'endpoint':'x:1','compression':'Zstd','protoGeneration':'G6','tls':"  \
	"{'serverName':'x','caSecretRef':{'name':'c','key':'k'},'clientCertificateSecretRef':"     \
	"{'name':'d'}},'headers':[{'name':'h','value':'v'}],'headersFrom':[{'name':'i',"           \
	"'secretRef':{'name':'s','key':'t'}}]}}"
#define SELECTOR                                                                                   \
	"{'matchLabels':{'a':'b','c':'d'},'matchExpressions':[{'key':'e','operator':'In',"         \
	"'values':['f','g']}]}"

static const char cluster_text[] =
    "{'metadata':{'name':'cluster','uid':'u'},'spec':{'defaults':" PROFILE
    ",'metadata':{'podLabels':['a','b']},'destinations':[" OTLP ",{'name':'b','text':{}}],"
    "'guardrails':{'namespaceSelector':" SELECTOR ",'allowedDestinations':['a']},'agent':{'image':"
    "'i','imagePullPolicy':'Never','imagePullSecrets':[{'name':'s'}],'nodeSelector':{'a':'b'},"
    "'tolerations':[{'key':'a','value':'b'}],'resources':{'limits':{'cpu':'1'}},'podLabels':"
    "{'a':'b'},'podAnnotations':{'a':'b'},'updateStrategy':{'maxUnavailable':1}},'probes':[{'probe'"
    ":'kprobe:a'}],'nodeGroups':"
    "[{'name':'g','nodeSelector':{'matchLabels':{'a':'b'}},'agent':{'image':'j'}}]}}";
static const char namespace_text[] =
    "{'metadata':{'name':'a','namespace':'prod'},'spec':{'podSelector':" SELECTOR
    ",'profile':" PROFILE ",'destinations':[" OTLP "]}}";

static unsigned long parse_until_it_works(const char *text, bool cluster)
{
	cJSON *object = json_of(text);
	unsigned long n;
	int r = -ENOMEM;

	for (n = 1; r == -ENOMEM; n++) {
		struct cluster_config *c = NULL;
		struct namespace_config *ns = NULL;
		struct error err = {0};
		cJSON_Hooks hooks = {json_malloc, free};

		cJSON_InitHooks(&hooks);
		countdown = n;
		r = cluster ? cluster_config_parse(object, &c, &err)
			    : namespace_config_parse(object, &ns, &err);
		countdown = 0;
		cJSON_InitHooks(NULL);
		if (r == -ENOMEM) {
			assert_string_equal(err.message, "out of memory");
			assert_null(c);
			assert_null(ns);
		}
		cluster_config_free(c);
		namespace_config_free(ns);
	}
	assert_int_equal(r, 0);
	cJSON_Delete(object);
	return n;
}

static void test_parsing(void **state)
{
	assert_true(parse_until_it_works(cluster_text, true) > 70);
	assert_true(parse_until_it_works(namespace_text, false) > 40);
}

/* Of a refused config: it matches no pod of the tests. */
#define NOTHING "{'podSelector':{'matchLabels':{'no':'pod'}},'x':1}"

/* A set with twelve configs of "prod", put one by one although each allocation fails once. */
static struct policy_set *build_set(unsigned long *failures)
{
	struct policy_set *set = NULL;
	char spec[160], name[24];
	int r;

	for (unsigned long n = 1; !set; n++) {
		countdown = n;
		r = policy_set_new(&set);
		countdown = 0;
		*failures += r == -ENOMEM;
		assert_true(r == 0 || (r == -ENOMEM && !set));
	}
	assert_int_equal(policy_set_cluster(set, cluster_of("{}")), 0);
	for (int i = 0; i < 12; i++) {
		snprintf(spec, sizeof(spec),
			 "{'podSelector':{'matchLabels':{'app':'x%d'}},'profile':{'sampling':"
			 "{'hz':%d}}}",
			 i, i + 30);
		snprintf(name, sizeof(name), "c%d", i);
		r = -ENOMEM;
		for (unsigned long n = 1; r < 0; n++) {
			/* Taken and freed on failure too, as ASan sees. */
			struct namespace_config *c = config_of("prod", name, 1, spec);

			countdown = n;
			r = policy_set_put(set, c);
			countdown = 0;
			*failures += r == -ENOMEM;
			assert_true(r == 0 || r == -ENOMEM);
			assert_string_equal(verdict_of(set, "prod", name),
					    r < 0 ? "none" : "Accepted: accepted");
		}
	}
	return set;
}

static void test_a_set(void **state)
{
	unsigned long failures = 0;
	struct policy_set *set = build_set(&failures);
	const struct effective_policy *p;
	struct pod pod;
	int r;

	assert_true(failures > 12 * 2);
	for (int i = 0; i < 12; i++) {
		char labels[24];

		snprintf(labels, sizeof(labels), "app=x%d", i);
		pod_init(&pod, "prod", labels, NULL, NULL);
		p = NULL;
		r = -ENOMEM;
		/* The index is made anew each time, or does without when there is no memory. */
		for (unsigned long n = 1; r < 0 && n < 100; n++) {
			policy_set_remove(set, "prod", "bad");
			assert_int_equal(refuse(set, "prod", "bad", 1, NOTHING, "why"), 0);
			countdown = n;
			r = policy_resolve(set, &pod.subject, &p, NULL);
			countdown = 0;
			failures += r == -ENOMEM;
			assert_true(r == 0 ? p->hz == i + 30 : r == -ENOMEM && !p);
		}
		assert_int_equal(r, 0);
	}
	for (unsigned long n = 1; n < 10; n++) {
		struct namespace_config *c = config_of("new", "cluster", 1, "{}");

		countdown = n;
		r = policy_set_refuse(set, c, false, "cause");
		countdown = 0;
		failures += r == -ENOMEM;
		policy_set_remove(set, "new", "cluster");
	}
	print_message("%lu failures survived\n", failures);
	policy_set_free(set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_parsing),
	    cmocka_unit_test(test_a_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
