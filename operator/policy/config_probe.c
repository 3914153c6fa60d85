/* SPDX-License-Identifier: Apache-2.0 */
/* spec.probes, by the grammar that the agent has too (lib/probe_spec.h). Pure. */
#include "lib/fields.h"
#include "lib/probe_spec.h"
#include "operator/policy/config_internal.h"

#define AT(member) offsetof(struct probe_config, member)
static const struct json_row probe_rows[] = {
    {"probe", JSON_STRING, AT(probe), .min = 1, .max = 480, .required = true},
    {"rate", JSON_INT, AT(rate), .min = 1, .max = PROBE_RATE_MAX},
    {}};
#undef AT

static int probe_decode(struct json_fields *f, const cJSON *node, void *out)
{
	struct probe_config *p = out;
	struct error why = {0};
	struct probe_spec spec;
	int r;

	p->rate = NUMBER_ABSENT;
	r = json_decode(f, node, probe_rows, p);
	if (r < 0)
		return r;
	r = probe_spec_parse(p->probe, &spec, &why);
	if (r < 0 || !streq(spec.text, p->probe)) {
		json_path_enter(f, "probe");
		return json_error(f, "%s", r < 0 ? why.message : "want the rate in the field rate");
	}
	return 0;
}

int probes_decode(struct json_fields *f, const cJSON *node, void *out)
{
	struct cluster_config *c = out;
	int r = json_list(f, node, PROBE_COUNT_MAX, sizeof(*c->probes), probe_decode,
			  (void **)&c->probes, &c->n_probes);

	for (size_t i = 0; r >= 0 && i < c->n_probes; i++)
		for (size_t j = 0; j < i; j++)
			if (streq(c->probes[i].probe, c->probes[j].probe)) {
				json_enter_index(f, i);
				json_path_enter(f, "probe");
				return json_error(f, "%s is given twice",
						  quote_text(c->probes[i].probe).text);
			}
	return r;
}

void probes_free(struct probe_config *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(p[i].probe);
	free(p);
}
