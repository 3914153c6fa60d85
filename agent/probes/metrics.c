/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One family a kind of count, with a place for each probe, in their order. The families are shown
 * once there is a probe. Whoever renders is the loop too, so that labels may change.
 */
#include "agent/probes/metrics.h"

#include "lib/metrics.h"

enum family { ATTACHED, HITS, SAMPLES, SKIPPED, BUSY, LOST, FAMILY_SERIES };

struct texts {
	char of[FAMILY_SERIES][2 * PROBE_TEXT_MAX + 32];
};

static struct metric_series attached[PROBE_COUNT_MAX], hits[PROBE_COUNT_MAX],
    samples[PROBE_COUNT_MAX], skipped[PROBE_COUNT_MAX], dropped[2 * PROBE_COUNT_MAX];
static struct metric_family families[] = {
    {.kind = METRIC_GAUGE,
     .name = "kiln_probe_attached",
     .help = "1 when the probe is attached; 0: the log and ProfilingNode say why not.",
     .series = attached,
     .n = ARRAY_SIZE(attached)},
    {.kind = METRIC_COUNTER,
     .name = "kiln_probe_hits_total",
     .help = "Hits of a probe that its samples stand for.",
     .series = hits,
     .n = ARRAY_SIZE(hits)},
    {.kind = METRIC_COUNTER,
     .name = "kiln_probe_samples_total",
     .help = "Hits of a probe that became samples.",
     .series = samples,
     .n = ARRAY_SIZE(samples)},
    {.kind = METRIC_COUNTER,
     .name = "kiln_probe_hits_unselected_total",
     .help = "Hits of a probe that policies or the process filter left out.",
     .series = skipped,
     .n = ARRAY_SIZE(skipped)},
    {.kind = METRIC_COUNTER,
     .name = "kiln_probe_dropped_total",
     .help = "busy: hits of a probe during the sample of another on the same CPU; ring_full: its "
	     "samples that found no room.",
     .series = dropped,
     .n = ARRAY_SIZE(dropped)},
};

/* The labels of each series; made with the first probe. */
static struct texts *texts;

static void put_label(char *out, size_t size, const char *name, const char *more)
{
	size_t at = (size_t)snprintf(out, size, "probe=\"");

	for (; *name && at + 32 < size; name++) {
		if (*name == '"' || *name == '\\')
			out[at++] = '\\';
		out[at++] = *name;
	}
	snprintf(out + at, size - at, "\"%s", more);
}

static void show(struct metric_series *s, char *text, size_t size, const char *name,
		 const char *more, uint64_t value)
{
	put_label(text, size, name, more);
	s->text = text;
	atomic_store_explicit(&s->value, (int64_t)value, memory_order_relaxed);
}

static void show_probe(size_t i, const struct probe_status *s)
{
	struct texts *t = &texts[i];
	const size_t size = sizeof(t->of[0]);

	show(&attached[i], t->of[ATTACHED], size, s->name, "", !s->reason);
	show(&hits[i], t->of[HITS], size, s->name, "", s->hits);
	show(&samples[i], t->of[SAMPLES], size, s->name, "", s->samples);
	show(&skipped[i], t->of[SKIPPED], size, s->name, "", s->skipped);
	show(&dropped[2 * i], t->of[BUSY], size, s->name, ",reason=\"busy\"", s->busy);
	show(&dropped[2 * i + 1], t->of[LOST], size, s->name, ",reason=\"ring_full\"", s->lost);
}

static void hide_probe(size_t i)
{
	struct metric_series *const all[] = {&attached[i], &hits[i],	    &samples[i],
					     &skipped[i],  &dropped[2 * i], &dropped[2 * i + 1]};

	for (size_t j = 0; j < ARRAY_SIZE(all); j++)
		all[j]->text = NULL;
}

void probe_metrics_update(const struct probes *p)
{
	size_t n = probes_count(p);

	if (!n && !texts)
		return;
	if (!texts)
		texts = calloc(PROBE_COUNT_MAX, sizeof(*texts));
	if (!texts)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		metrics_add_family(&families[i]);
	for (size_t i = 0; i < PROBE_COUNT_MAX; i++) {
		struct probe_status s;

		if (i >= n) {
			hide_probe(i);
			continue;
		}
		probes_status(p, i, &s);
		show_probe(i, &s);
	}
}
