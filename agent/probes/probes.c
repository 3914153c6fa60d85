/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples carry the number of their probe, and some may not be processed yet when the probe is
 * detached. So there are twice as many numbers as probes, and the number that has been unused for
 * longest is given out next: names stay valid until then.
 */
#include "agent/probes/probes.h"

#include "agent/probes/kernel.h"
#include "agent/probes/place.h"
#include "lib/log.h"

struct probe {
	struct probe_spec spec;
	struct probe_link *link; /* NULL: not attached */
	uint32_t number;	 /* number while attached */
	struct error why;	 /* why it is not attached */
};

struct probes {
	struct sampler *sampler;
	struct probe_kernel *kernel; /* NULL: nothing was attached yet */
	struct probe list[PROBE_COUNT_MAX];
	size_t n;
	/* By number. */
	char names[KILN_MAX_PROBES][PROBE_TEXT_MAX + 1];
	/* Value of `round` when the number was given out last; 0: never. */
	uint64_t used[KILN_MAX_PROBES];
	uint64_t round;
};

_Static_assert(KILN_MAX_PROBES >= 2 * PROBE_COUNT_MAX, "numbers rest");

int probes_new(struct sampler *s, struct probes **ret)
{
	struct probes *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->sampler = s;
	*ret = p;
	return 0;
}

static void detach(struct probe *probe)
{
	probe->link = probe_link_free(probe->link);
}

struct probes *probes_free(struct probes *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < p->n; i++)
		detach(&p->list[i]);
	probe_kernel_free(p->kernel);
	free(p);
	return NULL;
}

static bool is_in_use(const struct probes *p, uint32_t number)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->list[i].link && p->list[i].number == number)
			return true;
	return false;
}

static uint32_t take_number(struct probes *p)
{
	uint32_t best = 0;
	bool found = false;

	for (uint32_t i = 0; i < KILN_MAX_PROBES; i++)
		if (!is_in_use(p, i) && (!found || p->used[i] < p->used[best])) {
			best = i;
			found = true;
		}
	p->used[best] = ++p->round;
	return best;
}

static int find_place(const struct probe_spec *spec, int *ret_fd, uint64_t *ret, struct error *err)
{
	if (spec->kind != PROBE_UPROBE && spec->kind != PROBE_URETPROBE)
		return 0;
	return probe_place_open(spec->target, spec->name, spec->kind == PROBE_URETPROBE, ret_fd,
				ret, err);
}

static int attach(struct probes *p, struct probe *probe, struct error *err)
{
	_cleanup_close_ int fd = -1;
	uint64_t offset = 0;
	uint32_t number;
	int r = find_place(&probe->spec, &fd, &offset, err);

	if (r < 0)
		return r;
	if (!p->kernel) {
		r = probe_kernel_new(p->sampler, &p->kernel);
		if (r < 0)
			return error_set(err, r, "out of memory");
	}
	number = take_number(p);
	r = probe_kernel_attach(p->kernel, number, &probe->spec, fd, offset, &probe->link, err);
	if (r < 0)
		return r;
	probe->number = number;
	strcpy(p->names[number], probe->spec.text);
	return 0;
}

static struct probe *find(struct probes *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++)
		if (streq(p->list[i].spec.text, name))
			return &p->list[i];
	return NULL;
}

/* Detaches probes that are not in SPECS, or whose rate has changed. */
static void drop_others(struct probes *p, const struct probe_spec *specs, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->n; i++) {
		struct probe *probe = &p->list[i];
		bool wanted = false;

		for (size_t j = 0; j < n && !wanted; j++)
			if (streq(specs[j].text, probe->spec.text)) {
				wanted = specs[j].rate == probe->spec.rate;
				break;
			}
		if (wanted) {
			if (kept != i)
				p->list[kept] = *probe;
			kept++;
			continue;
		}
		if (probe->link)
			log_info("probes", "%s: detached", probe->spec.text);
		detach(probe);
	}
	p->n = kept;
}

static void attach_missing(struct probes *p)
{
	for (size_t i = 0; i < p->n; i++) {
		struct probe *probe = &p->list[i];
		struct error err = {0};

		if (probe->link)
			continue;
		if (attach(p, probe, &err) == 0) {
			log_info("probes", "%s: attached, at most %u samples a second and CPU",
				 probe->spec.text, probe->spec.rate);
			probe->why = (struct error){0};
		} else if (!streq(err.message, probe->why.message)) {
			log_warn("probes", "%s: not attached: %s", probe->spec.text, err.message);
			probe->why = err;
		}
	}
}

void probes_set(struct probes *p, const struct probe_spec *specs, size_t n)
{
	bool attached = false;

	n = MIN(n, (size_t)PROBE_COUNT_MAX);
	drop_others(p, specs, n);
	for (size_t i = 0; i < n; i++)
		if (!find(p, specs[i].text))
			p->list[p->n++] = (struct probe){.spec = specs[i]};
	attach_missing(p);
	for (size_t i = 0; i < p->n; i++)
		attached = attached || p->list[i].link;
	/* Without an attached probe its memory is freed. */
	if (!attached)
		p->kernel = probe_kernel_free(p->kernel);
}

void probes_retry(struct probes *p)
{
	if (p->n)
		attach_missing(p);
}

size_t probes_count(const struct probes *p)
{
	return p->n;
}

void probes_status(const struct probes *p, size_t i, struct probe_status *ret)
{
	const struct probe *probe = &p->list[i];
	struct kiln_probe counts = {0};

	if (probe->link)
		probe_kernel_read(p->kernel, probe->number, &counts);
	*ret = (struct probe_status){
	    .name = probe->spec.text,
	    .reason = probe->link ? NULL : probe->why.message,
	    .code = probe->link ? 0 : probe->why.code,
	    .rate = probe->spec.rate,
	    .hits = counts.hits,
	    .samples = counts.samples,
	    .skipped = counts.skipped,
	    .busy = counts.busy,
	    .lost = counts.lost,
	    .lost_hits = counts.lost_hits,
	};
}

const char *probes_name(const struct probes *p, uint32_t number)
{
	return number < KILN_MAX_PROBES ? p->names[number] : "";
}
