/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes over the rendered objects with a server that the test plays: written objects appear in the
 * caches when the test says so, as by a watch, with the fields that a server adds.
 */
#include "operator/reconcile/objects.h"

#define pod policy_pod
#include "tests/unit/operator/policy/support.h"
#undef pod
#include "tests/unit/operator/reconcile/fakes.h"

struct world {
	struct policy_set *set;
	struct recorder *events;
	struct objects *objects;
	unsigned int changed, due, done, version;
	int result;
	bool not_leading;
};

static bool may_write(void *arg)
{
	return !((struct world *)arg)->not_leading;
}

static void on_changed(void *arg)
{
	((struct world *)arg)->changed++;
}

static void on_due(void *arg)
{
	((struct world *)arg)->due++;
}

static void on_done(void *arg, int result)
{
	struct world *w = arg;

	w->done++;
	w->result = result;
}

static struct cluster_config *config(int64_t generation, const char *spec)
{
	struct cluster_config *c = cluster_of(spec);

	c->id.generation = generation;
	free(c->id.uid);
	c->id.uid = strdup("u");
	return c;
}

static int setup(void **state)
{
	static struct world w;
	struct objects_options options = {.ns = "kiln-system",
					  .image = "agent:1",
					  .may_write = may_write,
					  .changed = on_changed,
					  .due = on_due,
					  .arg = &w};
	struct error err = {0};

	fakes_reset();
	memset(&w, 0, sizeof(w));
	w.set = set_of(NULL);
	assert_int_equal(recorder_new(NULL, NULL, "pod-0", may_write, &w, &w.events), 0);
	options.policies = w.set;
	options.events = w.events;
	assert_int_equal(objects_new(&options, &w.objects, &err), 0);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	objects_free(w->objects);
	recorder_free(w->events);
	policy_set_free(w->set);
	fakes_reset();
	return 0;
}

/* Shows the caches the object as the server has it after the write. */
static void show(struct world *w, const struct kube_call *call)
{
	cJSON *live = cJSON_Duplicate(call->object, true);
	cJSON *meta = cJSON_GetObjectItemCaseSensitive(live, "metadata");
	char version[16];

	snprintf(version, sizeof(version), "%u", ++w->version);
	cJSON_AddStringToObject(meta, "resourceVersion", version);
	cJSON_AddStringToObject(meta, "uid", call->name);
	cJSON_AddNumberToObject(meta, "generation", w->version);
	fake_show(call->kind, live);
	cJSON_Delete(live);
}

/*
 * Runs one pass whose writes all succeed; SHOWN: the caches get the objects. Returns the number of
 * writes.
 */
static size_t pass(struct world *w, bool shown)
{
	size_t before = fakes.n_writes;
	unsigned int done = w->done;

	objects_reconcile(w->objects, on_done, w);
	while (w->done == done) {
		struct kube_call *call = fake_newest();

		fake_done(call, 200, "");
		if (shown && call->object)
			show(w, call);
	}
	assert_int_equal(w->done, done + 1);
	return fakes.n_writes - before;
}

static struct objects_state state_of(struct world *w)
{
	struct objects_state s;

	objects_read(w->objects, &s);
	return s;
}

static struct kube_call *write_of(enum kube_kind kind)
{
	for (size_t i = fakes.n_writes; i--;)
		if (fakes.writes[i].kind == kind)
			return &fakes.writes[i];
	return NULL;
}

static void test_everything_is_written_once(void **state)
{
	struct world *w = *state;
	struct objects_state s;

	assert_int_equal(policy_set_cluster(w->set, config(1, "{}")), 0);
	assert_int_equal(pass(w, true), 5);
	assert_int_equal(w->result, 0);
	for (size_t i = 0; i < fakes.n_writes; i++) {
		assert_string_equal(fakes.writes[i].verb, "apply");
		assert_string_equal(fakes.writes[i].ns, "kiln-system");
	}
	s = state_of(w);
	assert_true(s.applied && s.writes == 5 && s.generation == 1 && strlen(s.config_hash) == 16);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(pass(w, true), 0);
}

static void test_a_cache_that_is_behind_is_waited_for(void **state)
{
	struct world *w = *state;

	assert_int_equal(policy_set_cluster(w->set, config(1, "{}")), 0);
	assert_int_equal(pass(w, false), 5);
	assert_int_equal(pass(w, false), 0);
	assert_int_equal(w->result, -EAGAIN);
	assert_false(state_of(w).applied);
	fakes.now_ms += 2000; /* by then the cache is not behind: the object is missing */
	assert_int_equal(pass(w, true), 5);
	assert_int_equal(pass(w, true), 0);
	assert_int_equal(w->result, 0);
}

/* The watch's event and the write's answer use two connections, so the event may come first. */
static void test_a_watch_that_is_first_holds_nothing_up(void **state)
{
	struct world *w = *state;
	unsigned int done = w->done;

	assert_int_equal(policy_set_cluster(w->set, config(1, "{}")), 0);
	objects_reconcile(w->objects, on_done, w);
	while (w->done == done) {
		struct kube_call *call = fake_newest();

		show(w, call);
		fake_done(call, 200, "");
	}
	assert_int_equal(policy_set_cluster(w->set, config(2, "{\"agent\":{\"image\":\"b:2\"}}")),
			 0);
	assert_int_equal(pass(w, true), 1);
	assert_int_equal(w->result, 0);
}

static void test_drift_is_one_write(void **state)
{
	struct world *w = *state;
	struct kube_call *call;
	cJSON *live;

	assert_int_equal(policy_set_cluster(w->set, config(1, "{}")), 0);
	pass(w, true);
	call = write_of(KUBE_CONFIG_MAPS);
	live = cJSON_Duplicate(call->object, true);
	cJSON_ReplaceItemInObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(live, "data"),
					       "agent.yaml", cJSON_CreateString("x"));
	cJSON_AddStringToObject(cJSON_GetObjectItemCaseSensitive(live, "metadata"),
				"resourceVersion", "900");
	w->due = 0;
	fake_show(KUBE_CONFIG_MAPS, live);
	assert_true(w->due > 0);
	assert_int_equal(pass(w, true), 1);
	assert_int_equal(fakes.writes[fakes.n_writes - 1].kind, KUBE_CONFIG_MAPS);
	fake_gone(KUBE_CONFIG_MAPS, live);
	assert_int_equal(pass(w, true), 1);
	assert_int_equal(pass(w, true), 0);
	cJSON_Delete(live);
}

static void test_what_nothing_asks_for_goes_first(void **state)
{
	struct world *w = *state;
	size_t before;

	assert_int_equal(
	    policy_set_cluster(w->set,
			       config(1, "{'nodeGroups':[{'name':'g','agent':{},'nodeSelector':"
					 "{'matchLabels':{'a':'b'}}}]}")),
	    0);
	assert_int_equal(pass(w, true), 7);
	assert_int_equal(policy_set_cluster(w->set, config(2, "{}")), 0);
	before = fakes.n_writes;
	assert_true(pass(w, true) >= 2);
	for (size_t i = before; i < before + 2; i++) {
		assert_string_equal(fakes.writes[i].verb, "delete");
		assert_string_equal(fakes.writes[i].name, "kiln-agent-g");
		assert_string_equal(fakes.writes[i].uid, "kiln-agent-g"); /* show() made it */
	}
}

static void test_a_refused_write_ends_the_pass(void **state)
{
	struct world *w = *state;
	struct objects_state s;

	assert_int_equal(policy_set_cluster(w->set, config(1, "{}")), 0);
	objects_reconcile(w->objects, on_done, w);
	fake_done(fake_newest(), 403, "forbidden: no");
	assert_int_equal(w->done, 1);
	assert_int_equal(w->result, -EIO);
	assert_int_equal(fakes.n_writes, 1);
	s = state_of(w);
	assert_string_equal(s.error, "apply ServiceAccount kiln-system/kiln-agent: forbidden: no");
	assert_true(!s.applied && !s.invalid && s.generation == 1);
	assert_string_equal(fakes.events[fakes.n_events - 1],
			    "Warning ApplyFailed /cluster: apply ServiceAccount "
			    "kiln-system/kiln-agent: forbidden: no");
	assert_int_equal(pass(w, true), 5);
	assert_string_equal(state_of(w).error, "");
}

static void test_the_lead_is_looked_at_before_each_write(void **state)
{
	struct world *w = *state;

	assert_int_equal(policy_set_cluster(w->set, config(1, "{}")), 0);
	objects_reconcile(w->objects, on_done, w);
	w->not_leading = true; /* while the first is under way */
	fake_done(fake_newest(), 200, "");
	assert_int_equal(w->done, 1);
	assert_int_equal(w->result, -ECANCELED);
	assert_int_equal(fakes.n_writes, 1);
	assert_int_equal(pass(w, true), 0);
	w->not_leading = false;
	assert_int_equal(pass(w, true), 4); /* the first is known to be written */
}

static void test_what_is_refused_changes_nothing(void **state)
{
	struct world *w = *state;
	struct objects_state s;
	size_t before;

	assert_int_equal(policy_set_cluster(w->set, config(1, "{}")), 0);
	pass(w, true);
	before = fakes.n_writes;
	assert_true(objects_refuse(w->objects, 2, "spec.x: want y"));
	assert_false(objects_refuse(w->objects, 2, "spec.x: want y"));
	assert_int_equal(pass(w, true), 0);
	s = state_of(w);
	assert_true(s.invalid && s.generation == 2 && !s.applied);
	assert_string_equal(s.error, "spec.x: want y");
	/* After a restart nothing is written either, when no config was ever valid. */
	assert_int_equal(policy_set_cluster(w->set, NULL), 0);
	assert_int_equal(pass(w, true), 0);
	assert_int_equal(fakes.n_writes, before);
	assert_true(objects_refuse(w->objects, 0, ""));
	assert_int_equal(pass(w, true), 5); /* no config: all objects are deleted */
	assert_int_equal(state_of(w).deletes, 5);
}

static void roll_out(struct world *w, unsigned int observed, unsigned int updated,
		     unsigned int ready)
{
	struct kube_call *call = write_of(KUBE_DAEMON_SETS);
	cJSON *live = cJSON_Duplicate(call->object, true), *status;
	cJSON *meta = cJSON_GetObjectItemCaseSensitive(live, "metadata");
	char version[16];

	snprintf(version, sizeof(version), "%u", ++w->version);
	cJSON_AddStringToObject(meta, "resourceVersion", version);
	cJSON_AddNumberToObject(meta, "generation", 2);
	status = cJSON_AddObjectToObject(live, "status");
	cJSON_AddNumberToObject(status, "desiredNumberScheduled", 4);
	cJSON_AddNumberToObject(status, "updatedNumberScheduled", updated);
	cJSON_AddNumberToObject(status, "numberReady", ready);
	cJSON_AddNumberToObject(status, "observedGeneration", observed);
	fake_show(KUBE_DAEMON_SETS, live);
	cJSON_Delete(live);
}

static void expect(struct world *w, uint32_t desired, uint32_t programmed, uint32_t degraded)
{
	struct objects_state s = state_of(w);

	assert_int_equal(s.desired, desired);
	assert_int_equal(s.programmed, programmed);
	assert_int_equal(s.degraded, degraded);
}

static void test_rollout_is_that_of_what_was_written_last(void **state)
{
	struct world *w = *state;

	assert_int_equal(policy_set_cluster(w->set, config(1, "{}")), 0);
	pass(w, true);
	roll_out(w, 2, 3, 4);
	expect(w, 4, 3, 0);
	roll_out(w, 2, 4, 1);
	expect(w, 4, 1, 3);
	roll_out(w, 1, 4, 4); /* observedGeneration is that of the generation before */
	expect(w, 4, 0, 0);
	roll_out(w, 2, 4, 4);
	expect(w, 4, 4, 0);
	/* Written, but the cache has the previous version: no node runs the new one yet. */
	assert_int_equal(policy_set_cluster(w->set, config(2, "{'agent':{'logLevel':'Debug'}}")),
			 0);
	assert_true(pass(w, false) >= 1);
	expect(w, 4, 0, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_everything_is_written_once),
	    TEST(test_a_cache_that_is_behind_is_waited_for),
	    TEST(test_a_watch_that_is_first_holds_nothing_up),
	    TEST(test_drift_is_one_write),
	    TEST(test_what_nothing_asks_for_goes_first),
	    TEST(test_a_refused_write_ends_the_pass),
	    TEST(test_the_lead_is_looked_at_before_each_write),
	    TEST(test_what_is_refused_changes_nothing),
	    TEST(test_rollout_is_that_of_what_was_written_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
