/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of names and numbers; nothing is counted here. */
#include "operator/world_metrics.h"

#include "operator/http/prometheus.h"

static void tell_informers(const struct world *w, struct buf *out)
{
	static const struct {
		const char *name, *type, *help;
		size_t offset;
	} rows[] = {
	    {"kiln_informer_lists_total", "counter", "Lists of a kind from the API server.",
	     offsetof(struct informer_stats, lists)},
	    {"kiln_informer_watches_total", "counter", "Watches that were opened.",
	     offsetof(struct informer_stats, watches)},
	    {"kiln_informer_events_total", "counter", "Objects that watches and lists brought.",
	     offsetof(struct informer_stats, events)},
	    {"kiln_informer_undecodable_total", "counter", "Objects that could not be read.",
	     offsetof(struct informer_stats, undecodable)},
	    {"kiln_informer_too_large_total", "counter",
	     "Objects that were left out because of their size.",
	     offsetof(struct informer_stats, too_large)},
	    {"kiln_informer_expired_total", "counter", "Resource versions that were too old (410).",
	     offsetof(struct informer_stats, expired)},
	    {"kiln_informer_errors_total", "counter", "Lists and watches that failed.",
	     offsetof(struct informer_stats, errors)},
	};

	for (size_t row = 0; row < ARRAY_SIZE(rows); row++) {
		prometheus_head(out, rows[row].name, rows[row].type, rows[row].help);
		for (unsigned int i = 0; i < WORLD_PARTS; i++) {
			const char *stats;
			char labels[64];
			uint64_t n;

			if (!w->informers[i])
				continue;
			stats = (const char *)informer_stats(w->informers[i]);
			memcpy(&n, stats + rows[row].offset, sizeof(n));
			snprintf(labels, sizeof(labels), "kind=\"%s\"", world_part_name(i));
			prometheus_value(out, rows[row].name, labels, (double)n);
		}
	}
}

static void tell_drop(struct buf *out, const char *cache, const char *reason, uint64_t n)
{
	char labels[96];

	snprintf(labels, sizeof(labels), "cache=\"%s\",reason=\"%s\"", cache, reason);
	prometheus_value(out, "kiln_cache_dropped_total", labels, (double)n);
}

/* Counts events, not objects: an object that is left out counts each time that it changes. */
static void tell_drops(const struct world *w, uint64_t rendered, struct buf *out)
{
	struct service_index_stats services;
	struct pod_store_stats pods;

	pod_store_read_stats(w->pods, &pods);
	service_index_read_stats(w->services, &services);
	prometheus_head(out, "kiln_cache_dropped_total", "counter",
			"What a cache has left out, by cache and reason.");
	tell_drop(out, "pods", "too_many", pods.beyond_max);
	tell_drop(out, "pods", "no_room_for_strings", pods.no_room);
	tell_drop(out, "pods", "too_many_parts", pods.cut_pods);
	tell_drop(out, "pods", "values", pods.cut_values);
	tell_drop(out, "pods", "claimed_too_often", pods.unindexed);
	tell_drop(out, "namespaces", "limit", meta_store_dropped(w->namespaces));
	tell_drop(out, "nodes", "limit", meta_store_dropped(w->nodes));
	tell_drop(out, "clusterprofilingconfigs", "limit", json_store_refused(w->clusters));
	tell_drop(out, "profilingconfigs", "limit", json_store_refused(w->configs));
	tell_drop(out, "rendered", "limit", rendered);
	tell_drop(out, "endpointslices", "limit", services.refused);
	tell_drop(out, "endpointslices", "endpoints", services.cut);
	tell_drop(out, "strings", "limit", intern_refused(w->strings));
}

void world_metrics(const struct world *w, uint64_t rendered, struct buf *out)
{
	struct service_index_stats services;

	service_index_read_stats(w->services, &services);
	tell_informers(w, out);
	tell_drops(w, rendered, out);
	prometheus_single(out, "kiln_pods", "gauge", "Pods in the cache.",
			  (double)pod_store_count(w->pods));
	prometheus_single(out, "kiln_pod_cache_bytes", "gauge",
			  "Bytes of pod records and their indexes.",
			  (double)pod_store_bytes(w->pods));
	prometheus_single(out, "kiln_service_endpoints", "gauge",
			  "Pods of services in the cache, once for each slice.",
			  (double)services.endpoints);
	prometheus_single(out, "kiln_service_cache_bytes", "gauge",
			  "Bytes of endpoint slices and their indexes.", (double)services.bytes);
	prometheus_single(out, "kiln_string_cache_bytes", "gauge", "Bytes of interned strings.",
			  (double)intern_bytes(w->strings));
}
