// SPDX-License-Identifier: Apache-2.0
/*
 * Builds attributes from a pod and its related objects. The first value of a key is kept, so the
 * order of the add() calls is the precedence. Pure functions, any thread.
 */
#include "operator/cache/identity.h"

#include <stdarg.h>
#include <time.h>

#include "operator/cache/image_ref.h"

static const char otel_prefix[] = "resource.opentelemetry.io/";

const char *identity_get(const struct identity *identity, const char *key)
{
	for (size_t i = 0; i < identity->n; i++)
		if (streq(identity->attributes[i].key, key))
			return identity->attributes[i].value;
	return NULL;
}

static void append(struct identity *id, const char *key, const char *value)
{
	if (id->n == IDENTITY_MAX)
		id->cut++;
	else
		id->attributes[id->n++] = (struct attribute){.key = key, .value = value};
}

static bool is_last(const struct identity *id, const char *key)
{
	return id->n && streq(id->attributes[id->n - 1].key, key);
}

/*
 * Adds an attribute unless VALUE is NULL or empty, or KEY has a value already. The calls for one of
 * our own keys follow each other, so only the last attribute can have the key.
 */
static void add(struct identity *id, const char *key, const char *value)
{
	if (value && *value && !is_last(id, key))
		append(id, key, value);
}

/* As add(), for a key from labels, annotations or options: any attribute may have it. */
static void add_foreign(struct identity *id, const char *key, const char *value)
{
	if (key && value && *value && !identity_get(id, key))
		append(id, key, value);
}

static void add_list(struct identity *id, const char *key, const char *value)
{
	size_t n = id->n;

	add(id, key, value);
	if (id->n > n)
		id->attributes[n].list = true;
}

/* Formats a text into the identity's buffer. NULL when the buffer is full, which is counted. */
static const char *say(struct identity *id, const char *format, ...) _printf_(2, 3);
static const char *say(struct identity *id, const char *format, ...)
{
	char *p = id->text + id->used;
	size_t room = sizeof(id->text) - id->used;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(p, room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= room) {
		id->cut++;
		return NULL;
	}
	id->used += (size_t)n + 1;
	return p;
}

static const char *find_pair(const struct pod_label *pairs, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (streq(pairs[i].key, key))
			return pairs[i].value;
	return NULL;
}

static const char *label(const struct identity_source *s, const char *key)
{
	return find_pair(s->pod->labels, s->pod->n_labels, key);
}

static const char *otel_annotation(const struct identity_source *s,
				   const struct identity_options *o, const char *key)
{
	size_t n = sizeof(otel_prefix) - 1;

	for (size_t i = 0; o->otel_annotations && i < s->pod->n_annotations; i++)
		if (has_prefix(s->pod->annotations[i].key, otel_prefix) &&
		    streq(s->pod->annotations[i].key + n, key))
			return s->pod->annotations[i].value;
	return NULL;
}

/* The pod's controllers, up to the one that a user made. NULL: not of that kind. */
struct workload {
	const char *deployment, *deployment_uid;
	const char *replica_set, *replica_set_uid;
	const char *stateful_set, *stateful_set_uid;
	const char *daemon_set, *daemon_set_uid;
	const char *job, *job_uid;
	const char *cron_job, *cron_job_uid;
};

/*
 * A Deployment names its replica sets NAME-HASH and labels their pods with the hash
 * (pod-template-hash), so no replica set need be watched. A replica set that a user created has no
 * such label, or another name: NULL.
 */
static const char *deployment_name(struct identity *id, const struct identity_source *s)
{
	const char *hash = label(s, "pod-template-hash"), *owner = s->pod->owner_name;
	size_t n = strlen(owner), n_hash = hash ? strlen(hash) : 0;

	if (!n_hash || n < n_hash + 2 || owner[n - n_hash - 1] != '-' ||
	    !streq(owner + n - n_hash, hash))
		return NULL;
	return say(id, "%.*s", (int)(n - n_hash - 1), owner);
}

/* A CronJob names its jobs NAME-NUMBER. */
static const char *cron_job_name(struct identity *id, const char *job)
{
	size_t n = strlen(job), digits = 0;

	while (digits < n && job[n - digits - 1] >= '0' && job[n - digits - 1] <= '9')
		digits++;
	if (!digits || digits + 1 >= n || job[n - digits - 1] != '-')
		return NULL;
	return say(id, "%.*s", (int)(n - digits - 1), job);
}

static void find_workload(struct identity *id, const struct identity_source *s, struct workload *w)
{
	const char *kind = s->pod->owner_kind, *name = s->pod->owner_name;
	const char *uid = s->pod->owner_uid_text;

	*w = (struct workload){0};
	if (streq(kind, "ReplicaSet")) {
		w->replica_set = name;
		w->replica_set_uid = uid;
		if (!s->replica_set) {
			w->deployment = deployment_name(id, s);
		} else if (streq(s->replica_set->owner_kind, "Deployment")) {
			w->deployment = s->replica_set->owner_name;
			w->deployment_uid = s->replica_set->owner_uid;
		}
	} else if (streq(kind, "StatefulSet")) {
		w->stateful_set = name;
		w->stateful_set_uid = uid;
	} else if (streq(kind, "DaemonSet")) {
		w->daemon_set = name;
		w->daemon_set_uid = uid;
	} else if (streq(kind, "Job")) {
		w->job = name;
		w->job_uid = uid;
		if (!s->job) {
			w->cron_job = cron_job_name(id, name);
		} else if (streq(s->job->owner_kind, "CronJob")) {
			w->cron_job = s->job->owner_name;
			w->cron_job_uid = s->job->owner_uid;
		}
	}
}

static const char *part(struct identity *id, struct image_part p)
{
	return p.n ? say(id, "%.*s", (int)p.n, p.p) : NULL;
}

static void add_version(struct identity *id, const struct image_ref *image)
{
	if (is_last(id, "service.version"))
		return;
	if (image->tag.n && image->digest.n)
		add(id, "service.version",
		    say(id, "%.*s@%.*s", (int)image->tag.n, image->tag.p, (int)image->digest.n,
			image->digest.p));
	else
		add(id, "service.version", part(id, image->tag.n ? image->tag : image->digest));
}

static void add_instance(struct identity *id, const struct identity_source *s)
{
	const char *container =
	    s->container ? intern_text(s->intern, s->container->name, NULL) : "";

	if (*container && !is_last(id, "service.instance.id"))
		add(id, "service.instance.id",
		    say(id, "%s.%s.%s", s->pod->ns, s->pod->name, container));
}

static void add_service(struct identity *id, const struct identity_source *s,
			const struct identity_options *o, const struct workload *w,
			const struct image_ref *image)
{
	const struct pod_info *pod = s->pod;

	add(id, "service.name", otel_annotation(s, o, "service.name"));
	if (o->well_known_labels) {
		add(id, "service.name", label(s, "app.kubernetes.io/instance"));
		add(id, "service.name", label(s, "app.kubernetes.io/name"));
	}
	add(id, "service.name", w->deployment);
	add(id, "service.name", w->replica_set);
	add(id, "service.name", w->stateful_set);
	add(id, "service.name", w->daemon_set);
	add(id, "service.name", w->cron_job);
	add(id, "service.name", w->job);
	add(id, "service.name", pod->name);
	add(id, "service.namespace", otel_annotation(s, o, "service.namespace"));
	add(id, "service.namespace", pod->ns);
	add(id, "service.version", otel_annotation(s, o, "service.version"));
	if (o->well_known_labels)
		add(id, "service.version", label(s, "app.kubernetes.io/version"));
	add_version(id, image);
	add(id, "service.instance.id", otel_annotation(s, o, "service.instance.id"));
	add_instance(id, s);
}

static const char *container_id(struct identity *id, const uint8_t bytes[32])
{
	static const char digits[] = "0123456789abcdef";
	static const uint8_t none[32];
	char hex[65] = "";

	if (!memcmp(bytes, none, sizeof(none)))
		return NULL;
	for (size_t i = 0; i < 32; i++) { /* printf would be a tenth of a snapshot's cost */
		hex[2 * i] = digits[bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	return say(id, "%s", hex);
}

static void add_container(struct identity *id, const struct identity_source *s,
			  const struct image_ref *image)
{
	struct image_ref by_digest = {0};

	if (!s->container)
		return;
	add(id, "k8s.container.name", intern_text(s->intern, s->container->name, NULL));
	add(id, "container.id", container_id(id, s->container->id));
	add(id, "container.image.name", part(id, image->name));
	/* As container runtimes do: without tag and digest the tag is "latest". */
	if (image->tag.n)
		add_list(id, "container.image.tags", part(id, image->tag));
	else if (image->name.n && !image->digest.n)
		add_list(id, "container.image.tags", "latest");
	if (!image_ref_parse(intern_text(s->intern, s->container->image_id, NULL), &by_digest) &&
	    by_digest.name.n && by_digest.digest.n)
		add_list(id, "container.image.repo_digests",
			 say(id, "%.*s@%.*s", (int)by_digest.name.n, by_digest.name.p,
			     (int)by_digest.digest.n, by_digest.digest.p));
}

static void add_workload(struct identity *id, const struct workload *w)
{
	add(id, "k8s.deployment.name", w->deployment);
	add(id, "k8s.statefulset.name", w->stateful_set);
	add(id, "k8s.daemonset.name", w->daemon_set);
	add(id, "k8s.cronjob.name", w->cron_job);
	add(id, "k8s.job.name", w->job);
	add(id, "k8s.replicaset.name", w->replica_set);
	add(id, "k8s.deployment.uid", w->deployment_uid);
	add(id, "k8s.statefulset.uid", w->stateful_set_uid);
	add(id, "k8s.daemonset.uid", w->daemon_set_uid);
	add(id, "k8s.cronjob.uid", w->cron_job_uid);
	add(id, "k8s.job.uid", w->job_uid);
	add(id, "k8s.replicaset.uid", w->replica_set_uid);
}

/* RFC 3339, from metadata.creationTimestamp, as the processor does. */
static const char *start_time(struct identity *id, int64_t created)
{
	time_t t = (time_t)created;
	char text[32];
	struct tm tm;

	if (created <= 0 || created > 253402300799 || !gmtime_r(&t, &tm) || /* year 9999 */
	    !strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm))
		return NULL;
	return say(id, "%s", text);
}

static void add_pairs(struct identity *id, const char *prefix, const char *const *keys,
		      const struct pod_label *pairs, size_t n)
{
	const char *value;

	for (; keys && *keys; keys++) {
		value = find_pair(pairs, n, *keys);
		if (value && *value)
			add_foreign(id, say(id, "%s%s", prefix, *keys), value);
	}
}

static void add_asked(struct identity *id, const struct identity_source *s,
		      const struct identity_options *o)
{
	const struct pod_info *pod = s->pod;
	const struct meta_object *ns = s->namespace;

	add_pairs(id, "k8s.pod.label.", o->pod_labels, pod->labels, pod->n_labels);
	add_pairs(id, "k8s.pod.annotation.", o->pod_annotations, pod->annotations,
		  pod->n_annotations);
	if (ns) {
		add_pairs(id, "k8s.namespace.label.", o->namespace_labels, ns->labels,
			  ns->n_labels);
		add_pairs(id, "k8s.namespace.annotation.", o->namespace_annotations,
			  ns->annotations, ns->n_annotations);
	}
	for (size_t i = 0; o->otel_annotations && i < pod->n_annotations; i++) {
		const char *key = pod->annotations[i].key;

		if (has_prefix(key, otel_prefix) && key[sizeof(otel_prefix) - 1])
			add_foreign(id, key + sizeof(otel_prefix) - 1, pod->annotations[i].value);
	}
}

static struct image_ref image_of(const struct identity_source *s)
{
	struct image_ref image = {0};

	if (s->container &&
	    image_ref_parse(intern_text(s->intern, s->container->image, NULL), &image))
		image = (struct image_ref){0};
	return image;
}

void identity_build_container(const struct identity_source *s, const struct identity *pod,
			      struct identity *ret)
{
	struct image_ref image = image_of(s);

	ret->n = ret->cut = ret->used = 0;
	/* POD has these only from annotations and labels, which precede the container's values. */
	if (!identity_get(pod, "service.version"))
		add_version(ret, &image);
	if (!identity_get(pod, "service.instance.id"))
		add_instance(ret, s);
	add_container(ret, s, &image);
}

void identity_build(const struct identity_source *s, const struct identity_options *options,
		    struct identity *ret)
{
	const struct pod_info *pod = s->pod;
	struct image_ref image = image_of(s);
	struct workload workload;

	ret->n = ret->cut = ret->used = 0;
	find_workload(ret, s, &workload);
	add_service(ret, s, options, &workload, &image);
	add(ret, "k8s.namespace.name", pod->ns);
	add(ret, "k8s.pod.name", pod->name);
	add(ret, "k8s.pod.uid", pod->uid_text);
	add_container(ret, s, &image);
	add_workload(ret, &workload);
	add(ret, "k8s.node.name", pod->node);
	add(ret, "k8s.node.uid", s->node ? s->node->uid : NULL);
	add(ret, "k8s.cluster.uid", s->cluster_uid);
	add(ret, "k8s.cluster.name", options->cluster_name);
	add(ret, "k8s.pod.start_time", start_time(ret, pod->created));
	add(ret, "k8s.pod.ip", pod->ip);
	add(ret, "k8s.pod.hostname", pod->hostname);
	add(ret, "k8s.service.name", s->n_services ? s->services[0] : NULL);
	add_asked(ret, s, options);
}
