/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports come every few seconds from thousands of nodes and mostly say the same but for counters.
 * So a report is kept in its packed form, and what it says besides counters is the hash of the same
 * message with its counters at 0. Loop thread.
 */
#include "operator/nodes/report.h"

struct parts {
	Kiln__Node__V1__AppliedPolicy policies[REPORT_POLICIES_MAX], *list[REPORT_POLICIES_MAX];
};

/* -E2BIG, or the packed message in RET, which the caller frees. */
static int pack(const Kiln__Node__V1__Report *report, uint8_t **ret, size_t *ret_len)
{
	size_t len = kiln__node__v1__report__get_packed_size(report);
	uint8_t *bytes;

	if (len > REPORT_BYTES_MAX)
		return -E2BIG;
	bytes = malloc(len + 1);
	if (!bytes)
		return -ENOMEM;
	kiln__node__v1__report__pack(report, bytes);
	*ret = bytes;
	*ret_len = len;
	return 0;
}

/* Of what R says besides numbers that always grow, and the hash of those. */
static int hash(const Kiln__Node__V1__Report *report, uint64_t *ret_facts, uint64_t *ret_counters)
{
	const uint64_t numbers[] = {report->samples, report->dropped, report->truncated,
				    report->exported, report->unresolved_containers};
	Kiln__Node__V1__Report r = *report;
	uint64_t counters = hash_bytes(numbers, sizeof(numbers), 1);
	_cleanup_free_ uint8_t *bytes = NULL;
	struct parts parts;
	size_t len;
	int e;

	r.samples = r.dropped = r.truncated = r.exported = r.unresolved_containers = 0;
	for (size_t i = 0; i < r.n_policies; i++) {
		parts.policies[i] = *report->policies[i];
		counters = mix64(counters ^ parts.policies[i].containers);
		parts.policies[i].containers = 0;
		parts.list[i] = &parts.policies[i];
	}
	r.policies = parts.list;
	e = pack(&r, &bytes, &len);
	if (e < 0)
		return e;
	*ret_facts = hash_bytes(bytes, len, 2);
	*ret_counters = counters;
	return 0;
}

int kept_report_set(struct kept_report *k, const Kiln__Node__V1__Report *report)
{
	Kiln__Node__V1__Report r = *report;
	struct kept_report n = {NULL};
	int e;

	r.base.n_unknown_fields = 0; /* of a newer agent: nobody here could use them */
	r.n_tracers = MIN(r.n_tracers, (size_t)REPORT_TRACERS_MAX);
	r.n_exporters = MIN(r.n_exporters, (size_t)REPORT_EXPORTERS_MAX);
	r.n_policies = MIN(r.n_policies, (size_t)REPORT_POLICIES_MAX);
	e = pack(&r, &n.bytes, &n.len);
	if (!e)
		e = hash(&r, &n.facts, &n.counters);
	if (e < 0) {
		free(n.bytes);
		return e;
	}
	kept_report_done(k);
	*k = n;
	return 0;
}

Kiln__Node__V1__Report *kept_report_get(const struct kept_report *k)
{
	return k->bytes ? kiln__node__v1__report__unpack(NULL, k->len, k->bytes) : NULL;
}

void kept_report_done(struct kept_report *k)
{
	free(k->bytes);
	*k = (struct kept_report){NULL};
}
